"""Training rows: checked, merged, encoded, and those that each ensemble member holds out."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sigmax.errors import TrainingWarning
from sigmax.features import Features, TargetUnits
from sigmax.inputs import Inputs
from sigmax.random import RandomKey, named_generator
from sigmax.tables import Table

FEWEST_DISTINCT = 10
"""Number of different rows below which no duplicates are merged: all may be repeated by chance."""
ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Relative difference below which two values are equal in single precision."""
LARGEST_EXACT = 5000
"""Rows that an exact Gaussian process takes at most."""
MOST_SCORED = 8192
"""Rows of which an expert computes held-out densities, at most."""
IMPUTATIONS = 20
"""Rounds in which censored targets are drawn."""
FEWEST_HELD_OUT, LARGEST_SHARE = 20, 0.4
"""Rows that a member holds out at least, unless they are a larger share of all rows than this."""


@final
@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of positive weight, checked, in the units of the user."""

    table: Table
    y: NDArray[np.float64]
    """Targets (n, p)."""
    weight: NDArray[np.float64]
    indices: NDArray[np.intp]
    """Positions in the rows that were given to `fit`."""
    is_single_output: bool
    group: NDArray[np.intp] | None = None
    """Label of every row; rows of one label are held out together, whatever their X."""
    error: NDArray[np.float64] | None = None
    """Standard deviation of the known measurement error of every row."""
    bounds: NDArray[np.float64] | None = None
    """Least and greatest possible target of every row (n, 2), equal where it is observed."""

    @classmethod
    def read(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        categorical: Any = None,
        numeric: Any = None,
        merges: bool = True,
    ) -> "TrainingRows":
        """Check and convert the arguments of `fit`; exact duplicates are merged if it ``merges``.

        ``estimator`` gets the attributes ``n_features_in_`` and ``feature_names_in_``. Rows of a
        table with more than numbers are sorted by their content.
        """
        table, y, weight, indices = Table.read_training(
            estimator, X, y, sample_weight, categorical=categorical, numeric=numeric
        )
        rows = cls(table, y.reshape(len(y), -1), weight, indices, y.ndim == 1)
        rows = merge_duplicates(rows) if merges else rows
        if table.schema.is_plain:
            return rows
        return rows.take(rows.table.canonical_order(rows.y, rows.weight))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.intp]) -> "TrainingRows":
        """Some of the rows."""
        names = ("table", "y", "weight", "indices", "group", "error", "bounds")
        parts = {name: getattr(self, name) for name in names}
        some = {name: part if part is None else part[rows] for name, part in parts.items()}
        return replace(self, **some)

    @property
    def is_exact(self) -> bool:
        """True if no target has a known error or is censored."""
        return self.error is None and self.bounds is None

    def censored(self, bounds: NDArray[np.float64]) -> "TrainingRows":
        """Rows with imputed targets: of the distribution of targets between their ``bounds``.

        A target between bounds is drawn from the others there, until all are drawn from what they
        make up: the estimate of Turnbull, which is that of Kaplan and Meier without lower bounds.
        """
        low, high = bounds.T
        level, y = np.random.default_rng(0).random(len(self)), self.y[:, 0]
        for _ in range(IMPUTATIONS):
            ranked = np.sort(y)
            first = np.searchsorted(ranked, low)
            n_inside = np.searchsorted(ranked, high, side="right") - first
            drawn = ranked[np.minimum(first + (level * n_inside).astype(int), len(y) - 1)]
            y = np.where((high > low) & (n_inside > 0), drawn, y)
        return replace(self, y=y[:, None], bounds=bounds)

    @cached_property
    def duplicate_group(self) -> NDArray[np.intp]:
        """Label of every row, the same for rows of equal X and for rows of one ``group``."""
        label = duplicate_groups(self.table.values)
        if self.group is None:
            return label
        links = label, label.max() + 1 + self.group
        n_nodes = int(links[1].max()) + 1
        graph = coo_array((np.ones(len(label)), links), shape=(n_nodes, n_nodes))
        return connected_components(graph, directed=False)[1][label].astype(np.intp)

    @cached_property
    def n_distinct(self) -> int:
        """Number of rows that differ in X or in y."""
        both = np.column_stack([self.table.values, self.y])
        return int(duplicate_groups(both).max()) + 1


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows as experts see them: encoded columns and transformed targets."""

    given: TrainingRows
    features: Features
    target: TargetUnits
    X: Inputs
    """In double precision. Statistics of the target by category leave out the row itself."""
    y: NDArray[np.float64]
    """Transformed targets (n, p) of mean 0 and variance 1."""
    error: NDArray[np.float64] | None = None
    """Standard deviation of the known measurement error of every row, in the units of ``y``."""
    bounds: NDArray[np.float64] | None = None
    """Bounds of censored targets, see `TrainingRows`, in the units of ``y``."""

    @classmethod
    def encode(cls, given: TrainingRows, target: TargetUnits) -> "Rows":
        """Learn how columns are encoded, and encode the rows."""
        groups, y = given.duplicate_group, target(given.y, np.float64)
        features, X = Features.fit(given.table, y, given.weight, groups, np.float64)
        mean, scale = target.scaling.mean[0], target.scaling.scale[0]
        error = None if given.error is None else given.error / scale
        bounds = None if given.bounds is None else (given.bounds - mean) / scale
        return cls(given, features, target, X, y, error, bounds)

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def scored(self) -> Int[np.ndarray, " scored"]:
        """Rows of which held-out densities are computed: random ones, at most `MOST_SCORED`."""
        return np.sort(np.random.default_rng(0).permutation(len(self))[:MOST_SCORED])

    @property
    def weight(self) -> NDArray[np.float64]:
        """Sample weights, above 0."""
        return self.given.weight

    @property
    def has_replicates(self) -> bool:
        """True if most rows are repeated in X, as in a designed experiment.

        Held-out rows, whose duplicates are held out with them, are then less known than new rows.
        """
        return bool(np.mean(np.bincount(self.given.duplicate_group) > 1) > 0.5)


