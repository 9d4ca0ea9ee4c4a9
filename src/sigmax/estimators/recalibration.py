"""The factor at the end: what the members' held-out rows say about all scales."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sigmax.calibration import best_scale_factor
from sigmax.training import Fold, TrainingData

__all__ = ["held_out_factor", "recalibrate"]

MEMBER = eqx.if_array(0)


def recalibrate(networks: Any, folds: Fold, data: TrainingData, predict: Callable) -> Any:
    """The members, each with the `held_out_factor` of all of them as its ``factor``."""
    factor = held_out_factor(networks, folds, data, predict)
    factors = jnp.broadcast_to(factor, networks.factor.shape)
    return eqx.tree_at(lambda n: n.factor, networks, factors)


@eqx.filter_jit
def held_out_factor(
    networks: Any, folds: Fold, data: TrainingData, predict: Callable
) -> Float[Array, ""]:
    """The factor on all scales that suits the members' held-out rows best, but at least 1.

    ``predict`` gives a network's density at a batch of rows. The same rows chose the snapshots and
    so flatter them: a factor below 1 is not to be believed.
    """

    def judge(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        return predict(network, rows, data), rows.y, rows.weight

    members = eqx.filter_vmap(judge, in_axes=(MEMBER, MEMBER, None))(networks, folds, data)
    pooled = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)
    return jnp.maximum(best_scale_factor(*pooled), 1.0)
