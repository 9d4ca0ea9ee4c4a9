"""Forests of extremely randomised trees, whose leaves are samples of the target.

Trees (Geurts, Ernst and Wehenkel 2006) are grown until a leaf holds one training row, or rows that
no split can separate. The share of the trees that send x to training row j is the weight of that
row at x (Meinshausen 2006): the targets of the leaves are draws from the forest's prediction.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float, Int
from joblib import cpu_count

from sigmax.distributions import ExpertPart, Mixture, Normal
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut, StoredRows
from sigmax.experts.leave_out import DuplicateGroups
from sigmax.experts.rows import Rows
from sigmax.inputs import Inputs
from sigmax.random import RandomKey, named_generator
from sigmax.settings import COUNT, setting

MOST_ROWS = 2**14
"""Rows that a tree is grown on, at most."""

MOST_FEATURES = 128
"""Features that a tree tries in every split, at most."""

PATHS_AT_ONCE = 2**20
"""Pairs of a tree and a row that are followed at once."""

LEAF = -1

DRAWS = 71
"""Seed of what is drawn where rows are added to trees."""


@final
@dataclass(frozen=True, eq=False)
class Forests:
    """Forests of equally many trees, one for every ensemble member.

    Nodes of all trees follow each other.

    Examples
    --------
    >>> X = np.linspace(0, 1, 8, dtype=np.float32)[:, None]
    >>> rows = [np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7])]
    >>> forests, named = Forests.grow(X, X, np.ones(8), rows, 3, np.random.default_rng(0), X[:1])
    >>> forests.rows_at(X[:1]).ravel().tolist(), bool((forests.rows_at(X[:1]) == named).all())
    ([0, 0, 0, 1, 1, 1], True)
    """

    feature: Int[np.ndarray, " nodes"]
    """Feature by which a node splits; -1 for a leaf."""
    threshold: Float[np.ndarray, " nodes"]
    """Rows with a larger value go right."""
    left: Int[np.ndarray, " nodes"]
    right: Int[np.ndarray, " nodes"]
    """Child; in a leaf, its training row."""
    roots: Int[np.ndarray, "members trees"]

    @classmethod
    def grow(
        cls,
        X: Float[np.ndarray, "rows features"],
        y: Float[np.ndarray, "rows outputs"],
        weight: Float[np.ndarray, " rows"],
        learned: Sequence[Int[np.ndarray, " _"]],
        n_trees: int,
        rng: np.random.Generator,
        asked: Float[np.ndarray, "asked features"],
        min_leaf: int = 1,
    ) -> "tuple[Forests, Int[np.ndarray, 'members trees asked']]":
        """Grow ``n_trees`` for every entry of ``learned``, the rows that they learn from.

        Also returns `rows_at` of the rows ``asked``, at a tenth of its cost.
        """
        X, asked = (np.ascontiguousarray(rows, dtype=np.float32) for rows in (X, asked))
        rows = [own for own in learned for _ in range(n_trees)]
        rngs = rng.spawn(len(rows))
        with ThreadPoolExecutor(cpu_count()) as threads:
            grown = threads.map(
                lambda own, rng: grow_tree(X, y, weight, own, rng, asked, min_leaf), rows, rngs
            )
            trees, leaf_rows = zip(*grown, strict=True)
        sizes = [len(feature) for feature, *_ in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        for (feature, _, left, right), root in zip(trees, roots, strict=True):
            left += root
            right[feature != LEAF] += root
        feature, threshold, left, right = (
            np.concatenate(parts) for parts in zip(*trees, strict=True)
        )
        roots = roots.reshape(len(learned), n_trees).astype(np.int32)
        forests = cls(feature, threshold, left, right, roots)
        return forests, np.stack(leaf_rows).reshape(*roots.shape, len(asked))

    def rows_at(self, X: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, "members trees n"]:
        """Training row to which every tree sends every row of ``X``."""
        n_at_once = max(1, PATHS_AT_ONCE // self.roots.size)
        blocks = [
            self.right[self._leaves(np.asarray(X[first : first + n_at_once], np.float32))]
            for first in range(0, len(X), n_at_once)
        ]
        parts = [block.reshape(*self.roots.shape, -1) for block in blocks]
        return np.concatenate(parts, axis=-1)

    def _leaves(self, X: np.ndarray) -> np.ndarray:
        """Leaf that every row reaches in every tree, one tree after the other."""
        node = np.repeat(self.roots.reshape(-1), len(X))
        row = np.tile(np.arange(len(X)), self.roots.size)
        on_the_way = np.flatnonzero(self.feature[node] != LEAF)
        while len(on_the_way):
            at = node[on_the_way]
            goes_right = X[row[on_the_way], self.feature[at]] > self.threshold[at]
            at = np.where(goes_right, self.right[at], self.left[at])
            node[on_the_way] = at
            on_the_way = on_the_way[self.feature[at] != LEAF]
        return node

    def check_paths(self, n_members: int, n_rows: int, n_features: int) -> None:
        """Raise ValueError unless every path ends at a training row."""
        own, n_nodes, is_leaf = (
            np.arange(len(self.feature)),
            len(self.feature),
            self.feature == LEAF,
        )
        children = np.stack([self.left, self.right])
        sound = np.where(
            is_leaf,
            (self.right >= 0) & (self.right < n_rows),
            # Children come after their parents: no path goes round in circles.
            (self.feature >= 0)
            & (self.feature < n_features)
            & (children.min(axis=0) > own)
            & (children.max(axis=0) < n_nodes),
        )
        starts = (self.roots >= 0) & (self.roots < n_nodes)
        if not (sound.all() and starts.all() and len(self.roots) == n_members):
            raise ValueError("forests have paths that do not end at a training row")


def grow_tree(
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    rows: np.ndarray,
    rng: np.random.Generator,
    asked: np.ndarray,
    min_leaf: int = 1,
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Nodes of one tree (feature, threshold, left, right), and its rows for those ``asked``."""
    from sklearn import config_context
    from sklearn.tree import ExtraTreeRegressor  # here: the import takes long

    if len(rows) > MOST_ROWS:
        rows = rng.choice(rows, MOST_ROWS, replace=False)
    tree = ExtraTreeRegressor(
        max_features=min(X.shape[1], MOST_FEATURES),
        min_samples_leaf=min_leaf,
        random_state=int(rng.integers(2**31)),
    )
    # Checks in Python, of what was checked before, would block the other threads.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        nodes = tree.fit(X[rows], y[rows], sample_weight=weight[rows], check_input=False).tree_
    is_leaf = nodes.children_left == LEAF
    # X has single precision: x is above a threshold if it is above the next such number below.
    threshold = nodes.threshold.astype(np.float32)
    threshold = np.where(
        threshold > nodes.threshold, np.nextafter(threshold, np.float32(-np.inf)), threshold
    )
    # Of the rows of a leaf one is drawn, by their weights (Efraimidis and Spirakis 2006).
    order = np.argsort(np.log(rng.random(len(rows))) / weight[rows])
    right = nodes.children_right.astype(np.int32)
    right[nodes.apply(X[rows[order]])] = rows[order]
    feature = np.where(is_leaf, LEAF, nodes.feature).astype(np.int32)
    tree = feature, threshold, nodes.children_left.astype(np.int32), right
    return tree, right[nodes.apply(asked)]


