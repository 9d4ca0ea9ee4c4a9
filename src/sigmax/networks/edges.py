"""Predictions beyond the range of the training data: a trend, and a variance that grows."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from sigmax.compilation import on_device
from sigmax.networks.weighted_student_t import WeightedStudentT

__all__ = ["Edges"]

MOST_GROWTH = 1.5
"""Lengths beyond which the variance grows no further."""


@final
class Edges(eqx.Module):
    """How the mean goes on beyond the lowest and the highest value of every number.

    At a row beyond the range, the networks predict for the nearest row within it. The mean then
    moves by ``slope`` times the distance, up to a ``length``. The variance grows by the ``excess``
    at the distance ``validated``, as the root of the distance before it and in proportion beyond,
    and by ``doubt``, the variance of the slope, times the squared distance.
    `sigmax.estimators.extrapolation` estimates all of them.
    """

    slope: Float[Array | np.ndarray, "2 reals outputs"]
    excess: Float[Array | np.ndarray, "2 reals outputs"]
    doubt: Float[Array | np.ndarray, "2 reals outputs"]
    validated: Float[Array | np.ndarray, "2 reals"]
    length: Float[Array | np.ndarray, "2 reals"]
    fade: Float[Array | np.ndarray, ""]
    """How far the mean is taken to that of y where the gate is open: 1 is all the way."""

    @classmethod
    def none(cls, n_reals: int, n_outputs: int) -> "Edges":
        """No trend, and the mean of y where the gate is open."""
        zeros = on_device(np.zeros((2, n_reals, n_outputs)), np.float32)
        ones = on_device(np.ones((2, n_reals)), np.float32)
        return cls(zeros, zeros, zeros, ones, ones, on_device(1.0, np.float32))

    def __call__(
        self, beyond: Float[Array | np.ndarray, "rows reals"]
    ) -> tuple[Float[Array, "rows outputs"], Float[Array, "rows outputs"]]:
        """What is added to the mean and to the variance."""
        distance, length = jnp.stack([-beyond, beyond]), jnp.asarray(self.length)[:, None]
        near = jnp.clip(distance, 0.0, length)
        far = jnp.clip(distance, 0.0, MOST_GROWTH * length)
        far = far / jnp.asarray(self.validated)[:, None]
        growth = jnp.where(far < 1, jnp.sqrt(jnp.maximum(far, 1e-12)), far) * (far > 0)

        def total(distances: Array, rates: Array | np.ndarray) -> Float[Array, "rows outputs"]:
            """Sum over sides and numbers."""
            return jnp.einsum("srd,sdo->ro", distances, rates, precision=lax.Precision.HIGHEST)

        return total(near, self.slope), total(growth, self.excess) + total(near**2, self.doubt)

    def apply(
        self,
        dist: WeightedStudentT,
        gate: Float[Array, " rows"],
        beyond: Float[Array | np.ndarray, "rows reals"] | None,
        prior_variance: float,
    ) -> WeightedStudentT:
        """A prediction for rows within the range, as one for the rows where they are.

        The gate takes the variance to the prior's, and the mean later than that, and only as far as
        ``fade`` says.
        """
        opening = gate[:, None]
        dist = dist.toward(prior_variance, opening, mean_share=self.fade * opening**2)
        return dist if beyond is None else dist.moved(*self(beyond))
