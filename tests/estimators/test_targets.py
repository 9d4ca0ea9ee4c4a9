"""Targets with bounds, outliers, offsets and rounded values, as estimators predict them."""

import numpy as np
import pytest

from sigmax import CombinedRegressor, GPRegressor, LocalRegressor
from sigmax.errors import InvalidDataError

N, N_NEW = 300, 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N + N_NEW, 2))
NOISE = RNG.normal(size=N + N_NEW)
MEAN = np.sin(X[:, 0]) + 0.5 * X[:, 1]

ESTIMATORS = {
    "local": lambda **given: LocalRegressor("fast", n_steps=150, random_state=0, **given),
    "combined": lambda **given: CombinedRegressor("fast", n_steps=300, random_state=0, **given),
    "gp": lambda **given: GPRegressor(n_restarts=1, max_iter=20, random_state=0, **given),
}
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def covered(model, y, coverage=0.9) -> float:
    lower, upper = model.predict_interval(X[N:], coverage).T
    return float(np.mean((lower <= y[N:]) & (y[N:] <= upper)))


@every_estimator
def test_intervals_of_rounded_values_hold_them(name):
    """Steps of ten, of which the decimals are rounded: no arithmetic grid."""
    values = np.array([float(f"{10 * k - 28.9453:.5g}") for k in range(11)])
    y = values[np.clip(np.round(5 + 2 * MEAN + 0.5 * NOISE), 0, 10).astype(int)]
    model = ESTIMATORS[name]().fit(X[:N], y[:N])
    assert covered(model, y) >= 0.87
    ends = model.predict_interval(X[N:], 0.5)
    inner = (ends >= y[:N].min()) & (ends <= y[:N].max())
    assert np.isin(ends[inner], values).all()


@every_estimator
def test_intervals_of_a_positive_target_are_not_negative(name):
    y = np.exp(MEAN + 0.6 * NOISE)
    model = ESTIMATORS[name]().fit(X[:N], y[:N])
    dist = model.predict_dist(X[N:])
    assert dist.interval(0.99).min() >= 0 and dist.quantile(0.01).min() >= 0
    assert np.all(dist.cdf(-1e-9) == 0) and np.all(dist.log_prob(-0.1) == -np.inf)
    assert dist.mean.min() >= 0 and np.isfinite(dist.crps(y[N:])).all()
    assert np.isfinite(dist.std).all()
    assert covered(model, y) >= 0.85
    off = model.predict_interval(np.array([[40.0, -40.0]]), 0.99)
    assert off.min() >= 0
    if name != "gp":
        assert model.predict_interval(X[N:], method="conformal").min() >= 0


@every_estimator
def test_a_declared_support_holds_also_in_saved_models(name, tmp_path):
    y = 1 / (1 + np.exp(-2 * MEAN - 0.5 * NOISE))
    model = ESTIMATORS[name](support=(0, 1)).fit(X[:N], y[:N])
    bounds = model.predict_interval(X[N:], 0.99)
    assert bounds.min() >= 0 and bounds.max() <= 1
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(X[N:], 0.99), bounds)
    with pytest.raises(InvalidDataError, match="`support`"):
        ESTIMATORS[name](support=(0.5, None)).fit(X[:N], y[:N])


@every_estimator
def test_one_outlier_does_not_widen_all_intervals(name):
    y = MEAN + 0.5 * NOISE
    usual = ESTIMATORS[name]().fit(X[:N], y[:N]).predict_interval(X[N:])
    y = y.copy()
    y[7] = 1e9
    model = ESTIMATORS[name]().fit(X[:N], y[:N])
    widths = [np.median(np.diff(ends, axis=1)) for ends in (model.predict_interval(X[N:]), usual)]
    assert widths[0] < 2 * widths[1]
    assert covered(model, y) >= 0.85


@pytest.fixture(scope="module")
def steps():
    """Steps of ten along t, of which the last is 50."""
    t = np.linspace(0, 0.999, N)[:, None]
    return LocalRegressor("fast", n_steps=150, random_state=0).fit(t, 10 * np.floor(6 * t[:, 0]))


def test_off_the_data_no_interval_ends_at_the_greatest_value_that_was_seen(steps):
    lower, upper = steps.predict_interval(np.array([[1.5], [2.0], [3.0]]), 0.99).T
    assert np.all(upper > 60) and np.all(upper - lower > 20)


@pytest.mark.parametrize("offset", [1e5, 1e7])
def test_moments_have_no_error_from_a_large_offset(offset):
    y = MEAN + 0.5 * NOISE
    near, far = (
        LocalRegressor("fast", n_steps=60, random_state=0).fit(X[:N], y[:N] + shift)
        for shift in (0.0, offset)
    )
    np.testing.assert_allclose(far.predict(X[N:]) - offset, near.predict(X[N:]), atol=0.02)
    std = [model.predict(X[N:], return_std=True)[1] for model in (near, far)]
    np.testing.assert_allclose(std[1], std[0], rtol=0.05)
