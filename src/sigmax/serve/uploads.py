"""A file of rows, and the same rows with their predictions, as `sigmax predict` gives them.

The file is kept on disk and read twice, a chunk at a time: once to check every row, so that a bad
one is refused by its line before anything is sent, and once to predict. Memory holds one chunk.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import final

import pandas as pd

from sigmax.commands.folder import SavedTableModel
from sigmax.commands.predict import (
    PredictOptions,
    check_columns,
    new_names,
    predict_chunks,
)
from sigmax.errors import InvalidCellError, InvalidDataError, TableFileError
from sigmax.serve.answers import BULK_ROWS, QUICK_ROWS
from sigmax.serve.refusals import refused
from sigmax.tables import Table
from sigmax.tables.reading import read_chunks
from sigmax.tables.sources import Format, open_source
from sigmax.tables.writing import write_rows

__all__ = ["Upload"]

ROWS_PER_CHECK = 8192


@final
class Upload:
    """A file that was sent, and what to say about its rows."""

    def __init__(self, saved: SavedTableModel, path: Path, options: PredictOptions, max_rows: int):
        self.saved, self.path, self.options, self.max_rows = saved, path, options, max_rows

    def check(self) -> int:
        """The number of rows, all of which can be predicted; or a refusal."""
        try:
            with open_source(self.path) as source:
                if source.format is not Format.TEXT or source.compression:
                    raise refused(415, "The file must be plain CSV text.", "body")
            n_rows = 0
            for chunk in self.chunks(ROWS_PER_CHECK):
                if not n_rows:
                    check_columns(self.saved, chunk)
                    new_names(list(map(str, chunk.columns)), self.options)
                n_rows += len(chunk)
                if n_rows > self.max_rows:
                    message = f"at most {self.max_rows:,} rows of a file are answered"
                    raise refused(413, message, "body")
                self.check_cells(chunk, n_rows - len(chunk))
            return n_rows
        except (TableFileError, InvalidDataError) as error:
            message = str(error).replace(str(self.path), "The file")
            raise refused(422, message, "body") from None

    def check_cells(self, chunk: pd.DataFrame, first: int) -> None:
        model = self.saved.model
        try:
            X = chunk.filter(items=self.saved.features)
            with InvalidCellError.numbered(range(first + 1, first + len(chunk) + 1)):
                Table.read(model, X, model.features_.schema)
        except InvalidCellError:
            raise
        except ValueError as error:  # ours, and those of scikit-learn
            rows = f"Rows {first + 1:,} to {first + len(chunk):,}"
            raise InvalidDataError(f"{rows}: {error}") from None

    def parts(self) -> Iterator[bytes]:
        """The answer, a piece of CSV for every `BULK_ROWS` rows."""
        for i, frame in enumerate(predict_chunks(self.saved, self.bulk(), self.options)):
            text = io.StringIO(newline="")
            write_rows(frame, text, ",", header=i == 0)
            yield text.getvalue().encode()

    def bulk(self) -> Iterator[pd.DataFrame]:
        """Pieces of the sizes that programs are compiled for, or a little smaller."""
        for chunk in self.chunks(ROWS_PER_CHECK):
            start = 0
            while start < len(chunk):
                size = BULK_ROWS if len(chunk) - start > BULK_ROWS // 2 else QUICK_ROWS
                yield chunk.iloc[start : start + size]
                start += size

    def chunks(self, n_rows: int) -> Iterator[pd.DataFrame]:
        return read_chunks(self.path, rows_per_chunk=n_rows)
