"""Numbers in charts against SciPy and loops."""

from dataclasses import replace

import numpy as np
import pytest
from report_cases import make_report, make_rows, predicted_rows
from scipy import stats

from sigmax.report.validation import (
    CURVE_LEVELS,
    HeldOutRows,
    bin_probabilities,
    bin_spreads,
    calibration_chart,
    coverage_curve,
    group_parts,
    parts_chart,
    pit_chart,
    predicted_chart,
    reliability_charts,
    reliability_sentence,
    spread_chart,
    time_parts,
)


@pytest.fixture(scope="module")
def rows() -> HeldOutRows:
    X, y, model = make_rows(3000)
    return predicted_rows(model, X, y, columns=X[["kind", "day"]])


def test_pit_and_intervals_are_those_of_scipy(rows):
    expected = stats.norm(rows.mean, rows.std)
    np.testing.assert_allclose(rows.pit, expected.cdf(rows.y), atol=1e-9)
    np.testing.assert_allclose(rows.lower, expected.ppf(0.05), rtol=1e-6)


def test_the_calibration_curve_is_the_share_of_rows_in_central_intervals(rows):
    expected = [
        np.mean(np.abs(rows.y - rows.mean) <= stats.norm.ppf(0.5 + level / 2) * rows.std)
        for level in CURVE_LEVELS
    ]
    np.testing.assert_allclose(coverage_curve(rows.level), expected, atol=1e-3)


def test_the_true_model_is_inside_both_bands_and_a_narrow_one_is_not(rows):
    """Of 49 dependent points at 5 % each; all 20 columns: fewer than 5 in 99.7 % of all seeds."""

    def n_outside(chart) -> int:
        return int(chart.description.split()[0])

    assert n_outside(calibration_chart(rows)) < 25 and n_outside(pit_chart(rows)) < 5
    X, y, model = make_rows(3000)
    mean, _ = model.moments(X)
    narrow = predicted_rows(model, X, mean + 2 * (y - mean))
    assert n_outside(calibration_chart(narrow)) > 40 and n_outside(pit_chart(narrow)) > 10


def test_probabilities_of_more_than_quartiles_are_compared_with_shares_of_rows(rows):
    bins = bin_probabilities(rows)
    np.testing.assert_allclose(rows.thresholds, np.quantile(rows.y, [0.25, 0.5, 0.75]), rtol=0.01)
    dist = stats.norm(rows.mean, rows.std)
    for value, part in bins.groupby("threshold"):
        p = dist.sf(value)
        order = np.argsort(p, kind="stable").reshape(8, -1)
        np.testing.assert_allclose(part["predicted"], p[order].mean(axis=1), atol=1e-6)
        np.testing.assert_allclose(part["observed"], (rows.y > value)[order].mean(axis=1))
    (chart,), sentence = reliability_charts(rows, "y")
    assert " hold: observed shares differ from them by " in sentence
    assert [layer["label"][:8] for layer in chart.to_json()["layers"][2:]] == ["y above "] * 3


def test_the_test_of_probabilities_fails_for_one_in_twenty_true_models_and_for_a_wrong_one(rows):
    """Of 200 true models 10 should fail at 5 %, and more than 24 with 1 of 10,000 seeds."""
    rng = np.random.default_rng(0)
    n_failed = 0
    for _ in range(200):
        y = rng.normal(rows.mean, rows.std)
        p_value = bin_probabilities(replace(rows, y=y))["p_value"].min()
        n_failed += p_value < 0.05 / 3
    assert n_failed <= 24
    shifted = bin_probabilities(replace(rows, y=rows.y + 0.3 * rows.std))
    assert "do not hold: above" in reliability_sentence(shifted, "y")


def test_columns_of_the_pit_histogram_add_up_to_all_rows(rows):
    share = np.asarray(pit_chart(rows).to_json()["layers"][0]["y"])
    assert share.sum() == pytest.approx(1.0, abs=1e-4)  # the chart has six digits
    expected, _ = np.histogram(rows.pit, 20, range=(0, 1))
    np.testing.assert_allclose(share, expected / 3000, atol=1e-6)


