"""Labelled rows with their predictions, and charts of their accuracy and calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.util import hash_array
from scipy import stats

from sigmax.metrics import covering_levels
from sigmax.report.page import Axis, Chart, Color, Layer, PagePart, log_axis_suits
from sigmax.report.tables import cell_text, count_text, number_text, share_text, time_text
from sigmax.tables import Kind, Schema, Table, infer_schema
from sigmax.tables.table import as_frame, columns_of_frame

COVERAGE = 0.9
"""Nominal coverage of the intervals in a report."""
CURVE_LEVELS = np.round(np.linspace(0.02, 0.98, 49), 2)
"""Nominal coverages of the central intervals in a calibration curve."""
OUT_OF_DISTRIBUTION = 0.5
"""Gate above which a row counts as out of distribution."""
N_SAMPLED = 2_000
"""Rows whose features are kept for new predictions."""
N_EXTREME = 12
"""Rows whose features are kept because they are the most uncertain, or have the largest errors."""
MOST_POINTS = 600
MOST_SPREAD_BINS, ROWS_PER_SPREAD_BIN = 12, 15
MOST_PIT_BINS, ROWS_PER_PIT_BIN = 20, 20
MOST_RELIABILITY_BINS, ROWS_PER_RELIABILITY_BIN = 8, 25
MOST_GROUPS = 30
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


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutRows:
    """Held-out or new rows with targets and predictions by a fit that has not seen them."""

    y: Numbers
    mean: Numbers
    std: Numbers
    epistemic: Numbers
    lower: Numbers
    upper: Numbers
    pit: Numbers
    """Predicted probability of at most ``y``."""
    level: Numbers
    """Smallest of `CURVE_LEVELS` whose central interval contains ``y``; infinite if none does."""
    gate: Numbers | None
    """Gate, from 0 near the training rows to 1 far from them; None if the model has none."""
    numbers: NDArray[np.int64]
    """Row numbers in the file, from 1."""
    columns: pd.DataFrame
    """Columns by which the rows are divided into groups or periods."""
    cells: pd.DataFrame
    """Features of some of the rows, indexed by position."""
    thresholds: Numbers = field(default_factory=lambda: np.empty(0))
    above: Numbers = field(default_factory=lambda: np.empty((0, 0)))
    """Predicted probability of more than each of the thresholds, (n, thresholds)."""

    @classmethod
    def create(
        cls,
        X: Any,
        y: Numbers,
        dist: Any,
        bounds: Numbers,
        gate: Numbers | None,
        *,
        numbers: NDArray[np.int64],
        columns: Any,
        thresholds: Numbers | None = None,
    ) -> "HeldOutRows":
        """Labelled rows of a pandas frame, their densities, and the bounds (n, 2) of intervals.

        ``thresholds`` are quartiles of ``y`` below its maximum by default.
        """
        if thresholds is None:
            quartiles = np.unique(np.quantile(y, [0.25, 0.5, 0.75], method="lower"))
            thresholds = quartiles[quartiles < y.max()]
        rows = cls(
            y=y,
            mean=dist.mean,
            std=dist.std,
            epistemic=np.sqrt(dist.epistemic_variance),
            lower=bounds[:, 0],
            upper=bounds[:, 1],
            pit=dist.cdf(y),
            level=covering_levels(y, dist, CURVE_LEVELS),
            gate=None if gate is None else np.asarray(gate, dtype=np.float64),
            numbers=numbers,
            columns=columns.reset_index(drop=True),
            cells=X.reset_index(drop=True),
            thresholds=thresholds,
            above=np.array([dist.sf(value) for value in thresholds]).reshape(-1, len(y)).T,
        )
        return rows.with_fewer_cells()

    @classmethod
    def join(cls, parts: Sequence["HeldOutRows"]) -> "HeldOutRows":
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        cells = [
            part.cells.set_axis(part.cells.index + start, axis=0)
            for part, start in zip(parts, starts, strict=False)
        ]

        def joined(name: str) -> Any:
            arrays = [getattr(part, name) for part in parts]
            return None if arrays[0] is None else np.concatenate(arrays)

        others = ("columns", "cells", "thresholds")
        return cls(
            **{one.name: joined(one.name) for one in fields(cls) if one.name not in others},
            columns=pd.concat([part.columns for part in parts], ignore_index=True),
            cells=pd.concat(cells),
            thresholds=parts[0].thresholds,
        ).with_fewer_cells()

    def __len__(self) -> int:
        return len(self.y)

    @property
    def is_inside(self) -> NDArray[np.bool_]:
        return (self.lower <= self.y) & (self.y <= self.upper)

    @property
    def n_at_end(self) -> int:
        """Number of rows whose target is an end of its interval, as happens with rounded ones."""
        return int(np.sum(self.is_inside & at_end(self.y, self.lower, self.upper)))

    @property
    def centrality(self) -> Numbers:
        """Level of the smallest central interval that contains the target."""
        return np.abs(2 * self.pit - 1)

    @property
    def half_width(self) -> Numbers:
        return (self.upper - self.lower) / 2

    @property
    def standardized_error(self) -> Numbers:
        """Error of the mean in standard deviations."""
        return (self.y - self.mean) / np.where(self.std > 0, self.std, np.nan)

    @property
    def epistemic_share(self) -> Numbers:
        found = (self.epistemic / np.where(self.std > 0, self.std, np.nan)) ** 2
        return np.nan_to_num(found, nan=0.0)

    def most_uncertain(self) -> NDArray[np.intp]:
        """Positions by descending gate, then by descending epistemic share of the variance."""
        gate = np.zeros(len(self)) if self.gate is None else np.round(self.gate, 2)
        return np.lexsort((-self.epistemic_share, -gate))

    def largest_errors(self) -> NDArray[np.intp]:
        """Positions by ascending predicted probability of a target as extreme as this one."""
        error = np.nan_to_num(np.abs(self.standardized_error), nan=0.0)
        return np.lexsort((-error, -np.round(self.centrality, 6)))

    def sample(self, most: int = N_SAMPLED) -> NDArray[np.intp]:
        """Positions of a random sample, sorted, the same at every call."""
        hashed: Any = hash_array  # a hash does not depend on the other rows
        priority = hashed(self.numbers)
        return np.sort(priority.argsort(kind="stable")[:most])

    def with_fewer_cells(self) -> "HeldOutRows":
        """The same rows, with the features of only those rows that the report needs."""
        extreme = self.most_uncertain()[:N_EXTREME], self.largest_errors()[:N_EXTREME]
        wanted = np.concatenate([self.sample(), *extreme])
        return replace(self, cells=self.cells.loc[self.cells.index.isin(wanted)])


@final
@dataclass(frozen=True, eq=False)
class LearnedRows:
    """Training rows, in the order in which the model got them."""

    X: pd.DataFrame
    y: NDArray[np.float64]
    numbers: NDArray[np.int64]
    """Row numbers in the file, from 1."""


def at_end(y: Numbers, lower: Numbers, upper: Numbers) -> NDArray[np.bool_]:
    """True where a value is an end of its interval, up to rounding."""
    distance = np.minimum(np.abs(y - lower), np.abs(upper - y))
    return distance <= 1e-4 * (upper - lower) + 1e-6 * np.abs(y)


def chance_band(n_rows: int, shares: ArrayLike) -> tuple[Numbers, Numbers]:
    """95 % range of each observed share under a calibrated model (binomial distribution)."""
    shares = np.asarray(shares, dtype=np.float64)
    low, high = (stats.binom.ppf(level, n_rows, shares) / n_rows for level in (0.025, 0.975))
    return low, high


def share_interval(n_inside: int, n_rows: int) -> tuple[float, float]:
    """Exact 95 % confidence interval of a share (Clopper and Pearson)."""
    low = stats.beta.ppf(0.025, n_inside, n_rows - n_inside + 1) if n_inside else 0.0
    high = stats.beta.ppf(0.975, n_inside + 1, n_rows - n_inside) if n_inside < n_rows else 1.0
    return float(low), float(high)


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
    low = None
    if scale == "log":  # start below most of the positive values
        positive = rows.lower[rows.lower > 0]
        low = 0.9 * float(
            min(rows.y.min(), *np.quantile(positive, [0.02]) if len(positive) else ())
        )
    return Chart(
        name="predicted",
        title="Predicted and observed",
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


def bin_spreads(rows: HeldOutRows) -> Any:
    """Frame of predicted standard deviation and error in bins of equal numbers of rows.

    The confidence interval from ``lower`` to ``upper`` is that of the mean of independent squared
    errors, on a logarithmic scale, where it is nearly symmetric.
    """
    known = np.flatnonzero(np.isfinite(rows.std))
    order = known[np.argsort(rows.std[known], kind="stable")]
    n_bins = int(np.clip(len(order) // ROWS_PER_SPREAD_BIN, 1, MOST_SPREAD_BINS))
    sizes = [len(part) for part in np.array_split(order, n_bins)]
    squared = pd.DataFrame({"std": rows.std[order] ** 2, "error": (rows.y - rows.mean)[order] ** 2})
    bins: Any = squared.groupby(np.repeat(np.arange(n_bins), sizes))
    mean, n_rows = bins.mean(), bins.size()
    error = np.sqrt(mean["error"])
    factor = np.exp(stats.norm.ppf(0.975) * bins["error"].sem() / mean["error"] / 2)
    bounds = {"lower": error / factor, "upper": error * factor}
    found = {"n_rows": n_rows, "predicted": np.sqrt(mean["std"]), "error": error, **bounds}
    return pd.DataFrame(found)


def spread_chart(rows: HeldOutRows, target: str) -> Chart:
    """Root mean square error over the predicted standard deviation."""
    bins = bin_spreads(rows)
    predicted, error, n_rows = (bins[name].to_numpy() for name in ("predicted", "error", "n_rows"))
    scale = "log" if log_axis_suits(predicted, error) else "linear"
    ranks = correlation(*map(stats.rankdata, (rows.std, np.abs(rows.y - rows.mean))))
    description = (
        f"{len(bins)} bins of similar predicted spread. The error is {number_text(error[0], 3)}"
        f" where the spread is smallest and {number_text(error[-1], 3)} where it is largest; the"
        f" rank correlation of spread and error of single rows is {number_text(ranks, 2)}."
    )
    n_infinite = int(np.sum(~np.isfinite(rows.std)))
    omitted = f" Omitted: {count_text(n_infinite, 'row')} of infinite variance." * bool(n_infinite)
    zero = None if scale == "log" else 0.0
    shown: Any = {"x": predicted, "y": error, "texts": [f"{n:,} rows" for n in n_rows]}
    ends: Any = {"x": predicted, "lower": bins["lower"], "upper": bins["upper"]}
    return Chart(
        name="spread",
        title="Predicted spread and error",
        description=description,
        x=Axis(f"predicted standard deviation of {target}", scale, low=zero),
        y=Axis("root mean square error", scale, low=zero),
        layers=[
            Layer("rule", "predicted = observed", "quiet", dashed=True),
            Layer("intervals", "95 % confidence", "chance", **ends),
            Layer("points", f"bins of about {int(np.median(n_rows)):,} rows", **shown),
        ],
        note="If the predicted spread is right, the points are on the line." + omitted,
        height=400,
    )


def correlation(x: Numbers, y: Numbers) -> float:
    """Pearson correlation, nan where it is not defined."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def coverage_curve(found: Numbers, levels: Numbers = CURVE_LEVELS) -> Numbers:
    """Share of rows in the central interval of each level, from their `covering_levels`."""
    return np.searchsorted(np.sort(found), levels, side="right") / len(found)


