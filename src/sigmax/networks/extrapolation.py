"""The extrapolation gate: 0 on the data, 1 far from them."""

import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from sigmax.compilation import on_device

__all__ = ["NO_CENTER", "ExtrapolationGate", "blend_factor"]

OFFSET = 6.9077
"""The paper's a / gamma: sigmoid(-6.9077) = 0.001."""

SMALLEST_MARGIN = 0.15
"""In standard deviations of a feature."""

NO_CENTER = -1
"""``own_center`` of a row that is no inducing point."""


def blend_factor(
    gate: Float[Array, "rows 1"],
    prior_variance: float | Float[Array, "1 outputs"],
    variance: Float[Array | np.ndarray, "rows outputs"],
) -> Float[Array, "rows outputs"]:
    r"""The factor on scales that takes variances to $(1-\tilde\nu)\sigma^2 + \tilde\nu\eta$."""
    return jnp.sqrt(1 - gate + gate * prior_variance / variance)


@final
class ExtrapolationGate(eqx.Module):
    r"""How far from the data: $\tilde\nu(\delta) = (\nu(\delta) - \nu(0)) / (1 - \nu(0))$.

    $\delta$ is the Euclidean distance to the nearest inducing point, less a margin within which a
    row still counts as on the data, and $\nu(\delta) = \text{sigmoid}(\delta/\gamma - 6.9077)$.
    Subtracting $\nu(0) = 0.001$ takes away the floor that it would put under every variance. The
    paper has no margin; without one, a gate wide enough to open anywhere is never quite shut
    between the training rows, where a thousandth of Var(y) can exceed the noise.
    """

    inducing_points: Float[Array, "centers features"]
    log_scale: Float[Array, ""]
    margin: Float[Array, ""]
    is_used: Bool[Array, " centers"]

    @classmethod
    def create(
        cls, centers: np.ndarray, n_slots: int, *, scale: float, margin: float = 0.0
    ) -> "ExtrapolationGate":
        """A gate around ``centers``, padded to ``n_slots`` so that its shape does not follow N."""
        padding = n_slots - len(centers)
        return cls(
            on_device(np.pad(centers, ((0, padding), (0, 0))), np.float32),
            on_device(math.log(scale), np.float32),
            on_device(margin, np.float32),
            on_device(np.arange(n_slots) < len(centers)),
        )

    @property
    def scale(self) -> Float[Array, ""]:
        """The paper's gamma."""
        return jnp.exp(self.log_scale)

    def distance(
        self, x: Float[Array, "rows features"], own_center: Int[Array, " rows"]
    ) -> Float[Array, " rows"]:
        """Distance to the nearest inducing point other than the row's own.

        On small data every training row is an inducing point; with its own one counted, no
        training row would be any distance from the data and nothing could be learned from them.
        """
        centers = self.inducing_points
        squared = jnp.sum(x**2, axis=1)[:, None] - 2 * x @ centers.T
        squared = squared + jnp.sum(centers**2, axis=1)[None]
        slots = jnp.arange(len(centers))
        excluded = ~self.is_used[None] | (slots[None] == own_center[:, None])
        squared = lax.stop_gradient(jnp.where(excluded, jnp.inf, squared))
        is_nearest = squared <= jnp.min(squared, axis=1)[:, None]
        nearest = jnp.min(jnp.where(is_nearest, slots[None], len(slots) - 1), axis=1)  # argmin
        offset = x - centers[nearest]  # exact, where the expansion above loses digits
        return jnp.sqrt(jnp.sum(offset**2, axis=1) + 1e-12)

    def __call__(
        self, x: Float[Array, "rows features"], own_center: Int[Array, " rows"]
    ) -> Float[Array, " rows"]:
        at_zero = 1 / (1 + math.exp(OFFSET))
        beyond = jnp.maximum(self.distance(x, own_center) - lax.stop_gradient(self.margin), 0)
        opening = jax.nn.sigmoid(beyond / self.scale - OFFSET)
        return jnp.clip((opening - at_zero) / (1 - at_zero), 0, 1)  # or it may round to above 1

    def shut_on(self, distances: Float[Array, " rows"]) -> "ExtrapolationGate":
        """The gate that is shut on the data, and open soon beyond them.

        ``distances`` are those of rows that are no inducing points themselves, nan for padding.
        Their 99 % quantile is how far a new row of the same kind may well lie from the others: the
        margin. At twice that distance the gate is half open, at three times it is open. However
        dense the data, the margin is never below `SMALLEST_MARGIN`, or the gate would slam where a
        feature has hardly moved.
        """
        margin = jnp.maximum(jnp.nanquantile(distances, 0.99), SMALLEST_MARGIN)
        return eqx.tree_at(
            lambda g: (g.log_scale, g.margin), self, (jnp.log(margin / OFFSET), margin)
        )
