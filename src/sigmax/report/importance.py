"""Permutation importance and partial dependence of a model on its columns."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.page import Axis, Chart, Layer, PagePart
from sigmax.report.tables import (
    ReportTable,
    TableCell,
    cell_text,
    count_text,
    number_text,
    time_text,
)
from sigmax.report.validation import COVERAGE, values_of
from sigmax.tables import Kind, Schema

MOST_ROWS = 300
MOST_PREDICTIONS = 4_000
"""Rows to predict, over all columns: with many columns, fewer rows and permutations are used."""
MOST_PERMUTATIONS = 2
FEWEST_ROWS = 40
MOST_BARS = 15
DEPENDENCE_ROWS = 64
"""Held-out rows over which the partial dependence is averaged."""
DEPENDENCE_COLUMNS = 8
MOST_VALUES = 12
"""Values of a column at which the partial dependence is computed."""
UNITS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}

Numbers = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Importance:
    """Change of the predictions when a column is permuted; arrays have one entry per unit."""

    units: tuple[tuple[str, ...], ...]
    """Columns; those of one unit are permuted together."""
    mean_shift: Numbers
    """Root mean square change of the mean, in units of the target."""
    error_rise: Numbers
    spread_change: Numbers
    """Mean absolute change of the logarithm of the standard deviation."""
    n_rows: int
    n_permutations: int

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(" and ".join(unit) for unit in self.units)

    @property
    def spread_factor(self) -> Numbers:
        """Relative change of the standard deviation, up or down: 0.2 is a fifth."""
        return np.expm1(self.spread_change)

    def order(self) -> NDArray[np.intp]:
        """Positions of the units, the most important for the mean or the spread first."""
        shares = [
            part / (part.max() or 1.0) if len(part) else part
            for part in (self.mean_shift, self.spread_change)
        ]
        return np.lexsort((-shares[0] - shares[1], -np.round(shares[0], 3)))


def permutation_importance(
    model: Any,
    X: pd.DataFrame,
    y: Numbers,
    *,
    held_out: Numbers | None = None,
    together: Sequence[str] = (),
    seed: int = 0,
) -> Importance:
    """Permute each column in turn, times ``together``, and measure how the predictions change.

    The error rises from that of the ``held_out`` predictions, if the model has learned the rows.
    """
    units = [(str(name),) for name in X.columns if name not in together]
    units += [tuple(together)] if together else []
    n_rows = min(len(X), MOST_ROWS, max(FEWEST_ROWS, MOST_PREDICTIONS // len(units)))
    affordable = MOST_PREDICTIONS // (n_rows * len(units))
    n_permutations = int(np.clip(affordable, 1, MOST_PERMUTATIONS))
    X, y = X.iloc[:n_rows].reset_index(drop=True), y[:n_rows]
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(n_rows) for _ in range(n_permutations)]

    def permuted(unit: Sequence[str], order: NDArray[np.intp]) -> pd.DataFrame:
        return X.assign(**{name: X[name].take(order).reset_index(drop=True) for name in unit})

    frames = [X, *(permuted(unit, order) for unit in units for order in orders)]
    dist = model.predict_dist(pd.concat(frames, ignore_index=True))
    mean, std = dist.mean[:n_rows], dist.std[:n_rows]
    shape = len(units), n_permutations * n_rows
    means, stds = (part[n_rows:].reshape(shape) for part in (dist.mean, dist.std))
    rmse = np.sqrt(np.mean(((mean if held_out is None else held_out[:n_rows]) - y) ** 2))
    mean, std, y = (np.tile(part, n_permutations) for part in (mean, std, y))
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.abs(np.log(stds) - np.log(std))
    return Importance(
        units=tuple(units),
        mean_shift=np.sqrt(np.mean((means - mean[None]) ** 2, axis=1)),
        error_rise=np.sqrt(np.mean((means - y[None]) ** 2, axis=1)) - rmse,
        spread_change=np.mean(np.where(np.isfinite(changes), changes, 0.0), axis=1),
        n_rows=n_rows,
        n_permutations=n_permutations,
    )


def importance_part(found: Importance, target: str) -> PagePart:
    """Section of the importance for the mean and for the spread, columns in one order."""
    order = found.order()
    shown = order[:MOST_BARS]
    names = tuple(found.columns[i] for i in shown)
    hidden = len(order) - len(shown)
    more = f" The {hidden:,} other columns are in the table." if hidden else ""
    rises = [f"error rises by {number_text(found.error_rise[i], 3)}" for i in shown]
    shared: Any = {"y": Axis("", "category", levels=names), "height": 90 + 26 * len(shown)}
    y = np.arange(len(shown))
    shift, factor = found.mean_shift[shown], found.spread_factor[shown]
    charts = [
        Chart(
            name="importance-mean",
            title="What drives the mean",
            x=Axis(f"mean moves by, in units of {target}", low=0.0),
            layers=[Layer("bars", "mean moves by", x=shift, y=y, texts=rises)],
            **shared,
        ),
        Chart(
            name="importance-spread",
            title="What drives the spread",
            x=Axis("spread changes by", low=0.0, percent=True),
            layers=[Layer("bars", "spread changes by", "miss", x=factor, y=y)],
            note=f"One column at a time is shuffled among {count_text(found.n_rows, 'row')},"
            f" {count_text(found.n_permutations, 'time')}; the bars show how far predictions move."
            f" Columns with the same information share the effect.{more}",
            **shared,
        ),
    ]

    table = ReportTable(
        title="All columns as numbers",
        is_folded=True,
        has_filter=True,
        header=["column", "mean moves by", "error rises by", "spread changes by"],
        rows=[
            [
                found.columns[i],
                TableCell.number(found.mean_shift[i], 3),
                TableCell.number(found.error_rise[i], 3),
                TableCell.share(found.spread_factor[i]),
            ]
            for i in order
        ],
        notes=["If the error falls, it falls by chance: the column has no information."],
    )
    return PagePart(
        name="importance",
        heading="What drives the prediction",
        lead="Which columns move the mean, and which change the width of the distribution.",
        charts=charts,
        tables=[table],
    )


@final
@dataclass(frozen=True, eq=False)
class Dependence:
    """Partial dependence on one column, or on the time between two."""

    column: str
    kind: Kind
    values: Numbers
    """Numbers, seconds since 1970, or codes of categories."""
    names: tuple[str, ...]
    counts: NDArray[np.int64]
    """Number of rows with each category, or nearest to each number or time."""
    change: Callable[[int], Mapping[str, Any]]
    """Columns to replace for the value at a position."""
    averages: Numbers = field(default_factory=lambda: np.empty((3, 0)))
    """Average mean, lower and upper end of the interval at each value."""
    n_rows: int = 0


def find_dependence(
    model: Any, X: pd.DataFrame, schema: Schema, columns: Sequence[str]
) -> list[Dependence]:
    """Averages of means and intervals of the first rows, given each value of a column in turn."""
    rows = X.iloc[:DEPENDENCE_ROWS].reset_index(drop=True)
    chosen = choose_columns(X, len(rows), schema, list(columns)[:DEPENDENCE_COLUMNS])
    if not chosen:
        return []
    frames = [rows.assign(**one.change(i)) for one in chosen for i in range(len(one.values))]
    dist, sizes = model.predict_dist(pd.concat(frames)), [len(one.values) for one in chosen]
    found = np.column_stack([dist.mean, dist.interval(COVERAGE)]).T
    averages = found.reshape(3, -1, len(rows)).mean(axis=2)
    dependences = []
    for one, part in zip(chosen, np.split(averages, np.cumsum(sizes)[:-1], axis=1), strict=True):
        order, values = np.arange(len(one.values)), one.values
        if one.kind is Kind.CATEGORY:  # sorted by their means
            order, values = np.argsort(-part[0], kind="stable"), order.astype(np.float64)
        names = tuple(one.names[i] for i in order)
        known = replace(one, values=values, names=names, counts=one.counts[order])
        dependences.append(replace(known, averages=part[:, order], n_rows=len(rows)))
    return dependences


def choose_columns(
    X: pd.DataFrame, n_rows: int, schema: Schema, columns: Sequence[str]
) -> list[Dependence]:
    """Values of columns; times move together, and the time between two is a quantity of its own."""
    kinds = {column.name: column.kind for column in schema}
    values = values_of(X, schema)
    times = [column.name for column in schema.of_kind(Kind.TIME)]
    known = [name for name in times if np.isfinite(values[name]).any()]
    pairs = dict(itertools.pairwise(sorted(known, key=lambda name: np.nanmean(values[name]))))
    found = []
    for name in columns:
        if kinds[name] is not Kind.TIME:
            found.append(replaced(X[name], values[name], kinds[name], n_rows))
            continue
        if (later := pairs.get(name)) is not None:
            found.append(time_between(values[name], values[later], name, later, n_rows))
        found.append(shifted(values, name, times, n_rows))
    return [one for one in found if len(one.values)]


def replaced(cells: Any, numbers: Numbers, kind: Kind, n_rows: int) -> Dependence:
    """Values of a column, each given to all rows."""
    chosen = choose_values(numbers, kind)
    values = numbers[chosen]
    names = [cell_text(cells.iloc[row]) for row in chosen.tolist()]
    if kind is Kind.CATEGORY:
        is_equal = numbers[:, None] == values[None]
        counts = np.where(np.isnan(values), np.isnan(numbers).sum(), is_equal.sum(axis=0))
    else:
        counts = count_nearest(numbers, values)

    def change(i: int) -> dict[str, Any]:
        return {cells.name: cells.take(np.full(n_rows, chosen[i])).reset_index(drop=True)}

    return Dependence(str(cells.name), kind, values, tuple(names), counts, change)


def shifted(
    numbers: dict[str, Numbers], name: str, together: Sequence[str], n_rows: int
) -> Dependence:
    """Times of a column, each given to all rows; the other times keep their distance."""
    values = numbers[name][choose_values(numbers[name], Kind.TIME)]
    names = tuple(map(time_text, values.tolist()))

    def change(i: int) -> dict[str, Any]:
        shift = values[i] - numbers[name][:n_rows]
        moved = {other: numbers[other][:n_rows] + shift for other in together if other != name}
        moved[name] = np.full(n_rows, values[i])
        return {column: as_times(seconds) for column, seconds in moved.items()}

    counts = count_nearest(numbers[name], values)
    return Dependence(name, Kind.TIME, values, names, counts, change)


def time_between(start: Numbers, end: Numbers, one: str, other: str, n_rows: int) -> Dependence:
    """Times between two columns, each given to all rows by changing the later column."""
    length = end - start
    size = float(np.nanmedian(np.abs(length))) if np.isfinite(length).any() else 0.0
    unit = next((unit for unit, seconds in UNITS.items() if size >= seconds), "seconds")
    length = length / UNITS[unit]
    values = length[choose_values(length, Kind.NUMBER)]

    def change(i: int) -> dict[str, Any]:
        return {other: as_times(start[:n_rows] + UNITS[unit] * values[i])}

    name = f"{unit} from {one} to {other}"
    names = tuple(map(number_text, values.tolist()))
    return Dependence(name, Kind.NUMBER, values, names, count_nearest(length, values), change)


def as_times(seconds: Numbers) -> pd.Series:
    return pd.Series(pd.to_datetime(np.round(seconds), unit="s"))


def count_nearest(numbers: Numbers, values: Numbers) -> NDArray[np.int64]:
    edges = (values[1:] + values[:-1]) / 2
    nearest = np.searchsorted(edges, numbers[~np.isnan(numbers)])
    return np.bincount(nearest, minlength=len(values)).astype(np.int64)


def choose_values(values: Numbers, kind: Kind) -> NDArray[np.intp]:
    """Positions of the most frequent categories, or of numbers at equally spaced quantiles."""
    known, first, counts = np.unique(
        values[~np.isnan(values)], return_index=True, return_counts=True
    )
    positions = np.flatnonzero(~np.isnan(values))[first]
    if kind is Kind.CATEGORY:
        frequent = np.argsort(-counts, kind="stable")[:MOST_VALUES]
        missing = np.flatnonzero(np.isnan(values))[:1]
        return np.concatenate([positions[frequent], missing])
    if len(known) > MOST_VALUES:
        levels = np.linspace(0.01, 0.99, MOST_VALUES)
        wanted = np.quantile(values[~np.isnan(values)], levels, method="nearest")
        positions = positions[np.unique(np.searchsorted(known, wanted))]
    return positions


def dependence_part(found: Sequence[Dependence], order: Sequence[str], target: str) -> PagePart:
    """Section with one chart per column, of which the reader selects one."""
    charts = [dependence_chart(one, target, f"dependence-{i}") for i, one in enumerate(found)]
    note = f"Shown for the {DEPENDENCE_COLUMNS} most important of {len(order):,} columns."
    return PagePart(
        name="dependence",
        heading="Dependence on a column",
        choice_label="Column",
        choices=[(one.column, chart) for one, chart in zip(found, charts, strict=True)],
        notes=[note] if len(order) > DEPENDENCE_COLUMNS else [],
    )


def dependence_chart(found: Dependence, target: str, name: str) -> Chart:
    mean, lower, upper = found.averages
    is_category = found.kind is Kind.CATEGORY
    nearby = "" if is_category else " nearby"
    texts = [f"{count_text(n, 'row')}{nearby}" for n in found.counts.tolist()]
    column = Axis(found.column, "time" if found.kind is Kind.TIME else "linear")
    if is_category:
        column = Axis(found.column, "category", levels=found.names)
    across, along = ("y", "x") if is_category else ("x", "y")
    interval: Any = {across: found.values, "lower": lower, "upper": upper}
    points: Any = {across: found.values, along: mean}
    prediction = Axis(f"predicted {target}")
    return Chart(
        name=name,
        title=f"Dependence on {found.column}",
        x=prediction if is_category else column,
        y=column if is_category else prediction,
        layers=[
            Layer("intervals" if is_category else "band", "90 % interval", "chance", **interval),
            *([] if is_category else [Layer("line", **points)]),
            Layer("points", f"mean of {target}", texts=texts, **points),
        ],
        note=f"Averages over {count_text(found.n_rows, 'row')} with all other columns unchanged."
        " The interval is wider where such rows do not occur.",
        height=max(200, 90 + 26 * len(found.values)) if is_category else 380,
    )
