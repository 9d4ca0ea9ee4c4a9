"""The first sentences: counts, words and widths of arrays that are known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sigmax.report.cautions import score_cautions
from sigmax.report.chance import chance_band, share_interval
from sigmax.report.headline import write_headline
from sigmax.report.held_out import HeldOutRows


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


def test_the_sentence_counts_rows_inside_and_gives_the_median_half_width():
    rows = rows_of([0.0] * 180 + [9.0] * 20, 0.0, 2.5)
    headline = write_headline(rows, "height")
    assert headline.sentence == (
        "About 9 in 10 new values of height fall inside the interval that the model gives for"
        " them; typically ± 2.5."
    )
    assert "rests on 200 rows that the model had not seen: 180 of them, or 90 %" in headline.basis
    assert "as promised (90 %)" in headline.basis and "few rows" not in headline.basis


def test_widths_are_relative_where_targets_are_positive_and_differ_by_factors():
    y = np.linspace(100, 1000, 50)
    headline = write_headline(rows_of(y, y, 0.08 * y), "price")
    assert headline.is_relative and "± 8.0 %" in headline.sentence
    for other in (y - 200, np.linspace(900, 1000, 50)):  # not positive, or all about the same
        assert not write_headline(rows_of(other, other, 5.0), "price").is_relative


def test_rows_off_the_data_are_told_where_the_model_knows_them():
    gate = np.array([0.0] * 97 + [0.9] * 3)
    headline = write_headline(rows_of(np.zeros(100), 0.0, 1.0, gate), "y")
    assert headline.sentence.endswith("3 % of the new rows are unlike anything it has seen.")
    none = write_headline(rows_of(np.zeros(100), 0.0, 1.0, 0 * gate), "y")
    assert none.sentence.endswith("none of the new rows are unlike anything it has seen.")


def test_the_verdict_follows_the_exact_confidence_interval():
    def verdict(n_inside: int) -> str:
        return write_headline(
            rows_of([0.0] * n_inside + [9.0] * (200 - n_inside), 0, 1), "y"
        ).verdict

    for n_inside in range(160, 201):
        interval = stats.binomtest(n_inside, 200).proportion_ci(0.95, method="exact")
        expected = (
            "fewer" if interval.high < 0.9 else "more" if interval.low > 0.9 else "as promised"
        )
        assert verdict(n_inside).startswith(expected), n_inside


def test_a_promise_that_is_not_kept_is_told_in_the_first_sentence():
    narrow = write_headline(rows_of([0.0] * 160 + [9.0] * 40, 0.0, 1.0), "y")
    assert narrow.sentence.startswith("80 % of new values of y fall inside")
    assert "fewer than the 90 % that were promised; typically ± 1" in narrow.sentence


def test_few_and_grouped_rows_are_told():
    headline = write_headline(rows_of(np.zeros(30), 0.0, 1.0), "y")
    assert "few rows" in headline.basis
    assert "wider still" in replace(headline, are_grouped=True).basis


@pytest.mark.parametrize(("n_inside", "n"), [(0, 7), (3, 7), (7, 7), (890, 1000)])
def test_the_interval_of_a_share_is_that_of_scipy(n_inside, n):
    expected = stats.binomtest(n_inside, n).proportion_ci(0.95, method="exact")
    assert share_interval(n_inside, n) == pytest.approx((expected.low, expected.high))


def test_the_band_of_chance_holds_nearly_all_of_many_true_forecasts():
    """Simulated: 4,000 sets of 120 uniform values; 0.93 is ten standard errors below 0.964."""
    rng, levels = np.random.default_rng(0), np.array([0.1, 0.5, 0.9])
    low, high = chance_band(120, levels)
    shares = (rng.random((4000, 120, 1)) <= levels).mean(axis=1)
    inside = ((low <= shares) & (shares <= high)).mean(axis=0)
    assert (inside >= 0.93).all() and (inside <= 0.99).all()


def test_more_rows_inside_than_promised_are_put_down_to_rounding_where_that_is_why():
    """Ratings: a third of the values are ends of their intervals."""
    y = np.tile([-1.0, 0.0, 0.0], 100)
    rounded = write_headline(rows_of(y, 0.0, 1.0), "rating")
    assert rounded.is_rounded and "as the target is rounded" in rounded.sentence
    assert score_cautions(rounded) == []
    wide = write_headline(rows_of(y, 0.0, 1.5), "rating")
    assert not wide.is_rounded and "wider than needed" in score_cautions(wide)[0].text
