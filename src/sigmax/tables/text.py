"""Delimited text: encoding, delimiter and decimal sign are detected, rows are read in chunks.

Every row must have as many cells as the header. The whole file is decoded once before its first row
is returned, so that all chunks have the same encoding.
"""

import codecs
import csv
import io
import re
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain, dropwhile, islice
from typing import Any, final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from sigmax.errors import TableFileError, TableFileWarning
from sigmax.tables.sources import Source
from sigmax.tables.table import clean_names

pc: Any = pyarrow.compute  # its functions are made at import, unseen by type checkers

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
MAX_LINE = 10_000_000
"""Characters of a line; a longer one raises an error."""
N_SAMPLED = 100
"""Rows from which delimiter and decimal sign are detected."""
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is the beginning of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
CSV_ERRORS = {
    "field limit": f"a cell has more than {csv.field_size_limit():,} characters; perhaps a quote is"
    " left open",
    "unexpected end": "a quote is opened and not closed",
    "expected after": "a quoted cell goes on after its closing quote",
}
"""Problems by words in the messages of the csv module."""
CONTROLS = re.compile("[\x00-\x08\x0e-\x1f]")
NUL = re.compile("\x00")

MISSING_WORDS = pa.array(
    [
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
        *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    ]
)
"""Texts of missing values, the same as in pandas."""
N_TRIED = 20
"""Cells of a column that are parsed as numbers before all of them are."""
SPACE = "[ \u00a0\u202f]"
CURRENCY = "[$€£¥]"


@final
@dataclass(frozen=True)
class Layout:
    """Encoding, delimiters and header of a text file, and its size."""

    encoding: str
    delimiter: str
    skips_spaces: bool
    """True if spaces after a delimiter are not part of the cell."""
    decimal: str
    names: tuple[str, ...]
    n_bytes: int
    n_lines: int


def find_layout(
    source: Source,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
) -> Layout:
    """Layout of a text file; arguments that are None are detected."""
    encoding, n_bytes, n_lines = find_encoding(source, encoding)
    lines = first_lines(source, encoding)
    delimiter = DELIMITERS.get(delimiter or "", delimiter) or find_delimiter(lines)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableFileError(f"The delimiter must be one character, got {delimiter!r}.")
    skips_spaces = has_spaced_quotes(lines, delimiter)
    rows = parse(lines, delimiter, skips_spaces)
    names = clean_names(source.name, rows[0])
    decimal = decimal or find_decimal(rows[1:], delimiter)
    if decimal not in (".", ","):
        raise TableFileError(f"The decimal sign must be . or , and is {decimal!r}.")
    return Layout(encoding, delimiter, skips_spaces, decimal, names, n_bytes, n_lines)


def read_text(
    source: Source, layout: Layout, rows_per_chunk: int, max_rows: int | None = None
) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
    """Rows in chunks: cells as text, and the number of the last line of each row."""
    schema = pa.schema([(name, pa.string()) for name in layout.names])
    with closing(read_rows(source, layout)) as all_rows:
        rows = islice(all_rows, max_rows)
        while chunk := list(islice(rows, rows_per_chunk)):
            lines, cells = zip(*chunk, strict=True)
            columns = [pa.array(column, pa.string()) for column in zip(*cells, strict=True)]
            yield pa.Table.from_arrays(columns, schema=schema), np.array(lines)


def read_rows(source: Source, layout: Layout) -> Generator[tuple[int, list[str]]]:
    """Rows below the header, each with the number of its last line."""
    n_columns, n_blank, last, is_header = len(layout.names), 0, 0, True
    with closing(text_lines(source, layout.encoding)) as lines:
        reader = csv_reader(lines, layout.delimiter, layout.skips_spaces)
        try:
            for row in reader:
                last = reader.line_num
                if is_header:
                    is_header = is_blank(row)
                elif len(row) == n_columns and (n_columns > 1 or row[0].strip()):
                    if n_blank and n_columns == 1:
                        yield from ((last, [""]) for _ in range(n_blank))
                    n_blank = 0
                    yield last, row
                elif is_blank(row):
                    n_blank += 1  # a missing value if there is one column and a row follows
                else:
                    raise TableFileError(
                        f"{source.name}, line {last}: the header has {n_columns} columns and this"
                        f" row has {len(row)}."
                    )
        except csv.Error as error:
            known = (text for words, text in CSV_ERRORS.items() if words in str(error))
            problem = next(known, str(error))
            raise TableFileError(f"{source.name}, line {last + 1}: {problem}.") from None


