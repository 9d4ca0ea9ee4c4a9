"""Units of the target: standardised, or mapped to normal scores, and back."""

from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sigmax.compilation import padded_blocks
from sigmax.distributions import Mapped, Mixture, StudentT
from sigmax.documents import decode, encode
from sigmax.features import TARGET_TRANSFORMS, TargetUnits, target

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


def fit(y, target_map="normal-scores", weight=None) -> TargetUnits:
    return TargetUnits.fit(y, np.ones(len(y)) if weight is None else weight, target_map)


@pytest.mark.parametrize("target_map", TARGET_TRANSFORMS)
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_mapped_comes_back(name, target_map):
    y = TARGETS[name]
    units = fit(y, target_map)
    assert units.target_map == target_map
    learned = units(y, np.float64)
    assert np.isfinite(learned).all()
    np.testing.assert_allclose(units.restore(learned), y, rtol=1e-9, atol=1e-9 * np.ptp(y))
    if y.std() > 1e-8 * np.abs(y).max():
        np.testing.assert_allclose(learned.mean(axis=0), 0.0, atol=1e-6)
        np.testing.assert_allclose(learned.std(axis=0), 1.0, rtol=1e-6)


@pytest.mark.parametrize("name", ["skewed", "uniform", "bimodal", "two outputs"])
def test_normal_scores_are_nearly_normal(name):
    """Their quantiles are those of a standard Normal."""
    y = TARGETS[name]
    learned = fit(y)(y, np.float64)
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        np.testing.assert_allclose(np.quantile(learned, q, axis=0), stats.norm.ppf(q), atol=0.08)


def test_the_map_of_a_normal_target_is_nearly_none():
    y = 5 + 3 * rng.normal(size=(5000, 1))
    plain, mapped = fit(y, "none"), fit(y)
    inside = np.linspace(0, 10, 50)[:, None]
    np.testing.assert_allclose(mapped(inside), plain(inside), atol=0.12)


def test_a_weight_is_as_many_rows():
    y, weight = SKEWED[:400], rng.integers(1, 5, 400)
    weighted, repeated = fit(y, weight=weight.astype(float)), fit(np.repeat(y, weight, axis=0))
    inside = np.quantile(np.repeat(y, weight), np.linspace(0.03, 0.97, 40))[:, None]
    np.testing.assert_allclose(weighted(inside), repeated(inside), atol=0.02)
    np.testing.assert_allclose(weighted.scaling.mean, repeated.scaling.mean)
    np.testing.assert_allclose(fit(y, weight=np.full(400, 7.0))(y), fit(y)(y), rtol=1e-5, atol=1e-6)


def test_rare_values_are_neither_compressed_nor_stretched():
    """Beyond the data the map goes on along a line, with the slope that it had at the rim."""
    units = fit(SKEWED)
    top = np.sort(SKEWED[:, 0])[-N // 20 :]
    inside = np.diff(units(top[[0, -1]][:, None], np.float64)[:, 0])[0] / np.ptp(top)
    far = np.array([[1e3], [2e3]])
    beyond = np.diff(units(far, np.float64)[:, 0])[0] / 1e3
    assert inside / 4 < beyond < inside * 4


def test_a_bounded_target_stays_about_within_its_bounds():
    """What a prediction as wide as the marginal says of one row in a thousand."""
    units = fit(TARGETS["uniform"])
    lower, upper = units.restore(stats.norm.ppf([[0.001], [0.999]]))[:, 0]
    assert -0.02 < lower < 0.02 and 0.98 < upper < 1.02
    plain = fit(TARGETS["uniform"], "none").restore(stats.norm.ppf([[0.001], [0.999]]))[:, 0]
    assert plain[0] < -0.3 and plain[1] > 1.3


def test_heavy_tails_become_light():
    y = TARGETS["heavy"]
    plain, mapped = (
        stats.kurtosis(fit(y, name)(y, np.float64)[:, 0]) for name in TARGET_TRANSFORMS
    )
    assert plain > 100 and mapped < 20
    assert np.abs(fit(y)(y)).max() < np.abs(fit(y, "none")(y)).max() / 2
    assert np.isfinite(fit(y)(1e300 * np.array([[-1.0], [1.0]]))).all()


@pytest.mark.parametrize("name", ["counts", "half zeros", "two values", "nearly constant"])
def test_ties_are_one_knot_in_the_middle_of_their_levels(name):
    y = TARGETS[name]
    spline = fit(y).spline
    assert spline is not None
    assert np.all(np.diff(spline.x, axis=0) > 0) and np.all(np.diff(spline.y, axis=0) > 0)
    assert np.all(np.asarray(spline.slope) > 0) and np.isfinite(spline.slope).all()


def test_half_zeros_are_a_quarter_of_the_way_up():
    y = TARGETS["half zeros"]
    share = np.mean(y == 0)
    units = fit(y)
    scores = stats.norm.ppf((stats.rankdata(y[:, 0]) - 0.5) / N)  # of tied rows, their middle
    expected = (stats.norm.ppf(share / 2) - scores.mean()) / scores.std()
    assert units(np.zeros((1, 1)), np.float64)[0, 0] == pytest.approx(expected, abs=0.1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000), n=st.integers(2, 60), digits=st.integers(0, 3))
