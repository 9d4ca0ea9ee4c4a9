"""Tables as data frames of pandas, at once or in chunks, from one file or many.

CSV, TSV and other delimited text (plain, ``.gz``, ``.bz2`` or ``.xz``), Parquet and Excel files are
read; the format is detected by content, and ``-`` is standard input. Reading executes nothing in a
file and downloads nothing. A file that cannot be read raises `TableFileError`; a `TableFileWarning`
says where names, sheets or encodings had to be chosen.

Many files are cut into units of rows, the same every time, before any row is read: Parquet files
between their row groups, and within a row group only if it is far larger than a unit; any other
file is one unit.
"""

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sigmax.errors import InvalidDataError, TableFileError, TableFileWarning
from sigmax.settings import check_count
from sigmax.tables.excel import read_excel
from sigmax.tables.sources import (
    Format,
    FoundFile,
    Source,
    check_memory,
    find_files,
    is_address,
    is_many_files,
    join_path,
    open_input,
    open_source,
    translate_errors,
)
from sigmax.tables.table import clean_names, listed
from sigmax.tables.text import Layout, as_series, find_layout, parse_text, pc, read_text
from sigmax.tables.writing import common_schema

ROWS_PER_CHUNK = 50_000
BYTES_PER_CELL = 32
"""Memory per cell, besides twice the text itself: measured on a million rows of 20 columns."""
N_AT_ONCE = 8
"""Files whose metadata are read at the same time."""


def read_table(source: str | Path, **options: Any) -> pd.DataFrame:
    """Read a whole table from a file, or from standard input for ``-``.

    Options are ``delimiter`` (one character, or comma, semicolon, tab or pipe), ``encoding``,
    ``decimal`` (``.`` or ``,``) and the ``sheet`` of an Excel file, which are detected by default,
    and ``max_rows``. Columns of text are numbers if every cell is missing or a number (see
    `parse_text`); all others stay text, also dates. Whole numbers with missing values have the type
    ``Int64``. A `TableFileError` names the file and the line that cannot be read.
    """
    with open_source(source) as file:
        frames = list(read_frames(file, ROWS_PER_CHUNK, whole=True, **options))
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def read_chunks(
    source: str | Path, *, rows_per_chunk: int = ROWS_PER_CHUNK, **options: Any
) -> Iterator[pd.DataFrame]:
    """Read a table in chunks of rows, one at a time in memory; the index counts all rows.

    A column of text may be numbers in one chunk and text in the next, if only some rows have
    numbers. Excel files are read at once and then divided. Other options and errors are those of
    `read_table`.
    """
    check_count("rows_per_chunk", rows_per_chunk)
    with open_source(source) as file:
        yield from read_frames(file, rows_per_chunk, whole=False, **options)


def read_frames(
    file: Source,
    rows_per_chunk: int,
    *,
    whole: bool,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
    max_rows: int | None = None,
) -> Iterator[pd.DataFrame]:
    """Chunks of a table; with ``whole``, all must fit into memory and text is one chunk."""
    if max_rows is not None:
        check_count("max_rows", max_rows)
    if file.format == Format.PARQUET:
        frames = read_parquet(file, rows_per_chunk, max_rows, whole=whole)
    elif file.format == Format.TEXT:
        layout = find_layout(file, delimiter=delimiter, encoding=encoding, decimal=decimal)
        frames = read_text_frames(file, layout, rows_per_chunk, max_rows, whole=whole)
    else:
        table = read_excel(file, sheet, max_rows)
        starts = range(0, len(table), rows_per_chunk)
        frames = (table.iloc[start : start + rows_per_chunk] for start in starts)
    n_before = 0
    for frame in frames:
        frame.index = pd.RangeIndex(n_before, n_before + len(frame))
        check_finite(file.name, frame)
        yield frame
        n_before += len(frame)


