"""A forest beside the network of every member, mixed in where held-out rows ask for it.

Networks are smooth functions of all features at once, trees steps along single ones: each is better
on some tables, and the mixture of both is often better than either. A member's forest learns
from the rows that its network learns from, so that the rows that the member holds out are new to
both.
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
from sigmax.compilation import compiled
from sigmax.distributions import StudentT
from sigmax.estimators.blocks import ROWS_PER_CALL, by_blocks
from sigmax.estimators.recalibration import (
    ROWS_TO_DISAGREE_ON,
    HeldOutPredictions,
    Recalibration,
    best_factor_and_tails,
    covering_factor,
    factor_of_mixture,
    trusted,
)
from sigmax.files import take_array
from sigmax.forests import Forests
from sigmax.networks import Edges, LocalPosterior, WeightedStudentT
from sigmax.training import Fold

__all__ = ["GrownForests", "MemberForests"]

ROWS_IN_TREES = 2**20
"""Rows that all trees together are grown on, at most, unless that leaves few trees."""

FEWEST_TREES = 8

DF = 5.0
"""Degrees of freedom of a forest's components."""

LEAST_STD = 1e-3
"""Of a forest's components, in standard deviations of y."""

SHARES = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
"""Of the forests in the mixture: what held-out rows choose from, beside none."""


@final
class Draws(eqx.Module):
    """What the trees of forests name, in groups from the lowest to the highest value."""

    mean: Float[Array | np.ndarray, "*rows outputs parts"]
    variance: Float[Array | np.ndarray, "*rows outputs parts"]

    @classmethod
    def create(cls, y: Float[np.ndarray, "trees rows outputs"], n_parts: int) -> "Draws":
        """Groups of equally many values.

        Examples
        --------
        >>> draws = Draws.create(np.array([3.0, 0.0, 5.0, 1.0]).reshape(4, 1, 1), 2)
        >>> draws.mean.tolist(), draws.variance.tolist()
        ([[[0.5, 4.0]]], [[[0.25, 1.0]]])
        """
        groups = np.split(np.sort(y, axis=0), n_parts)
        return cls(
            np.stack([group.mean(axis=0) for group in groups], axis=-1),
            np.stack([group.var(axis=0) for group in groups], axis=-1),
        )


