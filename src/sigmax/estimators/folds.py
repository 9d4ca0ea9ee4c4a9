"""Which rows each member holds out: rows of equal X together, and of few rows a larger share."""

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from sigmax.random import named_generator

__all__ = [
    "count_held_out",
    "duplicate_groups",
    "held_out_share",
    "hold_out",
    "split_large_groups",
]

ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Values that differ by less than this share of their size are equal in single precision."""

FEWEST_HELD_OUT = 20
"""Rows that a member holds out, as long as they are at most `LARGEST_SHARE` of all."""

LARGEST_SHARE = 0.4


def held_out_share(n_rows: int, share: float) -> float:
    """The share of rows to hold out: ``share``, and more where rows are few.

    A tenth of twenty rows is two, and two rows choose neither a snapshot nor a width.

    Examples
    --------
    >>> [round(held_out_share(n, 0.1), 2) for n in (10, 50, 100, 200, 1000)]
    [0.4, 0.4, 0.2, 0.1, 0.1]
    """
    return max(share, min(LARGEST_SHARE, FEWEST_HELD_OUT / n_rows))


def duplicate_groups(X: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, " rows"]:
    """A label for every row; rows have the same one if they are equal up to single precision.

    Examples
    --------
    >>> duplicate_groups(np.array([[1.0, 2.0], [0.0, 2.0], [1.0 + 1e-9, 2.0]]))
    array([0, 1, 0])
    """
    labels = np.arange(len(X))
    open_rows, open_labels = np.arange(len(X)), np.zeros(len(X), dtype=np.int64)
    for column in X.T:
        if not len(open_rows):
            break
        largest = float(np.max(np.abs(column))) or 1.0  # squares of 1e200 overflow
        numbers = near_values(column[open_rows] / largest, float(np.std(column / largest)))
        pairs = open_labels * (len(X) + 1) + numbers
        _, first, inverse, counts = np.unique(
            pairs, return_index=True, return_inverse=True, return_counts=True
        )
        labels[open_rows] = open_rows[first[inverse]]
        is_open = counts[inverse] > 1  # no further column can tell the others apart
        open_rows, open_labels = open_rows[is_open], inverse[is_open]
    return np.unique(labels, return_inverse=True)[1]


def near_values(values: Float[np.ndarray, " rows"], std: float) -> Int[np.ndarray, " rows"]:
    """A number for every value, the same for values that differ by rounding only.

    Sorted values are cut where the gap is larger than rounding, so that no grid separates two that
    are next to each other. Runs of tiny gaps are cut where they get longer than rounding. ``std``
    is that of the whole column: networks see values in its units.
    """
    order = np.argsort(values, kind="stable")
    ranked = values[order].astype(np.float64)
    reach = ROUNDING * (np.abs(ranked) + std)
    starts_run = np.diff(ranked, prepend=-np.inf) > reach
    first = np.flatnonzero(starts_run)[np.cumsum(starts_run) - 1]
    part = np.floor((ranked - ranked[first]) / np.maximum(2 * reach[first], 1e-300))
    is_new = starts_run | (np.diff(part, prepend=0.0) != 0)
    numbers = np.empty(len(values), dtype=np.int64)
    numbers[order] = np.cumsum(is_new)
    return numbers


def count_held_out(n_rows: int, share: float, largest: int) -> int:
    """How many rows a member holds out, up to duplicates, if it does: at least one."""
    return max(1, min(round(share * n_rows), largest))


def hold_out(
    labels: Int[np.ndarray, " rows"],
    share: float,
    n_members: int,
    key: PRNGKeyArray,
    *,
    largest: int,
) -> list[np.ndarray]:
    """Every member's held-out rows: disjoint folds of a shuffle, a new shuffle when used up.

    Rows of one label are held out together: a copy that stayed in training would tell a member
    what it is judged by. A label with more rows than a fold is split up, since no fold could hold
    it; such rows are known many times over, wherever they are.

    Parameters
    ----------
    labels
        From `duplicate_groups`.
    share
        Of the rows, per member; 0 holds out nothing, anything above at least one row.
    largest
        More rows than this are never meant to be held out.
    """
    n_rows = len(labels)
    if share == 0:
        return [np.empty(0, dtype=int)] * n_members
    n_held_out = count_held_out(n_rows, share, largest)
    labels = split_large_groups(labels, n_held_out)
    labels = np.unique(labels, return_inverse=True)[1].reshape(-1)
    n_folds, folds = n_rows // n_held_out, []
    for member in range(n_members):
        shuffled = named_generator(key, f"folds {member // n_folds}").permutation(n_rows)
        together, start = with_duplicates(shuffled, labels)
        held_out = start // n_held_out == member % n_folds
        if held_out.all():  # two large groups that begin in one fold: one of them is enough
            held_out = start == 0
        folds.append(together[held_out])
    return folds


def split_large_groups(labels: Int[np.ndarray, " rows"], largest: int) -> Int[np.ndarray, " rows"]:
    """The labels, with one of its own for every row whose label has more than ``largest`` rows."""
    counts = np.bincount(labels)
    return np.where(counts[labels] > largest, len(counts) + np.arange(len(labels)), labels)


def with_duplicates(
    shuffled: Int[np.ndarray, " rows"], labels: Int[np.ndarray, " rows"]
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Shuffled rows, each followed by its duplicates, and where the group of each begins."""
    shuffled_labels = labels[shuffled]
    first = np.full(labels.max() + 1, len(labels))
    np.minimum.at(first, shuffled_labels, np.arange(len(labels)))
    order = np.argsort(first[shuffled_labels], kind="stable")
    ranked = first[shuffled_labels][order]
    return shuffled[order], np.searchsorted(ranked, ranked)