def test_any_target_has_an_increasing_map(seed, n, digits):
    own = np.random.default_rng(seed)
    y = own.normal(size=(n, 1)).round(digits) * 10.0 ** own.integers(-4, 5)
    units = fit(y, weight=own.uniform(0.1, 3, n))
    at = np.sort(np.concatenate([y[:, 0], own.normal(0, 9, 50) * (np.ptp(y) + 1e-3)]))[:, None]
    learned = units(at, np.float64)[:, 0]
    apart = (np.diff(at[:, 0]) > 1e-9 * np.ptp(at)) & (np.abs(learned[1:]) < 1e5)  # cut beyond
    assert np.all(np.diff(learned)[apart] > 0)
    np.testing.assert_allclose(units.restore(units(y, np.float64)), y, atol=1e-8 * np.ptp(at))


@pytest.mark.parametrize("name", ["skewed", "counts", "two outputs"])
@pytest.mark.parametrize("target_map", TARGET_TRANSFORMS)
def test_densities_of_what_is_learned_become_those_of_y(name, target_map):
    """By the slope of the map, against differences; and as a distribution."""
    y = TARGETS[name]
    units, at, step = fit(y, target_map), np.quantile(y, [0.3, 0.71, 0.9], axis=0) + 0.013, 1e-6
    slope = (units(at + step, np.float64) - units(at - step, np.float64)) / (2 * step)
    np.testing.assert_allclose(units.log_slope(at), np.log(slope), atol=1e-4)
    shape = (2, 3, y.shape[1])
    mixture = Mixture(StudentT(np.zeros(shape), np.full(shape, 6.0), np.full(shape, 0.8)))
    dist = units.distribution(mixture)
    assert isinstance(dist, Mapped if target_map == "normal-scores" else Mixture)
    expected = stats.t.logpdf(units(at, np.float64), 6, 0, 0.8) + np.log(slope)
    np.testing.assert_allclose(dist.log_prob(at), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["skewed", "counts", "two outputs"])
@pytest.mark.parametrize("target_map", TARGET_TRANSFORMS)
def test_a_kept_state_gives_the_same_units(name, target_map):
    y = TARGETS[name]
    units = fit(y, target_map)
    again = decode(TargetUnits, *encode(units))
    assert again.target_map == target_map
    np.testing.assert_array_equal(again(y), units(y))
    np.testing.assert_array_equal(again.restore(units(y)), units.restore(units(y)))
    assert again.support == units.support
    bounds = np.random.default_rng(0).normal(size=(20, y.shape[1], 2))
    np.testing.assert_array_equal(again.interval_ends(bounds), units.interval_ends(bounds))


def with_outlier(value: float) -> np.ndarray:
    return np.append(np.random.default_rng(0).normal(size=500), value)[:, None]


@pytest.mark.parametrize("target_map", TARGET_TRANSFORMS)
def test_an_outlier_does_not_set_the_units(target_map):
    usual, units = fit(with_outlier(0.0), target_map), fit(with_outlier(1e9), target_map)
    assert units.scaling.scale[0] < 1.2 * usual.scaling.scale[0]
    at = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(units(at), usual(at), atol=0.3)
    assert np.abs(units(with_outlier(1e9))).max() < 15
    again = decode(TargetUnits, *encode(units))
    np.testing.assert_array_equal(again(with_outlier(1e9)), units(with_outlier(1e9)))


@pytest.mark.parametrize("name", TARGETS)
def test_targets_without_outliers_are_standardised_as_they_are(name):
    y = TARGETS[name]
    found = fit(y, "none")
    assert found.limits is None
    np.testing.assert_allclose(found.scaling.mean, y.mean(axis=0))
    for heavy in (np.random.default_rng(1).lognormal(0, 2, (1000, 1)), with_outlier(30.0)):
        assert fit(heavy, "none").limits is None


@pytest.mark.parametrize("name", ["limits", "repeated.0.values", "repeated.0.cells"])
def test_a_saved_target_with_bounds_in_the_wrong_order_is_refused(name):
    y = np.append(np.repeat(np.arange(6.0), 50), 1e9)[:, None]
    document, arrays = encode(fit(y, "none"))
    with pytest.raises(ValueError):
        decode(TargetUnits, document, arrays | {name: arrays[name][::-1, ::-1].copy()})
    document["support"] = [{"low": 3.0, "high": 1.0}]
    with pytest.raises(ValueError, match="support"):
        decode(TargetUnits, document, arrays)


@pytest.mark.parametrize("part", ["x", "y", "slope"])
def test_a_transform_that_does_not_increase_is_refused(part):
    document, arrays = encode(fit(SKEWED))
    changed = arrays[f"spline.{part}"].copy()
    changed[3] = -changed[3] if part == "slope" else changed[5]
    with pytest.raises(ValueError, match="a monotone spline must"):
        decode(TargetUnits, document, arrays | {f"spline.{part}": changed})
    for broken in (changed[:-1], np.full_like(changed, np.nan)):
        with pytest.raises(ValueError):
            decode(TargetUnits, document, arrays | {f"spline.{part}": broken})


def test_another_number_of_rows_compiles_nothing():
    map_of, n_compiled = fit(SKEWED), []
    for n in (1000, 900, 1024):
        map_of.restore(map_of(SKEWED[:n]))
        n_compiled.append(cast(Any, target.evaluate).n_compiled())
    assert len(set(n_compiled)) == 1


def test_many_rows_are_mapped_in_blocks(monkeypatch):
    whole = fit(SKEWED)(SKEWED)
    monkeypatch.setattr(target, "padded_blocks", partial(padded_blocks, largest=256))
    np.testing.assert_array_equal(fit(SKEWED)(SKEWED), whole)


def test_units_may_be_wider():
    y = SKEWED
    np.testing.assert_allclose(fit(y, "none").wider(2.0)(y), fit(y, "none")(y) / 2, rtol=1e-6)
