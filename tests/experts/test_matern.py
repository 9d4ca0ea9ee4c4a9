"""The Gaussian process of the stack: gradient, posterior and rows left out, by other ways."""

# Types of scikit-learn and SciPy are those of defaults, and held-out densities are mixtures here.
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false

import numpy as np
import pytest
from scipy import optimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

from sigmax.estimators import LinearRegressor
from sigmax.experts.leave_out import DuplicateGroups
from sigmax.experts.matern import JITTER, Covariance, MaternProcess, infer, smoothed
from sigmax.experts.rows import Rows
from sigmax.features import TargetUnits
from sigmax.random import make_key


def make_rows(n: int = 60, seed: int = 0, repeats: int = 1) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(n // repeats, 2)), repeats, axis=0)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=len(X))
    given = LinearRegressor().read_training(X, y)
    return Rows.encode(given, TargetUnits.fit(given.y, given.weight))


def test_the_gradient_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(30, 3)), rng.normal(size=30), rng.uniform(0.5, 2, 30)
    covariance, theta = Covariance(np.array([0, 1, 1])), 0.4 * rng.normal(size=5)
    _, gradient = covariance.loss(theta, X, y, weight)
    expected = optimize.approx_fprime(
        theta, lambda t: covariance.loss(t, X, y, weight)[0], epsilon=1e-6
    )
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


def test_predictions_are_those_of_scikit_learn_at_the_same_hyper_parameters():
    rows = make_rows()
    fitted = MaternProcess().fit(rows, make_key(0))
    signal, noise, slope = np.exp(fitted.theta[0, :3])
    scale = np.exp(fitted.theta[0, 3:])
    kernel = ConstantKernel(signal) * Matern(scale, nu=2.5) + ConstantKernel(
        slope / 2
    ) * DotProduct(np.sqrt(2))
    relative = fitted.relative_noise[:, 0]
    process = GaussianProcessRegressor(
        kernel + WhiteKernel(1e-12), alpha=noise * relative + JITTER, optimizer=None
    ).fit(fitted.X, fitted.y[:, 0])
    new = make_rows(seed=3).X
    dist = fitted.density(new)
    expected, std = process.predict(np.asarray(new.coordinates), return_std=True)
    np.testing.assert_allclose(dist.components.mean[0, :, 0], expected, atol=1e-5)
    share = np.asarray(dist.epistemic_share)[0, :, 0]
    scale = np.asarray(dist.components.unit)[0, :, 0] / fitted.factor[0]
    np.testing.assert_allclose(np.sqrt(share) * scale, std, atol=1e-4)


@pytest.mark.parametrize("repeats", [1, 2])
def test_left_out_rows_are_predicted_by_the_others(repeats):
    """With the hyper-parameters of all rows: the formula against a refit of the posterior."""
    rows = make_rows(repeats=repeats)
    fitted = MaternProcess(n_search=15).fit(rows, make_key(0))  # more groups: in closed form
    theta, covariance = fitted.theta[0], Covariance(fitted.group)
    noise = np.exp(theta[1]) * fitted.relative_noise[:, 0] + JITTER
    mean = np.asarray(fitted.held_out.dist.components.mean)[0, :, 0]
    for row in (0, 7, 31):
        kept = np.flatnonzero(rows.given.duplicate_group != rows.given.duplicate_group[row])
        total = covariance(theta, fitted.X[kept], fitted.X[kept]) + np.diag(noise[kept])
        across = covariance(theta, fitted.X[[row]], fitted.X[kept])
        expected = across @ np.linalg.solve(total, fitted.y[kept, 0])
        assert mean[row] == pytest.approx(expected[0], abs=1e-6)


def test_noise_that_varies_with_x_is_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(400, 1))
    y = np.where(X[:, 0] > 0, 1.0, 0.1) * rng.normal(size=400)
    given = LinearRegressor().read_training(X, y)
    rows = Rows.encode(given, TargetUnits.fit(given.y, given.weight))
    fitted = MaternProcess().fit(rows, make_key(0))
    scale = np.asarray(fitted.density(rows.X).components.unit)[0, :, 0]
    assert np.mean(scale[X[:, 0] > 0.3]) > 4 * np.mean(scale[X[:, 0] < -0.3])


def test_smoothed_noise_of_a_row_depends_on_other_groups_alone():
    rng = np.random.default_rng(0)
    X, values, group = rng.normal(size=(40, 1)), rng.normal(size=40), np.arange(40) % 8
    covariance, theta = Covariance(np.array([0])), np.array([0.0, -1.0, -1.0, 0.0])
    found = smoothed(covariance, theta, X, X, values, 1.0, group)
    without = smoothed(covariance, theta, X, X[group > 0], values[group > 0], 1.0)
    np.testing.assert_allclose(found[group == 0], without[group == 0])
    assert not np.allclose(found[group == 1], without[group == 1])


def test_a_sparse_process_without_a_group_is_that_of_the_other_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    noise, is_point = rng.uniform(0.1, 0.5, 60), np.arange(60) < 12
    covariance, theta = Covariance(np.array([0, 1])), np.array([0.1, -1.0, -1.0, 0.2, 0.5])
    groups = DuplicateGroups.create(np.r_[np.arange(40), np.repeat([40, 41, 42], [2, 3, 15])])
    found = infer(covariance, theta, X, y, noise, is_point, groups)
    for group in (20, 41, 42):  # of which no row is an inducing point
        own, kept = groups.label == group, groups.label != group
        alone = infer(covariance, theta, X[kept], y[kept], noise[kept], is_point[kept])
        across = covariance(theta, X[own], X[is_point])
        np.testing.assert_allclose(found.mean[own], across @ alone.weights, atol=1e-7)
        reduced = np.sum((across @ alone.reduction) * across, axis=1)
        expected = covariance.variance(theta, X[own]) - reduced
        np.testing.assert_allclose(found.latent[own], expected, rtol=1e-4)


def test_a_sparse_process_is_close_to_the_exact_one():
    rows = make_rows(n=120)
    exact = MaternProcess(n_search=50, n_polish=60).fit(rows, make_key(0))
    sparse = MaternProcess(n_search=50, n_polish=60, n_exact=119, n_points=60)
    sparse = sparse.fit(rows, make_key(0))
    assert exact.is_point.all() and sparse.is_point.sum() == 60 and len(sparse.held_out) == 120
    new = make_rows(seed=4).X
    errors = exact.density(new).components.mean - sparse.density(new).components.mean
    assert np.sqrt(np.mean(errors**2)) < 0.1
    error = np.asarray(sparse.held_out.dist.components.mean)[0] - rows.y
    assert np.sqrt(np.mean(error**2)) < 0.5
