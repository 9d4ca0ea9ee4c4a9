"""Tables in memory: schema, columns and cells, from arrays and from frames that narwhals reads."""

import difflib
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from itertools import count
from numbers import Real
from typing import Any, final

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_sample_weight, _check_y, validate_data

from sigmax.errors import (
    InvalidArgumentError,
    InvalidCellError,
    InvalidDataError,
    TableFileError,
    TableFileWarning,
)


@final
class Kind(StrEnum):
    """Kind of a column."""

    NUMBER = "number"
    CATEGORY = "category"
    TIME = "time"


@final
@dataclass(frozen=True)
class Column:
    """Properties of one column of the training rows."""

    name: str
    kind: Kind
    has_missing: bool = False
    categories: tuple[str, ...] = ()
    """Names of the categories, sorted."""
    low: float | None = None
    """Smallest number, or earliest time in seconds since 1970; None without any."""
    high: float | None = None
    time_format: str | None = None
    """Format of times written as text, for `datetime.strptime`, or ``ISO8601``."""


@final
@dataclass(frozen=True)
class Schema:
    """Columns of a table, in the order in which a model has them.

    Examples
    --------
    >>> schema = Schema((Column("size", Kind.NUMBER, low=1.0, high=9.0),))
    >>> schema.names, schema.is_plain
    (['size'], True)
    """

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def is_plain(self) -> bool:
        """True if all columns are numbers without missing values."""
        return all(column.kind is Kind.NUMBER and not column.has_missing for column in self.columns)

    @property
    def reals(self) -> list["Column"]:
        """Columns of numbers, then of times, as in `Table` and `Features`."""
        return [*self.of_kind(Kind.NUMBER), *self.of_kind(Kind.TIME)]

    def of_kind(self, kind: Kind) -> list[Column]:
        """Columns of one kind."""
        return [column for column in self.columns if column.kind is kind]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


# Columns.

MAX_COLUMNS = 5_000
MISSING = -1
"""Code of a missing category."""
MAX_SHOWN = 60
"""Characters of a cell or of a list of names in a message."""
ISO = "ISO8601"
ISO_DATE = r"\s*\d{4}-\d{1,2}-\d{1,2}([T ].*)?\s*"
DAYS = (
    *("%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%Y%m%d"),
    *("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%m/%d/%y", "%d/%m/%y"),
)
CLOCKS = ("", " %H:%M:%S", " %H:%M", "T%H:%M:%S", " %I:%M:%S %p", " %I:%M %p", "T%H%M%S")
TIME_FORMATS = [day + clock for clock in CLOCKS for day in DAYS if day + clock != "%Y%m%d"]
"""Tried in this order: an ambiguous date has its month first. Eight digits alone are a number."""
N_TRIED = 50
"""Values on which a time format is tried before it is tried on all."""
Chosen = Sequence[Any] | None
"""Names or positions of columns."""
UNUSABLE = (list, tuple, dict, set, np.ndarray, complex)
"""Types of cells from which nothing can be learned."""


@final
@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """A column of categories: each row's position in a sorted list of names, -1 if missing.

    Examples
    --------
    >>> column = CategoryColumn.of(np.array(["b", None, "a", "b"], dtype=object))
    >>> column.codes, column.names
    (array([ 1, -1,  0,  1], dtype=int32), ('a', 'b'))
    """

    codes: NDArray[np.int32]
    names: tuple[str, ...]

    @classmethod
    def of(cls, cells: NDArray[Any]) -> "CategoryColumn":
        """Categories of cells of any type."""
        try:
            codes, found = pd.factorize(cells)
        except TypeError:  # cells that cannot be hashed
            codes, found = pd.factorize(np.array([str(cell) for cell in cells], dtype=object))
        found = np.asarray(found, dtype=object)
        is_present = np.array([not is_missing(cell) for cell in found], dtype=bool)
        texts = np.array([category_name(cell) for cell in found[is_present]], dtype=str)
        names, positions = np.unique(texts, return_inverse=True)
        lookup = np.full(len(found) + 1, MISSING, dtype=np.int32)  # the last is that of code -1
        lookup[np.flatnonzero(is_present)] = positions
        return cls(lookup[codes], tuple(names.tolist()))

    def __getitem__(self, rows: Any) -> "CategoryColumn":
        return replace(self, codes=self.codes[rows])

    def among(self, names: Sequence[str], unknown: int) -> NDArray[np.int32]:
        """Positions in another list of names, ``unknown`` for names that are not in it."""
        position = {name: i for i, name in enumerate(names)}
        lookup = [position.get(name, unknown) for name in self.names]
        return np.array([*lookup, MISSING], dtype=np.int32)[self.codes]


