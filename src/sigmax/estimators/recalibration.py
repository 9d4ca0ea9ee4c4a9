"""The factor at the end: what the members' held-out rows say about all scales."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from sigmax.calibration import best_scale_factor
from sigmax.training import Fold, TrainingData

__all__ = ["held_out_factor", "mixture_factor", "with_factor"]

MEMBER = eqx.if_array(0)

ROWS_TO_DISAGREE_ON = 256
"""Held-out rows of each member at which all members are compared: a median needs no more."""


def with_factor(networks: Any, factor: Float[Array, ""]) -> Any:
    """The members, each with ``factor`` on its scales."""
    factors = jnp.broadcast_to(factor, networks.factor.shape)
    return eqx.tree_at(lambda n: n.factor, networks, factors)


@eqx.filter_jit
def held_out_factor(
    networks: Any, folds: Fold, data: TrainingData, predict: Callable
) -> Float[Array, ""]:
    """The factor on all scales that suits the members' held-out rows best, each on its own.

    ``predict`` gives a network's density at a batch of rows.
    """

    def judge(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        return predict(network, rows, data), rows.y, rows.weight

    members = eqx.filter_vmap(judge, in_axes=(MEMBER, MEMBER, None))(networks, folds, data)
    pooled = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)
    return best_scale_factor(*pooled)


@eqx.filter_jit
def mixture_factor(
    networks: Any, folds: Fold, data: TrainingData, predict: Callable
) -> Float[Array, ""]:
    """The factor on the members' scales that suits their mixture.

    At new rows a member's squared error is f² times its variance v; f is the `held_out_factor`. Let
    the members' means have the variance d. The mean of them errs by d less than one of them, and
    the mixture is wider than its members by d: they should have the variance f² v − 2 d. The
    factor has the median of d / v for all rows, and takes at most three quarters of f² away.
    """

    def disagree(fold: Fold) -> Float[Array, "rows outputs"]:
        some = (rows[:ROWS_TO_DISAGREE_ON] for rows in (fold.validation, fold.validation_weight))
        rows = data.rows(fold.group, *some)

        def judge(network):
            dist = predict(network, rows, data)
            return dist.mean, dist.variance

        means, variances = eqx.filter_vmap(judge, in_axes=(MEMBER,))(networks)
        ratio = jnp.var(means, axis=0, ddof=1) / jnp.mean(variances, axis=0)
        return jnp.where(rows.weight[:, None] > 0, ratio, jnp.nan)

    squared = held_out_factor(networks, folds, data, predict) ** 2
    if len(networks.factor) == 1:
        return jnp.sqrt(squared)
    surplus = 2 * jnp.nanmedian(lax.map(disagree, folds))
    return jnp.sqrt(jnp.maximum(squared - surplus, squared / 4))