def first_lines(source: Source, encoding: str) -> list[str]:
    """First lines from the header on, from which the layout is detected."""
    lines: list[str] = []
    with closing(text_lines(source, encoding)) as all_lines:
        for line in dropwhile(lambda line: not line.strip(), all_lines):
            lines.append(line)
            if len(lines) == N_SAMPLED or sum(map(len, lines)) > MAX_LINE:
                break
    if not lines:
        raise TableFileError(f"{source.name} contains only blank lines.")
    return lines


def parse(lines: list[str], delimiter: str, skips_spaces: bool) -> list[list[str]]:
    """Rows of lines, up to the first that cannot be read."""
    rows = []
    with suppress(csv.Error):
        rows.extend(csv_reader(iter(lines), delimiter, skips_spaces))
    return rows or [[lines[0].strip()]]


def csv_reader(lines: Iterator[str], delimiter: str, skips_spaces: bool) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=skips_spaces, strict=True)


def has_spaced_quotes(lines: list[str], delimiter: str) -> bool:
    return any(f'{delimiter} "' in line for line in lines)


def is_blank(row: list[str]) -> bool:
    return not row or (len(row) == 1 and not row[0].strip())


def find_delimiter(lines: list[str]) -> str:
    """Delimiter with which most rows have as many cells as the header, then with most cells."""

    def score(delimiter: str) -> tuple[float, int]:
        rows = parse(lines, delimiter, has_spaced_quotes(lines, delimiter))
        sizes = [len(row) for row in rows if not is_blank(row)]
        if not sizes or sizes[0] < 2:
            return 0.0, 0
        return sum(size == sizes[0] for size in sizes) / len(sizes), sizes[0]

    return max(DELIMITERS.values(), key=score)


def find_decimal(rows: list[list[str]], delimiter: str) -> str:
    """A comma if more cells have one between digits than have a point there.

    Three digits after it may also be thousands; they count if there is nothing else to decide by,
    and only between semicolons, which are used where the comma is the decimal sign.
    """
    if delimiter == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]

    def count(pattern: str) -> int:
        return sum(bool(re.fullmatch(pattern, cell)) for cell in cells)

    fraction = r"(\d{1,2}|\d{4,})"
    n_commas = count(rf"[+-]?\d[\d.]*,{fraction}")
    n_points = count(rf"[+-]?\d[\d,]*\.{fraction}")
    if n_commas == n_points == 0 and delimiter == ";":
        n_commas, n_points = count(r"[+-]?\d+,\d{3}"), count(r"[+-]?\d+\.\d{3}")
    return "," if n_commas > n_points else "."


def find_encoding(source: Source, encoding: str | None) -> tuple[str, int, int]:
    """Encoding in which the whole file is text, and its numbers of bytes and lines."""
    with source.open() as stream:
        head = source.read(stream, 4)
    if encoding is None:
        marked = (name for mark, name in BYTE_ORDER_MARKS.items() if head.startswith(mark))
        encoding = next(marked, None)
    elif head.startswith(codecs.BOM_UTF8) and encoding.lower() in ("utf-8", "utf8"):
        encoding = "utf-8-sig"
    n_bytes, n_lines, problem = decode(source, encoding or "utf-8", NUL)
    if not problem:
        return encoding or "utf-8", n_bytes, n_lines
    if encoding is not None:
        raise TableFileError(f"{source.name}, {problem} (encoding {encoding}).")
    for guess in ("cp1252", "latin-1"):
        n_bytes, n_lines, other_problem = decode(source, guess, CONTROLS)
        if not other_problem:
            text = (
                f"{source.name} is not UTF-8 text and was read as {guess}; give the encoding if"
                " letters look wrong."
            )
            warnings.warn(text, TableFileWarning, stacklevel=2)
            return guess, n_bytes, n_lines
    raise TableFileError(f"{source.name} is not a text file: {problem}.")


