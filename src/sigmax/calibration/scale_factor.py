"""Recalibration: one factor on every scale."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["best_scale_factor"]

GRID = np.linspace(-1, 1, 17)
NARROWER = 8.0 ** -np.arange(4)
"""Half widths of the grids, over that of the first: steps of less than 1e-3 at last."""


def best_scale_factor(
    dist: Any,
    y: Float[Array, " n *outputs"],
    weight: Float[Array, " n"],
    largest: float = 4.0,
) -> Float[Array, ""]:
    """The factor on every scale that makes held-out ``y`` likeliest, to 1e-3.

    Pure JAX, to be compiled or vmapped by the caller. The log-likelihood is searched on a grid of
    log factors that is made finer around its best point, three times over: for a mixture it can
    have several peaks.

    Parameters
    ----------
    dist
        Densities of rows that they were not trained on: with ``widen`` and ``log_prob``.
    y
        The values of these rows.
    weight
        One weight per row, 0 for padding (whose densities may hold anything). With no weight at all
        the factor is 1.
    largest
        The factor lies between this and its inverse.

    Examples
    --------
    >>> from sigmax.distributions import Normal
    >>> y = jnp.array([-2.0, 2.0])
    >>> best_scale_factor(Normal(jnp.zeros(2), jnp.ones(2)), y, jnp.ones(2)).round(2)
    Array(2., dtype=float32)
    """
    weights = jnp.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape)

    def score(log_factor):
        log_prob = dist.widen(jnp.exp(log_factor)).log_prob(y)
        total = jnp.sum(jnp.where(weights > 0, weights * log_prob, 0.0))
        return jnp.where(jnp.isnan(total), -jnp.inf, total)

    end = math.log(largest)

    def refine(best, half_width):
        grid = jnp.clip(best + half_width * jnp.asarray(GRID, y.dtype), -end, end)
        return grid[jnp.argmax(lax.map(score, grid))], None

    best, _ = lax.scan(refine, jnp.zeros((), y.dtype), jnp.asarray(end * NARROWER, y.dtype))
    return jnp.where(jnp.any(weight > 0), jnp.exp(best), 1.0)
