"""Objectives and scores: a network and a batch in, one number per row out.

All take the whole data as well, for objectives that look at other rows than the batch's own.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from sigmax.networks import (
    DropoutNetwork,
    Evidence,
    FlipoutNetwork,
    LocalNetwork,
    VarianceNetwork,
    sum_up,
)
from sigmax.training.data import Batch, TrainingData

__all__ = [
    "LeaveOneOut",
    "beta_negative_log_likelihood",
    "dropout_error",
    "faithful_error",
    "held_out_evidence",
    "local_log_likelihood",
    "log_likelihood",
    "mean_weights_log_likelihood",
    "negative_evidence",
    "negative_log_likelihood",
    "negative_squared_error",
    "squared_error",
]

Rows = Float[Array, " batch"]

LARGEST_MEMORY = 2**16
"""Slots of training rows that held-out rows are scored with, at most."""


def log_likelihood(network: VarianceNetwork, batch: Batch, data: TrainingData) -> Rows:
    """Log density of every row; outputs are independent given x, so theirs add up."""
    return jnp.sum(network(batch.X, batch.own_center).log_prob(batch.y), axis=1)


def negative_log_likelihood(network: VarianceNetwork, batch: Batch, data: TrainingData) -> Rows:
    return -log_likelihood(network, batch, data)


def beta_negative_log_likelihood(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> Rows:
    """Each row's misfit times its standard deviation, taken as given (Seitzer 2022, β = ½)."""
    dist = network(batch.X, batch.own_center)
    return -jnp.sum(lax.stop_gradient(dist.std) * dist.log_prob(batch.y), axis=1)


def faithful_error(network: VarianceNetwork, batch: Batch, data: TrainingData) -> Rows:
    """Squared error for the mean, misfit around it as it is for the variance (Stirn 2023)."""
    dist = network(batch.X, batch.own_center)
    fixed = eqx.tree_at(lambda d: d.mean, dist, lax.stop_gradient(dist.mean))
    return squared_error(network, batch, data) - jnp.sum(fixed.log_prob(batch.y), axis=1)


def squared_error(
    network: VarianceNetwork | DropoutNetwork, batch: Batch, data: TrainingData
) -> Rows:
    """Half the squared error of the mean network alone: the likelihood of one common variance."""
    return 0.5 * jnp.sum((batch.y - network.mean(batch.X)) ** 2, axis=1)


def negative_squared_error(
    network: VarianceNetwork | DropoutNetwork, batch: Batch, data: TrainingData
) -> Rows:
    return -squared_error(network, batch, data)


def dropout_error(network: DropoutNetwork, batch: Batch, data: TrainingData) -> Rows:
    """Half the squared error under a fresh mask for every row."""
    assert batch.key is not None
    return 0.5 * jnp.sum((batch.y - network(batch.X, batch.key)) ** 2, axis=1)


def negative_evidence(network: FlipoutNetwork, batch: Batch, data: TrainingData) -> Rows:
    """The negative evidence lower bound per row: expected misfit, plus the divergence over n.

    n is the number of rows that the member learns from, without those that it holds out. The
    weights of a batch sum to 1 in the mean, so the divergence may stand in every row.
    """
    assert batch.key is not None and batch.n_learned is not None
    misfit = -jnp.sum(network(batch.X, batch.key).log_prob(batch.y), axis=1)
    return misfit + network.divergence() / batch.n_learned


def mean_weights_log_likelihood(network: FlipoutNetwork, batch: Batch, data: TrainingData) -> Rows:
    """Log density of every row at the mean weights."""
    return jnp.sum(network(batch.X, None).log_prob(batch.y), axis=1)


@dataclass(frozen=True)
class LeaveOneOut:
    """Misfit of rows in the middle of their neighbourhoods, by what all others of the batch say.

    The batch holds whole neighbourhoods. Rows at their rim see only some of those who would speak
    for them later: they speak, and are not asked. Nobody speaks for themselves, nor twice, and
    held-out rows not at all. ``error_weight`` adds the squared error of the mean, and half of it
    for the prior mean alone.
    """

    n_primary: int
    asked: int
    """The graph of those who are asked: shorter lists of the same neighbours."""
    everybody: int
    """The graph of the batch."""
    error_weight: float

    def __call__(self, network: LocalNetwork, batch: Batch, data: TrainingData) -> Rows:
        graphs, k = data.graphs, data.graphs[self.asked].neighbors.shape[-1]
        position = jnp.arange(len(batch.index)).reshape(self.n_primary, -1)[:, :k].reshape(-1)
        is_same = batch.index[:, None] == batch.index[None]
        is_repeat = jnp.any(jnp.tril(is_same, -1), axis=1)
        own = jnp.where(batch.weight > 0, data.weight[batch.group, batch.index], 0.0)
        voice = jnp.where(is_repeat, 0.0, own)

        view, y = network.see(batch.X), batch.y[position]
        weights = network.weights(view.places[position], view.places) * voice[None]
        weights = jnp.where(is_same[position], 0.0, weights)
        residuals = batch.y - lax.stop_gradient(view.mean)
        prior = network.prior(jax.tree.map(lambda part: part[position], view))
        dist = network.update(prior, sum_up(weights, residuals)).dist
        error = (y - dist.mean) ** 2 + 0.5 * (y - prior.mean) ** 2
        misfit = self.error_weight * error - dist.log_prob(y)
        # The batch is weighted as if all its rows were asked; those who are, are drawn less often.
        index = batch.index[position]
        counts = [graphs[g].counts[batch.group, index] for g in (self.everybody, self.asked)]
        losses = jnp.sum(misfit, axis=1) * counts[0] / counts[1]
        return jnp.zeros(len(batch.index)).at[position].set(losses)


def held_out_evidence(network: LocalNetwork, batch: Batch, data: TrainingData) -> Evidence:
    """The prediction for held-out rows by all that are not held out.

    Of very many rows, only their neighbours in input space are asked: the last graph of the data.
    """
    group = batch.group
    is_held_out = jnp.zeros(data.n_slots).at[batch.index].max(batch.weight > 0)
    X, y, weight = data.X[group], data.y[group], data.weight[group] * (1 - is_held_out)
    if data.n_slots <= LARGEST_MEMORY:
        return network(batch.X, network.remember(X, y, weight))
    lists = data.graphs[-1].neighbors[group, batch.index]

    def predict(x: Float[Array, " features"], neighbors: Int[Array, " k"]) -> Evidence:
        memory = network.remember(X[neighbors], y[neighbors], weight[neighbors])
        return jax.tree.map(lambda leaf: leaf[0], network(x[None], memory))

    return jax.vmap(predict)(batch.X, lists)


def local_log_likelihood(network: LocalNetwork, batch: Batch, data: TrainingData) -> Rows:
    """Log density of held-out rows by what all others say."""
    return jnp.sum(held_out_evidence(network, batch, data).dist.log_prob(batch.y), axis=1)
