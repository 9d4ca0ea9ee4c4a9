"""The rows that a model learned from, as people wrote them.

A `LocalRegressor` keeps its training rows in standardised units and in single precision: numbers
are shown to as many digits as that leaves, times to the second, minute or day, and levels of fewer
than three rows, which the model does not tell apart, as rare.
"""

import math
from datetime import UTC, datetime
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.commands.folder import SavedTableModel
from sigmax.tables.schema import Column, Kind

__all__ = ["RestoredRows", "shown_time"]

PRECISION = 3e-7
"""Of a standardised number, relative to its scale."""
TIME_STEPS = (1.0, 60.0, 3600.0, 86_400.0)
RARE = "(rare)"

Cell = float | str | None


@final
class RestoredRows:
    """What can be told about single training rows, and what is typical of all."""

    def __init__(self, saved: SavedTableModel):
        model: Any = saved.model
        self.features = model.features_
        self.explains = hasattr(model, "explain_neighbors")
        schema = self.features.schema
        self.columns = [*schema.of_kind(Kind.NUMBER), *schema.of_kind(Kind.TIME)]
        self.categories = schema.of_kind(Kind.CATEGORY)
        self.direct = self.restore_numbers(model) if self.explains else None
        self.time_steps = {column.name: self.time_step(j) for j, column in enumerate(self.columns)}
        if self.explains:
            self.indices = model.rows_.indices
            self.order = np.argsort(self.indices)
            self.targets = model.units_.restore(np.asarray(model.rows_.y, np.float64))[:, 0]
            self.target_digits = digits(float(np.std(self.targets)))
            codes = model.rows_.X.codes
            self.codes = np.empty((len(self.indices), 0), int) if codes is None else codes

    def restore_numbers(self, model: Any) -> NDArray[np.float64]:
        """Numbers and times of all rows, NaN for gaps."""
        n_direct, scaling = len(self.columns), self.features.scaling
        standard = np.asarray(model.rows_.X.numbers, np.float64)[:, :n_direct]
        values = scaling.mean[:n_direct] + scaling.scale[:n_direct] * standard
        flagged = self.features.flagged()
        if len(flagged):
            is_gap = np.asarray(model.rows_.X.extras)[:, : len(flagged)] > 0.5
            values[:, flagged] = np.where(is_gap, np.nan, values[:, flagged])
        return values

    def time_step(self, j: int) -> float:
        """To how many seconds a column of times is known, a day if it holds dates."""
        error = PRECISION * float(self.features.scaling.scale[j])
        step = next((step for step in TIME_STEPS if step > error), TIME_STEPS[-1])
        if self.direct is not None:
            times = self.direct[:, j]
            from_midnight = np.abs((times + 43_200.0) % 86_400.0 - 43_200.0)
            if np.nanmax(from_midnight, initial=0.0) <= 4 * error:
                return TIME_STEPS[-1]
        return step

    def target(self, index: int) -> float:
        """The target of a row by its number in `fit`."""
        return round(float(self.targets[self.position(index)]), self.target_digits)

    def cells(self, index: int) -> dict[str, Cell]:
        """All cells of a row by its number in `fit`."""
        at = self.position(index)
        return {column.name: self.cell(at, column) for column in (*self.columns, *self.categories)}

    def position(self, index: int) -> int:
        return int(self.order[np.searchsorted(self.indices, index, sorter=self.order)])

    def cell(self, at: int, column: Column) -> Cell:
        assert self.direct is not None
        if column.kind is Kind.CATEGORY:
            j = self.categories.index(column)
            return self.level(j, int(self.codes[at, j]))
        j = self.columns.index(column)
        return self.shown(j, float(self.direct[at, j]))

    def shown(self, j: int, value: float) -> Cell:
        """A number or a time as it was written."""
        if math.isnan(value):
            return None
        if self.columns[j].kind is Kind.TIME:
            return shown_time(value, self.time_steps[self.columns[j].name])
        return round(value, digits(float(self.features.scaling.scale[j]))) + 0.0  # no -0

    def level(self, j: int, code: int) -> str | None:
        """The level of a code, None for a gap."""
        entries = np.flatnonzero(self.features.categories[j].codes == code)
        names = self.categories[j].levels
        if code == 0 or not len(entries):
            return RARE
        return names[entries[0]] if entries[0] < len(names) else None

    def typical(self, column: Column) -> Cell:
        """The median or the most frequent level, a gap where most rows have none.

        Without rows, the mean or the first level.
        """
        if column.kind is Kind.CATEGORY:
            j = self.categories.index(column)
            if self.explains:
                counts = np.bincount(self.codes[:, j])
                if 2 * counts[0] > len(self.codes):
                    return None
                counts[0] = 0
                return self.level(j, int(np.argmax(counts))) if counts.any() else None
            return column.levels[0] if column.levels else None
        j = self.columns.index(column)
        if self.direct is None:
            return self.shown(j, float(self.features.scaling.mean[j]))
        present = self.direct[:, j][~np.isnan(self.direct[:, j])]
        is_usual = 2 * len(present) >= len(self.direct)
        return self.shown(j, float(np.median(present))) if is_usual else None


def digits(scale: float) -> int:
    """Decimals that are known of a number whose standard deviation is ``scale``.

    Examples
    --------
    >>> digits(7.0), digits(350_000.0), digits(0.001)
    (5, 0, 9)
    """
    return max(0, math.ceil(-math.log10(max(scale, 1e-300) * 20 * PRECISION)))


def shown_time(seconds: float, step: float) -> str:
    """A time to a step, as ISO 8601 has it.

    Examples
    --------
    >>> shown_time(1_740_816_480.4, 60.0), shown_time(1_740_816_480.4, 86_400.0)
    ('2025-03-01T08:08', '2025-03-01')
    """
    limits = -62_135_596_800.0, 253_402_214_400.0  # of Python's times: the years 1 to 9999
    rounded = min(max(round(seconds / step) * step, limits[0]), limits[1])
    moment = datetime.fromtimestamp(0, UTC).timestamp() + rounded
    found = datetime.fromtimestamp(moment, UTC).replace(tzinfo=None)
    if step >= TIME_STEPS[-1]:
        return found.date().isoformat()
    return found.isoformat(timespec="minutes" if step >= 60 else "seconds")