def stack(draws: Sequence[Draws], axis: int = 0) -> Draws:
    """Draws of several members, or at several sets of rows, along a new axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis).astype(np.float32), *draws)


@final
@dataclass(frozen=True, eq=False)
class GrownForests:
    """Forests of all members, before anybody has judged them: nothing of it waits for networks."""

    forests: Forests
    draws: Draws
    """Of every member at the rows that it holds out: leaves (members, held out, outputs, parts)."""
    of_all: Draws
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
        """Forests of ``n_trees``, or a few less, so that every part of what they name has as many.

        ``folds`` are arrays of NumPy: it can be done beside a training.
        """
        learned = [np.flatnonzero(row[: len(X)]) for row in folds.weight]
        n_rows = sum(len(rows) for rows in learned)
        n_trees = min(n_trees, max(FEWEST_TREES, ROWS_IN_TREES // n_rows))
        n_trees = n_parts * max(1, n_trees // n_parts)
        rows = np.asarray(folds.validation)
        asked = X[rows.reshape(-1)]
        forests, named = Forests.grow(X, y, weight, learned, n_trees, rng, asked)
        named = named.reshape(*named.shape[:2], *rows.shape)  # members, trees, folds, held out
        n_some, members = min(ROWS_TO_DISAGREE_ON, rows.shape[1]), range(len(rows))

        def draws(member: int, fold: int, n: int) -> Draws:
            return Draws.create(y[named[member, :, fold, :n]], n_parts)

        return cls(
            forests,
            stack([draws(own, own, rows.shape[1]) for own in members]),
            stack([stack([draws(own, fold, n_some) for own in members]) for fold in members]),
        )

    def __getitem__(self, members: Int[np.ndarray, " _"]) -> "GrownForests":
        """Those of some members, and of what these hold out."""
        draws, of_all = jax.tree.map(lambda leaf: leaf[members], (self.draws, self.of_all))
        of_all = jax.tree.map(lambda leaf: leaf[:, members], of_all)
        return GrownForests(self.forests[members], draws, of_all)


@final
@dataclass(frozen=True, eq=False)
class MemberForests:
    """Forests of all members, and how much they count in the mixture."""

    forests: Forests
    share: float
    factor: float
    """On the scales of their components."""

    @classmethod
    def fit(
        cls,
        grown: GrownForests,
        judged: HeldOutPredictions,
        *,
        repeats: bool,
        recalibrates: bool,
        may_narrow: bool,
    ) -> "tuple[MemberForests | None, Mixed]":
        """The forests if they make held-out rows likelier, and what these rows decided.

        A tie is no forest: the gain has to exceed its standard error.
        """
        draws = grown.draws, grown.of_all
        found = mix(judged, *draws, repeats, recalibrates, may_narrow)
        share, factor = float(found.share), float(found.factor)
        return (cls(grown.forests, share, factor) if share else None), found

    def with_rows(
        self,
        X: Float[np.ndarray, "rows features"],
        weight: Float[np.ndarray, " rows"],
        first: int,
        n_before: int,
    ) -> "MemberForests":
        """The forests with more rows in their leaves: `Forests.with_rows`."""
        grown = self.forests.with_rows(X, weight, first, n_before)
        return MemberForests(grown, self.share, self.factor)

    def beside(
        self,
        found: LocalPosterior,
        X: Float[np.ndarray, "rows features"],
        y: Float[np.ndarray, "learned outputs"],
        prior_variance: float,
        edges: Edges,
        beyond: Float[Array | np.ndarray, "rows reals"] | None,
    ) -> LocalPosterior:
        """What networks say of some rows, with what the forests say as members of their own.

        The forest of a member follows its network.
        """
        n_parts = found.dist.log_weight.shape[-1]

        def predict(block: tuple[Draws, Array, Array | None]) -> WeightedStudentT:
            return forest_densities(*block, edges, prior_variance, np.float32(self.factor))

        gate = np.asarray(found.gate).mean(axis=0).astype(np.float32)
        dist = by_blocks(predict, (self._draws_at(X, y, n_parts), gate, beyond), axis=1)
        own = np.log([1 - self.share, self.share]) + np.log(2)  # as members have the same weight

        def interleave(of_networks: np.ndarray, of_forests: np.ndarray) -> np.ndarray:
            both = np.stack([of_networks, of_forests], axis=1)
            return both.reshape(-1, *both.shape[2:])

        both = jax.tree.map(interleave, found.dist, dist)
        log_weight = both.log_weight + np.tile(own, len(found.count)).reshape(-1, 1, 1, 1)
        twice = jax.tree.map(lambda leaf: np.repeat(leaf, 2, axis=0), found)
        both = eqx.tree_at(lambda dist: dist.log_weight, both, log_weight)
        return eqx.tree_at(lambda rows: rows.dist, twice, both)

    def _draws_at(
        self, X: Float[np.ndarray, "rows features"], y: np.ndarray, n_parts: int
    ) -> Draws:
        """Leaves (rows, members, outputs, parts)."""
        blocks = []
        for first in range(0, len(X), ROWS_PER_CALL):
            named = self.forests.rows_at(X[first : first + ROWS_PER_CALL])
            blocks.append(stack([Draws.create(y[rows], n_parts) for rows in named], axis=1))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)

    def named(self, X: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, "rows trees"]:
        """The training rows that the trees of all members name for every row."""
        return self.forests.rows_at(X).reshape(-1, len(X)).T

    def state(self) -> dict[str, np.ndarray]:
        """All that a saved model needs of it."""
        return self.forests.state() | {"forests.mixing": np.array([self.share, self.factor])}

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], n_members: int, n_rows: int, n_features: int
    ) -> "MemberForests | None":
        """What `state` was taken from; None if there were no forests."""
        if "forests.mixing" not in arrays:
            return None
        forests = Forests.from_state(arrays, n_members, n_rows, n_features)
        share, factor = take_array(arrays, "forests.mixing", (2,)).tolist()
        if not (0 < share < 1 and 0 < factor < np.inf):
            raise ValueError(f"forests.mixing is {share}, {factor}")
        return cls(forests, share, factor)


def forest_density(draws: Draws, factor: Float[Array, ""]) -> WeightedStudentT:
    """One forest's density on the data."""
    # No group has so few values that a variance of nearly 0 would have to be believed.
    variance = jnp.asarray(draws.variance)
    variance = 0.8 * variance + 0.2 * jnp.mean(variance, axis=-1, keepdims=True)
    scale = jnp.sqrt((variance + LEAST_STD**2) * (DF - 2) / DF)
    n_parts = scale.shape[-1]
    components = StudentT(jnp.asarray(draws.mean), jnp.full_like(scale, DF), scale)
    dist = WeightedStudentT(components, jnp.full_like(scale, -np.log(n_parts)))
    return dist.widen(factor)