def merge_duplicates(rows: TrainingRows) -> TrainingRows:
    """Rows with duplicates merged into rows of summed weight, where they are no measurements.

    In a table that was appended to itself, a row's duplicate gives its target away to
    leave-one-out training. If every row of equal X and y occurs a multiple of k times, each k are
    merged into one. Of the others all are merged, unless chance can have repeated them, as in a
    table of few categories: new rows will then be repeats as often, and all rows stay.
    """
    of_both = rows.table.hashes(rows.y)
    first, label, counts = np.unique(
        of_both, return_index=True, return_inverse=True, return_counts=True
    )[1:]
    n_rows, n_distinct = len(label), len(counts)
    if n_distinct == n_rows or n_distinct < FEWEST_DISTINCT:
        return rows
    kept = counts // np.gcd.reduce(counts)
    if not can_be_chance(kept):
        _, of_X, n_repeats = np.unique(rows.table.hashes(), return_inverse=True, return_counts=True)
        n_targets = np.bincount(of_X[first])[n_repeats > 1]
        if np.mean(n_targets == 1) >= 0.9:  # but for a tenth, repeated X have one target
            kept = np.ones_like(counts)
    if kept.sum() == n_rows:
        return rows
    order = np.argsort(label, kind="stable")
    rank = np.arange(n_rows) - np.repeat(np.cumsum(counts) - counts, counts)
    keeps = np.sort(order[rank < kept[label[order]]])
    weight = (np.bincount(label, rows.weight) / kept)[label[keeps]]
    warnings.warn(
        f"{n_rows - len(keeps):,} of {n_rows:,} rows are exact duplicates of other rows, in all"
        " columns and the target. They were merged into rows of larger weight.",
        TrainingWarning,
        stacklevel=2,
    )
    return replace(rows.take(keeps), weight=weight)


