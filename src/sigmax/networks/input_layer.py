"""The first layer of every network: from rows of a table to numbers."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sigmax.inputs import Inputs, InputShape
from sigmax.networks.periodic import PeriodicFeatures

__all__ = ["InputLayer"]


@final
class InputLayer(eqx.Module):
    """Numbers as they are or, with waves, beside mixtures of their waves."""

    periodic: PeriodicFeatures | None
    n_outputs: int = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        shape: InputShape,
        *,
        n_waves: int = 0,
        n_mixtures: int = 0,
        frequency: float = 0.0,
    ) -> "InputLayer":
        """A layer for inputs of a shape; without ``n_waves`` it has nothing to learn."""
        if not n_waves:
            return cls(None, shape.n_numbers)
        sizes = (shape.n_numbers, n_waves, n_mixtures)
        periodic = PeriodicFeatures.create(rng, *sizes, frequency=frequency)
        return cls(periodic, periodic.n_outputs)

    def __call__(self, x: Inputs) -> Float[Array, "rows outputs"]:
        numbers = jnp.asarray(x.numbers)
        return numbers if self.periodic is None else self.periodic(numbers)
