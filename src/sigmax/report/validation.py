"""Charts of predictions against targets: accuracy, calibration, coverage of groups and periods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from sigmax.report.held_out import COVERAGE, CURVE_LEVELS, HeldOutRows, chance_band, share_interval
from sigmax.report.page import Axis, Chart, Color, Layer, PagePart, log_axis_suits
from sigmax.report.tables import (
    ReportTable,
    TableCell,
    cell_text,
    count_text,
    listed,
    number_text,
    share_text,
    time_text,
)
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame

MOST_POINTS = 600
"""Rows in a scatter plot."""
MOST_SPREAD_BINS, ROWS_PER_SPREAD_BIN = 12, 15
MOST_PIT_BINS, ROWS_PER_PIT_BIN = 20, 20
MOST_GROUPS = 30
"""Groups that are shown, the largest."""
N_PERIODS = 10
Numbers = NDArray[np.float64]
METHOD_COLORS: tuple[Color, ...] = ("1", "2", "3", "4", "5", "6", "7", "8")
BAND = (
    "The band is where 95 % of calibrated models would be with this many independent rows,"
    " at each point separately."
)

coverage_chart = partial(
    Chart,
    title="Coverage of central intervals",
    x=Axis("nominal coverage", low=0.0, high=1.0, percent=True),
    y=Axis("observed coverage", low=0.0, high=1.0, percent=True),
)


def accuracy_part(rows: HeldOutRows, target: str) -> PagePart:
    """Section of predictions against targets."""
    return PagePart(
        name="accuracy",
        heading="How good are the predictions?",
        lead="How close predictions are to the actual values, and whether errors are larger where"
        " the model predicts a larger spread.",
        charts=[predicted_chart(rows, target), spread_chart(rows, target)],
    )


def predicted_chart(rows: HeldOutRows, target: str) -> Chart:
    """Targets over predictions with their intervals, for a sample if there are many rows."""
    shown = rows.sample(MOST_POINTS)
    is_inside = rows.is_inside[shown]
    scale = "log" if log_axis_suits(rows.y) and log_axis_suits(rows.mean) else "linear"
    mean, y, lower, upper = (part[shown] for part in (rows.mean, rows.y, rows.lower, rows.upper))
    ends = zip(rows.numbers[shown], map(number_text, lower), map(number_text, upper), strict=True)
    texts = np.array([f"row {row:,}, interval from {a} to {b}" for row, a, b in ends], dtype=object)

    def points(label: str, color: Color, is_shown: NDArray[np.bool_]) -> Layer:
        chosen = texts[is_shown].tolist()
        return Layer("points", label, color, x=mean[is_shown], y=y[is_shown], texts=chosen)

    sampled = f"a random sample of {len(shown):,} of " if len(shown) < len(rows) else ""
    description = (
        f"Observed over predicted {target} of {count_text(len(rows), 'row')}."
        f" {share_text(float(rows.is_inside.mean()))} are inside their"
        f" {share_text(COVERAGE)} intervals; the correlation of predicted and observed is"
        f" {number_text(correlation(rows.mean, rows.y), 2)}."
    )
    low = None
    if scale == "log":  # start below most of the positive values
        positive = rows.lower[rows.lower > 0]
        low = 0.9 * float(
            min(rows.y.min(), *np.quantile(positive, [0.02]) if len(positive) else ())
        )
    return Chart(
        name="predicted",
        title="Predicted and observed",
        description=description,
        x=Axis(f"predicted {target}", scale),
        y=Axis(f"observed {target}", scale, low=low),
        layers=[
            Layer("intervals", "90 % interval", "chance", x=mean, lower=lower, upper=upper),
            Layer("rule", "predicted = observed", "quiet", dashed=True),
            points("inside its interval", "model", is_inside),
            points("outside", "miss", ~is_inside),
        ],
        note=f"Shown: {sampled}{count_text(len(rows), 'row')}. Points on the line were predicted"
        " exactly. The vertical bars are the predicted intervals.",
        height=400,
    )


@final
@dataclass(frozen=True, eq=False)
class SpreadBins:
    """Bins of rows with similar predicted standard deviation, the smallest first."""

    n_rows: NDArray[np.int64]
    predicted: Numbers
    """Root mean square of the predicted standard deviations."""
    error: Numbers
    """Root mean square error."""
    lower: Numbers
    """Ends of the 95 % confidence interval of the error."""
    upper: Numbers


def bin_spreads(rows: HeldOutRows) -> SpreadBins:
    """Predicted standard deviation and error in bins of equal numbers of rows.

    The confidence interval is that of the mean of independent squared errors, on a logarithmic
    scale, where it is nearly symmetric.
    """
    known = np.flatnonzero(np.isfinite(rows.std))
    order = known[np.argsort(rows.std[known], kind="stable")]
    n_bins = int(np.clip(len(order) // ROWS_PER_SPREAD_BIN, 1, MOST_SPREAD_BINS))
    bins = [part for part in np.array_split(order, n_bins) if len(part)]
    squared = (rows.y - rows.mean) ** 2
    predicted = np.array([np.sqrt(np.mean(rows.std[part] ** 2)) for part in bins])
    means = np.array([squared[part].mean() for part in bins])
    errors = np.array([squared[part].std(ddof=1) if len(part) > 1 else np.nan for part in bins])
    n_rows = np.array([len(part) for part in bins])
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.exp(stats.norm.ppf(0.975) * errors / np.sqrt(n_rows) / means / 2)
    error = np.sqrt(means)
    return SpreadBins(n_rows, predicted, error, error / factor, error * factor)


def spread_chart(rows: HeldOutRows, target: str) -> Chart:
    """Root mean square error over the predicted standard deviation."""
    bins = bin_spreads(rows)
    scale = "log" if log_axis_suits(bins.predicted, bins.error) else "linear"
    ranks = correlation(*map(stats.rankdata, (rows.std, np.abs(rows.y - rows.mean))))
    description = (
        f"{len(bins.error)} bins of similar predicted spread. The error is"
        f" {number_text(bins.error[0], 3)} where the spread is smallest and"
        f" {number_text(bins.error[-1], 3)} where it is largest; the rank correlation of spread"
        f" and error of single rows is {number_text(ranks, 2)}."
    )
    n_infinite = int(np.sum(~np.isfinite(rows.std)))
    omitted = f" Omitted: {count_text(n_infinite, 'row')} of infinite variance." * bool(n_infinite)
    zero = None if scale == "log" else 0.0
    predicted, error, n_rows = bins.predicted, bins.error, int(np.median(bins.n_rows))
    interval = Layer(
        "intervals", "95 % confidence", "chance", x=predicted, lower=bins.lower, upper=bins.upper
    )
    texts = [f"{n:,} rows" for n in bins.n_rows]
    return Chart(
        name="spread",
        title="Predicted spread and error",
        description=description,
        x=Axis(f"predicted standard deviation of {target}", scale, low=zero),
        y=Axis("root mean square error", scale, low=zero),
        layers=[
            Layer("rule", "predicted = observed", "quiet", dashed=True),
            interval,
            Layer("points", f"bins of about {n_rows:,} rows", x=predicted, y=error, texts=texts),
        ],
        note="If the predicted spread is right, the points are on the line." + omitted,
        height=400,
    )


def correlation(x: Numbers, y: Numbers) -> float:
    """Pearson correlation, nan where it is not defined."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def calibration_part(
    rows: HeldOutRows, verdict: str, conformal: Mapping[float, float] | None
) -> PagePart:
    """Section of coverage; ``conformal`` maps levels to the coverage of conformal intervals."""
    share = share_text(rows.is_inside.mean())
    return PagePart(
        name="calibration",
        heading="Are the intervals right?",
        lead=f"The 90 % intervals contained {share} of the rows, {verdict}.",
        charts=[calibration_chart(rows, conformal), pit_chart(rows)],
    )


