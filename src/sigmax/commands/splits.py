"""Which rows are held out: at random with copies together, the last by time, or whole groups."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.errors import InvalidCellError, InvalidDataError
from sigmax.estimators.folds import split_large_groups

__all__ = [
    "Split",
    "cross_validation",
    "group_labels",
    "hold_out_rows",
    "later_folds",
    "time_order",
    "time_parts",
]

Labels = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to judge by."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    clusters: Labels
    """Of the rows to judge by: those of one number are not independent."""
    how: str
    """In words."""


def hold_out_rows(
    frame: pd.DataFrame,
    copies: Labels,
    share: float,
    *,
    time_column: str | None = None,
    group_column: str | None = None,
    seed: int = 0,
) -> Split:
    """Hold out a share of the rows, at least one, by the rule of the columns that are named.

    Parameters
    ----------
    copies
        A number for every row, the same for rows of equal X: they are on one side of a random
        split.
    """
    n_test = max(1, round(share * len(frame)))
    if time_column is not None:
        return last_rows(frame[time_column], n_test)
    if group_column is not None:
        labels = group_labels(frame[group_column])
        folds = random_parts(labels, [n_test], seed)
        how = f"whole groups of {group_column!r}: {len(np.unique(labels[folds == 0])):,} of them"
    else:
        labels = split_large_groups(copies, n_test)
        folds = random_parts(labels, [n_test], seed)
        how = "rows at random, copies on one side"
    train, test = np.flatnonzero(folds != 0), np.flatnonzero(folds == 0)
    return Split(train, test, labels[test], how)


def cross_validation(
    clusters: Labels, n_folds: int, *, seed: int = 0
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of rows to learn from and to judge by; every row is judged once.

    Rows of one cluster are in one fold, unless a cluster is larger than a fold.
    """
    n_rows = len(clusters)
    labels = split_large_groups(clusters, -(-n_rows // n_folds))
    sizes = [len(part) for part in np.array_split(np.arange(n_rows), n_folds)]
    folds = random_parts(labels, sizes[:-1], seed)
    return [(np.flatnonzero(folds != i), np.flatnonzero(folds == i)) for i in range(n_folds)]


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


def group_labels(column: Any, fewest: int = 2) -> Labels:
    """A number for every group; rows without a group are one more."""
    labels = pd.factorize(column, use_na_sentinel=False)[0].astype(np.int64)
    n_groups = int(labels.max()) + 1
    if n_groups < fewest:
        raise InvalidDataError(
            f"`--group-column`: {column.name!r} has {n_groups} groups, and {fewest} are needed."
        )
    return labels


def later_folds(column: Any, n_folds: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of rows to learn from and to judge by: every fold is later than all it learns from.

    The earliest rows, and those without a time, are only learned from.
    """
    times = time_order(column, option="--time-column")
    parts = time_parts(times, n_folds + 1)
    if len(parts) <= n_folds:
        raise InvalidDataError(
            f"`--time-column`: {column.name!r} has too few different times for {n_folds} folds."
        )
    is_later = [times >= times[part[0]] for part in parts[1:]]
    return [(np.flatnonzero(~later), part) for later, part in zip(is_later, parts[1:], strict=True)]


def time_parts(times: NDArray[np.float64], n_parts: int) -> list[NDArray[np.intp]]:
    """Rows with a time in about equal parts, in order; rows of equal time are in one part."""
    known = np.flatnonzero(~np.isnan(times))
    order = known[np.argsort(times[known], kind="stable")]
    cuts = np.cumsum([len(part) for part in np.array_split(order, n_parts)])[:-1]
    starts = np.searchsorted(times[order], times[order[cuts[cuts < len(order)]]])
    return [part for part in np.split(order, np.unique(starts)) if len(part)]


def last_rows(column: Any, n_test: int) -> Split:
    """The last rows by time; rows of equal time are on one side, those without in training."""
    times = time_order(column, option="--time-column")
    known = np.sort(times[~np.isnan(times)])
    cut = known[max(len(known) - n_test, 0)]
    is_test = times >= cut
    if len(known) and known[0] == cut:  # the time of the cut is all that comes before it
        is_test = times > cut
    if is_test.all() or not is_test.any():
        raise InvalidDataError(
            f"`--time-column`: {column.name!r} has too few different times to hold out the last."
        )
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    first = column.iloc[int(test[np.argmin(times[test])])]
    n_without = int(np.isnan(times).sum())
    without = f"; {n_without:,} rows without a time are learned from" if n_without else ""
    how = f"the last rows by {column.name!r}, from {first}{without}"
    return Split(train, test, np.arange(len(test)), how)


def time_order(column: Any, *, option: str) -> NDArray[np.float64]:
    """A number for every row that grows with time, nan where there is no time.

    Numbers are taken as they are; text must be dates.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    dates = column
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        dates = pd.to_datetime(column, errors="coerce", format="mixed", utc=True)
    is_bad = dates.isna().to_numpy() & column.notna().to_numpy()
    if is_bad.any():
        first = int(np.flatnonzero(is_bad)[0])
        raise InvalidCellError(
            f"`{option}`: {column.name!r} must hold numbers or dates, got"
            f" {str(column.iloc[first])[:60]!r} in row {{row}}.",
            first + 1,
        )
    if dates.isna().all():
        raise InvalidDataError(f"`{option}`: {column.name!r} is empty.")
    numbers = dates.astype("int64").to_numpy(np.float64)
    return np.where(dates.isna().to_numpy(), np.nan, numbers)
