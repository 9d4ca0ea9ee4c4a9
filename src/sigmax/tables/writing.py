"""Tables written a chunk at a time: CSV, TSV or Parquet by the name of the file, and ``.gz``.

In text, a cell or name that a spreadsheet would run as a formula (it begins with ``=``, ``+``,
``-``, ``@``, a tab or a line end, and is no number) gets an apostrophe in front, by which
spreadsheets know text. So does what follows a line end or another separator in a cell: a
spreadsheet set to semicolons splits ``a;=2+2``. Line ends in cells are written as newlines. A file
appears whole or not at all.
"""

import gzip
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sigmax.errors import TableFileError
from sigmax.tables.partial import check_new_folder, new_file, new_folder
from sigmax.tables.sources import STANDARD_STREAM

__all__ = [
    "ParquetRows",
    "check_new_folder",
    "check_writable_name",
    "common_schema",
    "new_file",
    "new_folder",
    "write_rows",
    "write_table",
]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
PARQUET = (".parquet", ".pq")
FORMULA = re.compile("[=+\\-@\t\r\n＝＋－＠]")
OTHER_SEPARATOR = re.compile('([;,|\t\n]"*)([^;,|\t\n]*)')
NUMBER = re.compile(r"[+-]?(\d[\d,.]*|\.\d+)([eE][+-]?\d+)?\s?%?")


def write_table(frames: Iterable[pd.DataFrame], path: str | Path) -> None:
    """Write frames with the same columns one below the other; ``-`` is CSV to standard output.

    Parquet needs one type for each column: where frames differ, numbers become floats, and anything
    else becomes text.

    Raises
    ------
    TableFileError
        If the name has another ending, or if the file cannot be written.
    """
    if str(path) == STANDARD_STREAM:
        write_text(frames, sys.stdout.buffer, ",")
        return
    ending = check_writable_name(path)
    with new_file(path) as stream:
        if ending in PARQUET:
            write_parquet(frames, stream)
        elif ending.endswith(".gz"):
            with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
                write_text(frames, packed, SEPARATORS[ending])
        else:
            write_text(frames, stream, SEPARATORS[ending])


def check_writable_name(path: str | Path) -> str:
    """The ending of a file's name, refused if it says no format that can be written."""
    name = Path(path).name.lower()
    endings = [*SEPARATORS, *PARQUET]
    for ending in endings:
        if name.endswith(ending):
            return ending
    raise TableFileError(f"{path} must end in {', '.join(endings[:-1])} or {endings[-1]}.")


def write_text(frames: Iterable[pd.DataFrame], stream: Any, separator: str) -> None:
    """Rows as delimited text in UTF-8."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    try:
        for i, frame in enumerate(frames):
            write_rows(frame, text, separator, header=i == 0)
        text.flush()
    finally:
        text.detach()  # the stream is the caller's to close


def write_rows(frame: pd.DataFrame, text: Any, separator: str, *, header: bool) -> None:
    """Rows as delimited text, below the names of the columns if there is to be a header."""
    shown = harmless_frame(frame, separator)
    shown.to_csv(text, sep=separator, index=False, header=header, lineterminator="\n")


def harmless_frame(frame: pd.DataFrame, separator: str) -> pd.DataFrame:
    """The same cells and names, none of which a spreadsheet runs."""
    columns = [harmless_column(frame.iloc[:, i], separator) for i in range(frame.shape[1])]
    shown = pd.concat(columns, axis=1) if columns else frame.copy()
    shown.columns = pd.Index([harmless(str(name), separator) for name in frame.columns])
    return shown


def harmless_column(column: pd.Series, separator: str) -> pd.Series:
    """A column, with an apostrophe in front of cells of text that look like a formula."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not (pd.api.types.is_string_dtype(column.dtype) or column.dtype == object):
        return column
    return column.map(lambda cell: harmless(cell, separator) if isinstance(cell, str) else cell)


def harmless(cell: str, separator: str = ",") -> str:
    """A cell of text that no spreadsheet runs as a formula.

    Examples
    --------
    >>> harmless("=1+1"), harmless("-3.5"), harmless("plain"), harmless("a;=2+2;-1")
    ("'=1+1", '-3.5', 'plain', "a;'=2+2;-1")
    """
    if "\r" in cell:  # which many readers take for the end of the row
        cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    if NUMBER.fullmatch(cell):
        return cell
    first = "'" if FORMULA.match(cell) else ""

    def part(found: re.Match) -> str:
        mark, text = found.groups()
        is_split = mark[0] != separator  # which is quoted, so that nobody splits there
        runs = is_split and FORMULA.match(text) and not NUMBER.fullmatch(text)
        return f"{mark}'{text}" if runs else found[0]

    return first + OTHER_SEPARATOR.sub(part, cell)


def write_parquet(frames: Iterable[pd.DataFrame], stream: Any) -> None:
    """Rows as Parquet; when a frame has other types than the ones before, those are widened."""
    file = ParquetRows(stream)
    for frame in frames:
        file.write(pa.Table.from_pandas(plain_frame(frame), preserve_index=False))
    file.close()


def plain_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose columns of mixed objects are text."""
    objects = [name for name in frame.columns if frame[name].dtype == object]
    mixed = {name: frame[name].map(str, na_action="ignore") for name in objects}
    return frame.assign(**mixed) if mixed else frame


@final
class ParquetRows:
    """A Parquet file under work, whose types may still change."""

    def __init__(self, stream: Any):
        self.stream = stream
        self.writer: pq.ParquetWriter | None = None
        self.schema: pa.Schema | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows, after the ones before have been written anew if their types must change."""
        table = table.replace_schema_metadata(None)
        common = table.schema if self.schema is None else common_schema(self.schema, table.schema)
        if self.writer is None:
            self.writer, self.schema = pq.ParquetWriter(self.stream, common), common
        elif common != self.schema:
            self.widen(common)
        self.writer.write_table(table.cast(common))

    def widen(self, schema: pa.Schema) -> None:
        """Write all rows so far anew, with other types."""
        self.close()
        self.stream.seek(0)
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(self.stream, copy)
            self.stream.seek(0)
            self.stream.truncate()
            self.writer, self.schema = pq.ParquetWriter(self.stream, schema), schema
            with pq.ParquetFile(copy) as before:
                for batch in before.iter_batches():
                    self.writer.write_table(pa.Table.from_batches([batch]).cast(schema))

    def close(self, facts: Mapping[str, str] | None = None) -> None:
        """End the file, with ``facts`` about it for those who ask."""
        if self.writer is not None:
            self.writer.add_key_value_metadata(dict(facts or {}))
            self.writer.close()
            self.writer = None


def common_schema(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Types that hold the cells of both."""
    if one.names != other.names:
        raise ValueError("All frames must have the same columns.")
    types = (common_type(a.type, b.type) for a, b in zip(one, other, strict=True))
    return pa.schema(list(zip(one.names, types, strict=True)))


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = (pa.types.is_integer, pa.types.is_floating)
    if all(any(is_kind(kind) for is_kind in numbers) for kind in (one, other)):
        return pa.float64()
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and one.tz == other.tz:
        return pa.timestamp("us", one.tz)
    return pa.string()
