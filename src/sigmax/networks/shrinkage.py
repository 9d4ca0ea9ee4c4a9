"""Shrinkage of a prediction towards the marginal of y."""

from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sigmax.distributions import AbstractDistribution

__all__ = ["toward_prior"]

D = TypeVar("D", bound=AbstractDistribution)


def toward_prior(dist: D, shrinkage: Float[Array, ""], prior_variance: float) -> D:
    """The density with its mean taken to 0, and its variance to the prior's, by a share.

    In standardised units 0 is the mean of y; a ``shrinkage`` of 0 changes nothing, one of 1 leaves
    nothing of x but the shape of the tails.
    """
    widened = dist.widen(jnp.sqrt(1 - shrinkage + shrinkage * prior_variance / dist.variance))
    return eqx.tree_at(lambda d: d.mean, widened, (1 - shrinkage) * dist.mean)
