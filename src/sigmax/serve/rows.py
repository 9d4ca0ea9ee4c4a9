"""Rows of a JSON request, checked cell by cell against the columns that a model learned from.

What `sigmax predict` takes in a file is taken here: columns that the model does not know are left
alone, a column that is missing is refused, new levels are fine, and gaps (``null``) are where the
model takes them. Types are those of JSON: a number is no text.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, final

import numpy as np
import pandas as pd

from sigmax.commands.folder import SavedTableModel
from sigmax.errors import InvalidDataError
from sigmax.serve.refusals import Problem, Refusal
from sigmax.tables.cells import is_gap, level_names, parse_times
from sigmax.tables.schema import Column, Kind

__all__ = ["CheckedRows", "RowReader", "join_rows"]

MOST_PROBLEMS = 20
"""That are told of one request."""
LONGEST_TEXT = 10_000
"""Letters of a cell."""
PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?")
"""What Python's reader of dates takes in the same way as pandas', a hundred times as fast."""

Cells = list[Any]


@final
@dataclass(frozen=True, eq=False)
class CheckedRows:
    """Numbers, texts and times by column, None for gaps."""

    cells: dict[str, Cells]
    n_rows: int

    def frame(self, kinds: dict[str, Kind]) -> pd.DataFrame:
        """The rows as estimators take them."""
        columns = {name: typed(cells, kinds[name]) for name, cells in self.cells.items()}
        return pd.DataFrame(columns)

    def __getitem__(self, rows: slice) -> "CheckedRows":
        cells = {name: column[rows] for name, column in self.cells.items()}
        return CheckedRows(cells, len(range(self.n_rows)[rows]))


def join_rows(parts: Sequence[CheckedRows]) -> CheckedRows:
    """Rows of several requests, one below the other."""
    cells = {name: [cell for part in parts for cell in part.cells[name]] for name in parts[0].cells}
    return CheckedRows(cells, sum(part.n_rows for part in parts))


@final
class RowReader:
    """Reads rows for one model."""

    def __init__(self, saved: SavedTableModel):
        model: Any = saved.model
        by_name = {column.name: column for column in model.features_.schema}
        self.columns = [by_name[name] for name in saved.features]
        self.kinds = {column.name: column.kind for column in self.columns}
        self.takes_gaps = bool(model.__sklearn_tags__().input_tags.allow_nan)

    def __call__(self, rows: Sequence[Any], *place: str | int) -> CheckedRows:
        """The rows of a request, which stand at a ``place`` in it, or a refusal."""
        problems: list[Problem] = []
        cells: dict[str, Cells] = {column.name: [] for column in self.columns}
        for i, row in enumerate(rows):
            where = place if place[-1] == "row" else (*place, i)
            if not isinstance(row, dict):
                problems.append(Problem(where, "must be an object of cells by column"))
            else:
                for column in self.columns:
                    try:
                        cells[column.name].append(self.read_cell(row, column))
                    except InvalidDataError as error:
                        problems.append(Problem((*where, column.name), str(error)))
            if len(problems) >= MOST_PROBLEMS:
                break
        if problems:
            raise Refusal(422, problems[:MOST_PROBLEMS])
        return CheckedRows(cells, len(rows))

    def read_cell(self, row: dict[str, Any], column: Column) -> Any:
        """One cell, None for a gap."""
        if column.name not in row:
            raise InvalidDataError("is missing: the model learned from this column")
        value = row[column.name]
        found = None if is_gap(value) else READERS[column.kind](value, column)
        if found is None and not self.takes_gaps:
            raise InvalidDataError("must not be missing: this model takes no gaps")
        return found


def read_number(value: Any, column: Column) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidDataError(f"must be a number or null, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidDataError("must be a finite number")
    return number


def read_level(value: Any, column: Column) -> str:
    if not isinstance(value, str | int | float):
        raise InvalidDataError(f"must be text, a number, true, false or null, got {shown(value)}")
    text = value if isinstance(value, str) else level_names(np.array([value], dtype=object))[0]
    return checked_text(text.strip())


def read_time(value: Any, column: Column) -> float:
    """Seconds since 1970."""
    if not isinstance(value, str):
        raise InvalidDataError(f"must be text that is a date or a time, got {shown(value)}")
    text = checked_text(value)
    if PLAIN_TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise InvalidDataError(f"must be a date or a time, got {shown(value)}") from None
    try:
        cells = np.array([text], dtype=object)
        return float(parse_times(cells, column.time_format, column.name)[0])
    except InvalidDataError:
        how = column.time_format if column.time_format not in (None, "ISO8601") else None
        rule = "in ISO 8601" + (f" or as {how}" if how else "")
        raise InvalidDataError(f"must be a time {rule}, got {shown(value)}") from None


READERS: dict[Kind, Callable[[Any, Column], Any]] = {
    Kind.NUMBER: read_number,
    Kind.CATEGORY: read_level,
    Kind.TIME: read_time,
}


def typed(cells: Cells, kind: Kind) -> np.ndarray:
    """A column in the type that says what it is, so that no batch changes how it is read."""
    if kind is Kind.CATEGORY:
        return np.array(cells, dtype=object)
    numbers = np.array([math.nan if cell is None else cell for cell in cells], dtype=np.float64)
    if kind is Kind.NUMBER:
        return numbers
    is_empty = np.isnan(numbers)
    times = np.where(is_empty, 0.0, np.round(1e6 * numbers)).astype("datetime64[us]")
    times[is_empty] = np.datetime64("NaT")
    return times


def checked_text(text: str) -> str:
    """Text of a reasonable length that can be written down again."""
    if len(text) > LONGEST_TEXT:
        raise InvalidDataError(f"must have at most {LONGEST_TEXT:,} letters, got {len(text):,}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidDataError("must be text in Unicode, got half of a pair") from None
    return text


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    text = repr(value) if not isinstance(value, dict | list) else type(value).__name__
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= 60 else text[:57] + "..."
