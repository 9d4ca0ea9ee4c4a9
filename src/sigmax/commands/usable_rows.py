"""Rows of a table that have a target, and how to learn from them and from many more."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.util import hash_pandas_object

from sigmax.commands.fit_options import FitOptions
from sigmax.commands.model_report import Bar, no_bar
from sigmax.commands.splits import Split, time_order
from sigmax.errors import InvalidDataError
from sigmax.estimators.parquet_stream import ParquetStream
from sigmax.report import LearnedRows
from sigmax.tables.parquet_files import ParquetFiles, is_parquet
from sigmax.tables.places import is_many
from sigmax.tables.reading import read_table
from sigmax.tables.targets import check_names, read_target

__all__ = ["ManyRows", "UsableRows", "read_rows"]

FEWEST_ROWS = 10
"""Rows with a target that a fit needs."""

SAMPLED = 81_920
"""Rows of a table that is learned from in shards, by which it is described and judged."""


@final
@dataclass(frozen=True, eq=False)
class UsableRows:
    """The rows that have a target."""

    frame: pd.DataFrame
    features: list[str]
    y: NDArray[np.float64]
    numbers: NDArray[np.int64]
    """Which rows of the table these are, counted from 1."""

    @classmethod
    def read(cls, frame: pd.DataFrame, options: FitOptions) -> "UsableRows":
        """Check the columns and the target."""
        columns = [str(column) for column in frame.columns]
        for option, names in {
            "--target": [options.target],
            "--drop": options.drop,
            "--category": options.categories,
            "--number": options.numbers,
            "--time-column": [options.time_column] if options.time_column is not None else [],
            "--group-column": [options.group_column] if options.group_column is not None else [],
        }.items():
            check_names(names, columns, option=option)
        y = read_target(frame, options.target)
        has_target = ~np.isnan(y)
        if not has_target.any():
            raise InvalidDataError(
                f"The target {options.target!r} is missing in all {len(frame):,} rows."
            )
        if has_target.sum() < FEWEST_ROWS:
            raise InvalidDataError(
                f"At least {FEWEST_ROWS} rows with a target are needed, got {has_target.sum():,}."
            )
        left_out = {options.target, *options.drop}
        if options.group_column not in {*options.categories, *options.numbers}:
            left_out.add(options.group_column or options.target)
        features = [column for column in columns if column not in left_out]
        if not features:
            raise InvalidDataError("There is no column left to learn from.")
        kept = frame if has_target.all() else frame.loc[has_target].reset_index(drop=True)
        return cls(kept, features, y[has_target], np.flatnonzero(has_target) + 1)

    @property
    def X(self) -> pd.DataFrame:
        return self.frame.filter(items=self.features)

    def learned(self, rows: NDArray[np.intp]) -> LearnedRows:
        """Some of them, for the report of a model that has learned from them."""
        return LearnedRows(self.y[rows], self.X.iloc[rows], self.numbers[rows])


@final
@dataclass(frozen=True, eq=False)
class ManyRows:
    """A table that does not have to go into memory, and a random sample of it, which does.

    The sample is described, and some of it is held out; what is like it is not learned from.
    """

    files: ParquetFiles
    sample: pd.DataFrame
    n_with_target: int
    bar: Bar = no_bar

    @classmethod
    def read(cls, files: ParquetFiles, options: FitOptions, bar: Bar = no_bar) -> "ManyRows":
        """Go through all rows once."""
        options = options.for_columns(files.names)
        check_names([options.target], files.names, option="--target")
        share, parts, n_with_target = SAMPLED / files.n_rows, [], 0
        stream = ParquetStream(files, options.target, (), watch=watched(bar, "sample"))
        for number, (first, frame) in enumerate(stream.frames()):
            y = read_target(frame, options.target, first_row=first)
            n_with_target += int(np.sum(~np.isnan(y)))
            is_drawn = np.random.default_rng((options.seed, number)).random(len(frame)) < share
            parts.append(frame.loc[is_drawn])
        return cls(files, pd.concat(parts, ignore_index=True), n_with_target, bar)

    def stream(self, data: "UsableRows", options: FitOptions, split: Split | None) -> ParquetStream:
        """All rows, or those that are not held out."""
        keeps = None if split is None else others(data, options, split)
        watch = watched(self.bar, "rows")
        return ParquetStream(self.files, options.target, data.features, keeps, watch)


def watched(bar: Bar, what: str) -> Callable:
    """A bar of the rows that were read."""

    @contextmanager
    def watch():
        with bar("reading") as progress:
            yield lambda share: progress(what, share)

    return watch


def others(data: UsableRows, options: FitOptions, split: Split) -> Callable[[pd.DataFrame], Any]:
    """Which rows of a frame are on the other side than those that a sample holds out.

    Those of earlier times, of other groups, or with other features.
    """
    held_out = data.frame.iloc[split.test]
    if (name := options.time_column) is not None:
        first = np.min(time_order(held_out[name], option="--time-column"))

        def is_earlier(frame: pd.DataFrame) -> NDArray[np.bool_]:
            if not frame[name].notna().to_numpy().any():
                return np.ones(len(frame), dtype=bool)
            return ~(time_order(frame[name], option="--time-column") >= first)

        return is_earlier
    if (name := options.group_column) is not None:
        groups = held_out[name].unique()
        return lambda frame: ~frame[name].isin(groups).to_numpy()
    copies = np.unique(row_hashes(held_out, data.features))
    return lambda frame: ~np.isin(row_hashes(frame, data.features), copies)


def row_hashes(frame: pd.DataFrame, features: Sequence[str]) -> NDArray[np.uint64]:
    """A number for every row, the same for rows of equal features and hardly ever for others."""
    found: Any = hash_pandas_object
    return found(frame.filter(items=list(features)), index=False).to_numpy()


def read_rows(
    source: str, options: FitOptions, reading: dict[str, Any], bar: Bar = no_bar
) -> tuple[pd.DataFrame, ManyRows | None]:
    """A table from its file or from many Parquet files; of very many rows, a sample of them.

    These are learned from in shards, if the method can do that.
    """
    if not is_parquet(source):
        with bar("reading"):
            return read_table(source, **reading), None
    files, model = ParquetFiles.open([source]), options.create_model()
    largest = getattr(model, "largest_at_once", None)
    if largest is None or files.n_rows <= largest:
        with bar("reading"):
            return files.read() if is_many(source) else read_table(source, **reading), None
    rows = ManyRows.read(files, options, bar)
    return rows.sample, rows
