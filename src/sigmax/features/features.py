"""What was learned about the columns of a table, and how rows of it become inputs."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.features.categories import MISMATCH, CategoryMap, EncodedCategory
from sigmax.features.times import cycles_of, elapsed, on_cycles
from sigmax.files import take_array
from sigmax.inputs import Inputs
from sigmax.scaling import Standardizer
from sigmax.tables import Kind, Schema, Table

__all__ = ["Features"]

GAP_STEP = 0.5
"""How far a gap is from the mean of its column, in standard deviations."""

CYCLE_RADIUS = 0.35
"""Radius of the circles on which distances see times of day, week and year."""

LEAST_NOVELTY = 0.1
"""What a new level counts for among unknown cells, at least."""


@final
@dataclass(frozen=True, eq=False)
class Features:
    """From rows of a table to what networks and distances see.

    Networks see numbers in standard deviations, with a flag for gaps; times as a trend, on cycles,
    and as the time between two of them; categories by a code for a learned embedding. Columns of
    many levels are also seen by the mean and the spread of the target, cross-fitted, and by the
    letters of their names.

    Distances see the same numbers. Two categories of few levels are one step apart, however rare
    they are, and so are gaps. A level or a gap that no training row has is about as far away as
    another row, in a direction of its own.
    """

    schema: Schema
    scaling: Standardizer
    """Of numbers, times, and times between two."""
    cycles: tuple[tuple[str, ...], ...]
    """Of every column of times."""
    categories: tuple[CategoryMap, ...]
    reach: float
    """Root mean squared distance of two training rows."""

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
            found = cls(schema, scaling, (), (), float(np.sqrt(2 * len(schema))))
            return found, found(table, dtype)
        times = zip(schema.of_kind(Kind.TIME), table.times.T, strict=True)
        cycles = tuple(cycles_of(column, seconds) for column, seconds in times)
        fitted = [CategoryMap.fit(levels, y, weight, groups) for levels in table.categories]
        found = cls(schema, scaling, cycles, tuple(one for one, _ in fitted), 0.0)
        rows = found.encode(table, [encoded for _, encoded in fitted], dtype)
        share = weight / weight.sum()
        position = np.asarray(rows.coordinates, dtype=np.float64)
        variance = share @ (position - share @ position) ** 2
        reach = float(np.sqrt(2 * variance.sum()))
        return cls(schema, scaling, cycles, found.categories, max(reach, 1.0)), rows

    def __call__(self, table: Table, dtype: Any = np.float32) -> Inputs:
        """The rows as networks and distances take them."""
        if self.schema.is_plain:
            return self.plain_inputs(table.numbers, dtype)
        columns = zip(self.categories, table.categories, strict=True)
        return self.encode(table, [column(levels) for column, levels in columns], dtype)

    def plain_inputs(self, numbers: NDArray[np.float64], dtype: Any) -> Inputs:
        """Inputs where the training rows were numbers without gaps."""
        is_empty = np.isnan(numbers)
        if not is_empty.any():
            return Inputs(self.scaling(numbers, dtype))
        filled = self.scaling(np.where(is_empty, self.scaling.mean, numbers), dtype)
        highest = [0.0 if column.high is None else column.high for column in self.schema]
        beyond = self.scaling(np.array(highest)[None], dtype) + self.reach
        position = np.where(is_empty, beyond, filled).astype(dtype)
        return Inputs(filled, position=position)

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
        apart = self.reach * np.sqrt(self.n_unknown(is_empty, categories))[:, None]
        return Inputs(
            numbers=np.concatenate([standard, *statistics], axis=1),
            extras=np.concatenate([flags, circles, *letters], axis=1),
            codes=np.stack([one.codes for one in categories], axis=1) if categories else None,
            position=np.concatenate([*position, apart.astype(np.float32)], axis=1),
            n_codes=tuple(column.n_codes for column in self.categories),
        )

    def n_unknown(
        self, is_empty: NDArray[np.bool_], categories: list[EncodedCategory]
    ) -> NDArray[np.float64]:
        """How many cells of every row are of a kind that no training row has.

        New levels of columns in which most are new count for little.
        """
        found = self.n_new_gaps(is_empty)
        for column, one in zip(self.categories, categories, strict=True):
            found += one.is_new * max(column.novelty, LEAST_NOVELTY)
        return found

    def n_new_gaps(self, is_empty: NDArray[np.bool_]) -> NDArray[np.float64]:
        """How many numbers and times of every row are gaps in columns that had none."""
        n_direct = sum(column.kind is not Kind.CATEGORY for column in self.schema)
        is_new = is_empty[:, :n_direct].copy()
        is_new[:, self.flagged()] = False
        return is_new.sum(axis=1).astype(np.float64)

    def is_known(self, rows: Inputs) -> NDArray[np.bool_]:
        """Which rows have no cell of a kind that no training row has."""
        if self.schema.is_plain:
            return np.full(len(rows), rows.position is None)
        return np.asarray(rows.coordinates)[:, -1] == 0

    def for_kernels(self, rows: Inputs, table: Table) -> NDArray[np.float64]:
        """Coordinates of rows for a kernel that learns a length-scale for every column.

        They differ from those of distances in levels that no training row has: such a level is as
        far from all others as these are from each other, so that its column may not matter.
        """
        position = np.asarray(rows.coordinates, np.float64)
        if self.schema.is_plain:
            return position
        apart = self.reach * np.sqrt(self.n_new_gaps(np.isnan(real_numbers(table))))
        columns = zip(self.categories, table.categories, strict=True)
        is_new = [column(levels).is_new for column, levels in columns]
        new = np.array(is_new, dtype=float).reshape(len(is_new), len(table)).T
        return np.column_stack([position[:, :-1], MISMATCH / np.sqrt(2) * new, apart])

    def length_scale_groups(self) -> tuple[int, ...]:
        """Which of the coordinates `for_kernels` move together, numbered from 0.

        Every number, time and flag of gaps is a group, and so are all levels of a column, new ones
        included. The last group has the coordinate of gaps alone that no training row has.
        """
        n_numbers = len(self.scaling.mean)
        if self.schema.is_plain:
            return tuple(range(n_numbers))
        blank = Table.of_gaps(self.schema, 1)
        sizes = [1] * (n_numbers + len(self.flagged()))
        sizes += [2 * len(names) for names in self.cycles if names]
        columns = zip(self.categories, blank.categories, strict=True)
        sizes += [column(levels).coordinates.shape[1] for column, levels in columns]
        n_groups = len(sizes)
        new = range(n_groups - len(self.categories), n_groups)
        return (*np.repeat(np.arange(n_groups), sizes).tolist(), *new, n_groups)

    def flagged(self) -> NDArray[np.intp]:
        """Which numbers and times had gaps in the training rows."""
        direct = [*self.schema.of_kind(Kind.NUMBER), *self.schema.of_kind(Kind.TIME)]
        return np.flatnonzero([column.has_gaps for column in direct])

    def blank(self, n_rows: int) -> Inputs:
        """Rows of the right shape and type, without content."""
        if self.schema.is_plain:
            return Inputs(np.zeros((n_rows, len(self.schema)), dtype=np.float32))
        return self(Table.of_gaps(self.schema, n_rows))

    def facts(self) -> dict[str, Any]:
        """What a saved model needs of it, as plain JSON."""
        return {"schema": self.schema.as_json(), "cycles": [list(names) for names in self.cycles]}

    def state(self) -> dict[str, np.ndarray]:
        """What a saved model needs of it, as named arrays."""
        arrays = self.scaling.state("features") | {"features.reach": np.array([self.reach])}
        for j, column in enumerate(self.categories):
            arrays |= column.state(f"features.category{j}")
        return arrays

    @classmethod
    def from_state(
        cls, facts: dict[str, Any], arrays: dict[str, np.ndarray], n_outputs: int
    ) -> "Features":
        """What `facts` and `state` were taken from, refused if they do not fit each other."""
        schema = Schema.from_json(facts["schema"])
        cycles = tuple(tuple(map(str, names)) for names in facts["cycles"])
        n_real = real_numbers(Table.of_gaps(schema, 1)).shape[1]
        categories = tuple(
            CategoryMap.from_state(
                arrays, f"features.category{j}", column.levels, column.has_gaps, n_outputs
            )
            for j, column in enumerate(schema.of_kind(Kind.CATEGORY))
        )
        scaling = Standardizer.from_state(arrays, "features", n_real)
        reach = float(take_array(arrays, "features.reach", ()))
        return cls(schema, scaling, cycles, categories, reach)


def real_numbers(table: Table) -> NDArray[np.float64]:
    """Numbers, times, and times between two, NaN for gaps."""
    if table.schema.is_plain:
        return table.numbers
    return np.concatenate([table.numbers, table.times, elapsed(table.times)], axis=1)