@final
@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column before its kind is known: numbers, seconds since 1970, or objects."""

    name: str
    cells: NDArray[Any]
    kind: Kind | None
    """Kind according to the type of the column; None if it depends on the cells."""

    @property
    def is_parsed(self) -> bool:
        """True if the cells are numbers or seconds, not objects."""
        return self.cells.dtype.kind == "f"

    def describe(self, kind: Kind | None) -> Column:
        """Schema of the column, of the given ``kind`` or of the one that its cells suggest."""
        distinct = None if self.is_parsed else self.distinct()
        if kind is None:
            is_empty = np.isnan(self.cells).all() if distinct is None else not len(distinct)
            # A column without any value has no categories yet: every later value is unseen.
            kind = Kind.CATEGORY if is_empty else self.kind or kind_of(self.distinct())
        if kind is Kind.CATEGORY:
            categories = CategoryColumn.of(self.cells)
            return Column(self.name, kind, bool(np.any(categories.codes < 0)), categories.names)
        time_format = None
        if kind is Kind.TIME and distinct is not None:
            time_format = find_time_format(distinct)
        cells = self.numbers(Column(self.name, kind, time_format=time_format))
        present = cells[~np.isnan(cells)]
        ends = (float(present.min()), float(present.max())) if len(present) else (None, None)
        return Column(self.name, kind, len(present) < len(cells), (), *ends, time_format)

    def numbers(self, column: Column) -> NDArray[np.float64]:
        """Cells as numbers or seconds, according to the kind of ``column``."""
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

    def distinct(self) -> NDArray[Any]:
        """Distinct cells, without missing ones."""
        try:
            found = pd.unique(self.cells)
        except TypeError:  # lists and the like
            found = self.cells
        return np.array([cell for cell in found if not is_missing(cell)], dtype=object)


def kind_of(cells: NDArray[Any]) -> Kind:
    if all(isinstance(cell, Real) and not isinstance(cell, bool | np.bool_) for cell in cells):
        return Kind.NUMBER
    if all(isinstance(cell, date | datetime | np.datetime64) for cell in cells):
        return Kind.TIME
    return Kind.CATEGORY if find_time_format(cells) is None else Kind.TIME


def as_frame(X: Any) -> Any:
    """Frame of narwhals, or None if ``X`` is not a data frame."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def columns_of_frame(frame: Any, names: Sequence[str] | None = None) -> list[RawColumn]:
    """Columns of a frame of narwhals, under other names if they are given."""
    own_names = [str(name) for name in frame.columns]
    if len(set(own_names)) < len(own_names):
        twice = next(name for name in own_names if own_names.count(name) > 1)
        raise InvalidDataError(f"Two columns are called {twice!r}.")
    series = map(frame.get_column, frame.columns)
    return [column_of_series(*found) for found in zip(names or own_names, series, strict=True)]


def columns_of_array(X: NDArray[Any], names: Sequence[str] | None = None) -> list[RawColumn]:
    """Columns of an array, called x0, x1, ... if no names are given."""
    names = [f"x{j}" for j in range(X.shape[1])] if names is None else names
    if X.dtype.kind == "f":
        return [RawColumn(name, X[:, j], Kind.NUMBER) for j, name in enumerate(names)]
    return [RawColumn(name, X[:, j].astype(object), None) for j, name in enumerate(names)]


