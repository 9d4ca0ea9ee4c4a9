"""A user's table as a frame of pandas, whole or in chunks, whatever kind of file it is.

CSV, TSV and other delimited text (plain, ``.gz``, ``.bz2`` or ``.xz``), Parquet and Excel files are
read; the kind is found by content, and ``-`` is standard input. Reading runs nothing that stands in
a file and fetches nothing. What cannot be read is refused by `TableFileError`; what was read in
another way than it stands is told by `TableFileWarning`.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from sigmax.checks import check_count
from sigmax.errors import TableFileError
from sigmax.tables.excel import read_excel
from sigmax.tables.memory import check_memory
from sigmax.tables.numerals import parse_text
from sigmax.tables.parquet import read_parquet
from sigmax.tables.sources import Format, Source, open_source
from sigmax.tables.text import Layout, TextChunk, find_layout, read_text

__all__ = ["read_chunks", "read_table"]

ROWS_PER_CHUNK = 50_000
BYTES_PER_CELL = 32
"""Of memory, besides twice the text itself: measured on a million rows of 20 columns."""


def read_table(
    source: str | Path,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
    max_rows: int | None = None,
) -> pd.DataFrame:
    """The whole table, or its first ``max_rows`` rows.

    Columns of text are numbers if every cell is a gap or a number (see `parse_text`); everything
    else stays text, also dates. Whole numbers with gaps have the type ``Int64``.

    Parameters
    ----------
    source : str or Path
        A file, or ``-`` for standard input.
    delimiter : str, optional
        One character, or one of the words comma, semicolon, tab and pipe; found if left out.
    encoding : str, optional
        By its Python name; found if left out.
    decimal : str, optional
        The decimal sign of delimited text, ``.`` or ``,``; found if left out.
    sheet : str, optional
        The name of a sheet of an Excel file; the first if left out.
    max_rows : int, optional
        At most this many rows are read.

    Raises
    ------
    TableFileError
        If there is no such file, or it is no table; the message names the file and the place.
    """
    if max_rows is not None:
        check_count("max_rows", max_rows)
    with open_source(source) as file:
        if file.format == Format.PARQUET:
            chunks = read_parquet(file, ROWS_PER_CHUNK, max_rows, whole=True)
            frame = pd.concat(list(chunks), ignore_index=True)
        elif file.format == Format.TEXT:
            layout = find_layout(file, delimiter=delimiter, encoding=encoding, decimal=decimal)
            frame = read_whole_text(file, layout, max_rows)
        else:
            frame = read_excel(file, sheet, max_rows)
        check_finite(file, frame, None)
        return frame


def read_chunks(
    source: str | Path,
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
    max_rows: int | None = None,
) -> Iterator[pd.DataFrame]:
    """The table in chunks of rows, in memory for one chunk; the index goes on through all of them.

    A column of text may be numbers in one chunk and text in the next, if only some rows have
    numbers. Excel files are read whole and then divided. Parameters and errors are those of
    `read_table`.
    """
    check_count("rows_per_chunk", rows_per_chunk)
    if max_rows is not None:
        check_count("max_rows", max_rows)
    with open_source(source) as file:
        if file.format == Format.PARQUET:
            frames = read_parquet(file, rows_per_chunk, max_rows, whole=False)
        elif file.format == Format.TEXT:
            layout = find_layout(file, delimiter=delimiter, encoding=encoding, decimal=decimal)
            frames = read_text_chunks(file, layout, rows_per_chunk, max_rows)
        else:
            whole = read_excel(file, sheet, max_rows)
            starts = range(0, len(whole), rows_per_chunk)
            frames = (whole.iloc[start : start + rows_per_chunk] for start in starts)
        first = 0
        for frame in frames:
            frame.index = pd.RangeIndex(first, first + len(frame))
            check_finite(file, frame, None)
            yield frame
            first += len(frame)


def read_whole_text(file: Source, layout: Layout, max_rows: int | None) -> pd.DataFrame:
    """All rows of a text file; a column is numbers only if it is in all of them."""
    n_rows = layout.n_lines if max_rows is None else min(max_rows, layout.n_lines)
    n_bytes = layout.n_bytes * n_rows // layout.n_lines
    check_memory(file.name, 2 * n_bytes + BYTES_PER_CELL * n_rows * len(layout.names))
    chunks = list(text_chunks(file, layout, ROWS_PER_CHUNK, max_rows))
    cells = pa.concat_tables([chunk.cells for chunk in chunks])
    lines = np.concatenate([chunk.lines for chunk in chunks])
    return convert(file, layout, TextChunk(cells, lines))


def read_text_chunks(
    file: Source, layout: Layout, rows_per_chunk: int, max_rows: int | None
) -> Iterator[pd.DataFrame]:
    for chunk in text_chunks(file, layout, rows_per_chunk, max_rows):
        yield convert(file, layout, chunk)


def text_chunks(
    file: Source, layout: Layout, rows_per_chunk: int, max_rows: int | None
) -> Generator[TextChunk]:
    """Chunks of the first ``max_rows`` rows, of which there must be one."""
    n_left, is_empty = max_rows, True
    size = rows_per_chunk if max_rows is None else min(rows_per_chunk, max_rows)
    with closing(read_text(file, layout, size)) as chunks:
        for chunk in chunks:
            is_empty = False
            if n_left is not None:
                chunk = TextChunk(chunk.cells.slice(0, n_left), chunk.lines[:n_left])
                n_left -= len(chunk.lines)
            yield chunk
            if n_left == 0:
                return
    if is_empty:
        raise TableFileError(f"{file.name} has a header and no rows.")


def convert(file: Source, layout: Layout, chunk: TextChunk) -> pd.DataFrame:
    """Cells of text as a frame."""
    columns = {
        name: parse_text(chunk.cells.column(i), layout.decimal)
        for i, name in enumerate(layout.names)
    }
    frame = pd.DataFrame(columns)
    check_finite(file, frame, chunk.lines)
    return frame


def check_finite(file: Source, frame: pd.DataFrame, lines: np.ndarray | None) -> None:
    """Refuse infinite numbers, by column and line (or row, where a file has no lines)."""
    for name, column in frame.items():
        if column.dtype.kind == "f":
            is_infinite = np.isinf(column.to_numpy())
            if is_infinite.any():
                i = int(is_infinite.argmax())
                place = f"row {frame.index[i] + 1}" if lines is None else f"line {lines[i]}"
                raise TableFileError(f"{file.name}, {place}, column {name!r}: an infinite number.")
