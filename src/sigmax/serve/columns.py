"""Columns of a fitted model: JSON cells, fields of the form, and cells of training rows.

A `LocalRegressor` stores its training rows standardised and in single precision, so numbers and
times are rounded. Categories of fewer than three rows, which it merges, are shown as rare.
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from pydantic_core import PydanticCustomError

from sigmax.experts.local import LocalFitted
from sigmax.inputs import Inputs
from sigmax.table_model import SavedTableModel
from sigmax.tables.table import Column, Kind, Schema, category_name, is_missing, parse_times

PRECISION = 3e-7
"""Rounding error of a standardised number."""
DAY = 86_400.0
TIME_STEPS = (1.0, 60.0, 3600.0, DAY)
PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")
"""Times that Python reads like pandas, 100 times as fast."""
MAX_TIME_TEXT, MAX_TEXT = 100, 10_000
"""Characters of a cell."""
MAX_LISTED = 1000
"""Categories of a column in the OpenAPI document."""
MAX_OPTIONS, MAX_SUGGESTIONS = 200, 2000
"""Categories of a drop-down list, and of the text field for columns that have more."""

Cell = float | str | None


@final
class RestoredRows:
    """Training rows in the units of the table, and typical values of each column."""

    def __init__(self, saved: SavedTableModel):
        model = saved.model.model_
        self.features, fitted = model.features, model.fitted
        self.schema: Schema = self.features.schema
        self.reals, self.categories = self.schema.reals, self.schema.of_kind(Kind.CATEGORY)
        self.has_neighbors = isinstance(fitted, LocalFitted)
        self.numbers = None
        if isinstance(fitted, LocalFitted):
            rows = fitted.rows
            self.positions = {index: i for i, index in enumerate(rows.indices.tolist())}
            self.targets = model.target.restore(np.asarray(rows.y, np.float64))[:, 0]
            self.numbers = self.restore_numbers(rows.X)
            codes = rows.X.codes
            self.codes = (
                np.empty((len(self.targets), 0), int) if codes is None else np.asarray(codes)
            )
        self.time_steps = {column.name: self.time_step(j) for j, column in enumerate(self.reals)}

    def restore_numbers(self, X: Inputs) -> NDArray[np.float64]:
        """Numbers and times of all rows, NaN for missing values."""
        n_columns, scaling = len(self.reals), self.features.scaling
        standard = np.asarray(X.numbers, np.float64)[:, :n_columns]
        values = scaling.mean[:n_columns] + scaling.scale[:n_columns] * standard
        flagged = self.features.flagged()
        if len(flagged):
            is_missing = np.asarray(X.extras)[:, : len(flagged)] > 0.5
            values[:, flagged] = np.where(is_missing, np.nan, values[:, flagged])
        return values

    def time_step(self, j: int) -> float:
        """Resolution of a column of times in seconds, a day for dates."""
        error = PRECISION * float(self.features.scaling.scale[j])
        if self.numbers is not None:
            from_midnight = np.abs((self.numbers[:, j] + DAY / 2) % DAY - DAY / 2)
            if np.nanmax(from_midnight, initial=0.0) <= 4 * error:
                return DAY
        return next((step for step in TIME_STEPS if step > error), DAY)

    def target(self, index: int) -> float:
        """Target of a row by its index in `fit`."""
        decimals = n_decimals(float(np.std(self.targets)))
        return round(float(self.targets[self.positions[index]]), decimals)

    def cells(self, index: int) -> dict[str, Cell]:
        """All cells of a row by its index in `fit`."""
        assert self.numbers is not None
        i = self.positions[index]
        numbers, codes = self.numbers[i].tolist(), self.codes[i].tolist()
        cells = {column.name: self.shown(j, numbers[j]) for j, column in enumerate(self.reals)}
        categories = enumerate(self.categories)
        return cells | {column.name: self.category(j, codes[j]) for j, column in categories}

    def shown(self, j: int, value: float) -> Cell:
        """A number, rounded, or a time as text."""
        if math.isnan(value):
            return None
        if self.reals[j].kind is Kind.TIME:
            return format_time(value, self.time_steps[self.reals[j].name])
        return round(value, n_decimals(float(self.features.scaling.scale[j]))) + 0.0  # no -0

    def category(self, j: int, code: int) -> str | None:
        """Category of a code, None for a missing value."""
        entries = np.flatnonzero(self.features.categories[j].codes == code)
        names = self.categories[j].categories
        if code == 0 or not len(entries):
            return "(rare)"
        return names[entries[0]] if entries[0] < len(names) else None

    def typical(self, column: Column) -> Cell:
        """Median or most frequent category (without training rows: mean or first category)."""
        if column.kind is Kind.CATEGORY:
            if not self.has_neighbors:
                return column.categories[0] if column.categories else None
            j = self.categories.index(column)
            counts = np.bincount(self.codes[:, j])
            if 2 * counts[0] > len(self.codes) or not counts[1:].any():
                return None
            return self.category(j, 1 + int(np.argmax(counts[1:])))
        j = self.reals.index(column)
        if self.numbers is None:
            return self.shown(j, float(self.features.scaling.mean[j]))
        present = self.numbers[:, j][~np.isnan(self.numbers[:, j])]
        if 2 * len(present) < len(self.numbers):
            return None
        return self.shown(j, float(np.median(present)))


def n_decimals(scale: float) -> int:
    """Decimals that are exact in a number whose standard deviation is ``scale``."""
    return max(0, math.ceil(-math.log10(max(scale, 1e-300) * 20 * PRECISION)))


def format_time(seconds: float, step: float) -> str:
    """Time in ISO 8601, rounded to a step in seconds."""
    limits = -62_135_596_800.0, 253_402_214_400.0  # years 1 to 9999
    rounded = min(max(round(seconds / step) * step, limits[0]), limits[1])
    moment = datetime(1970, 1, 1) + timedelta(seconds=rounded)
    if step >= DAY:
        return moment.date().isoformat()
    return moment.isoformat(timespec="minutes" if step >= 60 else "seconds")


@final
class RowFormat:
    """Rows of a JSON request: a pydantic model made from the columns, and its data frames."""

    def __init__(self, saved: SavedTableModel, rows: RestoredRows):
        by_name = {column.name: column for column in rows.schema}
        self.columns = [by_name[name] for name in saved.features]
        self.typical = {column.name: rows.typical(column) for column in self.columns}
        self.allows_missing = bool(saved.model.__sklearn_tags__().input_tags.allow_nan)
        # Columns may have any name, fields of pydantic models may not.
        self.fields = {f"column_{j}": column for j, column in enumerate(self.columns)}
        types: Any = {
            field: (Annotated[self.cell_type(column), Field(alias=column.name)], ...)
            for field, column in self.fields.items()
        }
        example: Any = {"examples": [self.typical]}
        config = ConfigDict(strict=True, allow_inf_nan=False, json_schema_extra=example)
        self.row_model = create_model("Row", __config__=config, **types)

    def frame(self, rows: Sequence[Any]) -> pd.DataFrame:
        """Rows as a data frame, with types that do not depend on the other rows of a batch."""
        found = {}
        for field, column in self.fields.items():
            cells = [getattr(row, field) for row in rows]
            is_category = column.kind is Kind.CATEGORY
            values = np.array(cells, dtype=object if is_category else np.float64)  # None is NaN
            if column.kind is Kind.TIME:
                values = np.round(1e6 * values).astype("datetime64[us]")
            found[column.name] = values
        return pd.DataFrame(found)

    def cell_type(self, column: Column) -> Any:
        """Type, conversion and JSON schema of the cells of a column."""
        cell: Any = float
        is_always_there = self.allows_missing and not column.has_missing
        text = " No training row has a missing value." if is_always_there else ""
        if column.kind is Kind.CATEGORY:
            names = list(column.categories[:MAX_LISTED])
            schemas: list[Any] = [{"enum": names}] if names else []
            schemas.append({"type": ["string", "number", "boolean"], "maxLength": MAX_TEXT})
            text = f"One of {len(column.categories):,} categories, or an unseen one.{text}"
            cell = Annotated[str, Field(max_length=MAX_TEXT)]
        elif column.kind is Kind.TIME:
            schemas = [{"type": "string", "format": name} for name in ("date-time", "date")]
            schemas.append({"type": "string"})
            text = f"Should be {time_rule(column)}. Training data: {training_range(column)}.{text}"
        else:
            schemas = [{"type": "number"}]
            text = f"Training data: {training_range(column)}.{text}"
        if self.allows_missing:
            cell = cell | None
            schemas.append({"type": "null"})
        return Annotated[
            cell,
            BeforeValidator(partial(convert_cell, column=column)),
            WithJsonSchema({"anyOf": schemas, "description": text, "title": column.name}),
        ]


def convert_cell(value: Any, column: Column) -> Any:
    """A cell before pydantic checks its type: names of categories, times in seconds since 1970."""
    if is_missing(value):
        return None
    if column.kind is Kind.TIME:
        return parse_time(value, column)
    if column.kind is Kind.NUMBER:
        return value
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return category_name(value)
    return value.strip() if isinstance(value, str) else value


def parse_time(value: Any, column: Column) -> float:
    """Seconds since 1970. Python is tried first, because pandas takes 0.2 ms per cell."""
    time_format = column.time_format or "ISO8601"
    if isinstance(value, str) and len(value) <= MAX_TIME_TEXT:
        with suppress(ValueError):
            if PLAIN_TIME.fullmatch(value):
                time = datetime.fromisoformat(value)
                return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
            if time_format != "ISO8601":
                return datetime.strptime(value, time_format).replace(tzinfo=UTC).timestamp()
        with suppress(ValueError):
            return float(parse_times(np.array([value], dtype=object), time_format, column.name)[0])
    raise PydanticCustomError("time", "Input should be {rule}", {"rule": time_rule(column)})


def time_rule(column: Column) -> str:
    is_iso = column.time_format in (None, "ISO8601")
    return "a time in ISO 8601" + ("" if is_iso else f" or as {column.time_format}")


def training_range(column: Column, step: float = 1.0) -> str:
    """Smallest and largest value in the training data."""
    if column.low is None or column.high is None:
        return "always missing"
    ends: Any = (column.low, column.high)
    is_time = column.kind is Kind.TIME
    low, high = (format_time(end, step) if is_time else f"{end:.6g}" for end in ends)
    return f"{low} to {high}".replace("T", " ")


def form_field(column: Column, rows: RestoredRows) -> dict[str, Any]:
    """Field of the form: kind of the input, initial value and hint on the training data."""
    typical = rows.typical(column)
    field: dict[str, Any] = {"name": column.name, "kind": "number", "step": "any"}
    field["value"] = f"{typical:.12g}" if isinstance(typical, float) else typical or ""
    if column.kind is Kind.CATEGORY:
        is_short = len(column.categories) <= MAX_OPTIONS
        field["kind"] = "list" if is_short else "text"
        field["categories"] = column.categories[: MAX_OPTIONS if is_short else MAX_SUGGESTIONS]
        field["hint"] = f"{len(column.categories):,} categories"
        return field
    step = rows.time_steps[column.name]
    if column.kind is Kind.TIME and step >= DAY:
        field["kind"] = "date"
    elif column.kind is Kind.TIME:
        field |= {"kind": "datetime-local", "step": "1" if step < 60 else "60"}
    return field | {"hint": training_range(column, step)}