def can_be_chance(counts: NDArray[np.intp]) -> bool:
    """True if independent draws can have repeated distinct rows ``counts`` times.

    Let a row be drawn with some rate λ, whatever its distribution over rows. The ordered pairs and
    triples of equal rows are then E λ² and E λ³ on average, and E λ · E λ³ is at least (E λ²)².
    Fewer triples by two standard deviations are no chance.

    Examples
    --------
    >>> can_be_chance(np.full(100, 2)), can_be_chance(np.random.default_rng(0).poisson(2, 100))
    (False, True)
    """
    n_rows, n_pairs = np.sum(counts), np.sum(counts * (counts - 1))
    if not n_pairs:
        return True
    share = n_rows * np.sum(counts * (counts - 1) * (counts - 2)) / n_pairs**2
    return bool(1 - share <= 2 * np.sqrt(6 * n_rows / n_pairs**2 + 2 / n_pairs))


def duplicate_groups(X: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, " rows"]:
    """Label of every row, the same for rows that are equal up to single precision.

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
    """Number of every value, the same for values that differ by rounding only.

    Sorted values are cut where they differ by more than rounding, and runs of smaller differences
    where the runs get longer than that. ``std`` is that of the whole column: networks see values
    in its units.
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
    """Number of rows that a member holds out, up to duplicates.

    It is a share of the rows, but at least 20 or 40 % of them: two rows are too few to choose a
    checkpoint or a scale.

    Examples
    --------
    >>> [count_held_out(n, 0.1, largest=1024) for n in (2, 10, 50, 200, 1000, 100_000)]
    [1, 4, 20, 20, 100, 1024]
    """
    fewest = min(FEWEST_HELD_OUT, LARGEST_SHARE * n_rows)
    return max(1, min(round(max(share * n_rows, fewest)), largest))


def hold_out(
    labels: Int[np.ndarray, " rows"],
    share: float,
    n_members: int,
    key: RandomKey,
    *,
    largest: int,
    first: Int[np.ndarray, " first"] | None = None,
    keeps_groups: bool = False,
) -> list[np.ndarray]:
    """Held-out rows of every member: disjoint folds of a shuffle, a new shuffle when used up.

    Rows of one of the ``labels``, those of `duplicate_groups`, are held out together: a member must
    not learn from duplicates of the rows that it is validated on. A label with more rows than a
    fold is split up or, with ``keeps_groups``, one with more than half of the rows. Each member
    holds out a ``share`` of the rows, at least one unless it is 0, and at most about ``largest``;
    rows ``first`` come before all others.
    """
    n_rows = len(labels)
    if share == 0:
        return [np.empty(0, dtype=int)] * n_members
    n_held_out = count_held_out(n_rows, share, largest)
    labels = split_large_groups(labels, n_rows // 2 if keeps_groups else n_held_out)
    is_last = np.ones(n_rows, dtype=bool)
    is_last[np.arange(n_rows) if first is None else first] = False
    labels = np.unique(labels, return_inverse=True)[1].reshape(-1)
    n_folds, folds = n_rows // n_held_out, []
    for member in range(n_members):
        shuffled = named_generator(key, f"folds {member // n_folds}").permutation(n_rows)
        shuffled = shuffled[np.argsort(is_last[shuffled], kind="stable")]
        # Every row is followed by its duplicates; a group is in the fold in which it starts.
        begin = np.full(labels.max() + 1, n_rows)
        np.minimum.at(begin, labels[shuffled], np.arange(n_rows))
        order = np.argsort(begin[labels[shuffled]], kind="stable")
        together, ranked = shuffled[order], begin[labels[shuffled]][order]
        start = np.searchsorted(ranked, ranked)
        held_out = start // n_held_out == member % n_folds
        if held_out.all():  # two large groups that begin in one fold: one of them is enough
            held_out = start == 0
        folds.append(together[held_out])
    return folds


def split_large_groups(labels: Int[np.ndarray, " rows"], largest: int) -> Int[np.ndarray, " rows"]:
    """Labels, with a separate one for every row whose label has more than ``largest`` rows."""
    counts = np.bincount(labels)
    return np.where(counts[labels] > largest, len(counts) + np.arange(len(labels)), labels)
