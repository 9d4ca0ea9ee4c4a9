"""Delimited text: encoding, delimiter and decimal sign are found, rows are read a chunk at a time.

Every row must have as many cells as the header. The whole file is decoded once before its first row
is given, so that no chunk is read in another encoding than the one before.
"""

import codecs
import csv
import io
import re
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sigmax.errors import TableFileError, TableFileWarning
from sigmax.tables.names import clean_names
from sigmax.tables.sources import Source

__all__ = ["DELIMITERS", "Layout", "TextChunk", "find_layout", "read_text"]

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
MAX_LINE = 10_000_000
"""Characters in a line: more are no table."""
N_SAMPLED = 100
"""Rows from which delimiter and decimal sign are found."""
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is the beginning of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
CONTROLS = re.compile("[\x00-\x08\x0e-\x1f]")
NUL = re.compile("\x00")


@final
@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the cells of a text file are written, and how much of it there is."""

    encoding: str
    delimiter: str
    skips_spaces: bool
    """Blanks after a delimiter do not belong to the cell."""
    decimal: str
    names: tuple[str, ...]
    n_bytes: int
    n_lines: int


@final
@dataclass(frozen=True)
class TextChunk:
    """Some rows: cells as text, and the line of each row."""

    cells: pa.Table
    lines: NDArray[np.int64]


@final
@dataclass(frozen=True)
class Scan:
    """What decoding a whole file showed."""

    n_bytes: int = 0
    n_lines: int = 0
    trouble: str = ""
    """What cannot be text, and in which line; empty if all can."""


def find_layout(
    source: Source,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
) -> Layout:
    """Encoding, delimiter, decimal sign and header of a file; what is given is taken as given.

    Raises
    ------
    TableFileError
        If the file is not text, not in the given encoding, or has no header or no rows.
    """
    encoding, scan = find_encoding(source, encoding)
    lines = first_lines(source, encoding)
    delimiter = DELIMITERS.get(delimiter or "", delimiter) or find_delimiter(lines)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableFileError(f"The delimiter must be one character, got {delimiter!r}.")
    skips_spaces = any(f'{delimiter} "' in line for line in lines)
    rows = parse(lines, delimiter, skips_spaces)
    names = clean_names(source.name, rows[0])
    decimal = decimal or find_decimal(rows[1:], delimiter)
    if decimal not in (".", ","):
        raise TableFileError(f"The decimal sign must be . or , and is {decimal!r}.")
    return Layout(
        encoding=encoding,
        delimiter=delimiter,
        skips_spaces=skips_spaces,
        decimal=decimal,
        names=names,
        n_bytes=scan.n_bytes,
        n_lines=scan.n_lines,
    )


def read_text(source: Source, layout: Layout, rows_per_chunk: int) -> Generator[TextChunk]:
    """All rows, ``rows_per_chunk`` at a time.

    Raises
    ------
    TableFileError
        If a row has more or fewer cells than the header, or a quote is left open.
    """
    rows: list[list[str]] = []
    ends: list[int] = []
    schema = pa.schema([(name, pa.string()) for name in layout.names])

    def finished() -> TextChunk:
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        return TextChunk(pa.Table.from_arrays(columns, schema=schema), np.array(ends))

    for line, row in read_rows(source, layout):
        rows.append(row)
        ends.append(line)
        if len(rows) == rows_per_chunk:
            yield finished()
            rows, ends = [], []
    if rows:
        yield finished()


def read_rows(source: Source, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Rows below the header, each with the line in which it ends."""
    n_columns, n_blank, last, is_header = len(layout.names), 0, 0, True
    with closing(text_lines(source, layout.encoding)) as lines:
        reader = reader_of(lines, layout.delimiter, layout.skips_spaces)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise TableFileError(f"{source.name}, line {last + 1}: {quarrel(error)}.") from None
            last = reader.line_num
            if is_header:
                is_header = is_blank(row)
            elif len(row) == n_columns and (n_columns > 1 or row[0].strip()):
                if n_blank and n_columns == 1:
                    yield from ((last, [""]) for _ in range(n_blank))
                n_blank = 0
                yield last, row
            elif is_blank(row):
                n_blank += 1  # a gap if there is one column and a row follows
            else:
                raise TableFileError(
                    f"{source.name}, line {last}: the header has {n_columns} columns and this row"
                    f" has {len(row)}."
                )


