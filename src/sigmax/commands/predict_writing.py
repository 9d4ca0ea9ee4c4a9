"""One part of a run of predictions: read, predicted and written a chunk at a time."""

from collections.abc import Iterator
from typing import Any, final

import pyarrow as pa

from sigmax.commands.folder import SavedTableModel
from sigmax.commands.predict import ROWS_PER_CHUNK, new_names, predict_chunks, predict_rows
from sigmax.commands.predict_run import Run
from sigmax.errors import InvalidCellError
from sigmax.tables.file_units import Unit, as_features, read_unit
from sigmax.tables.places import whole_file
from sigmax.tables.reading import read_chunks
from sigmax.tables.writing import ParquetRows, plain_frame

__all__ = ["predict_unit"]

CHUNKS_PER_GROUP = 4
"""Chunks of a Parquet file that are written together, as one row group."""


def predict_unit(saved: SavedTableModel, run: Run, unit: Unit) -> None:
    """Predict the rows of a unit and write its part, unless it is finished.

    It may be: a worker can die between the end of its part and its answer.
    """
    if run.trouble(unit, run.read_facts(unit)) is None:
        return
    count = RowCount()
    with whole_file(run.part(unit)) as stream:
        part = ParquetRows(stream)
        if unit.n_rows is None:
            chunks = read_chunks(unit.address, rows_per_chunk=ROWS_PER_CHUNK, **run.reading)
            for frame in predict_chunks(saved, count.over(chunks), run.options):
                part.write(pa.Table.from_pandas(plain_frame(frame), preserve_index=False))
        else:
            waiting = [predicted(saved, run, unit, run.columns.empty_table())]
            first = n_before(run, unit)
            for chunk in count.over(read_unit(unit, run.columns, ROWS_PER_CHUNK)):
                waiting.append(predicted(saved, run, unit, chunk, first))
                first += len(chunk)
                if len(waiting) > CHUNKS_PER_GROUP:
                    part.write(pa.concat_tables(waiting))
                    waiting = waiting[:0]
            if waiting:
                part.write(pa.concat_tables(waiting))
        part.close(run.facts(unit, count.n_rows))


@final
class RowCount:
    """How many rows have come by."""

    def __init__(self) -> None:
        self.n_rows = 0

    def over(self, chunks: Iterator[Any]) -> Iterator[Any]:
        """The chunks, each counted."""
        for chunk in chunks:
            self.n_rows += len(chunk)
            yield chunk


def n_before(run: Run, unit: Unit) -> int:
    """Rows of the file of a unit that come before it."""
    groups = next(file.groups for file in run.inputs if file.found.address == unit.address)
    return sum((groups or ())[: unit.first_group]) + unit.n_skipped


def predicted(
    saved: SavedTableModel, run: Run, unit: Unit, table: pa.Table, n_before: int = 0
) -> pa.Table:
    """A table with its predictions in further columns; all else stays as it was read.

    ``n_before`` rows of the file come before it.
    """
    names = new_names(table.column_names, run.options)
    found = dict.fromkeys(names, ())
    if len(table):
        features = as_features(table, saved.features, unit.address, n_before)
        with InvalidCellError.numbered(features.index + 1):
            found = predict_rows(saved, features, run.options)
    for name, values in found.items():
        kind = pa.string() if name == "notes" else pa.float64()
        table = table.append_column(names[name], pa.array(values, kind))
    return table
