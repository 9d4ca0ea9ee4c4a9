"""Text of numbers, names and cells in reports."""

import numpy as np
import pandas as pd
import pytest

from sigmax.report.importance import choose_values
from sigmax.report.page import log_axis_suits, plain_numbers
from sigmax.report.tables import (
    TableCell,
    cell_text,
    count_text,
    mean_and_error,
    number_text,
    share_text,
    three_decimals,
    time_text,
)
from sigmax.report.validation import chance_band, coverage_curve, share_interval
from sigmax.tables import Kind


def test_only_finite_numbers_are_values_of_cells():
    cells = TableCell("12,346 ± 79", 12345.6), TableCell("none"), TableCell("∞", float("inf"))
    assert [cell.value for cell in cells] == [12345.6, None, None]


def test_counts_have_the_singular_or_the_plural():
    assert (count_text(1, "row"), count_text(1200, "row")) == ("1 row", "1,200 rows")


def test_numbers_have_four_digits_and_no_exponent_where_none_is_needed():
    numbers = (79873.0587, 0.012345, 3e12, 12.5, float("nan"), float("inf"))
    expected = ["79,873", "0.01235", "3e+12", "12.5", "unknown", "∞"]
    assert [number_text(number) for number in numbers] == expected


def test_shares_have_a_decimal_near_0_and_100_per_cent():
    shares = (0.894, 0.004, 0.998, 0.0, 1.0, 1e-5, 1 - 1e-5)
    expected = ["89 %", "0.4 %", "99.8 %", "0 %", "100 %", "< 0.1 %", "> 99.9 %"]
    assert [share_text(share) for share in shares] == expected


def test_means_have_their_standard_errors_and_decimals_show_three_digits():
    assert mean_and_error([1.0, 2.0, 3.0]) == "2.00 ± 0.58" and mean_and_error([0.5]) == "0.50"
    assert [three_decimals(v) for v in ([0.0123], [4.5, 5.5], [1234.0])] == [4, 2, 0]


def test_values_of_the_data_are_rounded_and_shortened():
    assert (cell_text(3.0), cell_text(0.1234567)) == ("3", "0.1235")
    assert cell_text("a" * 99)[-3:] == "aa…"
    assert {cell_text(value) for value in (None, np.nan, pd.NA, pd.NaT)} == {"(missing)"}


def test_times_at_midnight_are_dates():
    assert (time_text(0.0), time_text(3_600.0)) == ("1970-01-01", "1970-01-01 01:00")


def test_numbers_of_a_chart_have_six_digits_and_are_none_if_not_finite():
    assert plain_numbers([1.0, 2 / 3, np.inf]) == [1, 0.666667, None]


def test_axes_are_logarithmic_for_positive_numbers_that_differ_by_large_factors():
    assert log_axis_suits([1.0, 10.0, 100.0])
    assert not log_axis_suits([1.0, 2.0]) and not log_axis_suits([0.0, 9.0])


def test_chance_band_and_interval_of_a_share():
    low, high = chance_band(100, [0.5, 0.9])
    assert (low.tolist(), high.tolist()) == ([0.4, 0.84], [0.6, 0.95])
    assert share_interval(9, 10) == pytest.approx((0.555, 0.997), abs=5e-4)


def test_coverage_curve_counts_rows_up_to_each_level():
    curve = coverage_curve(np.array([0.1, 0.4, 0.95]), np.array([0.2, 0.9, 0.96]))
    np.testing.assert_allclose(curve, [1 / 3, 2 / 3, 1])


def test_chosen_values_are_sorted_numbers_or_frequent_categories_and_a_missing_one():
    assert choose_values(np.array([3.0, 1.0, 1.0, np.nan, 2.0]), Kind.NUMBER).tolist() == [1, 4, 0]
    assert choose_values(np.array([0.0, 1.0, 1.0, np.nan]), Kind.CATEGORY).tolist() == [1, 0, 3]
