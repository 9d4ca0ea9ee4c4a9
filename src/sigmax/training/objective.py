"""Objectives and scores: a network and a batch in, one number per row out.

All take the whole data as well, for objectives that look at other rows than the batch's own.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sigmax.networks import DropoutNetwork, FlipoutNetwork, VarianceNetwork
from sigmax.training.data import Batch, TrainingData

__all__ = [
    "dropout_error",
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
    return misfit + network.divergence() / jnp.max(data.n_rows)


def mean_weights_log_likelihood(network: FlipoutNetwork, batch: Batch, data: TrainingData) -> Rows:
    """Log density of every row at the mean weights."""
    return jnp.sum(network(batch.X, None).log_prob(batch.y), axis=1)
