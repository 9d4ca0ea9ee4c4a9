"""The target column of a table: numbers, or an error that says where it has something else."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.errors import InvalidDataError

__all__ = ["as_numbers", "check_names", "read_target"]

MOST_SHOWN = 60
"""Characters of a cell or a list of names in a message."""


def check_names(
    names: Iterable[str], columns: Sequence[str], *, option: str, table: str = "the table"
) -> None:
    """Refuse names that are no columns, with the columns that look like them."""
    known = [str(column) for column in columns]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            listed = near or known
            text = shorten(", ".join(map(repr, listed)))
            hint = f"did you mean {text}?" if near else f"its columns are {text}."
            raise InvalidDataError(f"`{option}`: {table} has no column {name!r}; {hint}")


def read_target(frame: pd.DataFrame, target: str, *, first_row: int = 0) -> NDArray[np.float64]:
    """The target of every row as a number, nan where it is missing.

    Parameters
    ----------
    first_row
        How many rows of the file come before these, for messages.

    Raises
    ------
    InvalidDataError
        If it is text, a date, true or false, or infinite.
    """
    check_names([target], list(frame.columns), option="--target")
    column: Any = frame[target]
    if pd.api.types.is_bool_dtype(column.dtype):
        raise InvalidDataError(
            f"The target {target!r} is true or false; sigmax predicts numbers, not classes."
        )
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        raise InvalidDataError(f"The target {target!r} must be numbers, got dates.")
    numbers = as_numbers(column)
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


def as_numbers(column: Any) -> NDArray[np.float64]:
    """The cells of a column as numbers, nan for what is none."""
    found: Any = pd.to_numeric(column, errors="coerce")
    return found.to_numpy(np.float64, na_value=np.nan)


def shorten(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
