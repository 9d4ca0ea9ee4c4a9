"""Encoding of the columns of a table, learned from the training rows."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.features.categories import CategoryMap, EncodedCategory, Labels, Numbers
from sigmax.features.completion import Completion, complete
from sigmax.features.target import Standardizer
from sigmax.inputs import Inputs
from sigmax.tables import MISSING, CategoryColumn, Column, Kind, Schema, Table

MISSING_STEP = 0.5
"""Distance of a missing value from the mean of its column, in standard deviations."""

CYCLE_RADIUS = 0.35
"""Radius of the circles for times of day, week and year in distances."""

MOST_DONORS = 1000
"""Maximum number of training rows that are stored to fill in unknown cells."""


@final
@dataclass(frozen=True, eq=False)
class Features:
    """Encoder from rows of a table to inputs of networks and coordinates for distances.

    Inputs of networks are standardised numbers with flags for missing values; times as a trend, as
    cycles and as differences of two columns; and codes of categories for a learned embedding. Many
    categories also have cross-fitted means and standard deviations of the target, and coordinates
    of their names.

    Distances use the same numbers. In a column of few categories, all categories and missing values
    have equal distances. `complete` fills in cells that are unknown from training.
    """

    schema: Schema
    scaling: Standardizer
    """Standardisation of numbers, times and differences of times."""
    cycles: tuple[tuple[str, ...], ...]
    """Periods of each column of times."""
    categories: tuple[CategoryMap, ...]
    donors: Table
    """Training rows whose cells replace unknown ones."""

    @classmethod
    def fit(
        cls, table: Table, y: Numbers, weight: Numbers, groups: Labels, dtype: Any = np.float32
    ) -> tuple["Features", Inputs]:
        """Encoder learned from training rows, and these rows as inputs.

        Statistics of categories in these inputs leave out the row's own target, unlike those of
        rows to predict.

        ``y`` holds targets (rows, outputs) in standardised units; duplicate rows share a label of
        ``groups``.
        """
        schema = table.schema
        scaling = Standardizer.fit(real_numbers(table), weight)
        times = zip(schema.of_kind(Kind.TIME), table.times.T, strict=True)
        cycles = tuple(cycles_of(column, seconds) for column, seconds in times)
        fitted = [CategoryMap.fit(column, y, weight, groups) for column in table.categories]
        maps = tuple(one for one, _ in fitted)
        donors = table
        if len(table) > MOST_DONORS:
            donors = table[np.linspace(0, len(table) - 1, MOST_DONORS).astype(np.intp)]
        found = cls(schema, scaling, cycles, maps, donors)
        if schema.is_plain:
            return found, found(table, dtype)
        return found, found.encode(table, [encoded for _, encoded in fitted], dtype)

    def __call__(self, table: Table, dtype: Any = np.float32) -> Inputs:
        if self.schema.is_plain:
            numbers = np.where(np.isnan(table.numbers), self.scaling.mean, table.numbers)
            return Inputs(self.scaling(numbers, dtype))
        columns = zip(self.categories, table.categories, strict=True)
        return self.encode(table, [encoder(column) for encoder, column in columns], dtype)

    def unknown_reals(self, table: Table) -> NDArray[np.bool_]:
        """True for missing numbers and times in columns without missing training values."""
        had_missing = np.array([column.has_missing for column in self.schema.reals], dtype=bool)
        return np.isnan(np.column_stack([table.numbers, table.times])) & ~had_missing

    def unknown(self, table: Table) -> NDArray[np.bool_]:
        """True for unknown cells (rows, columns): numbers, times, then categories."""
        columns = zip(self.categories, table.categories, strict=True)
        unseen = [encoder.is_unknown(column) for encoder, column in columns]
        return np.column_stack([self.unknown_reals(table), *unseen])

    @property
    def column_names(self) -> list[str]:
        columns = [*self.schema.reals, *self.schema.of_kind(Kind.CATEGORY)]
        return [column.name for column in columns]

    def complete(self, table: Table, hidden: int | None = None) -> Completion:
        """Fill in unknown cells of rows, each in several ways, and those of the column ``hidden``.

        Columns are numbered as in `unknown`.
        """
        is_unknown = self.unknown(table)
        if hidden is not None:
            is_unknown[:, hidden] = True
        if not is_unknown.any():
            return Completion(table)
        rows, donors = (np.asarray(self(part).coordinates) for part in (table, self.donors))
        column_of = self.column_of()
        column_of[self.statistics()] = -1  # those of a donor include its own target
        return complete(table, is_unknown, self.donors, rows, donors, column_of)

    def encode(self, table: Table, categories: list[EncodedCategory], dtype: Any) -> Inputs:
        """Encode rows of a table that does not consist of numbers only."""
        real, flagged = real_numbers(table), self.flagged()
        is_empty = np.isnan(real)
        standard = self.scaling(np.where(is_empty, self.scaling.mean[None], real), dtype)
        flags = is_empty[:, flagged].astype(np.float32)
        circles = np.concatenate(
            [np.empty((len(table), 0)), *map(on_cycles, table.times.T, self.cycles)], axis=1
        ).astype(np.float32)
        statistics = [one.statistics for one in categories]
        letters = [one.letters for one in categories]
        position = [standard, MISSING_STEP * flags, CYCLE_RADIUS * circles]
        position += [one.coordinates for one in categories]
        return Inputs(
            numbers=np.concatenate([standard, *statistics], axis=1),
            extras=np.concatenate([flags, circles, *letters], axis=1),
            codes=np.stack([one.codes for one in categories], axis=1) if categories else None,
            position=np.concatenate(position, axis=1),
            n_codes=tuple(column.n_codes for column in self.categories),
        )

    def column_of(self) -> NDArray[np.intp]:
        """Column of each coordinate: numbers, times, then categories, numbered from 0.

        A difference of two columns of times belongs to the second of them.
        """
        n_numbers, n_times = (len(self.schema.of_kind(kind)) for kind in (Kind.NUMBER, Kind.TIME))
        direct = np.arange(n_numbers + n_times)
        n_between = len(self.scaling.mean) - len(direct)
        between = n_numbers + np.array([b for _, b in combinations(range(n_times), 2)], int)
        cycles = np.repeat(direct[n_numbers:], [2 * len(names) for names in self.cycles])
        categories = np.repeat(len(direct) + np.arange(len(self.categories)), self.category_sizes())
        parts = [direct, between[:n_between], self.flagged(), cycles, categories]
        return np.concatenate(parts).astype(np.intp)

    def trends(self) -> NDArray[np.intp]:
        """Positions of times among the numbers: new rows may be later than training rows."""
        n_numbers, n_times = (len(self.schema.of_kind(kind)) for kind in (Kind.NUMBER, Kind.TIME))
        return np.arange(n_numbers, n_numbers + n_times)

    def statistics(self) -> NDArray[np.intp]:
        """Positions of the coordinates that are statistics of the target."""
        sizes = self.category_sizes()
        first = len(self.column_of()) - sum(sizes) + np.cumsum([0, *sizes])
        parts = [
            np.arange(start, start + column.statistics.shape[1])
            for start, column in zip(first, self.categories, strict=False)
        ]
        return np.concatenate([np.empty(0, np.intp), *parts])

    def category_sizes(self) -> list[int]:
        """Number of coordinates of every column of categories."""
        missing = CategoryColumn(np.full(1, MISSING, dtype=np.int32), ())
        return [encoder(missing).coordinates.shape[1] for encoder in self.categories]

    def length_scale_groups(self) -> tuple[int, ...]:
        """Group of each coordinate, from 0, for kernels with a length scale per group.

        Each number, time and missing-value flag is a group, and so are the cycles of a column of
        times and all categories of a column.
        """
        sizes = [1] * (len(self.scaling.mean) + len(self.flagged()))
        sizes += [2 * len(names) for names in self.cycles if names] + self.category_sizes()
        return tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())

    def flagged(self) -> NDArray[np.intp]:
        """Positions of numbers and times with missing values in the training rows."""
        return np.flatnonzero([column.has_missing for column in self.schema.reals])

    def check(self) -> None:
        columns = self.schema.of_kind(Kind.CATEGORY)
        n_entries = [len(column.codes) for column in self.categories]
        codes = [column.codes.max(initial=-1) for column in self.donors.categories]
        if n_entries != [len(column.categories) + 2 for column in columns] or any(
            largest >= len(column.categories)
            for largest, column in zip(codes, columns, strict=True)
        ):
            raise ValueError("categories do not fit the schema")
        if self.donors.numbers.shape[1:] != (len(self.schema.of_kind(Kind.NUMBER)),):
            raise ValueError("donor rows do not fit the schema")
        if len(self.scaling.mean) != real_numbers(Table.of_missing(self.schema, 1)).shape[1]:
            raise ValueError("scales do not fit the schema")

    def blank(self, n_rows: int) -> Inputs:
        """Inputs of ``n_rows`` rows whose values are all missing or 0."""
        return self(Table.of_missing(self.schema, n_rows))


def real_numbers(table: Table) -> Numbers:
    """Numbers, times and differences of times, NaN for missing values."""
    if table.schema.is_plain:
        return table.numbers
    times, n_times = table.times, table.times.shape[1]
    pairs = combinations(range(n_times if n_times <= MOST_PAIRED else 0), 2)
    return np.column_stack([table.numbers, times, *(times[:, b] - times[:, a] for a, b in pairs)])


DAY = 86_400.0
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}

MOST_PAIRED = 6
"""Maximum number of columns of times for which differences are computed."""


def cycles_of(column: Column, times: Numbers) -> tuple[str, ...]:
    """Periods that a column of times covers twice (a year: once) and within which it varies."""
    present = times[~np.isnan(times)]
    if not len(present) or column.low is None or column.high is None:
        return ()
    span, moves_in_day = column.high - column.low, np.ptp(present % DAY) > 0
    return tuple(
        name
        for name, period in PERIODS.items()
        if span >= 2 * period * (0.5 if name == "year" else 1.0) and (moves_in_day or name != "day")
    )


def on_cycles(times: Numbers, periods: tuple[str, ...]) -> Numbers:
    """Sine and cosine of the phase in each period; 0 and 0 for a missing value."""
    columns = [np.empty((len(times), 0))]
    for name in periods:
        angle = 2 * np.pi * (times / PERIODS[name] % 1.0)
        columns += [np.sin(angle), np.cos(angle)]
    return np.nan_to_num(np.column_stack(columns), nan=0.0)
