"""Units of the target: standardised, and back."""

import numpy as np
import pytest
from scipy import stats

from sigmax.distributions import Mixture, StudentT
from sigmax.documents import decode, encode
from sigmax.features import TargetUnits

rng = np.random.default_rng(0)
N = 1500
SKEWED = np.exp(rng.normal(size=(N, 1)))
TARGETS = {
    "skewed": SKEWED,
    "uniform": rng.uniform(size=(N, 1)),
    "heavy": rng.standard_t(2, (N, 1)),
    "bimodal": np.where(rng.uniform(size=(N, 1)) < 0.4, -5, 5) + rng.normal(size=(N, 1)),
    "counts": rng.poisson(2.0, (N, 1)).astype(float),
    "half zeros": np.where(rng.uniform(size=(N, 1)) < 0.5, 0.0, rng.exponential(size=(N, 1))),
    "two values": rng.integers(0, 2, (N, 1)).astype(float),
    "nearly constant": np.where(np.arange(N)[:, None] == 7, 3.0, 2.0),
    "constant": np.full((N, 1), 4.0),
    "zero": np.zeros((N, 1)),
    "one large step": np.where(np.arange(N)[:, None] == 7, 2e9 + 0.1, 2e9),
    "two outputs": np.hstack([SKEWED, rng.uniform(-2, 9, (N, 1))]),
    "large": 1e9 + 1e3 * SKEWED,
    "tiny": 1e-9 * SKEWED,
}


def fit(y, weight=None) -> TargetUnits:
    return TargetUnits.fit(y, np.ones(len(y)) if weight is None else weight)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_standardised_comes_back(name):
    y = TARGETS[name]
    units = fit(y)
    learned = units(y, np.float64)
    assert np.isfinite(learned).all()
    np.testing.assert_allclose(units.restore(learned), y, rtol=1e-9, atol=1e-9 * np.ptp(y))
    if y.std() > 1e-8 * np.abs(y).max():
        np.testing.assert_allclose(learned.mean(axis=0), 0.0, atol=1e-6)
        np.testing.assert_allclose(learned.std(axis=0), 1.0, rtol=1e-6)


def test_a_weight_is_as_many_rows():
    y, weight = SKEWED[:400], rng.integers(1, 5, 400)
    weighted, repeated = fit(y, weight.astype(float)), fit(np.repeat(y, weight, axis=0))
    np.testing.assert_allclose(weighted.scaling.mean, repeated.scaling.mean)
    np.testing.assert_allclose(weighted.scaling.scale, repeated.scaling.scale)


@pytest.mark.parametrize("name", ["skewed", "counts", "two outputs"])
def test_densities_of_what_is_learned_become_those_of_y(name):
    """By the slope of the units, from differences."""
    y = TARGETS[name]
    units, at, step = fit(y), np.quantile(y, [0.3, 0.71, 0.9], axis=0) + 0.013, 1e-6
    slope = (units(at + step, np.float64) - units(at - step, np.float64)) / (2 * step)
    shape = (2, 3, y.shape[1])
    mixture = Mixture(StudentT(np.zeros(shape), np.full(shape, 6.0), np.full(shape, 0.8)))
    dist = units.distribution(mixture)
    assert isinstance(dist, Mixture)
    expected = stats.t.logpdf(units(at, np.float64), 6, 0, 0.8) + np.log(slope)
    np.testing.assert_allclose(dist.log_prob(at), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["skewed", "counts", "two outputs"])
def test_a_kept_state_gives_the_same_units(name):
    y = TARGETS[name]
    units = fit(y)
    again = decode(TargetUnits, *encode(units))
    np.testing.assert_array_equal(again(y), units(y))
    np.testing.assert_array_equal(again.restore(units(y)), units.restore(units(y)))
    assert again.support == units.support
    bounds = np.random.default_rng(0).normal(size=(20, y.shape[1], 2))
    np.testing.assert_array_equal(again.interval_ends(bounds), units.interval_ends(bounds))


def with_outlier(value: float) -> np.ndarray:
    return np.append(np.random.default_rng(0).normal(size=500), value)[:, None]


def test_an_outlier_does_not_set_the_units():
    usual, units = fit(with_outlier(0.0)), fit(with_outlier(1e9))
    assert units.scaling.scale[0] < 1.2 * usual.scaling.scale[0]
    at = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(units(at), usual(at), atol=0.3)
    assert np.abs(units(with_outlier(1e9))).max() < 15
    again = decode(TargetUnits, *encode(units))
    np.testing.assert_array_equal(again(with_outlier(1e9)), units(with_outlier(1e9)))


@pytest.mark.parametrize("name", TARGETS)
def test_targets_without_outliers_are_standardised_as_they_are(name):
    y = TARGETS[name]
    found = fit(y)
    assert found.limits is None
    np.testing.assert_allclose(found.scaling.mean, y.mean(axis=0))
    for heavy in (np.random.default_rng(1).lognormal(0, 2, (1000, 1)), with_outlier(30.0)):
        assert fit(heavy).limits is None


@pytest.mark.parametrize("name", ["limits", "repeated.0.values", "repeated.0.cells"])
def test_a_saved_target_with_bounds_in_the_wrong_order_is_refused(name):
    y = np.append(np.repeat(np.arange(6.0), 50), 1e9)[:, None]
    document, arrays = encode(fit(y))
    with pytest.raises(ValueError):
        decode(TargetUnits, document, arrays | {name: arrays[name][::-1, ::-1].copy()})
    document["support"] = [{"low": 3.0, "high": 1.0}]
    with pytest.raises(ValueError, match="support"):
        decode(TargetUnits, document, arrays)