def read_text_frames(
    file: Source, layout: Layout, rows_per_chunk: int, max_rows: int | None, *, whole: bool
) -> Iterator[pd.DataFrame]:
    """Frames of a text file; with ``whole`` one, whose columns are numbers if all rows are."""
    chunks = read_text(file, layout, rows_per_chunk, max_rows)
    if whole:
        n_rows = layout.n_lines if max_rows is None else min(max_rows, layout.n_lines)
        n_bytes = layout.n_bytes * n_rows // layout.n_lines
        check_memory(file.name, 2 * n_bytes + BYTES_PER_CELL * n_rows * len(layout.names))
        if parts := list(chunks):
            tables, numbers = zip(*parts, strict=True)
            chunks = iter([(pa.concat_tables(tables), np.concatenate(numbers))])
    is_empty = True
    for cells, lines in chunks:
        is_empty = False
        columns = (parse_text(column, layout.decimal) for column in cells.columns)
        frame = pd.DataFrame(dict(zip(layout.names, columns, strict=True)))
        check_finite(file.name, frame, lines)
        yield frame
    if is_empty:
        raise TableFileError(f"{file.name} has a header and no rows.")


def read_parquet(
    file: Source, rows_per_chunk: int, max_rows: int | None, *, whole: bool
) -> Iterator[pd.DataFrame]:
    with translate_errors(file.name, file.format), pq.ParquetFile(file.path) as parquet:
        metadata, schema = parquet.metadata, parquet.schema_arrow
        n_rows = metadata.num_rows if max_rows is None else min(max_rows, metadata.num_rows)
        if whole:
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            n_bytes = sum(group.total_byte_size for group in groups)
            check_memory(file.name, 2 * (8 * n_rows * len(schema) + n_bytes))
        names = parquet_schema(file.name, parquet).names
        if n_rows <= 0:
            raise TableFileError(f"{file.name} has columns and no rows.")
        for table in read_batches(parquet, rows_per_chunk, n_rows):
            yield to_pandas(table, names)


def parquet_schema(name: str, file: pq.ParquetFile) -> pa.Schema:
    """Types of the columns and their clean names; columns of lists or bytes raise an error."""
    schema = file.schema_arrow
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise TableFileError(
                f"{name}, column {field.name!r}: cells of type {kind} are not read, only numbers,"
                " text and times."
            )
    return pa.schema(list(zip(clean_names(name, schema.names), schema.types, strict=True)))


def read_batches(
    file: pq.ParquetFile, rows_per_batch: int, n_rows: int, n_skipped: int = 0, groups: Any = None
) -> Iterator[pa.Table]:
    """First ``n_rows`` rows after ``n_skipped`` of a file, or of some of its row groups."""
    for batch in file.iter_batches(rows_per_batch, row_groups=groups):
        start = min(n_skipped, len(batch))
        n_skipped -= start
        batch = batch.slice(start, n_rows)
        n_rows -= len(batch)
        if len(batch):
            yield pa.Table.from_batches([batch])
        if not n_rows:
            return


