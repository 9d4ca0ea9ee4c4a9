"""What the members' held-out rows say, at the end, about all scales and all tails."""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from sigmax.calibration import best_scale_factor
from sigmax.training import Fold, TrainingData

__all__ = [
    "Recalibration",
    "held_out_factor",
    "mixture_recalibration",
    "recalibrated",
    "with_factor",
]

MEMBER = eqx.if_array(0)

ROWS_TO_DISAGREE_ON = 256
"""Held-out rows of each member at which all members are compared: a median needs no more."""

DF_BOUNDS = np.array([np.inf, 30.0, 12.0, 6.0, 4.0])
"""Bounds on the degrees of freedom that are tried. A variance of fewer than four means little."""

LARGEST_FACTOR = 16.0
"""On scales whose tails change too: much of a scale may have been there for the tails."""


@final
class Recalibration(eqx.Module):
    """What all members get."""

    factor: Float[Array, ""]
    """On their scales."""
    most_df: Float[Array, ""]
    """Of their degrees of freedom."""


def with_factor(networks: Any, factor: Float[Array, ""]) -> Any:
    """The members, each with ``factor`` on its scales."""
    factors = jnp.broadcast_to(factor, networks.factor.shape)
    return eqx.tree_at(lambda n: n.factor, networks, factors)


def recalibrated(networks: Any, found: Recalibration) -> Any:
    """The members, each with the factor and the bound."""
    bounds = jnp.broadcast_to(found.most_df, networks.most_df.shape)
    return eqx.tree_at(lambda n: n.most_df, with_factor(networks, found.factor), bounds)


def held_out(networks: Any, folds: Fold, data: TrainingData, predict: Callable) -> tuple:
    """Densities, values and weights of the rows that members hold out, one member after the other.

    ``predict`` gives a network's density at a batch of rows.
    """

    def judge(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        return predict(network, rows, data), rows.y, rows.weight

    members = eqx.filter_vmap(judge, in_axes=(MEMBER, MEMBER, None))(networks, folds, data)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)


@eqx.filter_jit
def held_out_factor(
    networks: Any, folds: Fold, data: TrainingData, predict: Callable
) -> Float[Array, ""]:
    """The factor on all scales that suits the members' held-out rows best, each on its own."""
    return best_scale_factor(*held_out(networks, folds, data, predict))


@eqx.filter_jit
def mixture_recalibration(
    networks: Any, folds: Fold, data: TrainingData, predict: Callable
) -> Recalibration:
    """The factor on the members' scales that suits their mixture, and the bound on their tails.

    The bound is the one that makes held-out rows likeliest, each bound with its best factor.
    Where hundreds of rows speak, a prediction is next to Normal, as if its variance were known;
    with noise that differs from row to row, or hardly any, it is not.

    At new rows a member's squared error is f² times its variance v, by that factor f. Let
    the members' means have the variance d. The mean of them errs by d less than one of them, and
    the mixture is wider than its members by d: they should have the variance f² v − 2 d. The
    factor has the median of d / v for all rows, and takes at most three quarters of f² away.
    """
    dist, y, weight = held_out(networks, folds, data, predict)

    def fit(most_df: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        tailed = dist.with_tails(most_df)
        factor = best_scale_factor(tailed, y, weight, LARGEST_FACTOR)
        log_prob = jnp.sum(tailed.widen(factor).log_prob(y), axis=1)
        return factor, jnp.sum(jnp.where(weight > 0, weight * log_prob, 0.0))

    bounds = jnp.asarray(DF_BOUNDS, y.dtype)
    factors, scores = jax.vmap(fit)(bounds)
    best = jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))
    single, most_df = factors[best], bounds[best]

    def disagree(fold: Fold) -> Float[Array, "rows outputs"]:
        some = (rows[:ROWS_TO_DISAGREE_ON] for rows in (fold.validation, fold.validation_weight))
        rows = data.rows(fold.group, *some)

        def judge(network):
            dist = predict(network, rows, data).with_tails(most_df)
            return dist.mean, dist.variance

        means, variances = eqx.filter_vmap(judge, in_axes=(MEMBER,))(networks)
        ratio = jnp.var(means, axis=0, ddof=1) / jnp.mean(variances, axis=0)
        return jnp.where(rows.weight[:, None] > 0, ratio, jnp.nan)

    if len(networks.factor) == 1:
        return Recalibration(single, most_df)
    surplus = 2 * jnp.nanmedian(lax.map(disagree, folds))
    factor = jnp.sqrt(jnp.maximum(single**2 - surplus, single**2 / 4))
    return Recalibration(factor, most_df)
