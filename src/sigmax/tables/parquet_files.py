"""The rows of one or of many Parquet files, a frame at a time or all at once."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import pandas as pd
import pyarrow as pa

from sigmax.errors import TableFileError
from sigmax.tables.file_units import (
    InputFile,
    as_features,
    common_columns,
    cut_units,
    read_inputs,
    read_unit,
)
from sigmax.tables.memory import check_memory
from sigmax.tables.places import is_many
from sigmax.tables.sources import Format, open_source

__all__ = ["ParquetFiles", "is_parquet"]

BYTES_PER_CELL = 32
"""Of memory while a frame is put together."""


def is_parquet(source: str) -> bool:
    """Whether a source is one Parquet file, or may be many: a folder, a pattern or an address."""
    if is_many(source):
        return True
    if not os.path.isfile(os.path.expanduser(source)):  # a pipe can be read once only
        return False
    with open_source(source) as file:
        return file.format == Format.PARQUET


@final
@dataclass(frozen=True)
class ParquetFiles:
    """Files with the same columns, whose types may differ as far as one type holds both."""

    inputs: tuple[InputFile, ...]
    columns: pa.Schema

    @classmethod
    def open(cls, sources: Sequence[str]) -> "ParquetFiles":
        """The files of paths, folders and patterns; none of their rows is read.

        Raises
        ------
        TableFileError
            If a file is no Parquet file, or there are no rows.
        InvalidDataError
            If files have different columns.
        """
        inputs = read_inputs(sources, None, {})
        for file in inputs:
            if file.groups is None:
                raise TableFileError(
                    f"{file.found.address} is no Parquet file, and several files are read as one"
                    " table only if all of them are."
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
        """Of the columns."""
        return list(self.columns.names)

    def frames(self, rows_per_frame: int) -> Iterator[pd.DataFrame]:
        """All rows in the order of the files, the same frames whenever they are asked for.

        The index counts the rows of all files.
        """
        first = 0
        for unit in cut_units(self.inputs, rows_per_frame):
            for table in read_unit(unit, self.columns, rows_per_frame):
                frame = as_features(table, self.names, unit.address)
                frame.index = pd.RangeIndex(first, first + len(frame))
                first += len(frame)
                yield frame

    def read(self) -> pd.DataFrame:
        """All rows.

        Raises
        ------
        TableFileError
            If they need more memory than there is.
        """
        n_bytes = BYTES_PER_CELL * self.n_rows * len(self.names)
        check_memory(self.inputs[0].found.address, n_bytes)
        return pd.concat(list(self.frames(2**16)), ignore_index=True)
