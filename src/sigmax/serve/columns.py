"""Columns of a fitted model: JSON cells and fields of the form."""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, final

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from pydantic_core import PydanticCustomError

from sigmax.table_model import SavedTableModel
from sigmax.tables.table import Column, Kind, category_name, is_missing, parse_times

DAY = 86_400.0
PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")
"""Times that Python reads like pandas, 100 times as fast."""
MAX_TIME_TEXT, MAX_TEXT = 100, 10_000
"""Characters of a cell."""
MAX_LISTED = 1000
"""Categories of a column in the OpenAPI document."""
MAX_OPTIONS, MAX_SUGGESTIONS = 200, 2000
"""Categories of a drop-down list, and of the text field for columns that have more."""


def time_step(column: Column) -> float:
    """Resolution of a column of times in seconds, a day for dates."""
    ends = [end for end in (column.low, column.high) if end is not None]
    return next((step for step in (DAY, 60.0) if not any(end % step for end in ends)), 1.0)


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

    def __init__(self, saved: SavedTableModel):
        self.by_name = {column.name: column for column in saved.schema}
        self.columns = [self.by_name[name] for name in saved.features]
        self.typical = {one["name"]: one.get("typical") for one in saved.metadata["features"]}
        for column in self.columns:
            if column.kind is Kind.TIME and self.typical[column.name] is not None:
                time = format_time(self.typical[column.name], time_step(column))
                self.typical[column.name] = time
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
        text = "" if column.has_missing else " No training row has a missing value."
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
        schemas.append({"type": "null"})
        return Annotated[
            cell | None,
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


def form_field(column: Column, typical: float | str | None) -> dict[str, Any]:
    """Field of the form: kind of the input, initial value and hint on the training data."""
    field: dict[str, Any] = {"name": column.name, "kind": "number", "step": "any"}
    field["value"] = f"{typical:.12g}" if isinstance(typical, float) else typical or ""
    if column.kind is Kind.CATEGORY:
        is_short = len(column.categories) <= MAX_OPTIONS
        field["kind"] = "list" if is_short else "text"
        field["categories"] = column.categories[: MAX_OPTIONS if is_short else MAX_SUGGESTIONS]
        field["hint"] = f"{len(column.categories):,} categories"
        return field
    step = time_step(column)
    if column.kind is Kind.TIME and step >= DAY:
        field["kind"] = "date"
    elif column.kind is Kind.TIME:
        field |= {"kind": "datetime-local", "step": "1" if step < 60 else "60"}
    return field | {"hint": training_range(column, step)}