N_PARTS, PER_PART = 25, 6
"""Normal components of a prediction, and quantiles of the leaves that each of them stands for."""

SHARE = 0.63
"""Share of the rows that a tree learns from."""

LEAVES = (1, 8)
"""Least numbers of rows in a leaf, of which the held-out log-likelihood chooses one."""

BANDWIDTHS = np.geomspace(0.03, 0.6, 9)
"""Standard deviations that are added to the components, of which the best is taken."""

ROWS_AT_ONCE = 8192


@final
class ForestFitted(AbstractFitted):
    """Grown trees and the targets that their leaves hold."""

    forests: Forests
    """One tree for each of its members."""
    y: Float[np.ndarray, "rows outputs"]
    indices: Int[np.ndarray, " rows"]
    """Positions of the rows among those given to `fit`."""
    bandwidth: Float[np.ndarray, " outputs"]
    held_out: HeldOut
    """Densities from the trees that have not learned from a row, nor from its duplicates."""

    def density(self, X: Inputs) -> Mixture:
        """Mixture of Normal components at groups of the leaves' targets."""
        rows = np.asarray(X.coordinates, np.float32)
        parts = []
        for first in range(0, len(rows), ROWS_AT_ONCE):
            leaves = self.forests.rows_at(rows[first : first + ROWS_AT_ONCE])[:, 0]
            parts.append(grouped(self.y[leaves]))
        mean, variance = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        return smoothed_mixture(mean, variance, self.bandwidth)

    def with_rows(self, new: StoredRows) -> "ForestFitted":
        """Trees in which a new row may take the place of the row of the leaf that it reaches.

        In every tree it does with the probability w / (1 + w) for a weight w. The draws depend on
        the number of the row alone: rows may be added together or one by one.
        """
        right, first = self.forests.right.copy(), len(self.y)
        leaves = self.forests._leaves(np.asarray(new.X.coordinates, np.float32))
        for row, own in enumerate(leaves.reshape(-1, len(new)).T):
            chance = np.random.default_rng((DRAWS, first + row)).random(len(own))
            right[own[chance < new.weight[row] / (1 + new.weight[row])]] = first + row
        return replace(
            self,
            forests=replace(self.forests, right=right),
            y=np.concatenate([self.y, new.y]),
            indices=np.append(self.indices, new.indices),
        )

    def explain_neighbors(
        self, X: Inputs, k: int
    ) -> tuple[Int[np.ndarray, "rows k"], Float[np.ndarray, "rows k"]]:
        """Training rows to which most trees send each row, and the shares of these trees."""
        rows = np.asarray(X.coordinates, np.float32)
        leaves = self.indices[self.forests.rows_at(rows)[:, 0].T]
        return largest_weights(leaves, np.full(leaves.shape, 1 / leaves.shape[1]), k)

    def check(self) -> None:
        """Raise ValueError unless every path ends at a training row."""
        n_features = int(self.forests.feature.max(initial=0)) + 1
        self.forests.check_paths(len(self.forests.roots), len(self.y), n_features)
        if not np.all(self.bandwidth > 0):
            raise ValueError("bandwidths must be above 0")


