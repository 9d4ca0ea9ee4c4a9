"""Rows of a table: columns to learn from, held-out rows, and fingerprints of training rows."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import Annotated, Any, final

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from pandas.util import hash_pandas_object

from sigmax.cli.terminal import Bar, no_bar
from sigmax.errors import InvalidArgumentError, InvalidCellError, InvalidDataError
from sigmax.experts.rows import split_large_groups
from sigmax.report import LearnedRows
from sigmax.report.page import Caution
from sigmax.report.tables import share_text
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.reading import ParquetFiles, is_parquet, read_table
from sigmax.tables.sources import is_many_files
from sigmax.tables.table import (
    as_frame,
    check_names,
    columns_of_frame,
    describe_columns,
    read_target,
    split_columns,
)

FEWEST_ROWS = 10
SAMPLED = 81_920
"""Number of rows sampled from a table that is fitted in shards, for profile and scores."""
TRAINING_ROWS = "training rows"
MOST_HASHES = 50_000
"""Largest number of hashes of training rows in a model folder."""
IN_TURN = "each predicted by a fit without it; duplicate rows stay together"
"""Description of a split into rows whose held-out predictions are scored."""
FEWEST_IN_TURN = 1000
"""Rows with held-out predictions that are enough for scores, or `HELD_OUT` of all rows."""
HELD_OUT = 0.2
"""Share of rows that a separate fit holds out, by default."""
MANY_LEARNED = 0.02
"""Share of training rows, beyond that of duplicates, from which scores are misleading."""

NO_CATEGORY = "(missing)"

Labels = NDArray[np.int64]
Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Training rows and test rows."""


