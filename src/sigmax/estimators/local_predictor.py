"""Predictions of local networks: kernel sums over all training rows, or over the nearest ones.

An accelerator sums over all rows faster than it could choose among them. On a CPU, the nearest of
many rows are searched in every member's learned metric: the time of a prediction hardly grows with
the number of training rows.
"""

import copy
import math
from functools import partial
from importlib.util import find_spec
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.special import logsumexp

from sigmax.compilation import compiled, on_device
from sigmax.distributions import Mixture
from sigmax.estimators.blocks import by_blocks, on_all_devices, padded
from sigmax.estimators.later_rows import (
    LaterRows,
    posterior_members_with_later,
    predict_members_with_later,
)
from sigmax.estimators.nearest_rows import NearestRows
from sigmax.inputs import Inputs
from sigmax.networks import (
    ROWS_PER_BLOCK,
    EmbeddedRows,
    LocalNetwork,
    LocalPosterior,
    Sums,
    TrainingSet,
    WeightedStudentT,
    sums_over_lists,
)
from sigmax.training import bucket_size, pad_rows

__all__ = ["LocalPredictor", "as_mixture"]

ROWS_AT_ONCE = 1024
"""Rows that are predicted in one call: each looks at a block of training rows in every member."""

LARGEST_EXHAUSTIVE = 2**15
"""On a CPU, sums run over all training rows up to this number."""

LARGEST_SHIFT = 0.03
"""By how much of their standard deviation a search may move predictions, and of itself that
deviation: the root mean square over training rows, each left out. That is a thousandth of a nat."""

SEARCHES = ((64, 16), (64, 32), (256, 16), (256, 32), (256, 64), (1024, 64), (1024, 256))
"""Numbers of neighbours and of cells to search, the cheapest first."""

N_SAMPLED = 256
"""Training rows at which a search is compared with the sums over all rows."""

SMALLEST_COUNT = 1e-3
"""Sums of smaller kernel weights change no prediction."""

SHARES_AT_ONCE = 2**27
"""Contributions of training rows that are held at once to find the largest: 512 MiB."""

MEMBER = eqx.if_array(0)


