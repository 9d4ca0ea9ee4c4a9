"""Units of many files: some rows of one file, the same every time.

Files are cut before anything is read: Parquet files between their row groups, and within one
only if it is far larger than a part; any other file is one unit.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sigmax.errors import InvalidDataError, TableFileError, TableFileWarning
from sigmax.tables.names import clean_names, listed
from sigmax.tables.parquet import as_frame, check_types, told
from sigmax.tables.places import FoundFile, find_files, is_address, joined, open_place
from sigmax.tables.reading import check_finite, read_table
from sigmax.tables.sources import Format, Source, open_source
from sigmax.tables.text import find_layout, read_text
from sigmax.tables.writing import common_schema

__all__ = [
    "InputFile",
    "Unit",
    "as_features",
    "common_columns",
    "cut_units",
    "read_inputs",
    "read_unit",
]

N_AT_ONCE = 8
"""Files whose ends are read at the same time."""


@final
@dataclass(frozen=True)
class InputFile:
    """A file, as it was when the run began."""

    found: FoundFile
    schema: pa.Schema
    """Names and types of the columns; of text and Excel files the types are not known before."""
    groups: tuple[int, ...] | None
    """Rows of every row group of a Parquet file; None of other files, whose rows are counted
    when they are read."""

    @property
    def n_rows(self) -> int | None:
        return None if self.groups is None else sum(self.groups)


@final
class Unit(NamedTuple):
    """Some rows of a file, which become one part."""

    number: int
    address: str
    first_group: int = 0
    n_groups: int = 0
    n_skipped: int = 0
    """Rows of the first row group that belong to the units before."""
    n_rows: int | None = None
    """None if they are counted when they are read."""


def read_inputs(
    sources: Sequence[str], out: str | None, reading: Mapping[str, Any]
) -> tuple[InputFile, ...]:
    """All files of the sources but those in ``out``, with their columns and numbers of rows.

    Raises
    ------
    TableFileError
        If a source has no files, or a file is broken.
    InvalidDataError
        If a file comes twice.
    """
    found = [file for source in sources for file in find_files(source)]
    if out is not None:
        outside = joined(out, "").partition("?")[0]
        found = [file for file in found if not file.address.startswith(outside)]
        if not found:
            raise TableFileError(f"There are no tables to predict outside of {out}.")
    seen: set[str] = set()
    for file in found:
        if file.address in seen:
            raise InvalidDataError(f"{file.address} is named twice, and would be read twice.")
        seen.add(file.address)
    with ThreadPoolExecutor(N_AT_ONCE) as threads:
        return tuple(threads.map(lambda file: read_input(file, reading), found))


def read_input(found: FoundFile, reading: Mapping[str, Any]) -> InputFile:
    name = found.address.partition("?")[0].lower()
    if not name.endswith((".parquet", ".pq")):
        if is_address(found.address):
            raise TableFileError(
                f"{found.address} is no Parquet file, and only these are read from a store:"
                " download it first."
            )
        with open_source(found.address) as source:
            if source.format != Format.PARQUET:
                return read_other(found, source, reading)
    source = parquet_source(found.address)
    with told(source), open_place(found.address) as stream, pq.ParquetFile(stream) as file:
        schema, facts = file.schema_arrow.remove_metadata(), file.metadata
        check_types(source, schema)
        names = clean_names(source.name, schema.names)
        columns = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
        groups = tuple(facts.row_group(i).num_rows for i in range(facts.num_row_groups))
        return InputFile(found, pa.schema(columns), groups)


def read_other(found: FoundFile, source: Source, reading: Mapping[str, Any]) -> InputFile:
    """A file of text, or of Excel; one of text may have a header and no rows."""
    groups = None
    if source.format == Format.TEXT:
        layout = find_layout(
            source, delimiter=reading.get("delimiter"), encoding=reading.get("encoding")
        )
        names = layout.names
        groups = () if next(read_text(source, layout, 1), None) is None else None
    else:
        names = tuple(map(str, read_table(found.address, max_rows=1, **reading).columns))
    return InputFile(found, pa.schema([(name, pa.null()) for name in names]), groups)


def common_columns(inputs: Sequence[InputFile]) -> pa.Schema:
    """Names and types that hold the cells of all files, in the order of the first one.

    Raises
    ------
    InvalidDataError
        If a file has other columns than the first.
    """
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
    """The units of all files, numbered."""
    units: list[Unit] = []
    for file in inputs:
        address = file.found.address
        if file.groups is None:
            units.append(Unit(len(units), address))
            continue
        for cut in cut_groups(file.groups, rows_per_part):
            units.append(Unit(len(units), address, *cut))
    return tuple(units)


def cut_groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int, int, int]]:
    """First row group, number of groups, rows to skip in the first, and rows, of every unit.

    Examples
    --------
    >>> list(cut_groups([40, 40, 40, 150], 100))
    [(0, 2, 0, 80), (2, 1, 0, 40), (3, 1, 0, 150)]
    >>> list(cut_groups([250], 100))
    [(0, 1, 0, 100), (0, 1, 100, 100), (0, 1, 200, 50)]
    >>> list(cut_groups([], 100))
    [(0, 0, 0, 0)]
    """
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
    """The rows of a unit of a Parquet file in chunks, with the names and types of all files."""
    groups = list(range(unit.first_group, unit.first_group + unit.n_groups))
    n_skipped, n_left, waiting = unit.n_skipped, unit.n_rows or 0, []
    if not groups:
        return
    source = parquet_source(unit.address)
    with told(source), open_place(unit.address) as stream, pq.ParquetFile(stream) as file:
        with warnings.catch_warnings():  # which were given when the run began
            warnings.simplefilter("ignore", TableFileWarning)
            names = list(clean_names(source.name, file.schema_arrow.names))
        for batch in file.iter_batches(rows_per_chunk, row_groups=groups):
            n_here = len(batch)
            batch = batch.slice(min(n_skipped, n_here))
            n_skipped = max(0, n_skipped - n_here)
            waiting.append(pa.Table.from_batches([batch]).slice(0, n_left))
            n_left -= len(waiting[-1])
            while sum(map(len, waiting)) >= rows_per_chunk:
                table = pa.concat_tables(waiting)
                waiting = [table.slice(rows_per_chunk)]
                yield fitted(table.slice(0, rows_per_chunk), names, columns)
            if not n_left:
                break
        if sum(map(len, waiting)):
            yield fitted(pa.concat_tables(waiting), names, columns)


def fitted(table: pa.Table, names: list[str], columns: pa.Schema) -> pa.Table:
    """A table with columns of these names and types, in their order."""
    return table.rename_columns(names).select(columns.names).cast(columns)


def as_features(
    table: pa.Table, features: Sequence[str], address: str, n_before: int = 0
) -> pd.DataFrame:
    """The columns that a model learned from, none of them infinite; the index counts file rows."""
    frame = as_frame(table.select(features), tuple(features))
    frame.index = pd.RangeIndex(n_before, n_before + len(frame))
    check_finite(parquet_source(address), frame, None)
    return frame


def parquet_source(address: str) -> Source:
    """A Parquet file by its address, for messages."""
    return Source(address, Path(address), Format.PARQUET, None)
