"""What was learned about the columns of a table, and how rows of it become inputs."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.features.categories import CategoryMap, EncodedCategory
from sigmax.features.completion import Completion, complete
from sigmax.inputs import Inputs, Standardizer
from sigmax.tables import Column, Kind, Schema, Table

GAP_STEP = 0.5
"""How far a gap is from the mean of its column, in standard deviations."""

CYCLE_RADIUS = 0.35
"""Radius of the circles on which distances see times of day, week and year."""

MOST_DONORS = 1000
"""Training rows that are kept to fill in unknown cells."""


@final
@dataclass(frozen=True, eq=False)
class Features:
    """From rows of a table to what networks and distances see.

    Networks see numbers in standard deviations, with a flag for gaps; times as a trend, on cycles,
    and as the time between two of them; categories by a code for a learned embedding. Columns of
    many levels are also seen by the mean and the spread of the target, cross-fitted, and by the
    letters of their names.

    Distances see the same numbers. Two categories of few levels are one step apart, however rare
    they are, and so are gaps. Cells about which nothing was learned are filled in by `complete`.
    """

    schema: Schema
    scaling: Standardizer
    """Of numbers, times, and times between two."""
    cycles: tuple[tuple[str, ...], ...]
    """Of every column of times."""
    categories: tuple[CategoryMap, ...]
    donors: Table
    """Some training rows, whose cells fill in unknown ones."""

    @classmethod
    def fit(
        cls,
        table: Table,
        y: NDArray[np.float64],
        weight: NDArray[np.float64],
        groups: NDArray[np.int_],
        dtype: Any = np.float32,
    ) -> tuple["Features", Inputs]:
        """What there is to learn from training rows, and these rows as inputs.

        The inputs of training rows differ from those of the same rows to predict: the statistics
        of a row leave out its own target.

        Parameters
        ----------
        y
            Targets (rows, outputs) in standardised units.
        weight
            How much each row counts.
        groups
            A label for every row; copies share one.
        dtype
            Of numbers and coordinates.
        """
        schema = table.schema
        scaling = Standardizer.fit(real_numbers(table), weight)
        if schema.is_plain:
            found = cls(schema, scaling, (), (), some_rows(table))
            return found, found(table, dtype)
        times = zip(schema.of_kind(Kind.TIME), table.times.T, strict=True)
        cycles = tuple(cycles_of(column, seconds) for column, seconds in times)
        fitted = [CategoryMap.fit(levels, y, weight, groups) for levels in table.categories]
        maps = tuple(one for one, _ in fitted)
        found = cls(schema, scaling, cycles, maps, some_rows(table))
        return found, found.encode(table, [encoded for _, encoded in fitted], dtype)

    def __call__(self, table: Table, dtype: Any = np.float32) -> Inputs:
        """The rows as networks and distances take them."""
        if self.schema.is_plain:
            numbers = np.where(np.isnan(table.numbers), self.scaling.mean, table.numbers)
            return Inputs(self.scaling(numbers, dtype))
        columns = zip(self.categories, table.categories, strict=True)
        return self.encode(table, [column(levels) for column, levels in columns], dtype)

    def unknown_reals(self, table: Table) -> NDArray[np.bool_]:
        """Numbers and times (rows, columns) missing in columns without missing training values."""
        had_gaps = np.array([column.has_missing for column in self.schema.reals], dtype=bool)
        return np.isnan(np.column_stack([table.numbers, table.times])) & ~had_gaps

    def unknown(self, table: Table) -> NDArray[np.bool_]:
        """Cells (rows, columns) about which nothing was learned; numbers, times, categories."""
        columns = zip(self.categories, table.categories, strict=True)
        unseen = [column.is_unknown(levels) for column, levels in columns]
        return np.column_stack([self.unknown_reals(table), *unseen])

    def complete(self, table: Table) -> Completion:
        """The rows with unknown cells filled in, each in several ways."""
        is_unknown = self.unknown(table)
        if not is_unknown.any():
            return Completion(table)
        rows, donors = (np.asarray(self(part).coordinates) for part in (table, self.donors))
        column_of = self.column_of()
        column_of[self.statistics()] = -1  # of donors, they hold the donor's own target
        return complete(table, is_unknown, self.donors, rows, donors, column_of)

    def encode(self, table: Table, categories: list[EncodedCategory], dtype: Any) -> Inputs:
        """Inputs where there is more than numbers."""
        real, flagged = real_numbers(table), self.flagged()
        is_empty = np.isnan(real)
        standard = self.scaling(np.where(is_empty, self.scaling.mean[None], real), dtype)
        flags = is_empty[:, flagged].astype(np.float32)
        circles = np.concatenate(
            [np.empty((len(table), 0)), *map(on_cycles, table.times.T, self.cycles)], axis=1
        ).astype(np.float32)
        statistics = [one.statistics for one in categories]
        letters = [one.letters for one in categories]
        position = [standard, GAP_STEP * flags, CYCLE_RADIUS * circles]
        position += [one.coordinates for one in categories]
        return Inputs(
            numbers=np.concatenate([standard, *statistics], axis=1),
            extras=np.concatenate([flags, circles, *letters], axis=1),
            codes=np.stack([one.codes for one in categories], axis=1) if categories else None,
            position=np.concatenate(position, axis=1),
            n_codes=tuple(column.n_codes for column in self.categories),
        )

    def column_of(self) -> NDArray[np.intp]:
        """The column of every coordinate: numbers, times, then categories, numbered from 0.

        The time between two columns of times belongs to the second of them.
        """
        n_numbers, n_times = (len(self.schema.of_kind(kind)) for kind in (Kind.NUMBER, Kind.TIME))
        direct = np.arange(n_numbers + n_times)
        if self.schema.is_plain:
            return direct
        n_between = len(self.scaling.mean) - len(direct)
        between = n_numbers + np.array([b for _, b in combinations(range(n_times), 2)], int)
        cycles = np.repeat(direct[n_numbers:], [2 * len(names) for names in self.cycles])
        categories = np.repeat(len(direct) + np.arange(len(self.categories)), self.category_sizes())
        parts = [direct, between[:n_between], self.flagged(), cycles, categories]
        return np.concatenate(parts).astype(np.intp)

    def trends(self) -> NDArray[np.intp]:
        """The numbers that are times: later ones than those of the training rows are normal."""
        return np.arange(len(self.schema.of_kind(Kind.NUMBER)), len(self.schema.reals))

    def statistics(self) -> NDArray[np.intp]:
        """The coordinates that are statistics of the target."""
        sizes = self.category_sizes()
        first = len(self.column_of()) - sum(sizes) + np.cumsum([0, *sizes])
        parts = [
            np.arange(start, start + column.statistics.shape[1])
            for start, column in zip(first, self.categories, strict=False)
        ]
        return np.concatenate([np.empty(0, np.intp), *parts])

    def category_sizes(self) -> list[int]:
        """Coordinates of every column of categories."""
        blank = Table.of_missing(self.schema, 1)
        columns = zip(self.categories, blank.categories, strict=True)
        return [column(levels).coordinates.shape[1] for column, levels in columns]

    def length_scale_groups(self) -> tuple[int, ...]:
        """Which coordinates move together, numbered from 0, for kernels with a scale per group.

        Every number, time and flag of gaps is a group, and so are the cycles of a column of times
        and all levels of a column of categories.
        """
        sizes = [1] * (len(self.scaling.mean) + len(self.flagged()))
        sizes += [2 * len(names) for names in self.cycles if names] + self.category_sizes()
        return tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())

    def flagged(self) -> NDArray[np.intp]:
        """Which numbers and times had gaps in the training rows."""
        return np.flatnonzero([column.has_missing for column in self.schema.reals])

    def check(self) -> None:
        """Raise ValueError unless all parts are of one schema."""
        columns = self.schema.of_kind(Kind.CATEGORY)
        n_entries = [len(column.codes) for column in self.categories]
        codes = [levels.codes.max(initial=-1) for levels in self.donors.categories]
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
        """Rows of the right shape and type, without content."""
        if self.schema.is_plain:
            return Inputs(np.zeros((n_rows, len(self.schema)), dtype=np.float32))
        return self(Table.of_missing(self.schema, n_rows))


def some_rows(table: Table) -> Table:
    """Evenly spaced rows, at most `MOST_DONORS`, with the categories that the schema names."""
    rows = np.unique(np.linspace(0, len(table) - 1, min(len(table), MOST_DONORS)).astype(np.intp))
    return table[rows]


def real_numbers(table: Table) -> NDArray[np.float64]:
    """Numbers, times, and times between two, NaN for gaps."""
    if table.schema.is_plain:
        return table.numbers
    return np.concatenate([table.numbers, table.times, elapsed(table.times)], axis=1)


DAY = 86_400.0
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}

MOST_PAIRED = 6
"""With more columns of times than these, no pairs are formed."""


def elapsed(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds between every two columns of times."""
    n_columns = times.shape[1]
    pairs = list(combinations(range(n_columns), 2)) if n_columns <= MOST_PAIRED else []
    found = [times[:, second] - times[:, first] for first, second in pairs]
    return np.stack(found, axis=1) if found else np.empty((len(times), 0))


def cycles_of(column: Column, times: NDArray[np.float64]) -> tuple[str, ...]:
    """The periods that a column of times goes through at least twice, and within which it moves."""
    present = times[~np.isnan(times)]
    if not len(present) or column.low is None or column.high is None:
        return ()
    span, moves_in_day = column.high - column.low, np.ptp(present % DAY) > 0
    return tuple(
        name
        for name, period in PERIODS.items()
        if span >= 2 * period * (0.5 if name == "year" else 1.0) and (moves_in_day or name != "day")
    )


def on_cycles(times: NDArray[np.float64], periods: tuple[str, ...]) -> NDArray[np.float64]:
    """Sine and cosine of the place in every period; a gap is at the centre of the circle."""
    columns = []
    for name in periods:
        angle = 2 * np.pi * (times / PERIODS[name] % 1.0)
        columns += [np.sin(angle), np.cos(angle)]
    found = np.stack(columns, axis=1) if columns else np.empty((len(times), 0))
    return np.nan_to_num(found, nan=0.0)