def chance_layers(n_rows: int, levels: Any, rule: str = "nominal = observed") -> list[Layer]:
    """Diagonal of a calibration chart and the band of sampling error around it."""
    low, high = chance_band(n_rows, levels)
    return [
        Layer("band", "95 % by chance", "chance", x=levels, lower=low, upper=high),
        Layer("rule", rule, "quiet", dashed=True),
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
        f" The largest difference is at a nominal coverage of {share_text(CURVE_LEVELS[worst])},"
        f" where {share_text(observed[worst])} of the rows are inside."
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


def bin_probabilities(rows: HeldOutRows) -> Any:
    """Frame of predicted probabilities and observed shares of more than each threshold.

    Bins have equal numbers of rows; ``p_value`` is that of the differences in all bins of a
    threshold, by the chi-squared test of Hosmer and Lemeshow without fitted parameters; one row
    counts for one standard error at most.
    """
    n_bins = int(np.clip(len(rows) // ROWS_PER_RELIABILITY_BIN, 1, MOST_RELIABILITY_BINS))
    found = []
    for value, p in zip(rows.thresholds.tolist(), rows.above.T, strict=True):
        parts = np.array_split(np.argsort(p, kind="stable"), n_bins)
        mean, share = (np.array([np.mean(v[part]) for part in parts]) for v in (p, rows.y > value))
        n_rows = np.array([len(part) for part in parts])
        variance = np.array([np.mean(p[part] * (1 - p[part])) for part in parts]) / n_rows
        statistic = np.sum((share - mean) ** 2 / np.maximum(variance, n_rows**-2.0))
        columns = {"threshold": value, "n_rows": n_rows, "predicted": mean}
        columns |= {"observed": share, "p_value": stats.chi2.sf(statistic, n_bins)}
        found.append(pd.DataFrame(columns))
    return pd.concat(found, ignore_index=True)


def reliability_sentence(bins: Any, target: str) -> str:
    """Verdict on probabilities of more than thresholds: 5 % of calibrated models fail."""
    values = [number_text(value, 3) for value in bins["threshold"].unique()]
    listed = " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    difference = np.abs(bins["observed"] - bins["predicted"])
    text = f"Predicted probabilities of {target} above {listed}"
    if bins["p_value"].min() >= 0.05 / len(values):
        mean = 100 * np.average(difference, weights=bins["n_rows"])
        points = f"{mean:.1f} percentage points on average"
        return f"{text} hold: observed shares differ from them by {points}, as by chance."
    worst = bins.iloc[int(np.argmax(difference))]
    return (
        f"{text} do not hold: above {number_text(worst['threshold'], 3)}, where"
        f" {share_text(worst['predicted'])} were predicted, {share_text(worst['observed'])} were"
        " observed."
    )


def reliability_charts(rows: HeldOutRows, target: str) -> tuple[list[Chart], str]:
    """Observed shares over predicted probabilities of more than thresholds, and the verdict."""
    if not len(rows.thresholds):
        return [], ""
    bins = bin_probabilities(rows)
    sentence, n_rows = reliability_sentence(bins, target), int(bins["n_rows"].min())
    layers = chance_layers(n_rows, np.linspace(0, 1, 51), "predicted = observed")
    for i, (value, part) in enumerate(bins.groupby("threshold")):
        texts = [f"{n:,} rows" for n in part["n_rows"]]
        shown: Any = {"x": part["predicted"], "y": part["observed"], "texts": texts}
        label = f"{target} above {number_text(value, 3)}"
        layers.append(Layer("points", label, METHOD_COLORS[i], **shown))
    chart = coverage_chart(
        name="reliability",
        title="Probabilities of more than a value",
        x=Axis("predicted probability", low=0.0, high=1.0, percent=True),
        y=Axis("observed share", low=0.0, high=1.0, percent=True),
        description=sentence,
        layers=layers,
        note=f"Thresholds: quartiles of the targets. Every point is about {n_rows:,} rows with"
        " similar predictions; 95 % of points of calibrated models are in the band.",
    )
    return [chart], sentence


def curves_chart(curves: Mapping[str, Numbers], n_rows: int, name: str) -> Chart:
    """Calibration curves of several methods, at `CURVE_LEVELS`."""
    levels = CURVE_LEVELS
    layers = chance_layers(n_rows, levels)
    for i, (method, observed) in enumerate(curves.items()):
        color, dashed = METHOD_COLORS[i % len(METHOD_COLORS)], i >= len(METHOD_COLORS)
        layers.append(Layer("line", method, color, x=levels, y=observed, dashed=dashed))
    return coverage_chart(name=name, layers=layers, note=BAND, height=420)


def describe_parts(
    rows: HeldOutRows, part_of_row: NDArray[np.integer], names: Sequence[str], times: Any = 0.0
) -> Any:
    """Frame of coverage, typical width and error of parts of the rows; part -1 is left out.

    ``low`` and ``high`` are the 95 % confidence interval of the coverage, ``time`` is the middle
    of a period.
    """
    columns = {"inside": rows.is_inside, "half_width": rows.half_width, "time": times}
    frame = pd.DataFrame(columns | {"squared": (rows.y - rows.mean) ** 2})
    parts: Any = frame[part_of_row >= 0].groupby(part_of_row[part_of_row >= 0])
    n_rows, n_inside = parts.size(), parts["inside"].sum()
    bounds = [share_interval(*pair) for pair in zip(n_inside, n_rows, strict=True)]
    low, high = np.array(bounds).reshape(-1, 2).T
    found = {"name": names, "n_rows": n_rows, "n_inside": n_inside, "share": n_inside / n_rows}
    found |= {"low": low, "high": high, "rmse": np.sqrt(parts["squared"].mean())}
    return pd.DataFrame(found | {name: parts[name].median() for name in ("half_width", "time")})


def group_parts(rows: HeldOutRows, column: Any) -> Any:
    """Groups of a column, the largest first."""
    codes, groups = pd.factorize(column, use_na_sentinel=False)
    shown = np.argsort(-np.bincount(codes), kind="stable")[:MOST_GROUPS]
    positions = np.full(len(groups), -1)
    positions[shown] = np.arange(len(shown))
    return describe_parts(rows, positions[codes], [cell_text(groups[i]) for i in shown])


def time_parts(rows: HeldOutRows, times: Numbers, *, are_times: bool) -> Any:
    """Periods of equal numbers of rows, without rows whose time is missing."""
    known = np.flatnonzero(np.isfinite(times))
    order = known[np.argsort(times[known], kind="stable")]
    parts = [part for part in np.array_split(order, N_PERIODS) if len(part)]
    part_of_row = np.full(len(times), -1)
    part_of_row[order] = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    text = time_text if are_times else number_text
    ends = [times[part[[0, -1]]].tolist() for part in parts]
    names = [f"{text(low)} to {text(high)}" for low, high in ends]
    return describe_parts(rows, part_of_row, names, times)


def groups_part(
    rows: HeldOutRows, target: str, columns: tuple[str | None, str | None], are_grouped: bool
) -> list[PagePart]:
    """Section of the coverage by the groups of a column and over the times of another."""
    group_column, time_column = columns
    charts = []
    if group_column is not None:
        parts = group_parts(rows, rows.columns[group_column])
        charts.append(parts_chart(parts, group_column, "groups", target, is_time=False))
    if time_column is not None:
        frame = rows.columns.filter(items=[time_column])
        schema = infer_schema(frame)
        kind, times = schema.columns[0].kind, values_of(frame, schema)[time_column]
        times, are_times = times if kind is not Kind.CATEGORY else np.nan * times, kind is Kind.TIME
        parts = time_parts(rows, times, are_times=are_times)
        if len(parts) > 1:
            shown = {"is_time": True, "are_times": are_times}
            charts.append(parts_chart(parts, time_column, "periods", target, **shown))
    if not charts:
        return []
    lead = "Observed coverage of the 90 % intervals in every group and period."
    if are_grouped:
        lead += " Rows of one group are similar, so the confidence intervals are too narrow."
    heading = "Coverage of groups and periods"
    return [PagePart(name="parts", heading=heading, lead=lead, charts=charts)]


def values_of(X: pd.DataFrame, schema: Schema) -> dict[str, Numbers]:
    """Every column as numbers: times in seconds, categories as codes, nan for missing values."""
    table = Table.from_columns(columns_of_frame(as_frame(X[schema.names])), schema)
    found = {}
    for kind, values in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times)):
        found |= {column.name: values[:, i] for i, column in enumerate(schema.of_kind(kind))}
    for column, categories in zip(schema.of_kind(Kind.CATEGORY), table.categories, strict=True):
        codes = categories.codes.astype(np.float64)
        found[column.name] = np.where(codes < 0, np.nan, codes)
    return found


def parts_chart(
    parts: Any, column: str, name: str, target: str, *, is_time: bool, are_times: bool = False
) -> Chart:
    """Coverage of each group or period, with its confidence interval."""
    texts = [
        f"{one.name}: {one.n_inside:,} of {one.n_rows:,} rows inside, typical interval ±"
        f" {number_text(one.half_width, 3)}, RMSE {number_text(one.rmse, 3)} ({target})"
        for one in parts.itertuples()
    ]
    positions = parts["time"] if is_time else np.arange(len(parts))
    coverage = Axis("rows inside their 90 % interval", percent=True, high=1.0)
    rows = Axis(column, "time" if are_times else "linear")
    if not is_time:
        rows = Axis("", "category", levels=tuple(parts["name"]))
    across, along = ("x", "y") if is_time else ("y", "x")
    where: Any = {across: positions}
    observed: Any = {along: parts["share"]}
    nominal: Any = {along: [COVERAGE]}
    ends: Any = {"lower": parts["low"], "upper": parts["high"]}
    return Chart(
        name=name,
        title=f"Coverage over {column}" if is_time else f"Coverage by {column}",
        x=rows if is_time else coverage,
        y=coverage if is_time else rows,
        layers=[
            Layer("rule", "nominal", "quiet", dashed=True, **nominal),
            Layer("intervals", "95 % confidence", "chance", **where, **ends),
            Layer("points", "observed", **where, **observed, texts=texts),
        ],
        note="Ten periods of equal numbers of rows." if is_time else "",
        height=340 if is_time else max(180, 90 + 24 * len(parts)),
    )
