"""How the prediction depends on one column, all others as they are in held-out rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.charts import Axis, Chart, Layer
from sigmax.report.held_out import COVERAGE
from sigmax.report.importance import Progress, blocks_of
from sigmax.report.texts import cell_text, count_text, number_text, time_text
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame

__all__ = ["Dependence", "dependence_chart", "find_dependence"]

MOST_ROWS = 128
"""Held-out rows over which predictions are averaged."""
MOST_VALUES = 16
"""Values of a column that are tried."""
MOST_COLUMNS = 12

Numbers = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Dependence:
    """The average prediction of some rows for several values of one column."""

    column: str
    kind: Kind
    places: Numbers
    """The values: numbers, seconds since 1970, or 0, 1, ... for levels."""
    names: tuple[str, ...]
    """The values as text."""
    counts: NDArray[np.int64]
    """Rows with a value up to halfway to the next ones, of those from which values are chosen."""
    mean: Numbers
    lower: Numbers
    upper: Numbers
    n_rows: int


def find_dependence(
    model: Any,
    X: pd.DataFrame,
    schema: Schema,
    columns: Sequence[str],
    *,
    progress: Progress = lambda share: None,
) -> list[Dependence]:
    """The dependence on each of some columns, by partial dependence.

    Every value that is tried stands in ``X``. It is given to the same rows, the first of ``X``,
    and the means and the ends of their 90 % intervals are averaged.
    """
    kinds = {column.name: column.kind for column in schema}
    places = values_of(X, schema)
    chosen = list(columns)[:MOST_COLUMNS]
    tried = {name: choose_values(places[name], kinds[name]) for name in chosen}
    rows = X.iloc[:MOST_ROWS].reset_index(drop=True)
    frames = (
        rows.assign(**{name: X[name].take(np.full(len(rows), cell)).reset_index(drop=True)})
        for name, cells in tried.items()
        for cell in cells
    )
    total = len(rows) * sum(map(len, tried.values()))
    found = predict_intervals(model, frames, lambda n_done: progress(n_done / max(total, 1)))
    averages = np.array([part.reshape(-1, len(rows)).mean(axis=1) for part in found])
    ends = np.cumsum([len(cells) for cells in tried.values()])
    parts = np.split(averages, ends[:-1], axis=1) if len(ends) else []
    return [
        describe(name, kinds[name], X[name], places[name], cells, part, len(rows))
        for (name, cells), part in zip(tried.items(), parts, strict=True)
    ]


def values_of(X: pd.DataFrame, schema: Schema) -> dict[str, Numbers]:
    """Every column as numbers: times in seconds, levels by their codes, nan for gaps."""
    table = Table.from_columns(columns_of_frame(as_frame(X[schema.names])), schema)
    found = {}
    for kind, values in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times)):
        found |= {column.name: values[:, i] for i, column in enumerate(schema.of_kind(kind))}
    for column, levels in zip(schema.of_kind(Kind.CATEGORY), table.categories, strict=True):
        codes = levels.codes.astype(np.float64)
        found[column.name] = np.where(codes < 0, np.nan, codes)
    return found


def choose_values(values: Numbers, kind: Kind) -> NDArray[np.intp]:
    """Positions of cells to try: the most frequent levels, or numbers at equal shares of rows.

    Examples
    --------
    >>> choose_values(np.array([3.0, 1.0, 1.0, np.nan, 2.0]), Kind.NUMBER).tolist()
    [1, 4, 0]
    >>> choose_values(np.array([0.0, 1.0, 1.0, np.nan]), Kind.CATEGORY).tolist()
    [1, 0, 3]
    """
    known, first, counts = np.unique(
        values[~np.isnan(values)], return_index=True, return_counts=True
    )
    positions = np.flatnonzero(~np.isnan(values))[first]
    if kind is Kind.CATEGORY:
        frequent = np.argsort(-counts, kind="stable")[:MOST_VALUES]
        gaps = np.flatnonzero(np.isnan(values))[:1]
        return np.concatenate([positions[frequent], gaps])
    if len(known) > MOST_VALUES:
        levels = np.linspace(0.01, 0.99, MOST_VALUES)
        wanted = np.quantile(values[~np.isnan(values)], levels, method="nearest")
        positions = positions[np.unique(np.searchsorted(known, wanted))]
    return positions


def predict_intervals(
    model: Any, frames: Any, progress: Callable[[int], None]
) -> tuple[Numbers, Numbers, Numbers]:
    """Mean and both ends of the interval of the rows of several frames."""
    parts, n_done = [], 0
    for block in blocks_of(frames):
        dist = model.predict_dist(block)
        parts.append(np.column_stack([dist.mean, dist.interval(COVERAGE)]))
        n_done += len(block)
        progress(n_done)
    mean, lower, upper = np.concatenate(parts).T if parts else np.empty((3, 0))
    return mean, lower, upper


def describe(
    name: str,
    kind: Kind,
    column: Any,
    values: Numbers,
    cells: NDArray[np.intp],
    averages: Numbers,
    n_rows: int,
) -> Dependence:
    """The averages with the values that they belong to; levels by their means."""
    places = values[cells]
    names = [cell_text(column.iloc[cell]) for cell in cells]
    if kind is Kind.TIME:
        names = [time_text(place) for place in places]
    mean, lower, upper = averages
    if kind is Kind.CATEGORY:
        order = np.argsort(-mean, kind="stable")
        is_gap = np.isnan(places)
        counts = np.where(is_gap, np.isnan(values).sum(), (values[:, None] == places).sum(axis=0))
        places = np.arange(len(cells), dtype=np.float64)
        names, counts = [names[i] for i in order], counts[order]
        mean, lower, upper = mean[order], lower[order], upper[order]
    else:
        edges = (places[1:] + places[:-1]) / 2
        nearest = np.searchsorted(edges, values[~np.isnan(values)])
        counts = np.bincount(nearest, minlength=len(places))
    return Dependence(
        name, kind, places, tuple(names), counts.astype(np.int64), mean, lower, upper, n_rows
    )


def dependence_chart(found: Dependence, target: str, name: str) -> Chart:
    """The average prediction and interval over one column."""
    low, high = int(np.argmin(found.mean)), int(np.argmax(found.mean))
    description = (
        f"The average prediction of {target} is lowest, {number_text(found.mean[low])}, where"
        f" {found.column} is {found.names[low]}, and highest, {number_text(found.mean[high])},"
        f" where it is {found.names[high]}. The average interval is"
        f" {number_text(found.upper[low] - found.lower[low], 3)} wide at the first and"
        f" {number_text(found.upper[high] - found.lower[high], 3)} at the second."
    )
    texts = [f"{count_text(n, 'row')} nearby" for n in found.counts.tolist()]
    note = (
        f"Averages over {count_text(found.n_rows, 'held-out row')}, whose other columns stay as"
        " they are. Where such rows do not exist, the interval grows."
    )
    marks = {"texts": texts, "label": f"mean of {target}"}
    if found.kind is Kind.CATEGORY:
        texts = [count_text(n, "row") for n in found.counts.tolist()]
        return Chart(
            name=name,
            title=f"Dependence on {found.column}",
            description=description,
            x=Axis(label=f"predicted {target}"),
            y=Axis(label=found.column, scale="category", levels=found.names),
            layers=[
                Layer(
                    mark="intervals",
                    label="90 % interval",
                    color="chance",
                    y=found.places,
                    lower=found.lower,
                    upper=found.upper,
                ),
                Layer(
                    mark="points",
                    label=f"mean of {target}",
                    x=found.mean,
                    y=found.places,
                    texts=texts,
                ),
            ],
            note=note,
            height=max(200, 90 + 26 * len(found.places)),
        )
    return Chart(
        name=name,
        title=f"Dependence on {found.column}",
        description=description,
        x=Axis(label=found.column, scale="time" if found.kind is Kind.TIME else "linear"),
        y=Axis(label=f"predicted {target}"),
        layers=[
            Layer(
                mark="band",
                label="90 % interval",
                color="chance",
                x=found.places,
                lower=found.lower,
                upper=found.upper,
            ),
            Layer(mark="line", x=found.places, y=found.mean),
            Layer(mark="points", x=found.places, y=found.mean, **marks),
        ],
        note=note,
        height=380,
    )