def decode(source: Source, encoding: str, forbidden: re.Pattern[str]) -> tuple[int, int, str]:
    """Bytes and lines of a decoded file, and the problem if it cannot be decoded or is no text."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
        "".encode(encoding)  # an error for codecs of bytes
    except (LookupError, TypeError, ValueError) as error:
        raise TableFileError(f"Unknown encoding {encoding!r}.") from error
    n_bytes = n_lines = 0
    for block in chain(source.blocks(), [b""]):  # the empty block marks the end
        try:
            text = decoder.decode(block, final=not block)
        except (UnicodeError, ValueError) as error:
            line = n_lines + 1 + block[: getattr(error, "start", 0)].count(b"\n")
            return n_bytes, n_lines, f"line {line}: a byte that is not a character"
        if found := forbidden.search(text):
            line = n_lines + 1 + text[: found.start()].count("\n")
            return n_bytes, n_lines, f"line {line}: a NUL or another control character"
        n_bytes += len(block)
        n_lines += text.count("\n")
    return n_bytes, n_lines + 1, ""


def text_lines(source: Source, encoding: str) -> Generator[str]:
    """Lines of a file with their line ends; a line that is too long raises TableFileError."""
    with source.open() as raw:
        stream = io.TextIOWrapper(raw, encoding=encoding, newline="")
        number = 0
        while line := stream.readline(MAX_LINE):
            number += 1
            if len(line) == MAX_LINE:
                raise TableFileError(
                    f"{source.name}, line {number}: longer than {MAX_LINE:,} characters."
                )
            yield line


def parse_text(column: pa.ChunkedArray, decimal: str = ".") -> pd.Series:
    """Column of text as numbers if every cell is missing or a number, or else as text.

    Cells may have a currency sign, separators of thousands or a per cent sign, as in ``$1,200.50``
    or ``12 %``, if all cells have the same sign; the sign is dropped. Whole numbers that begin with
    a zero (``02134``) are codes, and stay text; so do those too long for 64 bits.
    """
    trimmed = pc.utf8_trim_whitespace(column)
    is_missing, null = pc.is_in(trimmed, value_set=MISSING_WORDS), pa.scalar(None, pa.string())
    present = pc.if_else(is_missing, null, trimmed)
    if present.null_count == len(present):
        return pd.Series(float("nan"), index=range(len(present)), dtype="float64")
    first = pc.drop_null(present.slice(0, 50 * N_TRIED)).slice(0, N_TRIED)
    is_numeric = parse_numbers(first, decimal) is not None
    numbers = parse_numbers(present, decimal) if is_numeric else None
    return as_series(pc.if_else(is_missing, null, column) if numbers is None else numbers)


def parse_numbers(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    """Numbers of trimmed cells, or None if not every cell is a number."""
    numbers = plain_numbers(column, decimal)
    return formatted_numbers(column, decimal) if numbers is None else numbers


def plain_numbers(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    """Numbers of cells that have only digits, signs, points and exponents."""
    with suppress(pa.ArrowInvalid):
        numbers = pc.cast(column, pa.int64())
        is_code = pc.any(pc.match_substring_regex(column, "^[+-]?0[0-9xX]")).as_py()
        return None if is_code else numbers
    if decimal == ".":
        with suppress(pa.ArrowInvalid):
            numbers = pc.cast(column, pa.float64())
            is_too_long = pc.all(pc.match_substring_regex(column, "^[+-]?[0-9]+$")).as_py()
            return None if is_too_long else numbers
    return None


def formatted_numbers(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    """Numbers of cells with units, separators of thousands or another decimal sign."""
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
    negative = pc.binary_join_element_wise("-", digits, "")
    return plain_numbers(pc.if_else(pc.equal(sign, "-"), negative, digits), ".")


def as_series(column: pa.ChunkedArray) -> pd.Series:
    """Series of pandas; whole numbers and booleans with missing values keep their kind."""
    if column.null_count and pa.types.is_integer(column.type):
        return column.to_pandas(types_mapper=lambda _: pd.Int64Dtype())
    if column.null_count and pa.types.is_boolean(column.type):
        return column.to_pandas(types_mapper=lambda _: pd.BooleanDtype())
    return column.to_pandas()
