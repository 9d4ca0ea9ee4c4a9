"""The columns of arrays and frames as plain arrays, and what kind each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from numbers import Real
from typing import Any, final

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.errors import InvalidCellError, InvalidDataError
from sigmax.tables.cells import find_time_format, is_gap, parse_numbers, parse_times
from sigmax.tables.levels import Levels
from sigmax.tables.schema import Column, Kind

__all__ = ["RawColumn", "as_frame", "columns_of_array", "columns_of_frame"]


@final
@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column as it came: numbers, seconds since 1970, or objects."""

    name: str
    cells: NDArray[Any]
    kind: Kind | None
    """What its type says; None if only its cells can."""

    @property
    def is_parsed(self) -> bool:
        """Whether the cells are numbers or seconds, not objects."""
        return self.cells.dtype.kind == "f"

    @property
    def is_empty(self) -> bool:
        """Whether all cells are gaps."""
        return bool(np.isnan(self.cells).all()) if self.is_parsed else not len(self.distinct())

    def describe(self, kind: Kind | None) -> Column:
        """The column's place in a schema, as a ``kind`` or as what it seems to be."""
        found = self.distinct() if not self.is_parsed else None
        time_format = None
        if kind is None and self.is_empty:
            kind = Kind.CATEGORY  # of no level yet: whatever comes will be new
        if kind is None:
            kind = self.kind or kind_of(found)
        if kind is Kind.TIME and found is not None:
            time_format = find_time_format(found)
        column = Column(self.name, kind, time_format=time_format)
        if kind is Kind.CATEGORY:
            levels = self.levels()
            has_gaps = bool(np.any(levels.codes < 0))
            return Column(self.name, kind, has_gaps, tuple(levels.names))
        cells = self.numbers(column)
        present = cells[~np.isnan(cells)]
        ends = (float(present.min()), float(present.max())) if len(present) else (None, None)
        return Column(self.name, kind, len(present) < len(cells), (), *ends, time_format)

    def numbers(self, column: Column) -> NDArray[np.float64]:
        """The cells as numbers or seconds, whatever the ``column`` of a schema says they are."""
        is_time = column.kind is Kind.TIME
        if not self.is_parsed:
            if is_time:
                return parse_times(self.cells, column.time_format, self.name)
            numbers = parse_numbers(self.cells, self.name)
        elif is_time != (self.kind is Kind.TIME) and not np.isnan(self.cells).all():
            have, want = ("times", "numbers") if self.kind is Kind.TIME else ("numbers", "times")
            raise InvalidDataError(f"Column {self.name!r} should hold {want}, but holds {have}.")
        else:
            numbers = self.cells
        if np.isinf(numbers).any():
            row = int(np.flatnonzero(np.isinf(numbers))[0]) + 1
            text = f"Column {self.name!r} holds an infinite number in row {{row}}."
            raise InvalidCellError(text, row)
        return numbers

    def levels(self) -> Levels:
        """The cells as categories."""
        return Levels.of(self.cells)

    def distinct(self) -> NDArray[Any]:
        """Cells that differ, without gaps."""
        try:
            found = pd.unique(self.cells)
        except TypeError:  # lists and the like
            found = self.cells
        return np.array([cell for cell in found if not is_gap(cell)], dtype=object)


NO_CELLS = (list, tuple, dict, set, np.ndarray, complex)
"""What no column can hold."""


def kind_of(cells: NDArray[Any] | None) -> Kind:
    """What objects seem to be."""
    if cells is None:
        return Kind.NUMBER
    if all(isinstance(cell, Real) and not isinstance(cell, bool | np.bool_) for cell in cells):
        return Kind.NUMBER
    if all(isinstance(cell, date | datetime | np.datetime64) for cell in cells):
        return Kind.TIME
    return Kind.CATEGORY if find_time_format(cells) is None else Kind.TIME


def as_frame(X: Any) -> Any:
    """A frame as narwhals has it, None for anything else."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def columns_of_frame(frame: Any) -> list[RawColumn]:
    """Every column of a frame."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidDataError(f"Two columns are called {twice!r}.")
    return [column_of_series(str(name), frame.get_column(name)) for name in frame.columns]


def columns_of_array(X: NDArray[Any], names: Sequence[str]) -> list[RawColumn]:
    """Every column of an array of numbers or objects."""
    if X.dtype.kind == "f":
        return [RawColumn(name, X[:, j], Kind.NUMBER) for j, name in enumerate(names)]
    return [RawColumn(name, X[:, j].astype(object), None) for j, name in enumerate(names)]


def column_of_series(name: str, series: Any) -> RawColumn:
    """A column of any type that narwhals knows."""
    dtype = series.dtype
    if dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
        dtype = series.dtype
    if dtype == nw.Datetime:
        return RawColumn(name, as_floats(series.dt.timestamp("us")) / 1e6, Kind.TIME)
    if dtype == nw.Duration:
        return RawColumn(name, as_floats(series.dt.total_microseconds()) / 1e6, Kind.NUMBER)
    if dtype.is_numeric():
        return RawColumn(name, as_floats(series), Kind.NUMBER)
    if isinstance(dtype, nw.List | nw.Struct | nw.Array | nw.Binary):
        raise InvalidDataError(
            f"Column {name!r} is of type {dtype}, from which nothing is learned."
        )
    cells = np.fromiter(series.to_list(), dtype=object, count=len(series))
    strange = next((cell for cell in cells if isinstance(cell, NO_CELLS)), None)
    if strange is not None:
        raise InvalidDataError(
            f"Column {name!r} holds {type(strange).__name__} objects; nothing is learned from them."
        )
    if dtype == nw.Time or (len(cells) and all(isinstance(cell, time | None) for cell in cells)):
        return RawColumn(name, seconds_of_day(cells), Kind.NUMBER)
    is_category = dtype == nw.Boolean or (
        dtype in (nw.Categorical, nw.Enum)  # of texts, which may be dates, the cells must say
        and not all(isinstance(cell, str) for cell in cells if not is_gap(cell))
    )
    return RawColumn(name, cells, Kind.CATEGORY if is_category else None)


def as_floats(series: Any) -> NDArray[np.float64]:
    """Numbers of any type, NaN for gaps."""
    values = series.to_numpy()
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    return np.array([np.nan if is_gap(value) else float(value) for value in values])


def seconds_of_day(cells: NDArray[Any]) -> NDArray[np.float64]:
    """Times of day in seconds."""
    return np.array(
        [
            np.nan
            if is_gap(cell)
            else timedelta(
                hours=cell.hour, minutes=cell.minute, seconds=cell.second
            ).total_seconds()
            for cell in cells
        ]
    )
