"""Write tables in chunks as CSV, TSV (also ``.gz``) or Parquet, according to the file's name.

In text, a cell or name that a spreadsheet would run as a formula (it begins with ``=``, ``+``,
``-``, ``@``, a tab or a line end, and is not a number) gets an apostrophe in front, the mark of
text. So does the rest of a cell after a line end or another separator: a spreadsheet set to
semicolons splits ``a;=2+2``. Line ends in cells are written as newlines. Files are written
atomically.
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

from sigmax.atomic import new_file
from sigmax.errors import TableFileError
from sigmax.tables.sources import STANDARD_STREAM

SEPARATORS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
PARQUET = (".parquet", ".pq")
FORMULA = re.compile("[=+\\-@\t\r\n＝＋－＠]")
OTHER_SEPARATOR = re.compile('([;,|\t\n]"*)([^;,|\t\n]*)')
NUMBER = re.compile(r"[+-]?(\d[\d,.]*|\.\d+)([eE][+-]?\d+)?\s?%?")


def write_table(frames: Iterable[pd.DataFrame], path: str | Path) -> None:
    """Write frames with the same columns one below the other; ``-`` is CSV to standard output.

    Parquet has one type per column: where those of frames differ, it is one that holds both, at
    last text.
    """
    if str(path) == STANDARD_STREAM:
        write_text(frames, sys.stdout.buffer, ",")
        return
    name, suffixes = Path(path).name.lower(), [*SEPARATORS, *PARQUET]
    suffix = next((suffix for suffix in suffixes if name.endswith(suffix)), None)
    if suffix is None:
        raise TableFileError(f"{path} must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}.")
    with new_file(path) as stream:
        if suffix in PARQUET:
            file = ParquetRows(stream)
            for frame in frames:
                file.write(pa.Table.from_pandas(plain_frame(frame), preserve_index=False))
            file.close()
        elif suffix.endswith(".gz"):
            with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
                write_text(frames, packed, SEPARATORS[suffix])
        else:
            write_text(frames, stream, SEPARATORS[suffix])


def write_text(frames: Iterable[pd.DataFrame], stream: Any, separator: str) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    try:
        for i, frame in enumerate(frames):
            write_rows(frame, text, separator, header=i == 0)
        text.flush()
    finally:
        text.detach()  # the stream is the caller's to close


def write_rows(frame: pd.DataFrame, text: Any, separator: str, *, header: bool) -> None:
    """Write rows as delimited text without formulas, with or without a header."""

    def clean(cell: Any) -> Any:
        return harmless(cell, separator) if isinstance(cell, str) else cell

    shown = frame.copy(deep=False)
    for i, kind in enumerate(frame.dtypes):
        if isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_string_dtype(kind):
            shown.isetitem(i, frame.iloc[:, i].astype(object).map(clean))
    shown.columns = pd.Index([clean(str(name)) for name in frame.columns])
    shown.to_csv(text, sep=separator, index=False, header=header, lineterminator="\n")


def harmless(cell: str, separator: str = ",") -> str:
    """Cell of text that no spreadsheet runs as a formula."""
    if "\r" in cell:  # many readers take it for the end of the row
        cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    if NUMBER.fullmatch(cell):
        return cell
    first = "'" if FORMULA.match(cell) else ""

    def part(found: re.Match) -> str:
        mark, text = found.groups()
        is_split = mark[0] != separator  # cells with the separator itself are quoted
        runs = is_split and FORMULA.match(text) and not NUMBER.fullmatch(text)
        return f"{mark}'{text}" if runs else found[0]

    return first + OTHER_SEPARATOR.sub(part, cell)


def plain_frame(frame: pd.DataFrame) -> pd.DataFrame:
    objects = [name for name in frame.columns if frame[name].dtype == object]
    mixed = {name: frame[name].map(str, na_action="ignore") for name in objects}
    return frame.assign(**mixed) if mixed else frame


@final
class ParquetRows:
    """Parquet file that is being written, whose types may still change."""

    def __init__(self, stream: Any):
        self.stream = stream
        self.writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows; earlier rows are rewritten if the types of their columns change."""
        table = table.replace_schema_metadata(None)
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.stream, table.schema)
        common = common_schema(self.writer.schema, table.schema)
        if common != self.writer.schema:
            self.writer.close()
            self.stream.seek(0)
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(self.stream, copy)
                self.stream.seek(0)
                self.stream.truncate()
                self.writer = pq.ParquetWriter(self.stream, common)
                with pq.ParquetFile(copy) as before:
                    for batch in before.iter_batches():
                        self.writer.write_table(pa.Table.from_batches([batch]).cast(common))
        self.writer.write_table(table.cast(common))

    def close(self, metadata: Mapping[str, str] | None = None) -> None:
        """Finish the file, with ``metadata`` in its footer."""
        if self.writer is not None:
            self.writer.add_key_value_metadata(dict(metadata or {}))
            self.writer.close()
            self.writer = None


def common_schema(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Types that hold the cells of both, text if nothing else does."""
    if one.names != other.names:
        raise ValueError("All frames must have the same columns.")
    common = pa.schema([])
    for pair in zip(one, other, strict=True):
        schemas = [pa.schema([field.with_nullable(True)]) for field in pair]
        try:
            field = pa.unify_schemas(schemas, promote_options="permissive").field(0)
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            field = pa.field(pair[0].name, pa.string())
        common = common.append(field)
    return common