def test_bins_of_spread_are_root_mean_squares_of_sorted_rows(rows):
    bins = bin_spreads(rows)
    order = np.argsort(rows.std, kind="stable")
    first = order[: bins.n_rows[0]]
    assert bins.n_rows.sum() == 3000 and len(bins.n_rows) == 12
    assert bins.predicted[0] == pytest.approx(np.sqrt(np.mean(rows.std[first] ** 2)))
    errors = (rows.y - rows.mean)[first]
    assert bins.error[0] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert bins.error.iloc[-1] / bins.error[0] == pytest.approx(
        rows.std.max() / rows.std.min(), rel=0.3
    )
    assert (bins.lower < bins.error).all() and (bins.error < bins.upper).all()


def test_the_confidence_of_a_bin_is_that_of_the_bootstrap(rows):
    squared = (rows.y - rows.mean)[np.argsort(rows.std, kind="stable")][:250] ** 2
    drawn = np.random.default_rng(0).choice(squared, (4000, 250)).mean(axis=1) ** 0.5
    bins = bin_spreads(rows)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert bins.lower[0] == pytest.approx(low, rel=0.03)
    assert bins.upper[0] == pytest.approx(high, rel=0.03)


def test_a_scatter_plot_of_many_rows_is_a_fixed_sample(rows):
    one, other = (predicted_chart(rows, "y").to_json() for _ in range(2))
    assert one == other
    points = [layer for layer in one["layers"] if layer["mark"] == "points"]
    assert sum(len(layer["x"]) for layer in points) == 600
    assert "a random sample of 600 of 3,000 rows" in predicted_chart(rows, "y").note


def test_infinite_variances_and_constant_spreads_are_drawn(rows):
    from dataclasses import replace

    std = np.where(np.arange(3000) < 5, np.inf, rows.std)
    chart = spread_chart(replace(rows, std=std), "y")
    assert "5 rows of infinite variance" in chart.note
    chart = spread_chart(replace(rows, std=np.ones(3000)), "y")
    assert "unknown" in chart.description


def test_parts_are_counted_as_a_loop_counts_them(rows):
    kind = rows.columns["kind"]
    for part in group_parts(rows, kind).itertuples():
        members = (kind == part.name).to_numpy()
        assert part.n_rows == members.sum()
        assert part.n_inside == rows.is_inside[members].sum()
        assert part.half_width == pytest.approx(np.median(rows.half_width[members]))
    unknown = kind.astype("string").where(np.arange(3000) > 0)  # pandas' NA
    assert "(missing)" in set(group_parts(rows, unknown)["name"])
    times = np.arange(3000, dtype=float)
    times[7] = np.nan
    parts = time_parts(rows, times, are_times=False)
    assert len(parts) == 10 and parts["n_rows"].sum() == 2999
    chart = parts_chart(parts, "day", "periods", "y", is_time=True)
    assert chart.to_json()["layers"][2]["x"] == parts["time"].tolist()


def test_joined_chunks_equal_the_rows_predicted_at_once():
    X, y, model = make_rows(5000)
    whole = predicted_rows(model, X, y, columns=X[["kind"]])
    parts = [
        predicted_rows(
            model,
            X.iloc[part],
            y[part],
            numbers=np.arange(5000)[part] + 1,
            columns=X[["kind"]].iloc[part],
        )
        for part in (slice(0, 1700), slice(1700, 1800), slice(1800, 5000))
    ]
    joined = HeldOutRows.join(parts)
    np.testing.assert_array_equal(joined.pit, whole.pit)
    np.testing.assert_array_equal(joined.sample(), whole.sample())
    np.testing.assert_array_equal(np.sort(joined.cells.index), np.sort(whole.cells.index))
    assert joined.cells.loc[whole.cells.index].equals(whole.cells)
    assert 2000 <= len(whole.cells) <= 2024


def test_charts_of_a_report_have_unique_names():
    charts = [chart.name for part in make_report(100).page().parts for chart in part.all_charts]
    assert len(set(charts)) == len(charts) >= 10