def to_pandas(table: pa.Table, names: Sequence[str]) -> pd.DataFrame:
    """Frame under these names; dictionaries are decoded, and dates become times."""

    def simple(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        kind = column.type
        if pa.types.is_date(kind):
            return pc.cast(column, pa.timestamp("s" if pa.types.is_date32(kind) else "ms"))
        if pa.types.is_decimal(kind) or pa.types.is_float16(kind) or pa.types.is_null(kind):
            return pc.cast(column, pa.float64())
        if pa.types.is_time(kind) or pa.types.is_duration(kind):
            return pc.cast(column, pa.string())
        return column

    columns = (as_series(simple(column)) for column in table.columns)
    return pd.DataFrame(dict(zip(names, columns, strict=True)))


def check_finite(name: str, frame: pd.DataFrame, lines: np.ndarray | None = None) -> None:
    """Raise TableFileError for infinite numbers, with column and line, or row without lines."""
    for column, cells in frame.items():
        if cells.dtype.kind == "f":
            is_infinite = np.isinf(cells.to_numpy())
            if is_infinite.any():
                i = int(is_infinite.argmax())
                where = f"row {frame.index[i] + 1}" if lines is None else f"line {lines[i]}"
                raise TableFileError(f"{name}, {where}, column {column!r}: an infinite number.")


@final
@dataclass(frozen=True)
class InputFile:
    """A file with its columns and row groups."""

    found: FoundFile
    schema: pa.Schema
    """Names and types of the columns; the types of text and Excel files are null."""
    groups: tuple[int, ...] | None
    """Number of rows of each row group of a Parquet file; None for other files."""

    @property
    def n_rows(self) -> int | None:
        return None if self.groups is None else sum(self.groups)


@final
class Unit(NamedTuple):
    """Rows of a file that become one part of the output."""

    number: int
    address: str
    first_group: int = 0
    n_groups: int = 0
    n_skipped: int = 0
    """Rows of the first row group that belong to earlier units."""
    n_rows: int | None = None
    """None if they are counted while reading."""


@final
@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files with the same columns, whose types have a common type."""

    inputs: tuple[InputFile, ...]
    columns: pa.Schema

    @classmethod
    def open(cls, sources: Sequence[str]) -> "ParquetFiles":
        """Files of paths, folders and patterns; only their metadata are read."""
        inputs = read_inputs(sources, None, {})
        if others := [file.found.address for file in inputs if file.groups is None]:
            raise TableFileError(
                f"{others[0]} is not a Parquet file, and several files are read as one table only"
                " if all of them are."
            )
        found = cls(inputs, common_columns(inputs))
        if not found.n_rows:
            raise TableFileError(f"{inputs[0].found.address} has columns and no rows.")
        return found

    @property
    def n_rows(self) -> int:
        return sum(file.n_rows or 0 for file in self.inputs)

    @property
    def names(self) -> list[str]:
        return list(self.columns.names)

    def frames(self, rows_per_frame: int) -> Iterator[pd.DataFrame]:
        """All rows in the order of the files, always in the same frames; the index counts rows."""
        n_before = 0
        for unit in cut_units(self.inputs, rows_per_frame):
            for table in read_unit(unit, self.columns, rows_per_frame):
                yield as_features(table, self.names, unit.address, n_before)
                n_before += len(table)

    def read(self) -> pd.DataFrame:
        """All rows; TableFileError if they need more memory than is free."""
        n_bytes = BYTES_PER_CELL * self.n_rows * len(self.names)
        check_memory(self.inputs[0].found.address, n_bytes)
        return pd.concat(list(self.frames(2**16)), ignore_index=True)


def is_parquet(source: str) -> bool:
    """True for a Parquet file, and for a folder, a pattern or an address."""
    if is_many_files(source):
        return True
    if not os.path.isfile(os.path.expanduser(source)):  # a pipe can be read only once
        return False
    with open_source(source) as file:
        return file.format == Format.PARQUET


def read_inputs(
    sources: Sequence[str], out: str | None, reading: Mapping[str, Any]
) -> tuple[InputFile, ...]:
    """All files of the sources, except those in the folder ``out``, with their metadata."""
    found = [file for source in sources for file in find_files(source)]
    if out is not None:
        folder = join_path(out, "").partition("?")[0]
        found = [file for file in found if not file.address.startswith(folder)]
        if not found:
            raise TableFileError(f"There are no tables to predict outside of {out}.")
    [(address, n_times)] = Counter(file.address for file in found).most_common(1)
    if n_times > 1:
        raise InvalidDataError(f"{address} is named twice, and would be read twice.")
    with ThreadPoolExecutor(N_AT_ONCE) as threads:
        return tuple(threads.map(lambda file: read_input(file, reading), found))


def read_input(found: FoundFile, reading: Mapping[str, Any]) -> InputFile:
    """Columns and row groups of a file; a text file may have a header and no rows."""
    address = found.address
    if not address.partition("?")[0].lower().endswith((".parquet", ".pq")):
        if is_address(address):
            raise TableFileError(
                f"{address} is not a Parquet file, and only these are read from a store:"
                " download it first."
            )
        with open_source(address) as source:
            names, groups = None, None
            if source.format == Format.TEXT:
                options = {name: reading.get(name) for name in ("delimiter", "encoding")}
                layout = find_layout(source, **options)
                names = layout.names
                groups = () if next(read_text(source, layout, 1), None) is None else None
            elif source.format != Format.PARQUET:
                names = map(str, read_table(address, max_rows=1, **reading).columns)
            if names is not None:
                return InputFile(found, pa.schema([(name, pa.null()) for name in names]), groups)
    with translate_errors(address, Format.PARQUET), open_input(address) as stream:
        file = pq.ParquetFile(stream)
        groups = (file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
        return InputFile(found, parquet_schema(address, file), tuple(groups))


def common_columns(inputs: Sequence[InputFile]) -> pa.Schema:
    """Names and common types of the columns of all files, in the order of the first."""
    first = inputs[0]
    common = first.schema
    for file in inputs[1:]:
        names, others = set(first.schema.names), set(file.schema.names)
        if names != others:
            less, more = sorted(names - others), sorted(others - names)
            differences = [f"no column {listed(less)}"] if less else []
            differences += [f"also {listed(more)}"] if more else []
            raise InvalidDataError(
                f"{file.found.address} has other columns than {first.found.address}:"
                f" {', and '.join(differences)}."
            )
        ordered = pa.schema([file.schema.field(name) for name in common.names])
        common = common_schema(common, ordered)
    kinds = [pa.float64() if pa.types.is_null(field.type) else field.type for field in common]
    return pa.schema(list(zip(common.names, kinds, strict=True)))


def cut_units(inputs: Sequence[InputFile], rows_per_part: int) -> tuple[Unit, ...]:
    units: list[Unit] = []
    for file in inputs:
        cuts = [()] if file.groups is None else cut_groups(file.groups, rows_per_part)
        units += [Unit(len(units) + i, file.found.address, *cut) for i, cut in enumerate(cuts)]
    return tuple(units)


def cut_groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int, int, int]]:
    """First row group, number of groups, rows to skip in the first, and rows, of every unit."""
    if not sum(sizes):
        yield 0, 0, 0, 0
    first = n_rows = 0
    for i, size in enumerate([*sizes, 0]):
        is_end = i == len(sizes)
        if n_rows and (is_end or n_rows + size > most):
            yield first, i - first, 0, n_rows
            first, n_rows = i, 0
        if size > 2 * most:
            for start in range(0, size, most):
                yield i, 1, start, min(most, size - start)
            first = i + 1
        else:
            n_rows += size


def read_unit(unit: Unit, columns: pa.Schema, rows_per_chunk: int) -> Iterator[pa.Table]:
    """Rows of a unit of a Parquet file in chunks, with the names and types of all files."""
    groups = list(range(unit.first_group, unit.first_group + unit.n_groups))
    if not unit.n_rows:
        return
    with translate_errors(unit.address, Format.PARQUET), open_input(unit.address) as stream:
        file = pq.ParquetFile(stream)
        with warnings.catch_warnings():  # set by `read_inputs`
            warnings.simplefilter("ignore", TableFileWarning)
            names = parquet_schema(unit.address, file).names
        for table in read_batches(file, rows_per_chunk, unit.n_rows, unit.n_skipped, groups):
            yield table.rename_columns(names).select(columns.names).cast(columns)


def as_features(
    table: pa.Table, features: Sequence[str], address: str, n_before: int = 0
) -> pd.DataFrame:
    """Frame of the features, all finite; the index continues from the ``n_before`` rows before."""
    frame = to_pandas(table.select(features), features)
    frame.index = pd.RangeIndex(n_before, n_before + len(frame))
    check_finite(address, frame)
    return frame
