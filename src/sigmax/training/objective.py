"""Objectives and scores: a network and a batch in, one number per row out.

All take the whole data as well, for objectives that look at other rows than the batch's own.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from sigmax.networks import DropoutNetwork, FlipoutNetwork, VarianceNetwork
from sigmax.training.data import Batch, TrainingData

__all__ = [
    "beta_negative_log_likelihood",
    "dropout_error",
    "faithful_error",
    "log_likelihood",
    "mean_weights_log_likelihood",
    "negative_evidence",
    "negative_log_likelihood",
    "negative_squared_error",
    "squared_error",
]

Rows = Float[Array, " batch"]


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
    """The negative evidence lower bound per row: expected misfit, plus the divergence over N.

    The weights of a batch sum to 1 in the mean, so the divergence may stand in every row.
    """
    assert batch.key is not None
    misfit = -jnp.sum(network(batch.X, batch.key).log_prob(batch.y), axis=1)
    return misfit + network.divergence() / data.n_rows[batch.group]


def mean_weights_log_likelihood(network: FlipoutNetwork, batch: Batch, data: TrainingData) -> Rows:
    """Log density of every row at the mean weights."""
    return jnp.sum(network(batch.X, None).log_prob(batch.y), axis=1)