@compiled
def forest_densities(
    draws: Draws,
    gate: Float[Array, " rows"],
    beyond: Float[Array, "rows reals"] | None,
    edges: Edges,
    prior_variance: float,
    factor: Float[Array | np.ndarray, ""],
) -> WeightedStudentT:
    """Densities of all members, also off the data: leaves (members, rows, outputs, parts)."""

    def predict(draws: Draws) -> WeightedStudentT:
        dist = forest_density(draws, jnp.asarray(factor))
        return edges.apply(dist, gate, beyond, prior_variance)

    return jax.vmap(predict, in_axes=1)(draws)


def pool(
    networks: WeightedStudentT, forests: WeightedStudentT, share: Float[Array, ""]
) -> WeightedStudentT:
    """The mixture of two densities; the second has the share."""
    logs = jnp.log1p(-share), jnp.log(share)
    parts = [
        eqx.tree_at(lambda d: d.log_weight, dist, dist.log_weight + log)
        for dist, log in zip((networks, forests), logs, strict=True)
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *parts)


@final
class Mixed(eqx.Module):
    """What held-out rows say about networks and forests together."""

    recalibration: Recalibration
    """Of the networks."""
    share: Float[Array, ""]
    """Of the forests; 0 for none."""
    factor: Float[Array, ""]
    """On the forests' scales."""
    mean: Float[Array, "members held_out outputs"]
    variance: Float[Array, "members held_out outputs"]


@compiled
def mix(
    judged: HeldOutPredictions,
    draws: Draws,
    of_all: Draws,
    repeats: bool,
    recalibrates: bool,
    may_narrow: bool,
) -> Mixed:
    """The share of the forests that makes held-out rows likeliest, then one factor for both.

    ``draws`` are those of the rows that members hold out, ``of_all`` those of all members at some
    rows, as `HeldOutPredictions` has them of the networks. A target that ``repeats`` has the
    share with the least CRPS, which peaks on single values do not lower. Unless held-out rows
    ``may_narrow`` predictions, no network becomes narrower than it was, nor its forest with it.
    """

    def density(draws: Draws) -> WeightedStudentT:
        """Leaves (rows, outputs, parts)."""
        return forest_density(draws, jnp.ones(()))

    def score(dist: WeightedStudentT) -> Float[Array, " rows"]:
        found = -dist.rough_crps(y) if repeats else dist.log_prob(y)
        return jnp.sum(found, axis=-1)

    own = best_factor_and_tails(judged) if recalibrates else Recalibration.none()
    networks, forests = flat(own.applied_to(judged.dist)), flat(jax.vmap(density)(draws))
    y, weight = judged.y.reshape(-1, judged.y.shape[-1]), judged.weight.reshape(-1)
    fit = covering_factor if repeats else best_scale_factor
    factor = fit(forests, y, weight)
    forests = forests.widen(factor)
    alone = score(networks)

    def gain(share: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Of the mean score, and its standard error."""
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
        others = jax.vmap(jax.vmap(density))(of_all).widen(factor)
        others = pool(own.applied_to(judged.of_all), others, share)
        common = factor_of_mixture(single, others, judged.is_row)
        total = trusted(common * own.factor, judged.weight)
        total = total if may_narrow else jnp.maximum(total, 1.0)
    common, shape = total / own.factor, judged.y.shape
    both, found = both.widen(common), Recalibration(total, own.most_df, own.shrinkage)
    return Mixed(
        found, share, common * factor, both.mean.reshape(shape), both.variance.reshape(shape)
    )


def flat(dist: WeightedStudentT) -> WeightedStudentT:
    """Rows of all members, one after the other."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), dist)