def largest_weights(
    labels: Int[np.ndarray, "rows entries"], weights: Float[np.ndarray, "rows entries"], k: int
) -> tuple[Int[np.ndarray, "rows k"], Float[np.ndarray, "rows k"]]:
    """Labels of largest total weight in every row, the largest first, and these weights.

    Where a row has fewer labels, the last one is repeated with weight 0.

    Examples
    --------
    >>> largest_weights(np.array([[7, 3, 7, 5]]), np.array([[0.2, 0.3, 0.2, 0.1]]), 2)
    (array([[7, 3]]), array([[0.4, 0.3]]))
    """
    order = np.argsort(labels, axis=1, kind="stable")
    ranked = np.take_along_axis(labels, order, axis=1)
    total = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    is_last = np.diff(ranked, axis=1, append=-1) != 0
    before = np.maximum.accumulate(np.where(is_last, total, 0.0), axis=1)
    before = np.pad(before[:, :-1], ((0, 0), (1, 0)))
    own = np.where(is_last, total - before, 0.0)
    best = np.argsort(-own, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ranked, best, axis=1), np.take_along_axis(own, best, axis=1)


def smoothed_mixture(mean, variance, bandwidth) -> Mixture:
    """One member with equally weighted components, widened by the bandwidths."""
    return Mixture(Normal(mean, np.sqrt(variance + bandwidth**2)), n_parts=len(mean))


