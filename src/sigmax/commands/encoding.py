"""A table as plain numbers, for models that take nothing else."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.scaling import Standardizer
from sigmax.tables import Kind, Schema, Table, infer_schema
from sigmax.tables.columns import as_frame, columns_of_frame

__all__ = ["SimpleEncoding", "own_categories", "read_features"]

MOST_LEVELS = 20
"""Levels of a category that get a column of 0 and 1; the rarer ones are 0 in all of them."""


def read_features(
    frame: pd.DataFrame, *, categorical: tuple[str, ...] = (), numeric: tuple[str, ...] = ()
) -> Table:
    """The columns of a frame by their kinds, some of which may be chosen."""
    schema = infer_schema(frame, categorical=categorical, numeric=numeric)
    return Table.from_columns(columns_of_frame(as_frame(frame)), schema)


@final
@dataclass(frozen=True, eq=False)
class SimpleEncoding:
    """Numbers and times in standard deviations, gaps at the mean and flagged, levels as 0 and 1."""

    scaling: Standardizer
    """Of numbers and times."""
    has_gaps: NDArray[np.bool_]
    levels: tuple[tuple[str, ...], ...]
    """The most frequent levels of every category."""

    @classmethod
    def fit(cls, table: Table) -> "SimpleEncoding":
        """Learn from the training rows."""
        numbers = numbers_of(table)
        scaling = Standardizer.fit(numbers, np.ones(len(numbers)))
        has_gaps = np.any(np.isnan(numbers), axis=0)
        levels = []
        for column in table.categories:
            counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.names))
            common = np.argsort(-counts, kind="stable")[:MOST_LEVELS]
            levels.append(tuple(column.names[i] for i in common if counts[i]))
        return cls(scaling, np.atleast_1d(has_gaps), tuple(levels))

    def __call__(self, table: Table) -> NDArray[np.float64]:
        """One row of numbers for every row."""
        numbers = numbers_of(table)
        is_gap = np.isnan(numbers)
        scaled = self.scaling(np.where(is_gap, self.scaling.mean, numbers), np.float64)
        parts = [np.asarray(scaled), is_gap[:, self.has_gaps].astype(np.float64)]
        for column, names in zip(table.categories, self.levels, strict=True):
            codes = column.among(names, unknown=-2)
            parts.append((codes[:, None] == np.arange(len(names))).astype(np.float64))
        return np.concatenate(parts, axis=1)


def numbers_of(table: Table) -> NDArray[np.float64]:
    """Numbers and times, nan for gaps."""
    return np.concatenate([table.numbers, table.times], axis=1)


def own_categories(table: Table) -> pd.DataFrame:
    """Categories as text, all else as numbers: as CatBoost takes a table."""
    columns: dict[str, Any] = {}
    for column, levels in zip(named(table.schema, Kind.CATEGORY), table.categories, strict=True):
        columns[column] = np.array([*levels.names, "(gap)"], dtype=object)[levels.codes]
    numbers = [*named(table.schema, Kind.NUMBER), *named(table.schema, Kind.TIME)]
    return pd.DataFrame(columns | dict(zip(numbers, numbers_of(table).T, strict=True)))


def named(schema: Schema, kind: Kind) -> list[str]:
    return [column.name for column in schema.of_kind(kind)]
