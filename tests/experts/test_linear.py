"""Linear and marginal baselines: closed forms against independent ones."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import Ridge

from sigmax import LinearRegressor
from sigmax.estimators import MarginalRegressor, load_estimator
from sigmax.experts.linear import PENALTIES, PRIOR_RATE, PRIOR_SHAPE


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) * [1.0, 5.0, 0.2] + 3
    return X, X @ [1.0, -0.2, 4.0] + 0.7 * rng.normal(size=60)


def penalty_of(model: LinearRegressor) -> np.ndarray:
    fitted: Any = model.model_.fitted
    return fitted.penalty


def joint(X, y, penalty):
    """The Student-t of all targets, standardised, by the covariance of Gaussian targets."""
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    basis = np.linalg.svd(np.ones((1, len(y))))[2][1:]  # without the constant, which has no prior
    covariance = basis @ (np.eye(len(y)) + X @ X.T / penalty) @ basis.T
    df: Any = 2 * PRIOR_SHAPE
    scale = PRIOR_RATE / PRIOR_SHAPE
    return stats.multivariate_t.logpdf(basis @ y, None, scale * covariance, df)


def test_the_penalty_maximises_the_marginal_likelihood(rows):
    X, y = rows
    model = LinearRegressor().fit(X, y)
    expected = PENALTIES[np.argmax([joint(X, y, penalty) for penalty in PENALTIES])]
    assert penalty_of(model) == pytest.approx(expected)


def test_the_mean_is_that_of_ridge_regression_and_the_spread_that_of_the_posterior(rows):
    X, y = rows
    model = LinearRegressor().fit(X, y)
    center, scale = X.mean(axis=0), X.std(axis=0)
    new = np.vstack([X[:5], X[:2] + 10])
    Z, z = (X - center) / scale, (new - center) / scale
    penalty = penalty_of(model)[0]
    ridge = Ridge(penalty).fit(Z, y)
    dist = model.predict_dist(new)
    np.testing.assert_allclose(dist.mean, ridge.predict(z))
    left = y.std() ** 2 * PRIOR_RATE + np.sum((y - ridge.predict(Z)) ** 2) / 2
    left += penalty * np.sum(ridge.coef_**2) / 2
    shape = PRIOR_SHAPE + (len(y) - 1) / 2
    inverse = np.linalg.inv(Z.T @ Z + penalty * np.eye(3))
    spread = 1 + 1 / len(y) + np.einsum("ij,jk,ik->i", z, inverse, z)
    expected = stats.t(2 * shape, dist.mean, np.sqrt(left / shape * spread))
    np.testing.assert_allclose(dist.interval(0.9)[:, 0], expected.ppf(0.05))
    np.testing.assert_allclose(dist.epistemic_variance / dist.variance, 1 - 1 / spread)


def test_more_columns_than_rows_are_as_uncertain_as_without_the_singular_values():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(12, 40)), rng.normal(size=12)
    model = LinearRegressor().fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    inverse = np.linalg.inv(Z.T @ Z + penalty_of(model) * np.eye(40))
    spread = 1 / 12 + np.einsum("ij,jk,ik->i", Z, inverse, Z)
    share = model.predict_dist(X).epistemic_variance / model.predict_dist(X).variance
    np.testing.assert_allclose(share, spread / (1 + spread))


def test_unknown_cells_of_columns_that_matter_widen_the_prediction():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.normal(size=300), "noise": rng.normal(size=300)})
    frame["kind"] = rng.choice(["a", "b", "c"], 300)
    y = 2 * frame["x"] + 3 * (frame["kind"] == "b") + 0.1 * rng.normal(size=300)
    model = LinearRegressor().fit(frame, y)
    row = pd.DataFrame({"x": [0.0], "noise": [0.0], "kind": ["a"]})
    known, no_x, no_noise, new = (
        float(model.predict_dist(row.assign(**change)).std[0])
        for change in ({}, {"x": [np.nan]}, {"noise": [np.nan]}, {"kind": ["d"]})
    )
    assert known == pytest.approx(no_noise, rel=0.01) and known < 0.15
    # The spread of 16 completions: one standard error of a standard deviation is 18 %.
    assert no_x == pytest.approx(2 * frame["x"].std(), rel=0.2) and new > 1


def test_the_marginal_is_the_distribution_of_the_targets(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 1)), rng.lognormal(size=4000)
    model = MarginalRegressor().fit(X, y)
    dist = model.predict_dist(X[:2])
    levels = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(dist.quantile(levels)[0], np.quantile(y, levels), atol=0.06)
    density = np.exp(dist.log_prob(np.array([1.0, 1.0])))
    np.testing.assert_allclose(density, stats.lognorm.pdf(1, 1), rtol=0.15)
    assert np.all(dist.epistemic_variance < 1e-9)
    model.save(tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X[:2]), model.predict(X[:2]))
    constant = MarginalRegressor().fit(X[:30], np.full(30, 2.0)).predict_dist(X[:1])
    assert constant.mean[0] == pytest.approx(2.0)