def coverage_curve(found: Numbers, levels: Numbers = CURVE_LEVELS) -> Numbers:
    """Share of rows in the central interval of each level, from their `covering_levels`."""
    return np.searchsorted(np.sort(found), levels, side="right") / len(found)


def chance_layers(n_rows: int, levels: Any) -> list[Layer]:
    """Diagonal of a calibration chart and the band of sampling error around it."""
    low, high = chance_band(n_rows, levels)
    return [
        Layer("band", "95 % by chance", "chance", x=levels, lower=low, upper=high),
        Layer("rule", "nominal = observed", "quiet", dashed=True),
    ]


def calibration_chart(rows: HeldOutRows, conformal: Mapping[float, float] | None = None) -> Chart:
    """Observed over nominal coverage, with the band of sampling error."""
    observed = coverage_curve(rows.level)
    low, high = chance_band(len(rows), CURVE_LEVELS)
    n_outside = int(np.sum((observed < low) | (observed > high)))
    worst = int(np.argmax(np.abs(observed - CURVE_LEVELS)))
    layers = chance_layers(len(rows), CURVE_LEVELS)
    layers.append(Layer("line", "observed", x=CURVE_LEVELS, y=observed))
    if conformal:
        x, y = list(conformal), list(conformal.values())
        layers.append(Layer("points", "conformal intervals", "miss", x=x, y=y))
    description = (
        f"{n_outside} of {len(CURVE_LEVELS)} points of the curve are outside the band of chance."
        f" The largest gap is at a nominal coverage of {share_text(CURVE_LEVELS[worst])}, where"
        f" {share_text(observed[worst])} of the rows are inside."
    )
    return coverage_chart(
        name="calibration",
        description=description,
        layers=layers,
        note=f"Above the diagonal: wider than needed. Below: too narrow. {BAND}",
    )


