"""Integrals over the cdf of a mixture, such as its CRPS."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["integrate_cdf"]

N_CUTS, FEWEST_CUTS = 250, 11
FARTHEST = 60.0
"""Where the outermost pieces end, in units of a component from its mean."""

GAUSS, GAUSS_WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(3))
GAUSS = GAUSS + 0.5
COLLOCATION = np.array(
    [
        [np.polyint(np.poly1d(np.polyfit(GAUSS, unit, 2)))(end) for unit in np.eye(3)]
        for end in GAUSS
    ]
)
"""From values at three Gauss points to integrals up to each of them."""


def integrate_cdf(
    mixture: Any,
    function: Callable[[Float[Array, "*batch"], Float[Array, "*batch"]], Float[Array, "*batch"]],
    at: Float[Array, "*batch"],
) -> Float[Array, "*batch"]:
    """∫ function(F(t), t) dt, for a function that may have a kink at ``at``.

    The line is cut there and around every component, a few times in each. Within a piece, the
    density is a parabola through three points, whose integral is the cdf. To about 1e-4 of the
    standard deviation for the CRPS of components with four degrees of freedom or more.
    """
    components = mixture.components
    center, unit = jnp.asarray(components.mean), jnp.asarray(components.unit)
    n_cuts = max(N_CUTS // len(center), FEWEST_CUTS) | 1  # odd: one in the middle
    cuts = np.sinh(np.linspace(-1, 1, n_cuts) * np.arcsinh(FARTHEST))
    cuts = jnp.asarray(cuts, center.dtype).reshape(-1, *[1] * center.ndim)
    cuts = (center[None] + unit[None] * cuts).reshape(-1, *center.shape[1:])
    cuts = jnp.sort(jnp.concatenate([cuts, at[None]]), axis=0)
    nodes, weights, collocation = (
        jnp.asarray(part, cuts.dtype) for part in (GAUSS, GAUSS_WEIGHTS, COLLOCATION)
    )

    def add(carry, ends):
        cdf, total = carry
        left, width = ends[0], ends[1] - ends[0]
        points = [left + width * node for node in nodes]
        density = jnp.stack([jnp.exp(mixture.log_prob(t)) for t in points])
        rises = width[None] * jnp.tensordot(collocation, density, axes=1)
        for weight, t, rise in zip(weights, points, rises, strict=True):
            total = total + weight * width * function(jnp.clip(cdf + rise, 0.0, 1.0), t)
        return (cdf + width * jnp.tensordot(weights, density, axes=1), total), None

    start = mixture.cdf(cuts[0]), jnp.zeros_like(at)
    return lax.scan(add, start, jnp.stack([cuts[:-1], cuts[1:]], axis=1))[0][1]
