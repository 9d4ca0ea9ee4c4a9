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
from dataclasses import dataclass
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from sigmax.calibration import best_scale_factor
from sigmax.compilation import ROWS_PER_CALL, by_blocks, compiled
from sigmax.distributions import StudentT
from sigmax.experts.ensemble import (
    ROWS_TO_DISAGREE_ON,
    HeldOutPredictions,
    Recalibration,
    best_factor_and_tails,
    covering_factor,
    factor_of_mixture,
    trusted,
)
from sigmax.experts.forest import Forests
from sigmax.experts.local.network import Edges, LocalPosterior, WeightedStudentT
from sigmax.training import Fold

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
    """Samples at the rows that each member holds out: leaves (members, held out, ...)."""
    of_all: LeafSamples
    """Samples of all members at some rows of every fold: leaves (folds, members, some, ...)."""

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
        total = trusted(common * own.factor, validated.weight, may_narrow)
    common, shape = total / own.factor, validated.weight.shape
    dist = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), both.widen(common))
    recalibration = Recalibration(total, own.most_df, own.shrinkage)
    return recalibration, share, common * factor, dist