def pit_chart(rows: HeldOutRows) -> Chart:
    """Histogram of the probability integral transform, flat for a calibrated model."""
    n_bins = int(np.clip(len(rows) // ROWS_PER_PIT_BIN, 2, MOST_PIT_BINS))
    counts, edges = np.histogram(rows.pit, n_bins, range=(0, 1))
    share = counts / len(rows)
    (low,), (high,) = chance_band(len(rows), [1 / n_bins])
    n_outside = int(np.sum((share < low) | (share > high)))
    description = (
        f"{n_outside} of {n_bins} bars are outside the band of chance, from {share_text(low)} to"
        f" {share_text(high)} of the rows. The first bar has {share_text(share[0])}, the"
        f" last {share_text(share[-1])}."
    )
    return Chart(
        name="pit",
        title="Targets within their distributions",
        description=description,
        x=Axis("predicted probability of a smaller value (PIT)", low=0.0, high=1.0),
        y=Axis("share of rows", low=0.0, percent=True),
        layers=[
            Layer("columns", "rows", lower=edges[:-1], upper=edges[1:], y=share),
            Layer("band", "95 % by chance", "chance", x=[0, 1], lower=[low] * 2, upper=[high] * 2),
            Layer("rule", "calibrated", "quiet", y=[1 / n_bins], dashed=True),
        ],
        note="Tall bars at both ends: too narrow. Tall in the middle: too wide. A slope: biased.",
    )


def curves_chart(
    curves: Mapping[str, Numbers],
    levels: Sequence[float],
    n_rows: int,
    name: str = "calibration",
) -> Chart:
    """Calibration curves of several methods."""
    layers, gaps = chance_layers(n_rows, levels), {}
    for i, (method, observed) in enumerate(curves.items()):
        color, dashed = METHOD_COLORS[i % len(METHOD_COLORS)], i >= len(METHOD_COLORS)
        layers.append(Layer("line", method, color, x=levels, y=observed, dashed=dashed))
        gaps[method] = float(np.mean(np.abs(observed - np.asarray(levels))))
    best = sorted(gaps, key=lambda method: gaps[method])
    description = (
        f"Curves of {len(curves)} methods. Nearest to the diagonal on average:"
        f" {listed(best[:3])}, with a mean gap of"
        f" {', '.join(share_text(gaps[method]) for method in best[:3])}."
    )
    return coverage_chart(name=name, description=description, layers=layers, note=BAND, height=420)


@final
@dataclass(frozen=True)
class RowPart:
    """Group or period of rows, with its coverage and error."""

    name: str
    n_rows: int
    n_inside: int
    half_width: float
    """Median half width of the intervals."""
    rmse: float
    time: float = 0.0
    """Middle of a period, in the units of the time column."""

    @property
    def share(self) -> float:
        return self.n_inside / self.n_rows

    @property
    def bounds(self) -> tuple[float, float]:
        """95 % confidence interval of the coverage."""
        return share_interval(self.n_inside, self.n_rows)


def make_part(
    name: str, rows: HeldOutRows, positions: NDArray[np.intp], time: float = 0.0
) -> RowPart:
    n_inside = int(rows.is_inside[positions].sum())
    half_width = float(np.median(rows.half_width[positions]))
    rmse = float(np.sqrt(np.mean((rows.y - rows.mean)[positions] ** 2)))
    return RowPart(name, len(positions), n_inside, half_width, rmse, time)


def group_parts(rows: HeldOutRows, column: Any) -> list[RowPart]:
    """Groups of a column, the largest first."""
    codes, groups = pd.factorize(column, use_na_sentinel=False)
    largest_first = np.argsort(-np.bincount(codes), kind="stable")
    return [
        make_part(cell_text(groups[i]), rows, np.flatnonzero(codes == i))
        for i in largest_first[:MOST_GROUPS]
    ]


def time_parts(rows: HeldOutRows, times: Numbers, *, are_times: bool) -> list[RowPart]:
    """Periods of equal numbers of rows, without rows whose time is missing."""
    known = np.flatnonzero(np.isfinite(times))
    order = known[np.argsort(times[known], kind="stable")]
    text = time_text if are_times else number_text
    return [
        make_part(
            f"{text(float(times[part[0]]))} to {text(float(times[part[-1]]))}",
            rows,
            part,
            float(np.median(times[part])),
        )
        for part in np.array_split(order, N_PERIODS)
        if len(part)
    ]


def groups_part(
    rows: HeldOutRows, target: str, columns: tuple[str | None, str | None], are_grouped: bool
) -> list[PagePart]:
    """Section of the coverage by the groups of a column and over the times of another."""
    group_column, time_column = columns
    charts, tables = [], []
    if group_column is not None:
        parts = group_parts(rows, rows.columns[group_column])
        charts.append(parts_chart(parts, group_column, "groups", is_time=False))
        tables.append(parts_table(parts, group_column, target))
    if time_column is not None:
        times, are_times = time_values(rows.columns[time_column])
        parts = time_parts(rows, times, are_times=are_times)
        if len(parts) > 1:
            shown = {"is_time": True, "are_times": are_times}
            charts.append(parts_chart(parts, time_column, "periods", **shown))
            tables.append(parts_table(parts, time_column, target))
    if not charts:
        return []
    lead = "Whether the coverage holds in every group and period."
    if are_grouped:
        lead += " Rows of one group are similar, so the confidence intervals are too narrow."
    heading = "Coverage of groups and periods"
    return [PagePart(name="parts", heading=heading, lead=lead, charts=charts, tables=tables)]


def time_values(column: Any) -> tuple[np.ndarray, bool]:
    """Column as seconds since 1970 or as numbers, and True if these are times."""
    raw = columns_of_frame(as_frame(pd.DataFrame({"time": column})))
    schema = Schema(tuple(one.describe(None) for one in raw))
    table = Table.from_columns(raw, schema)
    if schema.columns[0].kind is Kind.TIME:
        return table.times[:, 0], True
    if schema.columns[0].kind is Kind.NUMBER:
        return table.numbers[:, 0], False
    return np.full(len(column), np.nan), False


def parts_chart(
    parts: Sequence[RowPart], column: str, name: str, *, is_time: bool, are_times: bool = False
) -> Chart:
    """Coverage of each group or period, with its confidence interval."""
    shares = [part.share for part in parts]
    texts = [f"{part.name}: {part.n_inside:,} of {part.n_rows:,} rows inside" for part in parts]
    low, high = np.array([part.bounds for part in parts]).T
    n_off = int(np.sum((high < COVERAGE) | (low > COVERAGE)))
    worst = min(parts, key=lambda part: part.share)
    description = (
        f"{len(parts)} parts by {column}; in {n_off} of them the coverage differs from"
        f" {share_text(COVERAGE)} with 95 % confidence. It is lowest, {share_text(worst.share)},"
        f" for {worst.name}."
    )
    positions = [part.time for part in parts] if is_time else np.arange(len(parts))
    coverage = Axis("rows inside their 90 % interval", percent=True, high=1.0)
    rows = Axis(column, "time" if are_times else "linear")
    if not is_time:
        rows = Axis("", "category", levels=tuple(part.name for part in parts))
    across, along = ("x", "y") if is_time else ("y", "x")
    where: Any = {across: positions}
    observed: Any = {along: shares}
    nominal: Any = {along: [COVERAGE]}
    return Chart(
        name=name,
        title=f"Coverage over {column}" if is_time else f"Coverage by {column}",
        description=description,
        x=rows if is_time else coverage,
        y=coverage if is_time else rows,
        layers=[
            Layer("rule", "nominal", "quiet", dashed=True, **nominal),
            Layer("intervals", "95 % confidence", "chance", **where, lower=low, upper=high),
            Layer("points", "observed", **where, **observed, texts=texts),
        ],
        note="Ten periods of equal numbers of rows." if is_time else "",
        height=340 if is_time else max(180, 90 + 24 * len(parts)),
    )


def parts_table(parts: Sequence[RowPart], column: str, target: str) -> ReportTable:
    """Table of the groups or periods."""
    rows = [
        [
            part.name,
            TableCell(f"{part.n_rows:,}", part.n_rows),
            TableCell.share(part.share),
            TableCell(" to ".join(map(share_text, part.bounds)), part.bounds[0]),
            TableCell(f"± {number_text(part.half_width, 3)}", part.half_width),
            TableCell.number(part.rmse, 3),
        ]
        for part in parts
    ]
    return ReportTable(
        title=f"Parts by {column} as numbers",
        header=[
            column,
            "rows",
            "inside",
            "95 % confidence",
            "typical interval",
            f"RMSE ({target})",
        ],
        rows=rows,
        is_folded=True,
        has_filter=True,
    )
