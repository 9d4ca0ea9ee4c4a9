"""Checked tables, from arrays and from frames of pandas, polars and others that narwhals reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_sample_weight, _check_y, validate_data

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.tables.columns import (
    MISSING,
    CategoryColumn,
    RawColumn,
    as_frame,
    columns_of_array,
    columns_of_frame,
)
from sigmax.tables.schema import Kind, Schema

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
        categorical: Sequence[Any] | None = None,
        numeric: Sequence[Any] | None = None,
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
        if not columns or len(columns[0].cells) < 2:
            n_rows = len(columns[0].cells) if columns else 0
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


def infer_schema(
    X: Any, *, categorical: Sequence[Any] | None = None, numeric: Sequence[Any] | None = None
) -> Schema:
    """Schema of a frame or an array, with its columns in the same order.

    ``categorical`` and ``numeric`` are names or positions of columns to read as these kinds.
    """
    frame = as_frame(X)
    if frame is not None:
        return describe_columns(columns_of_frame(frame), categorical, numeric)
    X = np.asarray(X)
    X = X if X.dtype.kind == "O" else X.astype(np.float64)
    return describe_columns(columns_of_array(X), categorical, numeric)


def describe_columns(
    columns: Sequence[RawColumn], categorical: Sequence[Any] | None, numeric: Sequence[Any] | None
) -> Schema:
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


def chosen_names(setting: str, chosen: Sequence[Any] | None, names: Sequence[str]) -> list[str]:
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
