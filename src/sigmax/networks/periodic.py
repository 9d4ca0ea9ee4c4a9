"""Features as a few waves of learned length, beside the number itself.

A plain network is slow to bend sharply along one feature; a table's features often ask for it.
Periodic embeddings (Gorishniy et al. 2022, "On embeddings for numerical features") give each
feature its own small basis.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sigmax.compilation import on_device

__all__ = ["PeriodicFeatures", "wave"]

SINE = (6.283163951, -41.337130415, 81.340386139, -70.989933017)
"""sin(2 pi s) / s in powers of s squared, to 1e-6 for s within a quarter; see `wave`."""


@final
class PeriodicFeatures(eqx.Module):
    """Every feature, and beside it a few rectified mixtures of its waves.

    Examples
    --------
    >>> features = PeriodicFeatures.create(np.random.default_rng(0), 3, 16, 8, frequency=0.1)
    >>> features(jnp.ones((7, 3))).shape, features.n_outputs
    ((7, 27), 27)
    """

    frequencies: Float[Array, "features waves"]
    phases: Float[Array, "features waves"]
    weights: Float[Array, "features waves mixtures"]
    biases: Float[Array, "features mixtures"]

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        n_features: int,
        n_waves: int,
        n_mixtures: int,
        *,
        frequency: float,
    ) -> "PeriodicFeatures":
        """Random waves; ``frequency`` is their spread, in waves per standard deviation."""
        arrays = (
            rng.normal(0, frequency, (n_features, n_waves)),
            rng.uniform(0, 1, (n_features, n_waves)),
            rng.normal(0, n_waves**-0.5, (n_features, n_waves, n_mixtures)),
            np.zeros((n_features, n_mixtures)),
        )
        return cls(*(on_device(array, np.float32) for array in arrays))

    @property
    def n_outputs(self) -> int:
        n_features, n_mixtures = self.biases.shape
        return n_features * (1 + n_mixtures)

    def __call__(self, x: Float[Array, "rows features"]) -> Float[Array, "rows outputs"]:
        waves = wave(x[:, :, None] * self.frequencies[None] + self.phases[None])
        mixed = jnp.einsum("rfw,fwm->rfm", waves, self.weights) + self.biases[None]
        return jnp.concatenate([x, jax.nn.relu(mixed).reshape(len(x), -1)], axis=1)


def wave(turns: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """cos(2 pi turns), to 2e-6: a few products, where a library's cosine takes most of a step.

    Examples
    --------
    >>> wave(jnp.array([0.0, 0.25, 0.5, 7.0])).round(3) + 0.0
    Array([ 1.,  0., -1.,  1.], dtype=float32)
    """
    s = 0.25 - jnp.abs(turns - jnp.round(turns))
    square = s * s
    polynomial = jnp.full_like(s, SINE[-1])
    for coefficient in SINE[-2::-1]:
        polynomial = polynomial * square + coefficient
    return s * polynomial
