"""The forest of the stack: leaves as samples of the target."""

import numpy as np

from sigmax.distributions import Mixture
from sigmax.estimators import LinearRegressor
from sigmax.experts.forest import Forest
from sigmax.experts.rows import Rows
from sigmax.features import TargetUnits
from sigmax.random import make_key


def encode(X: np.ndarray, y: np.ndarray) -> Rows:
    given = LinearRegressor().read_training(X, y)
    return Rows.encode(given, TargetUnits.fit(given.y, given.weight))


def test_steps_and_two_modes_are_predicted():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 2))
    y = np.where(X[:, 0] > 0.5, rng.choice([-3.0, 3.0], 500), 0.0) + 0.1 * rng.normal(size=500)
    rows = encode(X, y)
    fitted = Forest().fit(rows, make_key(0))
    mean = np.asarray(fitted.density(rows.X).components.mean)[:, :, 0] * y.std() + y.mean()
    left, right = mean[:, X[:, 0] < 0.45], mean[:, X[:, 0] > 0.55]
    assert np.mean(np.abs(left) < 1) > 0.75
    assert np.mean(np.abs(right) > 2) > 0.75 and 0.3 < np.mean(right > 0) < 0.7


def test_duplicates_do_not_predict_each_other():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 2)), 2, axis=0)
    y = np.repeat(rng.normal(size=60), 2) + 1e-3 * rng.normal(size=120)  # noise, given twice
    fitted = Forest().fit(encode(X, y), make_key(0))
    mixture = fitted.held_out.dist
    assert isinstance(mixture, Mixture)
    mean = np.asarray(mixture.components.mean).mean(axis=0)[:, 0]
    assert abs(np.corrcoef(mean, fitted.held_out.y[:, 0])[0, 1]) < 0.5


def test_few_equal_and_constant_rows_are_fitted():
    for X, y in (
        (np.zeros((5, 1)), np.arange(5.0)),
        (np.arange(2.0)[:, None], np.array([0.0, 1.0])),
        (np.arange(30.0)[:, None], np.zeros(30)),
    ):
        rows = encode(X, y)
        dist = Forest().fit(rows, make_key(0)).density(rows.X)
        assert np.isfinite(np.asarray(dist.components.mean)).all()