@final
@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Target and features of a table, and the column that defines the split."""

    target: Annotated[str, typer.Option(help="Column to predict.")]
    time_column: Annotated[
        str | None, typer.Option(help="Hold out the latest rows according to this column.")
    ] = None
    group_column: Annotated[str | None, typer.Option(help="Hold out groups of this column.")] = None
    categories: Annotated[
        tuple[str, ...],
        typer.Option("--category", help="Columns to read as categories: a,b or repeated."),
    ] = ()
    numbers: Annotated[
        tuple[str, ...],
        typer.Option("--number", help="Columns to read as numbers: a,b or repeated."),
    ] = ()
    drop: Annotated[tuple[str, ...], typer.Option(help="Columns to drop: a,b or repeated.")] = ()

    def for_columns(self, columns: Sequence[str]) -> "ColumnOptions":
        """Options with names that were joined by commas as separate names."""
        names = {
            name: split_columns(getattr(self, name), columns)
            for name in ("categories", "numbers", "drop")
        }
        return replace(self, **names)

    def check(self) -> None:
        if self.time_column is not None and self.group_column is not None:
            raise InvalidArgumentError(
                "`--time-column` and `--group-column` exclude each other: choose one."
            )
        if self.target in self.drop:
            raise InvalidArgumentError(f"`--drop`: {self.target!r} is the target.")
        for name in sorted(set(self.categories) & set(self.numbers)):
            raise InvalidArgumentError(f"{name!r} cannot be both `--category` and `--number`.")
        for name in sorted({*self.categories, *self.numbers} & {self.target, *self.drop}):
            raise InvalidArgumentError(
                f"{name!r} is not a feature, so it can be neither `--category` nor `--number`."
            )

    def check_names(self, columns: Sequence[str]) -> None:
        for option, names in {
            "--target": [self.target],
            "--drop": self.drop,
            "--category": self.categories,
            "--number": self.numbers,
            "--time-column": [self.time_column],
            "--group-column": [self.group_column],
        }.items():
            check_names([name for name in names if name is not None], columns, option=option)

    def split_notes(self) -> list[str]:
        """Sentences on the use of the split column as a feature."""
        name = self.time_column or self.group_column
        if name is None or name in {*self.categories, *self.numbers, *self.drop}:
            return []
        use, advice = "also", f"--drop {name} to use it for the split only"
        if self.time_column is None:
            use, advice = "not", f"--category {name} to use it as a feature, too"
        return [f"{name!r} defines the split and is {use} a feature. Add {advice}."]


@final
@dataclass(frozen=True, eq=False)
class UsableRows:
    """Rows that have a target."""

    frame: pd.DataFrame
    features: list[str]
    y: NDArray[np.float64]
    numbers: NDArray[np.int64]
    """Numbers of these rows in the table, counted from 1."""

    @classmethod
    def read(cls, frame: pd.DataFrame, columns: ColumnOptions) -> "UsableRows":
        names = [str(column) for column in frame.columns]
        columns.check_names(names)
        y = read_target(frame, columns.target)
        has_target = ~np.isnan(y)
        if not has_target.any():
            raise InvalidDataError(
                f"Target {columns.target!r} is missing in all {len(frame):,} rows."
            )
        if (n_rows := has_target.sum()) < FEWEST_ROWS:
            raise InvalidDataError(f"A fit needs {FEWEST_ROWS} rows with a target, got {n_rows:,}.")
        left_out = {columns.target, *columns.drop}
        if columns.group_column not in {*columns.categories, *columns.numbers}:
            left_out.add(columns.group_column or columns.target)
        features = [name for name in names if name not in left_out]
        if not features:
            raise InvalidDataError("There is no column left to learn from.")
        kept = frame if has_target.all() else frame.loc[has_target].reset_index(drop=True)
        return cls(kept, features, y[has_target], np.flatnonzero(has_target) + 1)

    @cached_property
    def X(self) -> pd.DataFrame:
        return self.frame.filter(items=self.features)

    def learned(self, rows: NDArray[np.intp]) -> LearnedRows:
        return LearnedRows(self.X.iloc[rows], self.y[rows], self.numbers[rows])


@final
@dataclass(frozen=True, eq=False)
class ManyRows:
    """A table that need not fit into memory, and a random sample that does.

    The profile describes the sample, and part of it is held out; duplicates of held-out rows are
    not used for training.
    """

    files: ParquetFiles
    sample: pd.DataFrame
    n_with_target: int
    bar: Bar = no_bar

    @classmethod
    def read(cls, files: ParquetFiles, columns: ColumnOptions, seed: int, bar: Bar) -> "ManyRows":
        from sigmax.experts.stream import ParquetStream  # which imports JAX

        target = columns.target
        check_names([target], files.names, option="--target")
        share, parts, n_with_target = SAMPLED / files.n_rows, [], 0
        stream = ParquetStream(files, target, (), watch=partial(watched, bar, "sample"))
        for number, (first, frame) in enumerate(stream.frames()):
            y = read_target(frame, target, first_row=first)
            n_with_target += int(np.sum(~np.isnan(y)))
            is_drawn = np.random.default_rng((seed, number)).random(len(frame)) < share
            parts.append(frame.loc[is_drawn])
        return cls(files, pd.concat(parts, ignore_index=True), n_with_target, bar)

    def stream(self, data: UsableRows, columns: ColumnOptions, split: "Split | None") -> Any:
        """`ParquetStream` of all rows, or of the training rows of a split."""
        from sigmax.experts.stream import ParquetStream

        keeps = None if split is None else training_filter(data, columns, split)
        watch = partial(watched, self.bar, "rows")
        return ParquetStream(self.files, columns.target, data.features, keeps, watch)


def read_rows(
    source: str,
    columns: ColumnOptions,
    reading: Mapping[str, Any] = MappingProxyType({}),
    *,
    largest: int | None = None,
    seed: int = 0,
    bar: Bar = no_bar,
) -> tuple[pd.DataFrame, ManyRows | None]:
    """Read a table; Parquet files with more than ``largest`` rows are sampled."""
    files = ParquetFiles.open([source]) if is_parquet(source) else None
    if files is not None and largest is not None and files.n_rows > largest:
        rows = ManyRows.read(files, columns.for_columns(files.names), seed, bar)
        return rows.sample, rows
    with bar("reading"):
        if files is not None and is_many_files(source):
            return files.read(), None
        return read_table(source, **reading), None


@contextmanager
def watched(bar: Bar, what: str) -> Iterator[Callable[[float], None]]:
    with bar("reading") as progress:
        yield partial(progress, what)


def training_filter(
    data: UsableRows, columns: ColumnOptions, split: "Split"
) -> Callable[[pd.DataFrame], Any]:
    """Function that selects rows of earlier times, other groups, or other features."""
    held_out = data.frame.iloc[split.test]
    if (name := columns.time_column) is not None:
        first = np.min(time_order(held_out[name], option="--time-column"))

        def is_earlier(frame: pd.DataFrame) -> NDArray[np.bool_]:
            if not frame[name].notna().to_numpy().any():
                return np.ones(len(frame), dtype=bool)
            return ~(time_order(frame[name], option="--time-column") >= first)

        return is_earlier
    if (name := columns.group_column) is not None:
        groups = held_out[name].unique()
        return lambda frame: ~frame[name].isin(groups).to_numpy()

    def hashes(frame: pd.DataFrame) -> NDArray[np.uint64]:
        return hash_frame(frame.filter(items=data.features))

    duplicates = np.unique(hashes(held_out))
    return lambda frame: ~np.isin(hashes(frame), duplicates)


def hash_frame(frame: pd.DataFrame) -> NDArray[np.uint64]:
    hashed: Any = hash_pandas_object
    return hashed(frame, index=False).to_numpy()


def read_features(frame: pd.DataFrame, columns: ColumnOptions) -> Table:
    """Read the columns of a frame, and infer kinds that the options do not name."""
    raw = columns_of_frame(as_frame(frame))
    return Table.from_columns(raw, describe_columns(raw, columns.categories, columns.numbers))


def text_categories(table: Table) -> pd.DataFrame:
    """Frame for CatBoost: categories as text, numbers and times as numbers with NaN."""
    columns: dict[str, Any] = {}
    for column, cells in zip(table.schema.of_kind(Kind.CATEGORY), table.categories, strict=True):
        columns[column.name] = np.array([*cells.names, NO_CATEGORY], dtype=object)[cells.codes]
    for kind, cells in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times)):
        names = [column.name for column in table.schema.of_kind(kind)]
        columns |= dict(zip(names, cells.T, strict=True))
    return pd.DataFrame(columns)


def typical_values(table: Table) -> dict[str, float | str | None]:
    """Median or most frequent category of every column, times in seconds; None: mostly missing."""
    found: dict[str, float | str | None] = {}
    for name, cells in text_categories(table).items():
        if pd.api.types.is_numeric_dtype(cells):
            found[str(name)] = None if cells.isna().mean() > 0.5 else float(cells.median())
        else:
            found[str(name)] = None if cells.mode()[0] == NO_CATEGORY else str(cells.mode()[0])
    return found


@final
@dataclass(frozen=True)
class Split:
    train: NDArray[np.intp]
    test: NDArray[np.intp]
    clusters: Labels
    """A label for every test row; rows of one label are not independent."""
    how: str
    """Description, to be read after "20 of 100 rows"."""


def rows_in_turn(held_out: Sequence[NDArray[np.intp]], duplicates: Labels) -> Split | None:
    """Rows for which several models have held-out predictions; None if they are too few."""
    test = reduce(np.intersect1d, held_out)
    if len(test) < min(FEWEST_IN_TURN, HELD_OUT * len(duplicates)):
        return None
    return Split(np.arange(len(duplicates)), test, duplicates[test], IN_TURN)


def hold_out_rows(
    frame: pd.DataFrame, duplicates: Labels, share: float, columns: ColumnOptions, seed: int = 0
) -> Split:
    """Hold out the latest rows, whole groups, or rows at random with their duplicates."""
    n_test = max(1, round(share * len(frame)))
    if columns.time_column is not None:
        return last_rows(frame[columns.time_column], n_test)
    if (group_column := columns.group_column) is not None:
        labels = group_labels(frame[group_column])
        parts = random_parts(labels, [n_test], seed)
        how = f"from {len(np.unique(labels[parts == 0])):,} whole groups of {group_column!r}"
    else:
        labels = split_large_groups(duplicates, n_test)
        parts = random_parts(labels, [n_test], seed)
        how = "chosen at random; duplicate rows stay together"
    train, test = np.flatnonzero(parts != 0), np.flatnonzero(parts == 0)
    return Split(train, test, labels[test], how)


def last_rows(column: Any, n_test: int) -> Split:
    """Hold out the latest rows; equal times stay together, rows without a time are trained on."""
    times = time_order(column, option="--time-column")
    known = np.sort(times[~np.isnan(times)])
    cut = known[max(len(known) - n_test, 0)]
    is_test = times >= cut
    if len(known) and known[0] == cut:  # no earlier time is left to train on
        is_test = times > cut
    if is_test.all() or not is_test.any():
        rule = "too few different times to hold out the latest"
        raise InvalidDataError(f"`--time-column`: {column.name!r} has {rule}.")
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    first = column.iloc[int(test[np.argmin(times[test])])]
    n_without = int(np.isnan(times).sum())
    without = f"; {n_without:,} rows without a time are trained on" if n_without else ""
    how = f"with the latest {column.name!r}, from {first}{without}"
    return Split(train, test, np.arange(len(test)), how)


def cross_validation(clusters: Labels, n_folds: int, *, seed: int = 0) -> list[Fold]:
    """Folds that test every row once; a cluster is in one fold, unless it is larger than a fold."""
    n_rows = len(clusters)
    labels = split_large_groups(clusters, -(-n_rows // n_folds))
    sizes = [len(part) for part in np.array_split(np.arange(n_rows), n_folds)]
    parts = random_parts(labels, sizes[:-1], seed)
    return [(np.flatnonzero(parts != i), np.flatnonzero(parts == i)) for i in range(n_folds)]


def random_parts(labels: Labels, sizes: list[int], seed: int) -> Labels:
    """A part for every row, of about these sizes, and a last part; equal labels are together."""
    labels = np.unique(labels, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(labels)
    order = np.random.default_rng(seed).permutation(len(counts))
    middle = np.cumsum(counts[order]) - counts[order] / 2
    part = np.empty(len(counts), dtype=np.int64)
    part[order] = np.searchsorted(np.cumsum(sizes), middle, side="right")
    used = np.unique(part)
    if len(used) <= len(sizes):  # a group as large as a part has left another one empty
        part[order] = np.arange(len(counts)) * (len(sizes) + 1) // len(counts)
    return part[labels]


def later_folds(column: Any, n_folds: int) -> list[Fold]:
    """Folds whose test rows are later than all of their training rows."""
    times = time_order(column, option="--time-column")
    parts = time_parts(times, n_folds + 1)
    if len(parts) <= n_folds:
        rule = f"too few different times for {n_folds} folds"
        raise InvalidDataError(f"`--time-column`: {column.name!r} has {rule}.")
    is_later = [times >= times[part[0]] for part in parts[1:]]
    return [(np.flatnonzero(~later), part) for later, part in zip(is_later, parts[1:], strict=True)]


def group_labels(column: Any, fewest: int = 2) -> Labels:
    """A label for every group; rows without a group form one more."""
    labels = pd.factorize(column, use_na_sentinel=False)[0].astype(np.int64)
    n_groups = int(labels.max()) + 1
    if n_groups < fewest:
        rule = f"{n_groups} groups, but {fewest} are needed"
        raise InvalidDataError(f"`--group-column`: {column.name!r} has {rule}.")
    return labels


def time_parts(times: NDArray[np.float64], n_parts: int) -> list[NDArray[np.intp]]:
    """Rows with a time in about equal parts, in order; rows of equal time are in one part."""
    known = np.flatnonzero(~np.isnan(times))
    order = known[np.argsort(times[known], kind="stable")]
    cuts = np.cumsum([len(part) for part in np.array_split(order, n_parts)])[:-1]
    starts = np.searchsorted(times[order], times[order[cuts[cuts < len(order)]]])
    return [part for part in np.split(order, np.unique(starts)) if len(part)]


def time_order(column: Any, *, option: str) -> NDArray[np.float64]:
    """Numbers or dates of a column as numbers that grow with time, NaN where it is missing."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    dates = column
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        dates = pd.to_datetime(column, errors="coerce", format="mixed", utc=True)
    is_bad = dates.isna().to_numpy() & column.notna().to_numpy()
    if is_bad.any():
        first = int(np.flatnonzero(is_bad)[0])
        raise InvalidCellError(
            f"`{option}`: {column.name!r} must contain numbers or dates, got"
            f" {str(column.iloc[first])[:60]!r} in row {{row}}.",
            first + 1,
        )
    if dates.isna().all():
        raise InvalidDataError(f"`{option}`: {column.name!r} is empty.")
    numbers = dates.astype("int64").to_numpy(np.float64)
    return np.where(dates.isna().to_numpy(), np.nan, numbers)


