"""Recalibration by one factor on all scales."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

GRID = np.linspace(-1, 1, 17)
NARROWER = 8.0 ** -np.arange(4)
"""Half widths of the grids relative to the first: the last has steps of less than 1e-3."""
LEVELS = (0.5, 0.8, 0.9)  # nominal coverages of the central intervals in `coverage_match`
BLUR = 0.02
"""Width of the sigmoid that replaces the step of a count, so that the criterion is smooth."""
Criterion = Callable[[Any, Array, Array], Array]
"""Takes densities, values and weights; returns one number, higher is better."""


def total_log_likelihood(
    dist: Any, y: Float[Array, " n *outputs"], weights: Float[Array, " n *outputs"]
) -> Float[Array, ""]:
    """Weighted sum of the log-densities."""
    return jnp.sum(jnp.where(weights > 0, weights * dist.log_prob(y), 0.0))


def coverage_match(
    dist: Any, y: Float[Array, " n *outputs"], weights: Float[Array, " n *outputs"]
) -> Float[Array, ""]:
    """Agreement of the observed coverage of 50, 80 and 90 % intervals with the nominal one.

    Minus the sum of the squared differences: 0 is best.
    """
    centrality = jnp.abs(2 * dist.cdf(y) - 1)
    misfit = jnp.zeros(())
    for level in LEVELS:
        inside = jax.nn.sigmoid((level - centrality) / BLUR)
        covered = jnp.sum(jnp.where(weights > 0, weights * inside, 0.0)) / jnp.sum(weights)
        misfit = misfit + (covered - level) ** 2
    return -misfit


def best_scale_factor(
    dist: Any,
    y: Float[Array, " n *outputs"],
    weight: Float[Array, " n"],
    largest: float = 4.0,
    criterion: Criterion = total_log_likelihood,
) -> Float[Array, ""]:
    """Best factor on all scales for validation values ``y``, to 1e-3.

    Pure JAX, to be compiled or vmapped by the caller. The criterion, by default the log-likelihood,
    is maximised on a grid of log factors that is refined three times around its best point: for a
    mixture it can have several peaks.

    Parameters
    ----------
    dist
        Densities of rows that were not used for training, with ``widen`` and ``log_prob``, or the
        method that the criterion needs.
    y
        Values of these rows.
    weight
        One weight per row, 0 for padding (whose densities are ignored). If all are 0, the factor
        is 1.
    largest
        Upper bound of the factor; its inverse is the lower bound.
    criterion
        `total_log_likelihood` or `coverage_match`.

    Examples
    --------
    >>> from sigmax.distributions import Normal
    >>> y = jnp.array([-2.0, 2.0])
    >>> best_scale_factor(Normal(jnp.zeros(2), jnp.ones(2)), y, jnp.ones(2)).round(2)
    Array(2., dtype=float32)
    """
    weights = jnp.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape)

    def score(log_factor):
        found = criterion(dist.widen(jnp.exp(log_factor)), y, weights)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    end = math.log(largest)

    def refine(best, half_width):
        grid = jnp.clip(best + half_width * jnp.asarray(GRID, y.dtype), -end, end)
        return grid[jnp.argmax(lax.map(score, grid))], None

    best, _ = lax.scan(refine, jnp.zeros((), y.dtype), jnp.asarray(end * NARROWER, y.dtype))
    return jnp.where(jnp.any(weight > 0), jnp.exp(best), 1.0)
