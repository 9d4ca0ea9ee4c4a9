"""Interval ends of targets whose values repeat."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sigmax.features import RepeatedValues

K = np.arange(-20, 60)
ROUNDED = {
    "steps of ten, decimals rounded": np.array(
        [float(f"{10 * k - 28.9453:.5g}") for k in range(11)]
    ),
    "Celsius with one decimal in single precision": np.float32(K / 10).astype(float),
    "pounds to kilograms": K * 0.45359237,
    "Fahrenheit to Celsius": (K - 32) * 5 / 9,
    "thirds": K / 3,
    "z-scores to four digits": np.round((K - K.mean()) / K.std(), 4),
    "hundredths in single precision": np.float32(K / 100).astype(float),
    "whole numbers at a large offset": 1e8 + K,
    "numbers that were rounded in two ways": np.concatenate([K / 10, np.float32(K / 10)]),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_no_value_lies_outside_the_interval_of_a_density_at_it(name):
    values = ROUNDED[name].astype(float)
    found = RepeatedValues.find(np.repeat(values, 20))
    assert found is not None and found.is_rounded
    half = float(np.median(np.diff(np.unique(np.round(values, 6))).astype(float))) / 2
    for offset in (0.0, 1e-12, 0.1, 0.9):
        for below, above in ((offset, offset), (-offset, offset), (offset, -offset)):
            bounds = np.stack([values - below * half, values + above * half], axis=1)
            bounds = np.sort(bounds, axis=1)
            lower, upper = found.ends(bounds).T
            assert np.all((lower <= values) & (values <= upper))
            assert np.all(upper - lower <= 2 * half)


@pytest.mark.parametrize("name", ROUNDED)
def test_ends_within_the_range_are_observed_values(name):
    values = ROUNDED[name].astype(float)
    found = RepeatedValues.rounded(values)
    bounds = np.sort(np.random.default_rng(0).uniform(values.min(), values.max(), (500, 2)))
    ends = found.ends(bounds)
    assert np.isin(ends, values).all()
    inside = (bounds[:, :1] <= values) & (values <= bounds[:, 1:])
    kept = (ends[:, :1] <= values) & (values <= ends[:, 1:])
    assert np.all(kept | ~inside)


@given(st.floats(0.001, 0.999), st.floats(0.2, 8.0), st.sampled_from([1.0, 0.1, 1 / 3]))
@settings(deadline=None, derandomize=True)
def test_intervals_of_counts_hold_at_least_what_those_of_their_smeared_values_hold(q, rate, step):
    """By SciPy's Poisson: smeared over its step, a count has the density p(k) around k."""
    k = np.arange(40)
    share = stats.poisson.pmf(k, rate)
    found = RepeatedValues.rounded(step * k)
    cdf = np.concatenate([[0.0], np.cumsum(share)])
    lower, upper = np.interp([(1 - q) / 2, (1 + q) / 2], cdf, step * (np.arange(41) - 0.5))
    low, high = found.ends(np.array([lower, upper]))
    inside = (low <= step * k) & (step * k <= high)
    assert share[inside].sum() >= q * cdf[-1] - 1e-6
    fewer = share[inside][1:-1].sum()  # both ends are needed, up to what each shares with a tail
    assert fewer <= q + 1e-6


def test_ends_beyond_the_range_and_in_wide_gaps_stay_so_that_new_values_are_possible():
    counts = RepeatedValues.rounded(np.array([0.0, 1.0, 2.0, 15.0, 40.0]))
    bounds = np.array([[-0.8, 43.2], [1.2, 25.0], [50.0, 52.7]])
    np.testing.assert_array_equal(counts.ends(bounds), [[-0.8, 43.2], [1.0, 25.0], [50.0, 52.7]])


@pytest.mark.parametrize("name", ["normal", "uniform", "exponential", "lognormal"])
def test_continuous_and_constant_targets_are_left_alone(name):
    rng = np.random.default_rng(0)
    assert RepeatedValues.find(getattr(rng, name)(size=400)) is None
    assert RepeatedValues.find(np.full(20, 3.0)) is None
    few = rng.normal(size=1000)
    few[:15] = few[0]
    assert RepeatedValues.find(few) is None


def test_an_end_beside_an_atom_takes_it_in_and_others_stay():
    rng = np.random.default_rng(0)
    y = np.concatenate([np.zeros(50), np.full(50, 4.0), rng.uniform(-8, 8, 200)])
    found = RepeatedValues.find(y)
    assert found is not None and not found.is_rounded
    np.testing.assert_array_equal(found.values[:, 0], [0.0, 4.0])
    half = found.half_cells()
    bounds = np.array([[0.9 * half[0], 3.5], [1.1 * half[0], 4 - 0.9 * half[1]], [-0.01, 5.0]])
    expected = [[0.0, 3.5], [1.1 * half[0], 4.0], [-0.01, 5.0]]
    np.testing.assert_allclose(found.ends(bounds), expected)
    others = y[(y != 0) & (y != 4)]
    assert np.sum(np.abs(others) < half[0]) <= 0.05 * 50


def test_an_atom_among_few_rows_has_a_narrow_cell_whatever_other_atoms_have():
    rng = np.random.default_rng(1)
    y = np.concatenate([np.zeros(400), np.full(12, 5.0), rng.uniform(1, 10, 188)])
    found = RepeatedValues.find(y)
    assert found is not None
    assert found.half_cells()[0] > 10 * found.half_cells()[1]


def test_values_that_come_later_are_values_of_a_rounded_target():
    counts = RepeatedValues.rounded(np.arange(6.0)).with_values(np.array([2.25, 9.0]))
    np.testing.assert_array_equal(
        counts.ends(np.array([[2.2, 3.1], [4.9, 8.0]])), [[2.25, 3.0], [5.0, 9.0]]
    )


def test_cells_have_a_width_at_repeated_values_only():
    counts = RepeatedValues.rounded(np.array([0.0, 1.0, 2.0, 15.0]))
    np.testing.assert_array_equal(counts.cell_widths(np.array([1.0, 7.0, 15.0])), [1.0, 0.0, 1.0])
