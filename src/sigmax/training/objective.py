"""Objectives and scores: a network and a batch in, one number per row out."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sigmax.networks import VarianceNetwork
from sigmax.training.data import Batch, TrainingData

__all__ = ["log_likelihood", "negative_log_likelihood", "negative_squared_error", "squared_error"]

# All take the whole data as well, for objectives that look at other rows than the batch's own.


def log_likelihood(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> Float[Array, " batch"]:
    """Log density of every row; outputs are independent given x, so theirs add up."""
    return jnp.sum(network(batch.X, batch.own_center).log_prob(batch.y), axis=1)


def negative_log_likelihood(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> Float[Array, " batch"]:
    return -log_likelihood(network, batch, data)


def squared_error(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> Float[Array, " batch"]:
    """Half the squared error of the mean network alone: the likelihood of one common variance."""
    return 0.5 * jnp.sum((batch.y - network.mean(batch.X)) ** 2, axis=1)


def negative_squared_error(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> Float[Array, " batch"]:
    return -squared_error(network, batch, data)
