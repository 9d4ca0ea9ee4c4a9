"""From the cells of one column to numbers, levels or times, whatever type they came in."""

import math
import warnings
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.errors import InvalidCellError, InvalidDataError

__all__ = ["find_time_format", "is_gap", "level_names", "parse_numbers", "parse_times"]

ISO = "ISO8601"

TIME_FORMATS = tuple(
    day + clock
    for clock in ("", " %H:%M:%S", " %H:%M", "T%H:%M:%S", " %I:%M:%S %p", " %I:%M %p", "T%H%M%S")
    for day in (
        "%m/%d/%Y",
        "%d/%m/%Y",
        "%Y/%m/%d",
        "%d.%m.%Y",
        "%m-%d-%Y",
        "%d-%m-%Y",
        "%Y%m%d",
        "%d-%b-%Y",
        "%d %b %Y",
        "%d %B %Y",
        "%b %d, %Y",
        "%B %d, %Y",
        "%m/%d/%y",
        "%d/%m/%y",
    )
    if not (day == "%Y%m%d" and clock == "")  # a plain number
)
"""Tried in this order: where nothing tells months from days, the month comes first."""

ISO_DATE = r"\s*\d{4}-\d{1,2}-\d{1,2}([T ].*)?\s*"

N_LOOKED_AT = 50
"""Values on which a format is tried before all are."""


def is_gap(value: Any) -> bool:
    """Whether a cell is empty: None, NaN, a missing time, or text without a character."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or value is pd.NA or value is pd.NaT


def level_names(values: NDArray[Any]) -> list[str]:
    """What levels are called: the same, whether they came as text, numbers or truth values.

    Examples
    --------
    >>> level_names(np.array(["a", 1, 1.0, 1.5, True], dtype=object))
    ['a', '1', '1', '1.5', 'True']
    """
    return [level_name(value) for value in values]


def level_name(value: Any) -> str:
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
    """Objects as numbers, NaN for gaps.

    Raises
    ------
    InvalidDataError
        If something is no number; the message names it.
    """
    numbers = np.empty(len(values))
    for i, value in enumerate(values):
        try:
            numbers[i] = math.nan if is_gap(value) else float(value)
        except (TypeError, ValueError) as error:
            raise InvalidCellError(
                f"Column {name!r} holds numbers, but row {{row}} is {str(value)[:50]!r}; a column"
                " of text is learned from as categories, or named in `categorical_features`.",
                i + 1,
            ) from error
    return numbers


def find_time_format(values: NDArray[Any]) -> str | None:
    """The way in which all texts are written as dates or times, if there is one.

    Examples
    --------
    >>> find_time_format(np.array(["09/22/1986", "12/01/1999"], dtype=object))
    '%m/%d/%Y'
    >>> find_time_format(np.array(["2019-03-23 20:21:09", "2020-01-01"], dtype=object))
    'ISO8601'
    >>> find_time_format(np.array(["12", "15"], dtype=object))
    """
    texts = pd.Series(values, dtype=object)
    if not len(texts) or not all(isinstance(text, str) for text in values):
        return None
    some = texts.iloc[:: max(1, len(texts) // N_LOOKED_AT)]
    if not some.str.contains(r"\d").all() or not some.str.len().between(6, 40).all():
        return None
    if some.str.fullmatch(ISO_DATE).all():
        return ISO if texts_as_times(texts, ISO) is not None else None
    for time_format in TIME_FORMATS:
        if texts_as_times(some, time_format) is not None:
            if texts_as_times(texts, time_format) is not None:
                return time_format
    return None


def texts_as_times(texts: pd.Series, time_format: str) -> pd.Series | None:
    """Texts of one format as times, None if any is not of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return pd.to_datetime(texts.str.strip(), format=time_format, utc=True)
        except (ValueError, TypeError, OverflowError):
            return None


def parse_times(values: NDArray[Any], time_format: str | None, name: str) -> NDArray[np.float64]:
    """Times, or texts of a format, in seconds since 1970, UTC unless they say otherwise.

    Raises
    ------
    InvalidDataError
        If something is no time; the message names it.
    """
    seconds = np.full(len(values), np.nan)
    present = np.flatnonzero([not is_gap(value) for value in values])
    texts = np.array([isinstance(value, str) for value in values[present]], dtype=bool)
    for rows, formats in (
        (present[texts], dict.fromkeys([time_format or ISO, ISO])),
        (present[~texts], [None]),
    ):
        if not len(rows):
            continue
        cells = pd.Series(values[rows], dtype=object)
        for this in formats:
            found = as_times(cells) if this is None else texts_as_times(cells, this)
            if found is not None:
                seconds[rows] = in_seconds(found)
                break
        else:
            bad = (
                (row, value)
                for row, value in zip(rows, cells, strict=True)
                if all(texts_as_times(pd.Series([value]), this or ISO) is None for this in formats)
            )
            row, wrong = next(bad, (0, None))
            if wrong is None:
                raise InvalidDataError(
                    f"Column {name!r} has times written in two ways, as {formats_of(formats)}:"
                    " write all of them in one."
                )
            text = f"Column {name!r} holds times, but row {{row}} is {str(wrong)[:50]!r}."
            raise InvalidCellError(text, int(row) + 1)
    return seconds


def formats_of(formats: Iterable[str | None]) -> str:
    return " and as ".join(map(str, formats))


def as_times(cells: pd.Series) -> pd.Series | None:
    """Objects of Python's, NumPy's or pandas' time types as times."""
    if any(isinstance(cell, int | float | bool | np.number) for cell in cells):
        return None
    try:
        return pd.to_datetime(cells, utc=True)
    except (ValueError, TypeError, OverflowError):
        return None


def in_seconds(times: pd.Series) -> NDArray[np.float64]:
    """Seconds since 1970."""
    return times.to_numpy(dtype="datetime64[us]").astype(np.int64) / 1e6
