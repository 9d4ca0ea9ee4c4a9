"""Columns of text: which cells are gaps, and which columns are numbers."""

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute

__all__ = ["GAPS", "as_series", "parse_numbers", "parse_text"]

pc: Any = pyarrow.compute  # its functions are made when it is imported, unseen by checkers

GAPS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""The words for a missing value, the same as pandas has."""

N_TRIED = 20
"""Cells of a column that are looked at before all of them are."""

SPACE = "[ \u00a0\u202f]"
CURRENCY = "[$€£¥]"
CODE = r"^[+-]?0[0-9xX]"
WHOLE = r"^[+-]?[0-9]+$"


def parse_text(column: pa.ChunkedArray, decimal: str = ".") -> pd.Series:
    """A column of text as numbers if every cell is a gap or a number, or else as text.

    Cells may have a currency sign, separators of thousands or a per cent sign, as in ``$1,200.50``
    or ``12 %``, if all cells have the same sign; the sign is dropped. Whole numbers that begin with
    a zero (``02134``) are codes, and stay text; so do those too long for 64 bits.
    """
    trimmed = pc.utf8_trim_whitespace(column)
    is_gap = pc.is_in(trimmed, value_set=pa.array(GAPS))
    present = pc.if_else(is_gap, pa.scalar(None, pa.string()), trimmed)
    if present.null_count == len(present):
        return pd.Series(float("nan"), index=range(len(present)), dtype="float64")
    numbers = parse_numbers(present, decimal)
    if numbers is None:
        return pc.if_else(is_gap, pa.scalar(None, pa.string()), column).to_pandas()
    return as_series(numbers)


def parse_numbers(column: pa.ChunkedArray, decimal: str = ".") -> pa.ChunkedArray | None:
    """Numbers for cells without blanks at their ends, or None if not every cell is one."""
    first = pc.drop_null(column.slice(0, 50 * N_TRIED)).slice(0, N_TRIED)
    if try_numbers(first, decimal) is None:
        return None
    return try_numbers(column, decimal)


def try_numbers(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    numbers = plain_numbers(column, decimal)
    return written_numbers(column, decimal) if numbers is None else numbers


def plain_numbers(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    """Numbers of columns that hold nothing but digits, signs, points and exponents."""
    try:
        numbers = pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        pass
    else:
        return None if any_match(column, CODE) else numbers
    if decimal != ".":
        return None
    try:
        numbers = pc.cast(column, pa.float64())
    except pa.ArrowInvalid:
        return None
    is_too_long = pc.all(pc.match_substring_regex(column, WHOLE)).as_py()
    return None if is_too_long else numbers


def written_numbers(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    """Numbers of columns with units, separators of thousands or another decimal sign."""
    point, comma = (r"\.", ",") if decimal == "." else (",", r"\.")
    group = f"(?:{comma}|['\u00a0\u202f])"
    digits = rf"(?:[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+|[0-9]+)(?:{point}[0-9]*)?"
    number = rf"(?:{digits}|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    pattern = (
        rf"^(?P<sign>[+-]?){SPACE}*(?P<head>{CURRENCY}?){SPACE}*"
        rf"(?P<number>{number}){SPACE}*(?P<tail>%|{CURRENCY}|)$"
    )
    parts = pc.extract_regex(column, pattern)
    if parts.null_count > column.null_count:
        return None
    sign, head, digits, tail = (pc.struct_field(parts, i) for i in range(4))
    if any(len(pc.unique(pc.drop_null(unit))) > 1 for unit in (head, tail)):
        return None
    digits = pc.replace_substring_regex(digits, group, "")
    if decimal != ".":
        digits = pc.replace_substring(digits, decimal, ".")
    is_negative = pc.equal(sign, "-")
    digits = pc.if_else(is_negative, pc.binary_join_element_wise("-", digits, ""), digits)
    return plain_numbers(digits, ".")


def any_match(column: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def as_series(column: pa.ChunkedArray) -> pd.Series:
    """A column of pandas; whole numbers and truth values with gaps stay what they are."""
    if column.null_count and pa.types.is_integer(column.type):
        return column.to_pandas(types_mapper=lambda _: pd.Int64Dtype())
    if column.null_count and pa.types.is_boolean(column.type):
        return column.to_pandas(types_mapper=lambda _: pd.BooleanDtype())
    return column.to_pandas()
