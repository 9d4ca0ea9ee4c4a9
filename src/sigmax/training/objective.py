"""Objectives and scores: a network and a batch in, one number per row out.

All take the whole data as well, for objectives that look at other rows than the batch's own.
"""

from dataclasses import dataclass
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from sigmax.inputs import Inputs
from sigmax.networks import (
    DropoutNetwork,
    FlipoutNetwork,
    LocalNetwork,
    VarianceNetwork,
    WeightedStudentT,
    weighted_sums,
)
from sigmax.training.data import Batch, TrainingData

__all__ = [
    "LeaveOneOut",
    "beta_negative_log_likelihood",
    "dropout_error",
    "faithful_error",
    "held_out_density",
    "log_likelihood",
    "mean_weights_log_likelihood",
    "negative_elbo",
    "negative_log_likelihood",
    "negative_squared_error",
    "squared_error",
]

RowValues = Float[Array, " batch"]

LARGEST_MEMORY = 2**16
"""Slots of training rows that held-out rows are scored with, at most."""


def log_likelihood(network: VarianceNetwork, batch: Batch, data: TrainingData) -> RowValues:
    """Log density of every row; outputs are independent given x, so theirs add up."""
    return jnp.sum(network(batch.X, batch.own_center).log_prob(batch.y), axis=1)


def negative_log_likelihood(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    return -log_likelihood(network, batch, data)


def beta_negative_log_likelihood(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    """Each row's misfit times its standard deviation, taken as given (Seitzer 2022, β = ½)."""
    dist = network(batch.X, batch.own_center)
    return -jnp.sum(lax.stop_gradient(dist.std) * dist.log_prob(batch.y), axis=1)


def faithful_error(network: VarianceNetwork, batch: Batch, data: TrainingData) -> RowValues:
    """Squared error for the mean, misfit around it as it is for the variance (Stirn 2023)."""
    dist = network(batch.X, batch.own_center)
    fixed = eqx.tree_at(lambda d: d.mean, dist, lax.stop_gradient(dist.mean))
    return squared_error(network, batch, data) - jnp.sum(fixed.log_prob(batch.y), axis=1)


def squared_error(
    network: VarianceNetwork | DropoutNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    """Half the squared error of the mean network alone: the likelihood of one common variance."""
    return 0.5 * jnp.sum((batch.y - network.mean(batch.X)) ** 2, axis=1)


def negative_squared_error(
    network: VarianceNetwork | DropoutNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    return -squared_error(network, batch, data)


def dropout_error(network: DropoutNetwork, batch: Batch, data: TrainingData) -> RowValues:
    """Half the squared error under a fresh mask for every row."""
    assert batch.key is not None
    return 0.5 * jnp.sum((batch.y - network(batch.X, batch.key)) ** 2, axis=1)


def negative_elbo(network: FlipoutNetwork, batch: Batch, data: TrainingData) -> RowValues:
    """The negative evidence lower bound per row: expected misfit, plus the divergence over n.

    n is the number of rows that the member learns from, without those that it holds out. The
    weights of a batch sum to 1 in the mean, so the divergence may stand in every row.
    """
    assert batch.key is not None and batch.n_learned is not None
    misfit = -jnp.sum(network(batch.X, batch.key).log_prob(batch.y), axis=1)
    return misfit + network.divergence() / batch.n_learned


def mean_weights_log_likelihood(
    network: FlipoutNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    """Log density of every row at the mean weights."""
    return jnp.sum(network(batch.X, None).log_prob(batch.y), axis=1)


@final
@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out negative log-likelihood of queries, given all other rows of the batch.

    The batch holds whole lists of the graph "context", nearest rows first. The first rows of each
    list, as many as the lists of the graph "queries" have, are the queries: a row at the rim of a
    neighbourhood has few of its own neighbours in the batch. No row contributes to its own
    prediction, nor twice to another, and held-out rows do not contribute. ``error_weight`` adds the
    squared error of the mean, and half of that of the prior mean.
    """

    n_primary: int
    error_weight: float

    def __call__(self, network: LocalNetwork, batch: Batch, data: TrainingData) -> RowValues:
        queries, context = data.graphs["queries"], data.graphs["context"]
        if len(batch.index) != self.n_primary * context.n_neighbors:  # then lists keep their order
            raise ValueError("A leave-one-out batch must hold whole lists of the context.")
        lists = jnp.arange(len(batch.index)).reshape(self.n_primary, context.n_neighbors)
        position = lists[:, : queries.n_neighbors].reshape(-1)
        is_same = batch.index[:, None] == batch.index[None]
        is_repeat = jnp.any(jnp.tril(is_same, -1), axis=1)
        own = jnp.where(batch.weight > 0, data.weight[batch.group, batch.index], 0.0)
        contribution = jnp.where(is_repeat, 0.0, own)

        rows, y = network.embed(batch.X), batch.y[position]
        weights = network.kernel_weights(rows.coordinates[position], rows.coordinates)
        weights = weights * contribution[None]
        weights = jnp.where(is_same[position], 0.0, weights)
        residuals = batch.y - lax.stop_gradient(rows.mean)
        prior = network.prior(jax.tree.map(lambda part: part[position], rows))
        mean = rows.mean[position]
        dist = network.update(prior, weighted_sums(weights, residuals), mean).dist
        error = (y - dist.mean) ** 2 + 0.5 * (y - mean) ** 2
        misfit = self.error_weight * error - dist.log_prob(y)
        # The batch is weighted as if all its rows were queries, which are drawn less often.
        index = batch.index[position]
        counts = [graph.counts[batch.group, index] for graph in (context, queries)]
        losses = jnp.sum(misfit, axis=1) * counts[0] / counts[1]
        return jnp.zeros(len(batch.index)).at[position].set(losses)


def held_out_density(network: LocalNetwork, batch: Batch, data: TrainingData) -> WeightedStudentT:
    """The predictive density of held-out rows given all others.

    Of very many rows, only their neighbours in input space contribute: the graph "context".
    """
    group = batch.group
    is_held_out = jnp.zeros(data.n_slots).at[batch.index].max(batch.weight > 0)
    X, y, weight = data.X[group], data.y[group], data.weight[group] * (1 - is_held_out)
    if data.n_slots <= LARGEST_MEMORY:
        return network(batch.X, network.embed_training_set(X, y, weight)).dist
    lists = data.graphs["context"].neighbors[group, batch.index]

    def predict(x: Inputs, neighbors: Int[Array, " k"]) -> WeightedStudentT:
        training_set = network.embed_training_set(X[neighbors], y[neighbors], weight[neighbors])
        return jax.tree.map(lambda leaf: leaf[0], network(x[None], training_set).dist)

    return jax.vmap(predict)(batch.X, lists)
