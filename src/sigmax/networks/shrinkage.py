"""Shrinkage of a prediction towards the marginal of y."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sigmax.networks.weighted_student_t import WeightedStudentT

__all__ = ["toward_prior"]

Dist = Any  # a distribution, or a `WeightedStudentT`: the same comes back


def toward_prior(dist: Dist, shrinkage: Float[Array, ""], prior_variance: float) -> Dist:
    """The density with its mean taken to 0, and its variance to the prior's, by a share.

    In standardised units 0 is the mean of y; a ``shrinkage`` of 0 changes nothing, one of 1 leaves
    nothing of x but the shape of the tails.
    """
    if isinstance(dist, WeightedStudentT):
        return dist.toward(prior_variance, shrinkage)
    widened = dist.widen(jnp.sqrt(1 - shrinkage + shrinkage * prior_variance / dist.variance))
    return eqx.tree_at(lambda d: d.mean, widened, (1 - shrinkage) * dist.mean)
