"""Parquet files, a batch of rows at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sigmax.errors import SigmaxError, TableFileError
from sigmax.tables.memory import check_memory
from sigmax.tables.names import clean_names
from sigmax.tables.numerals import as_series, pc
from sigmax.tables.sources import Source, reason

__all__ = ["read_parquet"]


def read_parquet(
    source: Source, rows_per_chunk: int, max_rows: int | None, *, whole: bool
) -> Iterator[pd.DataFrame]:
    """The rows of a Parquet file in chunks; ``whole`` says that all of them are to be kept.

    Raises
    ------
    TableFileError
        If the file is damaged, has no rows, or a column that is no number, text or time.
    """
    with told(source), pq.ParquetFile(source.path) as file:
        facts = file.metadata
        n_rows = facts.num_rows if max_rows is None else min(max_rows, facts.num_rows)
        if whole:
            n_columns = len(file.schema_arrow)
            check_memory(source.name, 2 * (8 * n_rows * n_columns + text_bytes(facts)))
        schema = file.schema_arrow
        check_types(source, schema)
        names = clean_names(source.name, schema.names)
        if n_rows <= 0:
            raise TableFileError(f"{source.name} has columns and no rows.")
        for batch in file.iter_batches(batch_size=min(rows_per_chunk, n_rows)):
            batch = batch.slice(0, n_rows)
            n_rows -= len(batch)
            if len(batch):
                yield as_frame(pa.Table.from_batches([batch]), names)


def text_bytes(facts: pq.FileMetaData) -> int:
    """What the file says about its size when it is uncompressed."""
    return sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))


def check_types(source: Source, schema: pa.Schema) -> None:
    """Refuse columns whose cells are lists, tables or bytes."""
    for field in schema:
        kind = value_type(field.type)
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise TableFileError(
                f"{source.name}, column {field.name!r}: cells of type {kind} are not read, only"
                " numbers, text and times."
            )


def as_frame(table: pa.Table, names: tuple[str, ...]) -> pd.DataFrame:
    """A frame with one column for each of the table's, by position."""
    columns = (as_series(plain(table.column(i))) for i in range(table.num_columns))
    return pd.DataFrame(dict(zip(names, columns, strict=True)))


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose type pandas has: codes become their words, days become times."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    kind = column.type
    if pa.types.is_date(kind):
        return pc.cast(column, pa.timestamp("s" if pa.types.is_date32(kind) else "ms"))
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return pc.cast(column, pa.float64())
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pc.cast(column, pa.string())
    if pa.types.is_null(kind):
        return pc.cast(column, pa.float64())
    return column


def value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


@contextmanager
def told(source: Source) -> Iterator[None]:
    """What the reader of Parquet raises becomes our error; a damaged file may raise anything."""
    try:
        yield
    except SigmaxError:
        raise
    except Exception as error:
        text = reason(error).splitlines()[0]
        raise TableFileError(f"{source.name} is a damaged {source.format} file: {text}.") from error
