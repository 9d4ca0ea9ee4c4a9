"""Values of a column to try on rows, all other columns as they are."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.texts import cell_text, number_text, time_text
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame

__all__ = ["Trial", "make_trials", "time_columns"]

MOST_VALUES = 16
"""Values of a column that are tried."""
UNITS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}

Numbers = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """Values of one column, or of the time between two, and the rows with each of them."""

    name: str
    kind: Kind
    places: Numbers
    """The values: numbers, seconds since 1970, or codes of levels."""
    names: tuple[str, ...]
    """The values as text."""
    counts: NDArray[np.int64]
    """Rows with each value, of numbers and times those nearest to it."""
    change: Callable[[int], Mapping[str, Any]]
    """For the position of a value, the columns that differ."""


def time_columns(schema: Schema) -> tuple[str, ...]:
    """Columns of times that belong together: the time between them is learned from, too."""
    names = tuple(column.name for column in schema.of_kind(Kind.TIME))
    return names if len(names) > 1 else ()


def make_trials(
    X: pd.DataFrame, rows: pd.DataFrame, schema: Schema, columns: Sequence[str]
) -> list[Trial]:
    """What to try for some columns on ``rows``, the first of ``X``.

    Of several columns of times all move together when one is changed, as the time between them is
    a quantity of its own, which is tried by itself.
    """
    kinds = {column.name: column.kind for column in schema}
    values, together = values_of(X, schema), time_columns(schema)
    trials = []
    for name in columns:
        if name in together:
            trials += [
                between(values[one], values[other], one, other, len(rows))
                for one, other in pairs(values, together)
                if one == name
            ]
            trials.append(shifted(values, name, together, len(rows)))
        else:
            trials.append(replaced(X[name], values[name], kinds[name], len(rows)))
    return [trial for trial in trials if len(trial.places)]


def replaced(cells: Any, values: Numbers, kind: Kind, n_rows: int) -> Trial:
    """One column with the same cell in all rows."""
    chosen = choose_values(values, kind)
    places = values[chosen]
    names = [cell_text(cells.iloc[row]) for row in chosen.tolist()]
    if kind is Kind.TIME:
        names = [time_text(place) for place in places.tolist()]
    if kind is Kind.CATEGORY:
        counts = np.where(
            np.isnan(places), np.isnan(values).sum(), (values[:, None] == places[None]).sum(axis=0)
        )
    else:
        counts = count_nearest(values, places)

    def change(i: int) -> dict[str, Any]:
        return {cells.name: cells.take(np.full(n_rows, chosen[i])).reset_index(drop=True)}

    return Trial(str(cells.name), kind, places, tuple(names), counts, change)


def shifted(values: dict[str, Numbers], name: str, together: Sequence[str], n_rows: int) -> Trial:
    """One column of times with the same time in all rows; the others keep their distance."""
    places = values[name][choose_values(values[name], Kind.TIME)]
    names = tuple(map(time_text, places.tolist()))

    def change(i: int) -> dict[str, Any]:
        shift = places[i] - values[name][:n_rows]
        moved = {other: values[other][:n_rows] + shift for other in together if other != name}
        return {
            column: as_times(seconds)
            for column, seconds in {**moved, name: np.full(n_rows, places[i])}.items()
        }

    counts = count_nearest(values[name], places)
    return Trial(name, Kind.TIME, places, names, counts, change)


def between(start: Numbers, end: Numbers, one: str, other: str, n_rows: int) -> Trial:
    """The same time between two columns in all rows, of which the earlier one stays."""
    length = end - start
    size = float(np.nanmedian(np.abs(length))) if np.isfinite(length).any() else 0.0
    unit = next((unit for unit, seconds in UNITS.items() if size >= seconds), "seconds")
    length = length / UNITS[unit]
    places = length[choose_values(length, Kind.NUMBER)]

    def change(i: int) -> dict[str, Any]:
        return {other: as_times(start[:n_rows] + UNITS[unit] * places[i])}

    name = f"{unit} from {one} to {other}"
    names = tuple(map(number_text, places.tolist()))
    return Trial(name, Kind.NUMBER, places, names, count_nearest(length, places), change)


def pairs(values: Mapping[str, Numbers], together: Sequence[str]) -> list[tuple[str, str]]:
    """Columns of times that follow each other."""
    known = [name for name in together if np.isfinite(values[name]).any()]
    order = sorted(known, key=lambda name: float(np.nanmean(values[name])))
    return list(itertools.pairwise(order))


def as_times(seconds: Numbers) -> pd.Series:
    """Seconds since 1970 as pandas has times, a gap for nan."""
    return pd.Series(pd.to_datetime(np.round(seconds), unit="s"))


def count_nearest(values: Numbers, places: Numbers) -> NDArray[np.int64]:
    """How many values are nearest to each of some sorted places."""
    edges = (places[1:] + places[:-1]) / 2
    nearest = np.searchsorted(edges, values[~np.isnan(values)])
    return np.bincount(nearest, minlength=len(places)).astype(np.int64)


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