def column_of_series(name: str, series: Any) -> RawColumn:
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
            f"Column {name!r} has the type {dtype}, which is not supported. Drop or convert it."
        )
    cells = np.fromiter(series.to_list(), dtype=object, count=len(series))
    unusable = next((cell for cell in cells if isinstance(cell, UNUSABLE)), None)
    if unusable is not None:
        kind = type(unusable).__name__
        raise InvalidDataError(f"Column {name!r} contains {kind} objects, which are not supported.")
    if dtype == nw.Time or (len(cells) and all(isinstance(cell, time | None) for cell in cells)):
        clocks = [None if is_missing(cell) else cell for cell in cells]
        seconds = [c and 3600 * c.hour + 60 * c.minute + c.second for c in clocks]
        return RawColumn(name, np.array(seconds, dtype=np.float64), Kind.NUMBER)
    is_category = dtype == nw.Boolean or (
        dtype in (nw.Categorical, nw.Enum)  # the cells decide if all are texts: they may be dates
        and not all(isinstance(cell, str) for cell in cells if not is_missing(cell))
    )
    return RawColumn(name, cells, Kind.CATEGORY if is_category else None)


def as_floats(series: Any) -> NDArray[np.float64]:
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def is_missing(value: Any) -> bool:
    """True if a cell is missing: None, NaN, NaT, or text without a character."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or value is pd.NA or value is pd.NaT


def category_name(value: Any) -> str:
    """Name of a category, the same for text, numbers and booleans."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating | Decimal) and value == int(value):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def parse_numbers(values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Objects as numbers, NaN if missing; a cell that is not a number raises InvalidCellError."""
    numbers = np.empty(len(values))
    for i, value in enumerate(values):
        try:
            numbers[i] = math.nan if is_missing(value) else float(value)
        except (TypeError, ValueError) as error:
            raise InvalidCellError(
                f"Column {name!r} holds numbers, but row {{row}} is {str(value)[:50]!r}."
                " Correct the cell, or fit with the column in `categorical_features`.",
                i + 1,
            ) from error
    return numbers


