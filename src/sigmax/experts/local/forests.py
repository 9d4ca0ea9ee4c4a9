"""Forests as kernels, mixed with the networks of an ensemble.

Extremely randomised trees (Geurts, Ernst and Wehenkel 2006) are grown until a leaf holds one
training row, or rows that no split can separate. The share of the trees that send x to training
row j is the weight of that row at x (Meinshausen 2006): the rows of the leaves are draws from the
forest's prediction.

Networks are smooth functions of all features at once, trees steps along single ones: each is better
on some tables, and the mixture of both is often better than either. The forest of an ensemble
member learns from the rows that its network learns from, so that the rows that the member holds
out are new to both.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from joblib import cpu_count

from sigmax.calibration import best_scale_factor
from sigmax.compilation import ROWS_PER_CALL, by_blocks, compiled
from sigmax.distributions import StudentT
from sigmax.experts.local.density import Edges, WeightedStudentT
from sigmax.experts.local.network import LocalPosterior
from sigmax.experts.recalibration import (
    ROWS_TO_DISAGREE_ON,
    HeldOutPredictions,
    Recalibration,
    best_factor_and_tails,
    covering_factor,
    factor_of_mixture,
    trusted,
)
from sigmax.training import Fold

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
    ) -> "tuple[Forests, Int[np.ndarray, 'members trees asked']]":
        """Grow ``n_trees`` for every entry of ``learned``, the rows that they learn from.

        Also returns `rows_at` of the rows ``asked``, at a tenth of its cost.
        """
        X, asked = (np.ascontiguousarray(rows, dtype=np.float32) for rows in (X, asked))
        rows = [own for own in learned for _ in range(n_trees)]
        rngs = rng.spawn(len(rows))
        with ThreadPoolExecutor(cpu_count()) as threads:
            grown = threads.map(
                lambda own, rng: grow_tree(X, y, weight, own, rng, asked), rows, rngs
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

    def __getitem__(self, members: Int[np.ndarray, " _"]) -> "Forests":
        """Forests of some members."""
        return replace(self, roots=self.roots[members])

    def with_rows(
        self,
        X: Float[np.ndarray, "rows features"],
        weight: Float[np.ndarray, " rows"],
        first: int,
        n_before: int = 0,
    ) -> "Forests":
        """Trees with the rows from number ``first`` on in their leaves.

        Each row is added to every tree: the leaf that it reaches is split between it and the row
        of the leaf, at a threshold that is uniform between the two, along a feature drawn with a
        probability proportional to their distance in it. Of rows with the same features, a leaf
        holds one, drawn by their weights. The draws depend on the row's number alone, which
        ``n_before`` added rows precede: rows may be added together or one by one.
        """
        X = np.ascontiguousarray(X, dtype=np.float32)
        n_old, n_trees = len(self.feature), self.roots.size
        room = 0, 2 * n_trees * (len(X) - first)
        feature = np.pad(self.feature, room, constant_values=LEAF)
        threshold, left, right = (
            np.pad(part, room) for part in (self.threshold, self.left, self.right)
        )
        grown = replace(self, feature=feature, threshold=threshold, left=left, right=right)
        for row in range(first, len(X)):
            chance = np.random.default_rng((DRAWS, n_before + row - first)).random((2, n_trees))
            leaf = grown._leaves(X[row : row + 1])
            other = right[leaf]
            apart = np.abs(X[other] - X[row]).astype(np.float64)
            is_same = ~apart.any(axis=1)
            if is_same.any():
                known = weight[: row + 1][(X[: row + 1] == X[row]).all(axis=1)]
                is_drawn = is_same & (chance[0] < weight[row] / known.sum())
                right[leaf[is_drawn]] = row
            at, other, apart = leaf[~is_same], other[~is_same], apart[~is_same]
            if not len(at):
                continue
            total = np.cumsum(apart, axis=1)
            axis = np.sum(total <= (chance[0, ~is_same] * total[:, -1])[:, None], axis=1)
            ends = np.sort([X[other, axis], np.broadcast_to(X[row, axis], len(at))], axis=0)
            cut = (ends[0] + chance[1, ~is_same] * (ends[1] - ends[0])).astype(np.float32)
            cut = np.where(cut < ends[1], cut, ends[0])
            child = n_old + 2 * np.arange(len(at), dtype=np.int32)
            n_old += 2 * len(at)
            goes_right = X[row, axis] > cut
            right[child] = np.where(goes_right, other, row)
            right[child + 1] = np.where(goes_right, row, other)
            feature[at], threshold[at], left[at], right[at] = axis, cut, child, child + 1
        of_nodes = {"feature": feature, "threshold": threshold, "left": left, "right": right}
        return replace(self, **{name: part[:n_old] for name, part in of_nodes.items()})

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
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Nodes of one tree (feature, threshold, left, right), and its rows for those ``asked``."""
    from sklearn import config_context
    from sklearn.tree import ExtraTreeRegressor  # here: the import takes long

    if len(rows) > MOST_ROWS:
        rows = rng.choice(rows, MOST_ROWS, replace=False)
    tree = ExtraTreeRegressor(
        max_features=min(X.shape[1], MOST_FEATURES), random_state=int(rng.integers(2**31))
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


ROWS_IN_TREES = 2**20
"""Rows that all trees together are grown on, at most, unless that leaves fewer than the next."""

FEWEST_TREES = 8

DF = 5.0
"""Degrees of freedom of a forest's components."""

LEAST_STD = 1e-3
"""Least standard deviation of a forest's components, in standard deviations of y."""

SHARES = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
"""Shares of the forests in the mixture that are tried on validation rows."""


@final
class LeafSamples(eqx.Module):
    """Targets of leaves, sorted and grouped into the components of a mixture."""

    mean: Float[Array | np.ndarray, "*rows outputs parts"]
    variance: Float[Array | np.ndarray, "*rows outputs parts"]

    @classmethod
    def create(cls, y: Float[np.ndarray, "trees rows outputs"], n_parts: int) -> "LeafSamples":
        """Groups of equally many values.

        Examples
        --------
        >>> samples = LeafSamples.create(np.array([3.0, 0.0, 5.0, 1.0]).reshape(4, 1, 1), 2)
        >>> samples.mean.tolist(), samples.variance.tolist()
        ([[[0.5, 4.0]]], [[[0.25, 1.0]]])
        """
        groups = np.split(np.sort(y, axis=0), n_parts)
        return cls(
            np.stack([group.mean(axis=0) for group in groups], axis=-1),
            np.stack([group.var(axis=0) for group in groups], axis=-1),
        )


def stack(samples: Sequence[LeafSamples], axis: int = 0) -> LeafSamples:
    """Samples of several members, or at several sets of rows, along a new axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis).astype(np.float32), *samples)


@final
@dataclass(frozen=True, eq=False)
class GrownForests:
    """Forests of all members, before they are validated: they do not depend on the networks."""

    forests: Forests
    samples: LeafSamples
    """At the rows that each member holds out: leaves (members, held out, outputs, parts)."""
    of_all: LeafSamples
    """Of all members at some rows of every fold: leaves (folds, members, some, outputs, parts)."""

    @classmethod
    def grow(
        cls,
        n_trees: int,
        n_parts: int,
        X: Float[np.ndarray, "rows features"],
        y: Float[np.ndarray, "rows outputs"],
        weight: Float[np.ndarray, " rows"],
        folds: Fold,
        rng: np.random.Generator,
    ) -> "GrownForests":
        """Grow ``n_trees`` per member, or a few less, so that they divide into ``n_parts``.

        ``folds`` are arrays of NumPy: a thread can grow forests while networks train.
        """
        learned = [np.flatnonzero(row[: len(X)]) for row in folds.weight]
        n_rows = sum(len(rows) for rows in learned)
        n_trees = min(n_trees, max(FEWEST_TREES, ROWS_IN_TREES // n_rows))
        n_trees = n_parts * max(1, n_trees // n_parts)
        rows = np.asarray(folds.validation)
        asked = X[rows.reshape(-1)]
        forests, found = Forests.grow(X, y, weight, learned, n_trees, rng, asked)
        found = found.reshape(*found.shape[:2], *rows.shape)  # members, trees, folds, held out
        n_some, members = min(ROWS_TO_DISAGREE_ON, rows.shape[1]), range(len(rows))

        def samples(member: int, fold: int, n: int) -> LeafSamples:
            return LeafSamples.create(y[found[member, :, fold, :n]], n_parts)

        return cls(
            forests,
            stack([samples(own, own, rows.shape[1]) for own in members]),
            stack([stack([samples(own, fold, n_some) for own in members]) for fold in members]),
        )

    def __getitem__(self, members: Int[np.ndarray, " _"]) -> "GrownForests":
        """Forests of some members, at the rows that these hold out."""
        samples, of_all = jax.tree.map(lambda leaf: leaf[members], (self.samples, self.of_all))
        of_all = jax.tree.map(lambda leaf: leaf[:, members], of_all)
        return GrownForests(self.forests[members], samples, of_all)


@final
@dataclass(frozen=True, eq=False)
class MemberForests:
    """Forests of all members, and their share in the mixture."""

    forests: Forests
    share: float
    factor: float
    """Factor on the scales of their components."""

    def with_rows(
        self,
        X: Float[np.ndarray, "rows features"],
        weight: Float[np.ndarray, " rows"],
        first: int,
        n_before: int,
    ) -> "MemberForests":
        """Forests with more rows in their leaves: `Forests.with_rows`."""
        return replace(self, forests=self.forests.with_rows(X, weight, first, n_before))

    def mixed_with(
        self,
        found: LocalPosterior,
        X: Float[np.ndarray, "rows features"],
        y: Float[np.ndarray, "learned outputs"],
        prior_variance: float,
        edges: Edges,
        beyond: Float[Array | np.ndarray, "rows reals"] | None,
    ) -> LocalPosterior:
        """Mixture of the networks' predictions ``found`` with those of the forests.

        The forest of a member follows its network, as a member of the same weight.
        """
        n_parts = found.dist.log_weight.shape[-1]

        def predict(block: tuple[LeafSamples, Array, Array | None]) -> WeightedStudentT:
            return forest_densities(*block, edges, prior_variance, np.float32(self.factor))

        gate = np.asarray(found.gate).mean(axis=0).astype(np.float32)
        dist = by_blocks(predict, (self._samples_at(X, y, n_parts), gate, beyond), axis=1)
        own = np.log([1 - self.share, self.share]) + np.log(2)  # as members have the same weight

        def interleave(of_networks: np.ndarray, of_forests: np.ndarray) -> np.ndarray:
            both = np.stack([of_networks, of_forests], axis=1)
            return both.reshape(-1, *both.shape[2:])

        both = jax.tree.map(interleave, found.dist, dist)
        log_weight = both.log_weight + np.tile(own, len(found.count)).reshape(-1, 1, 1, 1)
        twice = jax.tree.map(lambda leaf: np.repeat(leaf, 2, axis=0), found)
        both = eqx.tree_at(lambda dist: dist.log_weight, both, log_weight)
        return eqx.tree_at(lambda rows: rows.dist, twice, both)

    def _samples_at(
        self, X: Float[np.ndarray, "rows features"], y: np.ndarray, n_parts: int
    ) -> LeafSamples:
        """Samples with leaves (rows, members, outputs, parts)."""
        blocks = []
        for first in range(0, len(X), ROWS_PER_CALL):
            found = self.forests.rows_at(X[first : first + ROWS_PER_CALL])
            blocks.append(stack([LeafSamples.create(y[rows], n_parts) for rows in found], axis=1))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)

    def leaf_rows(self, X: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, "rows trees"]:
        """Training rows to which the trees of all members send every row."""
        return self.forests.rows_at(X).reshape(-1, len(X)).T

    def check(self) -> None:
        """Raise ValueError unless share and factor are possible ones."""
        if not (0 < self.share < 1 and 0 < self.factor < np.inf):
            raise ValueError(f"forests have the share {self.share} and the factor {self.factor}")


def forest_density(samples: LeafSamples) -> WeightedStudentT:
    """Density of forests on the data, before a factor on their scales."""
    # A group has so few values that a variance of nearly 0 may be chance.
    variance = jnp.asarray(samples.variance)
    variance = 0.8 * variance + 0.2 * jnp.mean(variance, axis=-1, keepdims=True)
    scale = jnp.sqrt((variance + LEAST_STD**2) * (DF - 2) / DF)
    components = StudentT(jnp.asarray(samples.mean), jnp.full_like(scale, DF), scale)
    return WeightedStudentT(components, jnp.full_like(scale, -np.log(scale.shape[-1])))


@compiled
def forest_densities(
    samples: LeafSamples,
    gate: Float[Array, " rows"],
    beyond: Float[Array, "rows reals"] | None,
    edges: Edges,
    prior_variance: float,
    factor: Float[Array | np.ndarray, ""],
) -> WeightedStudentT:
    """Densities of all members, also off the data: leaves (members, rows, outputs, parts)."""

    def predict(samples: LeafSamples) -> WeightedStudentT:
        dist = forest_density(samples).widen(factor)
        return edges.apply(dist, gate, beyond, prior_variance)

    return jax.vmap(predict, in_axes=1)(samples)


def pool(
    networks: WeightedStudentT, forests: WeightedStudentT, share: Float[Array, ""]
) -> WeightedStudentT:
    """Mixture of two densities, of which the second has the share."""
    logs = jnp.log1p(-share), jnp.log(share)
    parts = [
        eqx.tree_at(lambda d: d.log_weight, dist, dist.log_weight + log)
        for dist, log in zip((networks, forests), logs, strict=True)
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *parts)


@compiled
def mix(
    validated: HeldOutPredictions,
    samples: LeafSamples,
    of_all: LeafSamples,
    repeats: bool,
    recalibrates: bool,
    may_narrow: bool,
) -> tuple[Recalibration, Float[Array, ""], Float[Array, ""], WeightedStudentT]:
    """Choose the share of the forests with the best validation score, then one factor for both.

    ``samples`` and ``of_all`` are those of `GrownForests`; ``validated`` has the same of the
    networks. Where values of the target repeat, the score is the CRPS, which peaks on single
    values do not lower. Unless validation rows ``may_narrow`` predictions, no network becomes
    narrower than it was, nor its forest with it.

    Returns
    -------
    Recalibration of the networks; share of the forests, 0 if their gain does not exceed its
    standard error; factor on their scales; pooled densities of the rows that members hold out, with
    leaves (members, held out, ...) and the components of the forests last.
    """

    def score(dist: WeightedStudentT) -> Float[Array, " rows"]:
        found = -dist.rough_crps(y) if repeats else dist.log_prob(y)
        return jnp.sum(found, axis=-1)

    own = best_factor_and_tails(validated) if recalibrates else Recalibration.none()
    dist, y, weight = validated.flat()
    networks = own.applied_to(dist)
    forests = forest_density(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples))
    fit = covering_factor if repeats else best_scale_factor
    factor = fit(forests, y, weight)
    forests = forests.widen(factor)
    alone = score(networks)

    def gain(share: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Gain in the mean score, and its standard error."""
        gains = jnp.where(weight > 0, score(pool(networks, forests, share)) - alone, 0.0)
        mean = jnp.sum(weight * gains) / jnp.sum(weight)
        return mean, jnp.sqrt(jnp.sum((weight * (gains - mean)) ** 2)) / jnp.sum(weight)

    shares = jnp.asarray(SHARES, y.dtype)
    gains, errors = lax.map(gain, shares)
    best = jnp.argmax(jnp.where(jnp.isnan(gains), -jnp.inf, gains))
    share = jnp.where(gains[best] > errors[best], shares[best], 0.0)

    both, total = pool(networks, forests, share), jnp.asarray(own.factor)
    if recalibrates:
        single = covering_factor(both, y, weight)
        others = forest_density(of_all).widen(factor)
        others = pool(own.applied_to(validated.of_all), others, share)
        common = factor_of_mixture(single, others, validated.is_row)
        total = trusted(common * own.factor, validated.weight)
        total = total if may_narrow else jnp.maximum(total, 1.0)
    common, shape = total / own.factor, validated.weight.shape
    dist = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), both.widen(common))
    recalibration = Recalibration(total, own.most_df, own.shrinkage)
    return recalibration, share, common * factor, dist
