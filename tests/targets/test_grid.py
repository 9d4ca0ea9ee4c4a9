"""The step of a target that repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sigmax.targets import TargetGrid, target_step

rng = np.random.default_rng(0)
COUNTS = rng.poisson(3.0, 300).astype(float)


@pytest.mark.parametrize(
    ("y", "step"),
    [
        (COUNTS, 1.0),
        (COUNTS - 7, 1.0),
        (5 * COUNTS, 5.0),
        (COUNTS / 10, 0.1),
        (0.25 + COUNTS / 2, 0.5),
        (1e6 + 0.01 * COUNTS, 0.01),
        (1e-6 * COUNTS, 1e-6),
        (np.array([3.0, 4.0, 4.0, 9.0]), 1.0),
        (np.float32(COUNTS / 10).astype(float), 0.1),
    ],
    ids=["whole", "negative", "fives", "decimal", "shifted", "large", "tiny", "few", "single"],
)
def test_values_on_a_grid_have_its_step(y, step):
    assert target_step(y) == pytest.approx(step, rel=1e-5)


def test_two_values_are_a_step_apart():
    assert target_step(np.repeat([0.0, 1.0], 50)) == 1.0
    assert target_step(np.repeat([-2.5, 4.0], [90, 10])) == 6.5


@pytest.mark.parametrize("name", ["normal", "uniform", "exponential", "lognormal"])
def test_a_continuous_target_has_none(name):
    assert target_step(getattr(rng, name)(size=400)) == 0.0


def test_a_constant_target_has_none():
    assert target_step(np.full(20, 3.0)) == 0.0


def test_a_few_repeated_values_are_no_heap():
    y = rng.normal(size=1000)
    y[:15] = y[0]
    assert target_step(y) == 0.0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_around_a_heap_a_twentieth_of_the_others_is_near(share):
    y = np.where(rng.uniform(size=2000) < share, 0.0, rng.exponential(size=2000))
    step, others = target_step(y), y[y > 0]
    assert np.mean(others < step) == pytest.approx(0.05, abs=0.01)


def test_of_several_heaps_the_nearest_others_count():
    y = np.concatenate([np.zeros(100), np.full(100, 5.0), rng.uniform(4, 6, 200)])
    assert target_step(y) == pytest.approx(0.05, abs=0.04)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 1000))
def test_the_step_goes_with_the_units(scale, seed):
    y = np.random.default_rng(seed).poisson(2.0, 100).astype(float)
    assert target_step(scale * y) == pytest.approx(scale * target_step(y), rel=1e-6)


@given(st.floats(0.001, 0.999), st.floats(0.2, 8.0), st.sampled_from([1.0, 0.1, 1 / 3]))
def test_intervals_of_counts_hold_at_least_what_those_of_their_smeared_values_hold(q, rate, step):
    """By SciPy's Poisson: smeared over its step, a count has the density p(k) around k."""
    k = np.arange(40)
    share = stats.poisson.pmf(k, rate)
    grid = TargetGrid.find(step * np.repeat(k, 2))
    assert grid.is_full and grid.step == pytest.approx(step)
    cdf = np.concatenate([[0.0], np.cumsum(share)])
    lower, upper = np.interp([(1 - q) / 2, (1 + q) / 2], cdf, step * (np.arange(41) - 0.5))
    low, high = grid.ends(np.array([lower, upper]))
    inside = (low <= step * k) & (step * k <= high)
    assert share[inside].sum() >= q * cdf[-1] - 1e-6
    fewer = share[inside][1:-1].sum()  # both ends are needed, up to what each shares with a tail
    assert fewer <= q + 1e-6


def test_what_lies_on_a_grid_by_chance_is_not_rounded():
    grid = TargetGrid.find(np.array([3.0, 0.0, 7.0, 8.0, 5.0]))
    assert grid.step == 1.0 and not grid.is_full
    np.testing.assert_array_equal(grid.ends(np.array([[0.3, 2.7]])), [[0.3, 2.7]])


def test_no_end_lies_beyond_a_heap_that_nothing_is_beyond():
    rng = np.random.default_rng(0)
    counts = TargetGrid.find(rng.poisson(2.0, 300).astype(float))
    np.testing.assert_array_equal(counts.ends(np.array([[-0.8, 3.2]])), [[0.0, 3.0]])
    rain = TargetGrid.find(np.concatenate([np.zeros(100), rng.exponential(size=200)]))
    np.testing.assert_array_equal(rain.ends(np.array([[-0.8, -0.3], [-2.0, 3.2]]))[:, 0], 0.0)
    assert rain.highest == np.inf and rain.ends(np.array([-2.0, 90.0]))[1] == 90.0
    signed = TargetGrid.find(np.concatenate([np.zeros(100), rng.normal(size=200)]))
    np.testing.assert_array_equal(signed.ends(np.array([-3.0, 3.2])), [-3.0, 3.2])


def test_values_between_heaps_are_not_rounded():
    rng = np.random.default_rng(0)
    y = np.concatenate([np.zeros(50), np.full(50, 4.0), rng.uniform(-8, 8, 200)])
    grid = TargetGrid.find(y)
    np.testing.assert_array_equal(grid.values, [0.0, 4.0])
    half = grid.step / 2
    bounds = np.array([[0.9 * half, 3.5], [1.1 * half, 4 - 0.9 * half], [-0.9 * half, 5.0]])
    expected = [[0.0, 3.5], [1.1 * half, 4.0], [-0.9 * half, 5.0]]
    np.testing.assert_allclose(grid.ends(bounds), expected)
