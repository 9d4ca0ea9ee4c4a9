"""Fits to Parquet files that need not fit into memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
import pandas as pd
from jaxtyping import Bool

from sigmax.estimators.stream_fit import ROWS_PER_BLOCK, AbstractRowStream, Block, fit_stream
from sigmax.tables.parquet_files import ParquetFiles
from sigmax.tables.targets import check_names, read_target

__all__ = ["ParquetStream", "fit_parquet"]

Model = TypeVar("Model")

Watch = Callable[[], AbstractContextManager[Callable[[float], None]]]
"""What is told, while rows are read, which share of them has been."""


def unwatched() -> AbstractContextManager[Callable[[float], None]]:
    return nullcontext(lambda share: None)


@final
@dataclass(frozen=True, eq=False)
class ParquetStream(AbstractRowStream):
    """Rows of Parquet files. Those without a target are not learned from."""

    files: ParquetFiles
    target: str
    features: Sequence[str]
    keeps: Callable[[pd.DataFrame], Bool[np.ndarray, " rows"]] | None = None
    """Which rows of a frame are learned from; all if it is left out."""
    watch: Watch = unwatched

    @property
    def n_rows(self) -> int:
        return self.files.n_rows

    def frames(self) -> Iterator[tuple[int, pd.DataFrame]]:
        """All columns of all rows, with the number of rows before."""
        n_before = 0
        with self.watch() as tell:
            for frame in self.files.frames(ROWS_PER_BLOCK):
                yield n_before, frame
                n_before += len(frame)
                tell(n_before / self.n_rows)

    def blocks(self) -> Iterator[Block]:
        for first, frame in self.frames():
            y = read_target(frame, self.target, first_row=first)
            is_learned = ~np.isnan(y)
            if self.keeps is not None:
                is_learned &= self.keeps(frame)
            X = frame.filter(items=list(self.features)).reset_index(drop=True)
            yield Block(X, np.where(np.isnan(y), 0.0, y), is_learned.astype(np.float64))


def fit_parquet(model: Model, source: str | Sequence[str], target: str, *, drop=()) -> Model:
    """Fit a model to Parquet files, which are read in row groups if they have many rows.

    Parameters
    ----------
    model : estimator
        A `LocalRegressor` learns from more than 524,288 rows in shards, in bounded memory, as it
        does from arrays; any other estimator, and fewer rows, are read into memory.
    source : str or list of str
        A file, a folder, or a pattern such as ``"rows/*.parquet"``; also of a store, as
        ``"s3://bucket/rows/*.parquet"``. All files have the same columns.
    target : str
        The column to predict. Rows without it are left out.
    drop : list of str
        Columns to leave out.

    Returns
    -------
    model
        The one that was given, fitted.

    Raises
    ------
    TableFileError, InvalidDataError
        If the files or the columns cannot be used.
    """
    files = ParquetFiles.open([source] if isinstance(source, str) else list(source))
    check_names([target], files.names, option="target")
    check_names(drop, files.names, option="drop")
    features = [name for name in files.names if name not in {target, *drop}]
    largest = getattr(model, "largest_at_once", None)
    fitted: Any = model
    if largest is not None and files.n_rows > largest:
        fit_stream(fitted, ParquetStream(files, target, features))
    else:
        frame = files.read()
        y = read_target(frame, target)
        has_target = ~np.isnan(y)
        fitted.fit(frame.loc[has_target].filter(items=features), y[has_target])
    return model