def grouped(
    values: Float[np.ndarray, "trees rows outputs"],
) -> tuple[Float[np.ndarray, "parts rows outputs"], Float[np.ndarray, "parts rows outputs"]]:
    """Means and variances of groups of equally many sorted values; NaN are left out.

    Examples
    --------
    >>> mean, variance = grouped(np.array([3.0, np.nan, 1.0, 2.0]).reshape(4, 1, 1))
    >>> mean.shape, float(mean.mean()), float(mean[0, 0, 0]), bool(variance.max() < 0.25)
    ((25, 1, 1), 2.0, 1.0, True)
    """
    count = np.sum(~np.isnan(values), axis=0)
    level = (np.arange(N_PARTS * PER_PART) + 0.5) / (N_PARTS * PER_PART)
    place = (level[:, None, None] * count).astype(int).clip(0, np.maximum(count - 1, 0))
    found = np.take_along_axis(np.sort(values, axis=0), place, axis=0)
    found = found.reshape(N_PARTS, PER_PART, *count.shape)
    return found.mean(axis=1), found.var(axis=1)


@final
@dataclass(frozen=True, kw_only=True)
class Forest(AbstractExpert):
    """Forest of extremely randomised trees."""

    n_trees: int = setting(200, COUNT, "Number of trees.")

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> ForestFitted:
        """Grow trees on random rows, and choose the bandwidths on the others."""
        rng = named_generator(key, "forest")
        X, label = np.asarray(rows.X.coordinates, np.float32), DuplicateGroups.of(rows).label
        n_groups = int(label.max()) + 1
        is_learned = np.zeros((self.n_trees, len(X)), dtype=bool)
        for own in is_learned:
            group = np.zeros(n_groups, dtype=bool)
            group[rng.choice(n_groups, max(1, round(SHARE * n_groups)), replace=False)] = True
            own[:] = group[label]
        learned = [np.flatnonzero(own) for own in is_learned]
        asked = rows.scored
        asked = asked[~is_learned[:, asked].all(axis=0)]
        leaves = LEAVES if len(X) > 2 * LEAVES[-1] else LEAVES[:1]
        grown = [self.grow(X, rows, learned, is_learned, asked, leaf, rng) for leaf in leaves]
        return max(grown, key=lambda one: one[0])[1]

    def grow(self, X, rows, learned, is_learned, asked, min_leaf, rng):
        """Forest with a least number of rows in a leaf, after its held-out log-likelihood."""
        y, weight = rows.y[asked], rows.weight[asked]
        forests, found = Forests.grow(X, rows.y, rows.weight, learned, 1, rng, X[asked], min_leaf)
        values = rows.y[found[:, 0]]
        values[is_learned[:, asked]] = np.nan
        mean, variance = grouped(values)
        outputs = range(y.shape[1])
        best = [best_bandwidth(mean[..., p], variance[..., p], y[:, p], weight) for p in outputs]
        bandwidth = np.array([width for _, width in best])
        held_out = HeldOut.of_rows(smoothed_mixture(mean, variance, bandwidth), rows, asked)
        fitted = ForestFitted(
            forests=forests,
            y=rows.y,
            indices=rows.given.indices,
            bandwidth=bandwidth,
            held_out=held_out,
        )
        return sum(score for score, _ in best), fitted


def best_bandwidth(mean, variance, y, weight) -> tuple[float, float]:
    """Largest mean held-out log-likelihood of one output, and its bandwidth."""
    scores = [
        np.average(
            np.log(np.maximum(ExpertPart(smoothed_mixture(mean, variance, h)).density(y), 1e-300)),
            weights=weight,
        )
        for h in BANDWIDTHS
    ]
    return max(zip(scores, BANDWIDTHS.tolist(), strict=True))