@final
class LocalPredictor:
    """The members and the training set in their metrics, ready to predict."""

    def __init__(
        self, networks: LocalNetwork, X: Inputs, y: np.ndarray, weight: np.ndarray
    ) -> None:
        self.n_rows = len(X)
        embedded = embed_training_sets(networks, *padded((X, y, weight), slots_for(len(X))))
        self.networks, self.training_sets = on_all_devices((networks, embedded))
        self.nearest = None
        is_large = self.n_rows > LARGEST_EXHAUSTIVE and jax.default_backend() == "cpu"
        if is_large and find_spec("faiss") is not None:
            self.nearest = self._find_search(X)
        self.n_later, self.later = 0, None

    def with_later(
        self,
        networks: LocalNetwork,
        X: Inputs,
        y: np.ndarray,
        weight: np.ndarray,
        foreign: np.ndarray,
    ) -> "LocalPredictor":
        """The same with rows from after the fit, instead of such rows that it may have.

        ``foreign`` says how far each is off the data of the fit, from 0 to 1. The rows of the fit
        are neither embedded nor indexed again; the number of the later ones is padded, so that one
        more hardly ever compiles anything.
        """
        found = copy.copy(self)
        n_slots = slots_for(len(X), smallest=64)
        embedded = embed_training_sets(networks, *padded((X, y, weight), n_slots))
        foreign = pad_rows(foreign.astype(np.float32), n_slots)
        later = LaterRows(embedded, on_device(np.tile(foreign, (len(networks.factor), 1))))
        found.networks, found.later = on_all_devices((networks, later))
        found.n_later = len(X)
        return found

    def predict(self, X: Inputs) -> LocalPosterior:
        """All members' predictions at standardised rows: leaves (members, rows, ...)."""
        if self.nearest is None and self.later is None:
            predict = partial(predict_members, self.networks, self.training_sets)
        elif self.nearest is None:
            fitted = self.networks, self.training_sets, self.later
            predict = partial(predict_members_with_later, *fitted)
        else:
            predict = self._predict_by_nearest
        return by_blocks(predict, X, axis=1, rows_per_call=ROWS_AT_ONCE)

    def contributors(
        self, X: Inputs, k: int, named: np.ndarray | None = None, share: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k training rows that contribute most to each prediction, and their shares.

        ``named`` are the rows (n, trees) that forests with a ``share`` in the mixture name.
        """
        of_forests, sets = np.float32(share), self.training_sets
        n_slots = sets.weight.shape[1]
        is_row = np.arange(n_slots) < self.n_rows
        if self.later is not None:
            sets = jax.tree.map(partial(both_sets, axis=1), sets, self.later.rows)
            is_later = np.arange(self.later.foreign.shape[1]) < self.n_later
            is_row = np.concatenate([is_row, is_later])
            if named is not None:
                named = np.where(named < self.n_rows, named, named + n_slots - self.n_rows)

        def largest(block: tuple[Inputs, Array | None]) -> tuple[Array, Array]:
            return largest_contributions(self.networks, sets, is_row, k, *block, of_forests)

        n_at_once = SHARES_AT_ONCE // sets.weight.size
        rows_per_call = max(64, min(ROWS_AT_ONCE, 1 << n_at_once.bit_length() >> 1))
        rows, shares = by_blocks(largest, (X, named), axis=0, rows_per_call=rows_per_call)
        return np.where(rows < n_slots, rows, rows - n_slots + self.n_rows), shares

    def _predict_by_nearest(self, X: Inputs) -> LocalPosterior:
        assert self.nearest is not None
        embedded, gates = embed_members(self.networks, X)
        squared, indices = self.nearest(embedded.coordinates)
        sums = list_sums_of_members(self.networks, self.training_sets, squared, indices)
        if self.later is None:
            return posterior_members(self.networks, embedded, gates, sums)
        fitted = self.networks, embedded, gates, sums, self.later
        return posterior_members_with_later(*fitted)

    def _find_search(self, X: Inputs) -> NearestRows | None:
        """The cheapest search that moves predictions little, or None if all of them move much."""
        sample = np.linspace(0, self.n_rows - 1, N_SAMPLED).astype(int)
        embedded, gates = embed_members(self.networks, jax.tree.map(jnp.asarray, X[sample]))
        own = list_sums_of_members(
            self.networks,
            self.training_sets,
            jnp.zeros((len(embedded.coordinates), N_SAMPLED, 1)),
            jnp.broadcast_to(
                jnp.asarray(sample)[:, None], (len(embedded.coordinates), N_SAMPLED, 1)
            ),
        )

        def predict(sums: Sums) -> WeightedStudentT:
            """As for new rows, which do not contribute to their own predictions."""
            others = jax.vmap(without)(sums, own)
            return posterior_members(self.networks, embedded, gates, others).dist

        exhaustive = predict(
            kernel_sums_of_members(self.networks, self.training_sets, embedded.coordinates)
        )
        nearest = NearestRows.build(self.training_sets.coordinates[:, : self.n_rows])
        for k, n_cells in SEARCHES:
            search = nearest.with_size(k, n_cells)
            found = search(embedded.coordinates)
            few = predict(list_sums_of_members(self.networks, self.training_sets, *found))
            shift = (few.mean - exhaustive.mean) / jnp.sqrt(exhaustive.variance)
            stretch = 0.5 * jnp.log(few.variance / exhaustive.variance)
            if max(jnp.mean(shift**2), jnp.mean(stretch**2)) < LARGEST_SHIFT**2:
                return search
        return None


def slots_for(n_rows: int, smallest: int = 256) -> int:
    """Slots for so many rows, of which there are few different numbers."""
    n_slots = bucket_size(n_rows, smallest=smallest)
    if n_slots > ROWS_PER_BLOCK:
        n_slots = math.ceil(n_rows / ROWS_PER_BLOCK) * ROWS_PER_BLOCK
    return n_slots


def both_sets(first: Array, second: Array, axis: int) -> np.ndarray:
    """Rows of two training sets, one after the other."""
    return np.concatenate([np.asarray(first), np.asarray(second)], axis=axis)


def as_mixture(found: LocalPosterior) -> Mixture:
    """The members' predictions as one, each with its uncertainty about its mean."""
    n_members, *batch, n_parts = found.dist.log_weight.shape

    def flat(leaf: Any) -> np.ndarray:
        """Components of all members along the first axis."""
        return np.moveaxis(leaf, -1, 1).reshape(n_members * n_parts, *batch)

    share = np.asarray(found.epistemic_share)[..., None, None]
    log_weight = flat(found.dist.log_weight).astype(np.float64)
    # Weights in single precision add up to 1 ± 2e-6, an error that is multiplied by the mean of y.
    log_weight = log_weight - logsumexp(log_weight, axis=0)
    return Mixture(
        jax.tree.map(flat, found.dist.components),
        flat(np.broadcast_to(share, found.dist.log_weight.shape)),
        log_weight,
        n_parts,
    )


@compiled
def embed_training_sets(
    networks: LocalNetwork,
    X: Inputs,
    y: Float[Array, "slots outputs"],
    weight: Float[Array, " slots"],
) -> TrainingSet:
    """The training set in every member's metric."""

    def embed(network: LocalNetwork) -> TrainingSet:
        return network.embed_training_set(X, y, weight)

    return eqx.filter_vmap(embed, in_axes=(MEMBER,))(networks)


@compiled
def predict_members(
    networks: LocalNetwork, training_sets: TrainingSet, X: Inputs
) -> LocalPosterior:
    """Every member's predictive density in standardised units, by sums over all training rows."""

    def predict(network: LocalNetwork, training_set: TrainingSet) -> LocalPosterior:
        return network(X, training_set)

    return eqx.filter_vmap(predict, in_axes=(MEMBER, 0))(networks, training_sets)


@compiled
def embed_members(
    networks: LocalNetwork, X: Inputs
) -> tuple[EmbeddedRows, Float[Array, "members rows"]]:
    """Some rows in every member's metric, and the gates there."""

    def embed(network: LocalNetwork) -> tuple[EmbeddedRows, Float[Array, " rows"]]:
        return network.embed(X), network.gate_value(X)

    return eqx.filter_vmap(embed, in_axes=(MEMBER,))(networks)


@compiled
def kernel_sums_of_members(
    networks: LocalNetwork,
    training_sets: TrainingSet,
    coordinates: Float[Array, "members rows metric"],
) -> Sums:
    """Sums over the whole training set."""

    def sums(network: LocalNetwork, training_set: TrainingSet, coordinates: Array) -> Sums:
        return network.kernel_sums(coordinates, training_set)

    return eqx.filter_vmap(sums, in_axes=(MEMBER, 0, 0))(networks, training_sets, coordinates)


@compiled
def list_sums_of_members(
    networks: LocalNetwork,
    training_sets: TrainingSet,
    squared: Float[Array, "members rows k"],
    indices: Int[Array, "members rows k"],
) -> Sums:
    """Sums over a list of training rows for every query, at their squared distances."""

    def sums(
        network: LocalNetwork, training_set: TrainingSet, squared: Array, indices: Array
    ) -> Sums:
        weights = network.weights_at(squared) * training_set.weight[indices]
        return sums_over_lists(weights, training_set.residuals[indices])

    return eqx.filter_vmap(sums, in_axes=(MEMBER, 0, 0, 0))(
        networks, training_sets, squared, indices
    )


def without(sums: Sums, own: Sums) -> Sums:
    """Sums without the rows' own contributions."""
    others = jax.tree.map(jnp.subtract, sums, own)
    is_supported = others.count > SMALLEST_COUNT  # the rest is rounding
    return jax.tree.map(
        lambda part: jnp.where(is_supported.reshape(-1, *[1] * (part.ndim - 1)), part, 0.0), others
    )


@compiled
def posterior_members(
    networks: LocalNetwork, embedded: EmbeddedRows, gates: Float[Array, "members rows"], sums: Sums
) -> LocalPosterior:
    """Every member's predictive density in standardised units, from its kernel sums."""
    return eqx.filter_vmap(LocalNetwork.posterior, in_axes=(MEMBER, 0, 0, 0))(
        networks, embedded, gates, sums
    )


@compiled
def largest_contributions(
    networks: LocalNetwork,
    training_sets: TrainingSet,
    is_row: Bool[Array | np.ndarray, " slots"],
    k: int,
    X: Inputs,
    named: Int[Array, "rows trees"] | None,
    of_forests: Float[Array | np.ndarray, ""],
) -> tuple[Int[Array, "rows {k}"], Float[Array, "rows {k}"]]:
    """The k training rows with the largest share in the updated mean, averaged over the members.

    Slots other than ``is_row`` are padding. Rows that trees name share what forests have of the
    mean.
    """

    def share(network: LocalNetwork, training_set: TrainingSet) -> Float[Array, "rows slots"]:
        weights = (
            network.kernel_weights(network.embed(X).coordinates, training_set.coordinates)
            * training_set.weight[None]
        )
        kept = 1 - network.edges.fade * network.gate_value(X) ** 2
        own = jnp.exp(network.kernel.log_prior_rows)
        return weights * (kept / (own + jnp.sum(weights, axis=1)))[:, None]

    shares = jnp.mean(eqx.filter_vmap(share, in_axes=(MEMBER, 0))(networks, training_sets), axis=0)
    if named is not None:
        gates = eqx.filter_vmap(lambda network: network.gate_value(X), in_axes=(MEMBER,))(networks)
        kept = 1 - networks.edges.fade[0] * jnp.mean(gates, axis=0) ** 2
        own = of_forests * kept / named.shape[1]
        shares = jnp.asarray((1 - of_forests) * shares)
        shares = shares.at[jnp.arange(len(named))[:, None], named].add(own[:, None])
    ranked, rows = lax.top_k(jnp.where(is_row[None], shares, -1.0), k)
    return rows, ranked