def hash_rows(X: pd.DataFrame, y: NDArray[np.float64], schema: Schema) -> NDArray[np.uint64]:
    """A hash of every row with its target, whatever types a file gave its columns."""
    cells = text_categories(Table.from_columns(columns_of_frame(as_frame(X)), schema))
    numbers = cells.select_dtypes("number").columns
    cells[numbers] = cells[numbers].astype(np.float32) + np.float32(0)  # -0 is 0
    target = pd.Series(y.astype(np.float32) + np.float32(0))
    return hash_frame(pd.concat([cells, target], axis=1))


def fingerprint(hashes: NDArray[np.uint64], n_rows: int) -> dict[str, Any]:
    """Hashes of a random sample of ``n_rows`` training rows, as JSON."""
    values, counts = np.unique(hashes, return_counts=True)
    repeated = float(np.sum(counts[counts > 1]) / len(hashes))
    kept = np.random.default_rng(0).permutation(values)[:MOST_HASHES] >> np.uint64(32)
    share = len(hashes) / n_rows * len(kept) / len(values)
    text = base64.b64encode(np.sort(kept).astype("<u4").tobytes()).decode()
    return {"hashes": text, "share": share, "repeated": repeated}


def training_row_caution(
    hashes: NDArray[np.uint64], known: Mapping[str, Any] | None
) -> list[Caution]:
    """A warning if labelled rows are training rows of the model.

    New rows may equal training rows by chance as often as training rows equal each other.
    """
    if known is None:
        return []
    stored = np.frombuffer(base64.b64decode(known["hashes"]), "<u4")
    found = np.isin((hashes >> np.uint64(32)).astype("<u4"), stored)
    share = min(1.0, float(found.mean()) / known["share"])
    by_chance = known["repeated"]
    noise = 2 * np.sqrt(by_chance * (1 - by_chance) / len(hashes))
    if share < 0.99 and share - by_chance < max(MANY_LEARNED, noise):
        return []
    text = (
        f"The model was trained on {share_text(share)} of these rows, so their scores are too"
        " good. Evaluate it on rows that it has not seen."
    )
    return [Caution(TRAINING_ROWS, text, is_grave=True)]