def quarrel(error: csv.Error) -> str:
    """What the reader of rows stumbled over, in a sentence."""
    text = str(error)
    if "field limit" in text:
        limit = csv.field_size_limit()
        return f"a cell has more than {limit:,} characters; perhaps a quote is left open"
    if "unexpected end" in text:
        return "a quote is opened and not closed"
    if "expected after" in text:
        return "a quoted cell goes on after its closing quote"
    return text


def first_lines(source: Source, encoding: str) -> list[str]:
    """Lines from the first that is not blank on, enough to see how cells are written."""
    lines: list[str] = []
    n_characters = 0
    with closing(text_lines(source, encoding)) as all_lines:
        for line in all_lines:
            if lines or line.strip():
                lines.append(line)
                n_characters += len(line)
            if len(lines) == N_SAMPLED or n_characters > MAX_LINE:
                break
    if not lines:
        raise TableFileError(f"{source.name} holds nothing but blank lines.")
    return lines


def parse(lines: list[str], delimiter: str, skips_spaces: bool) -> list[list[str]]:
    """Rows of some lines, up to the first that cannot be read."""
    rows = []
    reader = reader_of(iter(lines), delimiter, skips_spaces)
    with suppress(csv.Error):
        for row in reader:
            rows.append(row)
    return rows or [[lines[0].strip()]]


def reader_of(lines: Iterator[str], delimiter: str, skips_spaces: bool) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=skips_spaces, strict=True)


def is_blank(row: list[str]) -> bool:
    return not row or (len(row) == 1 and not row[0].strip())


def find_delimiter(lines: list[str]) -> str:
    """The delimiter by which most rows have as many cells as the header, and then most cells."""

    def merit(delimiter: str) -> tuple[float, int]:
        rows = parse(lines, delimiter, any(f'{delimiter} "' in line for line in lines))
        sizes = [len(row) for row in rows if not is_blank(row)]
        if not sizes or sizes[0] < 2:
            return 0.0, 0
        return sum(size == sizes[0] for size in sizes) / len(sizes), sizes[0]

    return max(DELIMITERS.values(), key=merit)


def find_decimal(rows: list[list[str]], delimiter: str) -> str:
    """A comma if more cells have one between digits than have a point there.

    Three digits after it may also be thousands; they count if there is nothing else to go by, and
    only between semicolons, which stand where the comma is taken.
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


def find_encoding(source: Source, encoding: str | None) -> tuple[str, Scan]:
    """The encoding in which all of a file is text."""
    with source.open() as stream:
        head = source.read(stream, 4)
    if encoding is not None:
        if head.startswith(codecs.BOM_UTF8) and encoding.lower() in ("utf-8", "utf8"):
            encoding = "utf-8-sig"
        scan = decode(source, encoding, NUL)
        if scan.trouble:
            raise TableFileError(f"{source.name}, {scan.trouble} (encoding {encoding}).")
        return encoding, scan
    for mark, marked in MARKS.items():
        if head.startswith(mark):
            return find_encoding(source, marked)
    scan = decode(source, "utf-8", NUL)
    if not scan.trouble:
        return "utf-8", scan
    for guess in ("cp1252", "latin-1"):
        guessed = decode(source, guess, CONTROLS)
        if not guessed.trouble:
            warnings.warn(
                f"{source.name} is not UTF-8 text and was read as {guess}; give the encoding if"
                " letters look wrong.",
                TableFileWarning,
                stacklevel=2,
            )
            return guess, guessed
    raise TableFileError(f"{source.name} is not a text file: {scan.trouble}.")


def decode(source: Source, encoding: str, forbidden: re.Pattern[str]) -> Scan:
    """Decode a whole file, and tell what cannot be decoded or is ``forbidden``."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
        "".encode(encoding)  # refuses codecs of bytes
    except (LookupError, TypeError, ValueError) as error:
        raise TableFileError(f"There is no encoding {encoding!r}.") from error
    n_bytes = n_lines = 0
    for block in chain(source.blocks(), [b""]):  # an empty one says that it is the end
        try:
            text = decoder.decode(block, final=not block)
        except (UnicodeError, ValueError) as error:
            before = getattr(error, "start", 0)
            line = n_lines + 1 + block[:before].count(b"\n")
            return Scan(trouble=f"line {line}: a byte that is no character")
        if found := forbidden.search(text):
            line = n_lines + 1 + text[: found.start()].count("\n")
            return Scan(trouble=f"line {line}: a NUL or another control character")
        n_bytes += len(block)
        n_lines += text.count("\n")
    return Scan(n_bytes, n_lines + 1)


def text_lines(source: Source, encoding: str) -> Generator[str]:
    """The lines of a file, their ends included.

    Raises
    ------
    TableFileError
        If a line is too long for a table.
    """
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
