"""First sentences of a report for arrays with known counts and widths."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sigmax.report.model_page import Headline, find_cautions
from sigmax.report.validation import HeldOutRows, chance_band, share_interval


def rows_of(y, mean, half_width, gate=None) -> HeldOutRows:
    y, mean = np.asarray(y, float), np.broadcast_to(np.asarray(mean, float), len(y))
    half = np.broadcast_to(np.asarray(half_width, float), len(y))
    std = half / 1.645
    return HeldOutRows(
        y=y,
        mean=mean,
        std=std,
        epistemic=0 * std,
        lower=mean - half,
        upper=mean + half,
        pit=stats.norm.cdf(y, mean, std),
        level=np.zeros(len(y)),
        gate=gate,
        numbers=np.arange(1, len(y) + 1),
        columns=pd.DataFrame(index=range(len(y))),
        cells=pd.DataFrame({"x": y}),
    )


def test_headline_has_the_coverage_and_the_median_half_width():
    rows = rows_of([0.0] * 180 + [9.0] * 20, 0.0, 2.5)
    headline = Headline(rows, "height")
    assert headline.sentence == (
        "The 90 % intervals contained 90 % of the test values of height, as expected. A typical"
        " interval is ± 2.5."
    )
    assert headline.basis.startswith("180 of 200 held-out rows were inside their intervals")
    assert "few rows" not in headline.basis


def test_figures_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    y, mean = rng.normal(size=(2, 100))
    errors = sorted(abs(a - b) for a, b in zip(y, mean, strict=True))
    found = [
        text.replace("\N{MINUS SIGN}", "-")
        for _, text in Headline(rows_of(y, mean, 1.0), "y").figures
    ]
    assert errors[88] <= float(found[0]) <= errors[90]
    assert float(found[1]) == pytest.approx(sum(errors) / 100, rel=0.01)
    total = sum((a - sum(y) / 100) ** 2 for a in y)
    assert float(found[2]) == pytest.approx(1 - sum(e**2 for e in errors) / total, rel=0.05)


def test_widths_are_relative_where_targets_are_positive_and_differ_by_factors():
    y = np.linspace(100, 1000, 50)
    headline = Headline(rows_of(y, y, 0.08 * y), "price")
    assert headline.is_relative and "± 8.0 % of the predicted value" in headline.sentence
    for other in (y - 200, np.linspace(900, 1000, 50)):  # not positive, or all about the same
        assert not Headline(rows_of(other, other, 5.0), "price").is_relative


def test_headline_has_the_share_of_rows_out_of_distribution_if_the_model_has_a_gate():
    gate = np.array([0.0] * 97 + [0.9] * 3)
    headline = Headline(rows_of(np.zeros(100), 0.0, 1.0, gate), "y")
    assert headline.sentence.endswith(" 3 % of the rows are out of distribution.")
    none = Headline(rows_of(np.zeros(100), 0.0, 1.0, 0 * gate), "y")
    assert none.sentence.endswith(" None of the rows are out of distribution.")


def test_the_verdict_follows_the_exact_confidence_interval():
    def verdict(n_inside: int) -> str:
        return Headline(rows_of([0.0] * n_inside + [9.0] * (200 - n_inside), 0, 1), "y").verdict

    for n_inside in range(160, 201):
        interval = stats.binomtest(n_inside, 200).proportion_ci(0.95, method="exact")
        expected = (
            "so they are too narrow"
            if interval.high < 0.9
            else "so they are wider than needed"
            if interval.low > 0.9
            else "as expected"
        )
        assert verdict(n_inside) == expected, n_inside


def test_headline_says_that_intervals_are_too_narrow():
    narrow = Headline(rows_of([0.0] * 160 + [9.0] * 40, 0.0, 1.0), "y")
    assert narrow.sentence == (
        "The 90 % intervals contained 80 % of the test values of y, so they are too narrow."
        " A typical interval is ± 1."
    )


def test_basis_warns_of_few_and_of_grouped_rows():
    headline = Headline(rows_of(np.zeros(30), 0.0, 1.0), "y")
    assert "few rows" in headline.basis
    assert "the true range is wider" in replace(headline, are_grouped=True).basis


@pytest.mark.parametrize(("n_inside", "n"), [(0, 7), (3, 7), (7, 7), (890, 1000)])
def test_the_interval_of_a_share_is_that_of_scipy(n_inside, n):
    expected = stats.binomtest(n_inside, n).proportion_ci(0.95, method="exact")
    assert share_interval(n_inside, n) == pytest.approx((expected.low, expected.high))


def test_chance_band_contains_nearly_all_calibrated_forecasts():
    """Simulated: 4,000 sets of 120 uniform values; 0.93 is ten standard errors below 0.964."""
    rng, levels = np.random.default_rng(0), np.array([0.1, 0.5, 0.9])
    low, high = chance_band(120, levels)
    shares = (rng.random((4000, 120, 1)) <= levels).mean(axis=1)
    inside = ((low <= shares) & (shares <= high)).mean(axis=0)
    assert (inside >= 0.93).all() and (inside <= 0.99).all()


def test_headline_explains_high_coverage_by_rounding_only_if_rounding_is_the_cause():
    """Ratings: a third of the values are ends of their intervals."""
    y = np.tile([-1.0, 0.0, 0.0], 100)
    rounded = Headline(rows_of(y, 0.0, 1.0), "rating")
    assert rounded.is_rounded and "because the target is rounded" in rounded.sentence
    assert find_cautions([], rounded) == []
    wide = Headline(rows_of(y, 0.0, 1.5), "rating")
    assert not wide.is_rounded and "wider than needed" in find_cautions([], wide)[0].text
