"""The Gaussian process of the stack: gradient, posterior and rows left out, by other ways."""

# Types of scikit-learn and SciPy are those of defaults, and held-out densities are mixtures here.
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false

import numpy as np
import pytest
from scipy import optimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

from sigmax.estimators import LinearRegressor
from sigmax.experts.matern import JITTER, Covariance, MaternProcess
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
    relative = fitted.point_noise[:, 0]
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
    fitted = MaternProcess().fit(rows, make_key(0))
    theta, covariance = fitted.theta[0], Covariance(fitted.group)
    noise = np.exp(theta[1]) * fitted.point_noise[:, 0] + JITTER
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


def test_more_rows_than_points_are_held_out_too():
    rows = make_rows(n=120)
    fitted = MaternProcess(n_points=80, n_search=50, n_polish=60).fit(rows, make_key(0))
    assert len(fitted.X) == 80 and len(fitted.held_out) == 120
    error = np.asarray(fitted.held_out.dist.components.mean)[0] - rows.y
    assert np.sqrt(np.mean(error**2)) < 0.5
