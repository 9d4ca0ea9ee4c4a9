"""Forests as kernels: every tree sends a row to one of the training rows.

Extremely randomised trees (Geurts, Ernst and Wehenkel 2006) are grown until a leaf holds one
training row, or rows that no split can part. The share of the trees that send x to training row j
is the weight of that row at x (Meinshausen 2006): the rows that trees name are draws from what the
forest predicts.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float, Int
from joblib import cpu_count

from sigmax.files import take_array

__all__ = ["Forests"]

MOST_ROWS = 2**14
"""A tree is grown on so many of its rows, at most."""

MOST_FEATURES = 128
"""Features that a tree tries in every split, at most."""

PATHS_AT_ONCE = 2**20
"""Pairs of a tree and a row that are followed at once."""

LEAF = -1

DRAWS = 71
"""Seeds what is drawn where rows are added to trees."""


@final
@dataclass(frozen=True, eq=False)
class Forests:
    """Forests of equally many trees, one for every member of an ensemble.

    Nodes of all trees stand one after the other.

    Examples
    --------
    >>> X = np.linspace(0, 1, 8, dtype=np.float32)[:, None]
    >>> rows = [np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7])]
    >>> forests = Forests.grow(X, X, np.ones(8), rows, 3, np.random.default_rng(0))
    >>> forests.rows_at(X[:1]).ravel().tolist()
    [0, 0, 0, 1, 1, 1]
    """

    feature: Int[np.ndarray, " nodes"]
    """By which a node splits; -1 for a leaf."""
    threshold: Float[np.ndarray, " nodes"]
    """Rows with a larger value go right."""
    left: Int[np.ndarray, " nodes"]
    right: Int[np.ndarray, " nodes"]
    """Nodes; of a leaf, its training row."""
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
    ) -> "Forests":
        """``n_trees`` for every entry of ``learned``, which has the rows that they learn from."""
        X = np.ascontiguousarray(X, dtype=np.float32)
        rows = [own for own in learned for _ in range(n_trees)]
        rngs = rng.spawn(len(rows))
        with ThreadPoolExecutor(cpu_count()) as pool:
            grown = pool.map(lambda own, rng: grow_tree(X, y, weight, own, rng), rows, rngs)
            trees = list(grown)
        sizes = [len(feature) for feature, *_ in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        for (feature, _, left, right), root in zip(trees, roots, strict=True):
            left += root
            right[feature != LEAF] += root
        feature, threshold, left, right = (
            np.concatenate(parts) for parts in zip(*trees, strict=True)
        )
        roots = roots.reshape(len(learned), n_trees).astype(np.int32)
        return cls(feature, threshold, left, right, roots)

    def of_member(self, member: int) -> "Forests":
        """The forest of one member alone."""
        return replace(self, roots=self.roots[member : member + 1])

    def with_rows(
        self,
        X: Float[np.ndarray, "rows features"],
        weight: Float[np.ndarray, " rows"],
        first: int,
        n_before: int = 0,
    ) -> "Forests":
        """The trees with the rows from number ``first`` on in their leaves.

        One row after the other, each in every tree: the leaf that it reaches is split between it
        and the row that the leaf names, at a place that is uniform between the two, along a feature
        drawn by how far they are apart in it. Of rows with the same features, a leaf names one,
        drawn by their weights. What is drawn depends on a row's number alone, which ``n_before``
        rows precede: rows may come together or one by one.
        """
        X = np.ascontiguousarray(X, dtype=np.float32)
        n_old, n_trees = len(self.feature), self.roots.size
        room = n_old + 2 * n_trees * (len(X) - first)
        feature = np.full(room, LEAF, dtype=np.int32)
        threshold = np.zeros(room, dtype=np.float32)
        left, right = np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.int32)
        for part, old in zip(
            (feature, threshold, left, right),
            (self.feature, self.threshold, self.left, self.right),
            strict=True,
        ):
            part[:n_old] = old
        grown = replace(self, feature=feature, threshold=threshold, left=left, right=right)
        for row in range(first, len(X)):
            chance = np.random.default_rng((DRAWS, n_before + row - first)).random((2, n_trees))
            leaf = grown._leaves(X[row : row + 1])
            named = right[leaf]
            apart = np.abs(X[named] - X[row]).astype(np.float64)
            is_same = ~apart.any(axis=1)
            if is_same.any():
                known = weight[: row + 1][(X[: row + 1] == X[row]).all(axis=1)]
                is_drawn = is_same & (chance[0] < weight[row] / known.sum())
                right[leaf[is_drawn]] = row
            at, named, apart = leaf[~is_same], named[~is_same], apart[~is_same]
            if not len(at):
                continue
            total = np.cumsum(apart, axis=1)
            axis = np.sum(total <= (chance[0, ~is_same] * total[:, -1])[:, None], axis=1)
            ends = np.sort([X[named, axis], np.broadcast_to(X[row, axis], len(at))], axis=0)
            place = (ends[0] + chance[1, ~is_same] * (ends[1] - ends[0])).astype(np.float32)
            place = np.where(place < ends[1], place, ends[0])
            child = n_old + 2 * np.arange(len(at), dtype=np.int32)
            n_old += 2 * len(at)
            goes_right = X[row, axis] > place
            right[child] = np.where(goes_right, named, row)
            right[child + 1] = np.where(goes_right, row, named)
            feature[at], threshold[at], left[at], right[at] = axis, place, child, child + 1
        of_nodes = {"feature": feature, "threshold": threshold, "left": left, "right": right}
        return replace(self, **{name: part[:n_old] for name, part in of_nodes.items()})

    def rows_at(self, X: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, "members trees n"]:
        """The training row to which every tree sends every row of ``X``."""
        n_at_once = max(1, PATHS_AT_ONCE // self.roots.size)
        blocks = [
            self._follow(np.asarray(X[first : first + n_at_once], np.float32))
            for first in range(0, len(X), n_at_once)
        ]
        return np.concatenate(blocks, axis=-1)

    def _follow(self, X: np.ndarray) -> np.ndarray:
        return self.right[self._leaves(X)].reshape(*self.roots.shape, len(X))

    def _leaves(self, X: np.ndarray) -> np.ndarray:
        """The leaf of every tree that every row reaches, one tree after the other."""
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

    def state(self) -> dict[str, np.ndarray]:
        """All that a saved model needs of it."""
        names = ("feature", "threshold", "left", "right", "roots")
        return {f"forests.{name}": getattr(self, name) for name in names}

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], n_members: int, n_rows: int, n_features: int
    ) -> "Forests":
        """What `state` was taken from; refused unless every path ends at a training row."""
        n_nodes, n_trees = len(arrays["forests.feature"]), arrays["forests.roots"].shape[1]

        def take(name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
            return take_array(arrays, f"forests.{name}", shape, dtype)

        feature = take("feature", (n_nodes,), np.int32)
        threshold = take("threshold", (n_nodes,), np.float32)
        left, right = (take(name, (n_nodes,), np.int32) for name in ("left", "right"))
        roots = take("roots", (n_members, n_trees), np.int32)
        own, is_leaf = np.arange(n_nodes), feature == LEAF
        sound = np.where(
            is_leaf,
            (right >= 0) & (right < n_rows),
            # Children come after their parents: no path goes round in circles.
            (feature >= 0) & (feature < n_features) & (np.minimum(left, right) > own),
        )
        sound &= is_leaf | (np.maximum(left, right) < n_nodes)
        if not (sound.all() and (roots >= 0).all() and (roots < n_nodes).all()):
            raise ValueError("forests have paths that do not end at a training row")
        return cls(feature, threshold, left, right, roots)


def grow_tree(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray, rows: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One tree: feature, threshold, left and right of its nodes."""
    from sklearn.tree import ExtraTreeRegressor  # here, for it takes long to import

    if len(rows) > MOST_ROWS:
        rows = rng.choice(rows, MOST_ROWS, replace=False)
    tree = ExtraTreeRegressor(
        max_features=min(X.shape[1], MOST_FEATURES), random_state=int(rng.integers(2**31))
    )
    nodes = tree.fit(X[rows], y[rows], sample_weight=weight[rows], check_input=True).tree_
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
    return feature, threshold, nodes.children_left.astype(np.int32), right