def find_time_format(values: NDArray[Any]) -> str | None:
    """Format in which all values are dates or times written as text, or None."""
    texts = pd.Series(values, dtype=object)
    if not len(texts) or not all(isinstance(text, str) for text in values):
        return None
    some = texts.iloc[:: max(1, len(texts) // N_TRIED)]
    if not some.str.contains(r"\d").all() or not some.str.len().between(6, 40).all():
        return None
    formats = [ISO] if some.str.fullmatch(ISO_DATE).all() else TIME_FORMATS
    for time_format in formats:
        if all(to_times(part, time_format) is not None for part in (some, texts)):
            return time_format
    return None


def to_times(cells: pd.Series, time_format: str | None) -> pd.Series | None:
    """Times of texts with a format, or of time objects if it is None; None if any is neither."""
    is_number = (isinstance(cell, int | float | bool | np.number) for cell in cells)
    if time_format is None and any(is_number):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cells = cells if time_format is None else cells.str.strip()
            return pd.to_datetime(cells, format=time_format, utc=True)
        except (AttributeError, ValueError, TypeError, OverflowError):
            return None


def parse_times(values: NDArray[Any], time_format: str | None, name: str) -> NDArray[np.float64]:
    """Times, or texts of a format, in seconds since 1970, UTC unless they have a time zone."""
    seconds = np.full(len(values), np.nan)
    present = np.flatnonzero([not is_missing(value) for value in values])
    is_text = np.array([isinstance(value, str) for value in values[present]], dtype=bool)
    text_formats: list[str | None] = list(dict.fromkeys([time_format or ISO, ISO]))
    for rows, formats in ((present[is_text], text_formats), (present[~is_text], [None])):
        if not len(rows):
            continue
        cells = pd.Series(values[rows], dtype=object)
        parsed = (to_times(cells, this) for this in formats)
        times = next((found for found in parsed if found is not None), None)
        if times is None:
            for row, cell in zip(rows, cells, strict=True):
                if all(to_times(pd.Series([cell], dtype=object), f) is None for f in formats):
                    text = f"Column {name!r} holds times, but row {{row}} is {str(cell)[:50]!r}."
                    raise InvalidCellError(text, int(row) + 1)
            raise InvalidDataError(
                f"Column {name!r} has times written in two ways, as"
                f" {' and as '.join(map(str, formats))}: write all of them in one."
            )
        seconds[rows] = times.to_numpy(dtype="datetime64[us]").astype(np.int64) / 1e6
    return seconds


def read_target(frame: pd.DataFrame, target: str, *, first_row: int = 0) -> NDArray[np.float64]:
    """Target of every row as a number, NaN if missing; ``first_row`` counts the rows before."""
    check_names([target], list(frame.columns), option="--target")
    column: Any = frame[target]
    if pd.api.types.is_bool_dtype(column.dtype):
        raise InvalidDataError(
            f"The target {target!r} is true or false; sigmax predicts numbers, not classes."
        )
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        raise InvalidDataError(f"The target {target!r} must be numbers, got dates.")
    found: Any = pd.to_numeric(column, errors="coerce")
    numbers = found.to_numpy(np.float64, na_value=np.nan)
    is_text = np.isnan(numbers) & column.notna().to_numpy()
    if is_text.any():
        first = int(np.flatnonzero(is_text)[0])
        raise InvalidDataError(
            f"The target {target!r} must be numbers, got {shorten(str(column.iloc[first]))!r} in"
            f" row {first_row + first + 1} and text in {np.sum(is_text):,} of {len(frame):,} rows."
        )
    if np.isinf(numbers).any():
        first = int(np.flatnonzero(np.isinf(numbers))[0])
        raise InvalidDataError(f"The target {target!r} is infinite in row {first_row + first + 1}.")
    return numbers


def check_names(names: Iterable[str], columns: Sequence[str], *, option: str) -> None:
    """Raise InvalidDataError for a name that is not a column, and suggest similar ones."""
    known = [str(column) for column in columns]
    for name in names:
        if name not in known:
            similar = difflib.get_close_matches(name, known, n=3)
            text = shorten(", ".join(map(repr, similar or known)))
            hint = f"did you mean {text}?" if similar else f"its columns are {text}."
            raise InvalidDataError(f"`{option}`: the table has no column {name!r}; {hint}")


def split_columns(given: Iterable[str], columns: Iterable[str]) -> tuple[str, ...]:
    """Names of columns on the command line: one per option, or several separated by commas."""
    known, found = set(columns), []
    for text in given:
        parts = [text] if text in known else [part.strip() for part in text.split(",")]
        found += [part for part in parts if part]
    return tuple(dict.fromkeys(found))


def clean_names(source: str, names: Iterable[object]) -> tuple[str, ...]:
    """Stripped names of a file's columns; blank and repeated ones are replaced with a warning."""
    given = ["" if name is None else str(name).strip() for name in names]
    if len(given) > MAX_COLUMNS:
        raise TableFileError(
            f"{source} has {len(given):,} columns; at most {MAX_COLUMNS:,} are read."
        )
    taken = set(given) - {""}
    result: dict[str, None] = {}
    for i, name in enumerate(given, start=1):
        unique = name
        if not name or name in result:
            stem, first = (name, 2) if name else ("column", i)
            unique = next(new for n in count(first) if (new := f"{stem}_{n}") not in taken)
        taken.add(unique)
        result[unique] = None
    changed = [new for old, new in zip(given, result, strict=True) if old != new]
    if changed:
        text = f"{source} has blank or repeated column names, which became {listed(changed)}."
        warnings.warn(text, TableFileWarning, stacklevel=2)
    return tuple(result)


def listed(names: Sequence[str]) -> str:
    """First names for a sentence, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


# Tables.

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier that spreads the bits of row hashes: 2⁶⁴ over the golden ratio."""


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Checked rows; the columns of each kind are in the order of the schema."""

    schema: Schema
    numbers: NDArray[np.float64]
    """NaN is a missing value."""
    times: NDArray[np.float64]
    """Seconds since 1970; NaN is a missing value."""
    categories: tuple[CategoryColumn, ...]

    @classmethod
    def of_missing(cls, schema: Schema, n_rows: int) -> "Table":
        """Rows in which all values are missing."""
        numbers, times = (
            np.full((n_rows, len(schema.of_kind(kind))), np.nan)
            for kind in (Kind.NUMBER, Kind.TIME)
        )
        missing = CategoryColumn(np.full(n_rows, MISSING, dtype=np.int32), ())
        return cls(schema, numbers, times, (missing,) * len(schema.of_kind(Kind.CATEGORY)))

    @classmethod
    def read_training(
        cls,
        estimator: BaseEstimator,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        categorical: Chosen = None,
        numeric: Chosen = None,
    ) -> tuple["Table", NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
        """Rows of positive weight, with their targets, weights and positions in ``X``.

        The estimator stores the names of the columns. With columns of other kinds than numbers, or
        missing values, the columns of a frame are sorted by name, so that their order has no
        effect. Rows of weight 0 are dropped before the kinds of columns are inferred.
        """
        frame = as_frame(X)
        if frame is not None and not frame.columns:
            raise InvalidDataError("X has no columns.")
        if y is None:
            name = type(estimator).__name__
            raise InvalidDataError(f"{name} requires y to be passed, but the target y is None.")
        if frame is None or (is_numeric(frame) and not categorical):
            numbers = read_array(estimator, X, reset=True)
            columns = columns_of_array(numbers, fitted_names(estimator))
        else:
            validate_data(estimator, X, skip_check_array=True)
            columns = columns_of_frame(frame, fitted_names(estimator))
        if (n_rows := len(columns[0].cells)) < 2:
            raise InvalidDataError(
                f"Found array with {n_rows} sample(s) (shape=({n_rows}, {len(columns)})) while a"
                " minimum of 2 is required."
            )
        y = _check_y(y, multi_output=True, y_numeric=True, estimator=estimator)
        check_consistent_length(columns[0].cells, y)
        y = np.asarray(y, dtype=np.float64)
        weight = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        if not weight.sum() > 0:
            raise InvalidDataError("`sample_weight` must have a positive sum, got only zeros.")
        kept = np.flatnonzero(weight > 0)
        if len(kept) < len(y):
            columns = [replace(column, cells=column.cells[kept]) for column in columns]
            y, weight = y[kept], weight[kept]
        schema = describe_columns(columns, categorical, numeric)
        if frame is not None and not schema.is_plain:
            schema = Schema(tuple(sorted(schema.columns, key=lambda column: column.name)))
        return cls.from_columns(columns, schema), y, weight, kept

    @classmethod
    def read(cls, estimator: BaseEstimator, X: Any, schema: Schema) -> "Table":
        """Rows to predict; other columns than those of the schema raise an error."""
        frame, names = as_frame(X), fitted_names(estimator)
        if frame is None or (schema.is_plain and is_numeric(frame)):
            numbers = read_array(estimator, in_fitted_order(estimator, X), reset=False)
            columns = columns_of_array(numbers, names)
        else:
            if names is not None:
                frame = in_order(frame, names)
            validate_data(estimator, frame.to_native(), skip_check_array=True, reset=False)
            columns = columns_of_frame(frame, names)
        return cls.from_columns(columns, schema)

    @classmethod
    def from_columns(cls, columns: Sequence[RawColumn], schema: Schema) -> "Table":
        """Table with the kinds of the schema."""
        by_name = {column.name: column for column in columns}
        n_rows = len(columns[0].cells)

        def stacked(kind: Kind) -> NDArray[np.float64]:
            found = [by_name[column.name].numbers(column) for column in schema.of_kind(kind)]
            return np.stack(found, axis=1) if found else np.empty((n_rows, 0))

        categorical = (by_name[column.name] for column in schema.of_kind(Kind.CATEGORY))
        categories = tuple(CategoryColumn.of(column.cells) for column in categorical)
        return cls(schema, stacked(Kind.NUMBER), stacked(Kind.TIME), categories)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "Table":
        categories = tuple(column[rows] for column in self.categories)
        return Table(self.schema, self.numbers[rows], self.times[rows], categories)

    @property
    def values(self) -> NDArray[np.float64]:
        """Array with one number per cell, equal for equal cells."""
        if self.schema.is_plain:
            return self.numbers
        numbers = np.concatenate([self.numbers, self.times], axis=1)
        for column in numbers.T:
            is_empty = np.isnan(column)
            if is_empty.any():  # a missing value is a number beyond all others
                largest = np.max(np.abs(column[~is_empty]), initial=0.0)
                column[is_empty] = -2.0 * largest - 1.0
        codes = [column.codes.astype(np.float64) for column in self.categories]
        return np.column_stack([numbers, *codes])

    def canonical_order(self, *others: NDArray[np.float64]) -> NDArray[np.intp]:
        """Order of the rows by a hash of their content and of ``others``, such as the targets."""
        return np.argsort(self.hashes(*others), kind="stable")

    def hashes(self, *others: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Hash of the content of each row and of ``others``, equal for equal rows."""
        hashes = np.zeros(len(self), dtype=np.uint64)
        for values in (self.values, *others):
            for column in values.reshape(len(self), -1).T:
                bits = np.ascontiguousarray(column + 0.0).view(np.uint64)  # no negative zeros
                hashes = (hashes ^ (bits * MIXER)) * MIXER
                hashes ^= hashes >> np.uint64(29)
        return hashes


def infer_schema(X: Any, *, categorical: Chosen = None, numeric: Chosen = None) -> Schema:
    """Schema of a frame or an array, with its columns in the same order.

    ``categorical`` and ``numeric`` are names or positions of columns to read as these kinds.
    """
    frame = as_frame(X)
    if frame is not None:
        return describe_columns(columns_of_frame(frame), categorical, numeric)
    X = np.asarray(X)
    X = X if X.dtype.kind == "O" else X.astype(np.float64)
    return describe_columns(columns_of_array(X), categorical, numeric)


def describe_columns(columns: Sequence[RawColumn], categorical: Chosen, numeric: Chosen) -> Schema:
    """Schema of columns, of which the user may have chosen kinds."""
    names = [column.name for column in columns]
    kinds = dict.fromkeys(chosen_names("numeric_features", numeric, names), Kind.NUMBER)
    for name in chosen_names("categorical_features", categorical, names):
        if name in kinds:
            raise InvalidArgumentError(
                f"Column {name!r} is in `categorical_features` and in `numeric_features`."
            )
        kinds[name] = Kind.CATEGORY
    return Schema(tuple(column.describe(kinds.get(column.name)) for column in columns))


def chosen_names(setting: str, chosen: Chosen, names: Sequence[str]) -> list[str]:
    """Names of columns that are given by name or position."""
    if chosen is None:
        return []
    if isinstance(chosen, str) or not isinstance(chosen, Sequence | np.ndarray):
        raise InvalidArgumentError(f"`{setting}` must be a list of columns, got {chosen!r}.")
    found = []
    for column in chosen:
        is_position = isinstance(column, int | np.integer) and not isinstance(column, bool)
        if is_position and -len(names) <= column < len(names):
            found.append(names[int(column)])
        elif column in names:
            found.append(str(column))
        else:
            raise InvalidArgumentError(f"`{setting}` names {column!r}, which is no column of X.")
    return found


def fitted_names(estimator: BaseEstimator) -> list[str] | None:
    """Names of the columns in `fit`, or None if they had none."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def is_numeric(frame: Any) -> bool:
    return all(dtype.is_numeric() for dtype in frame.schema.values())


def in_fitted_order(estimator: BaseEstimator, X: Any) -> Any:
    """Frame with its columns in the order of the fit; anything else is left to scikit-learn."""
    frame, names = as_frame(X), fitted_names(estimator)
    if frame is None or names is None or set(frame.columns) != set(names):
        return X
    return frame.select(names).to_native()


def in_order(frame: Any, names: list[str]) -> Any:
    """Frame with columns in this order; missing or extra columns raise InvalidDataError."""
    given, wanted = dict.fromkeys(map(str, frame.columns)), dict.fromkeys(names)
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    for problem, found in (("is missing", missing), ("was not there in `fit`", extra)):
        if found:
            others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise InvalidDataError(f"Column {found[0]!r}{others} {problem}.")
    return frame.select(names)


def read_array(estimator: BaseEstimator, X: Any, *, reset: bool) -> NDArray[Any]:
    """Numbers, or objects if not all cells are numbers, as scikit-learn reads arrays."""
    n_least = 2 if reset else 1
    checks: Any = {"ensure_all_finite": "allow-nan", "ensure_min_samples": n_least, "reset": reset}
    try:
        return np.asarray(validate_data(estimator, X, dtype=np.float64, **checks))
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
    return np.asarray(validate_data(estimator, X, dtype=None, **checks), dtype=object)
