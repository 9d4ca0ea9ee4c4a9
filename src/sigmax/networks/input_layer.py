"""The first layer of every network: from rows of a table to numbers."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sigmax.compilation import on_device
from sigmax.inputs import Inputs, InputShape
from sigmax.networks.periodic import PeriodicFeatures

__all__ = ["EmbeddedCategories", "InputLayer"]

INITIAL_SPREAD = 0.5
"""Standard deviation of untrained embeddings."""


def embedding_size(n_codes: tuple[int, ...]) -> int:
    """Numbers per category: about the logarithm of the most levels of a column.

    Examples
    --------
    >>> embedding_size((3, 5)), embedding_size((3, 40)), embedding_size((700,))
    (3, 6, 10)
    """
    return max(2, (max(n_codes) - 1).bit_length())


@final
class EmbeddedCategories(eqx.Module):
    """A learned vector for every level of every column, all in one table.

    That of code 0, levels which are new or rare, starts at the origin.
    """

    vectors: Float[Array, "codes size"]
    first: tuple[int, ...] = eqx.field(static=True)
    """Where the levels of each column begin."""

    @classmethod
    def create(cls, rng: np.random.Generator, n_codes: tuple[int, ...]) -> "EmbeddedCategories":
        first = np.cumsum([0, *n_codes])
        vectors = rng.normal(0, INITIAL_SPREAD, (first[-1], embedding_size(n_codes)))
        vectors[first[:-1]] = 0
        return cls(on_device(vectors, np.float32), tuple(first[:-1].tolist()))

    @property
    def n_outputs(self) -> int:
        return len(self.first) * self.vectors.shape[-1]

    def __call__(self, codes: Int[Array, "rows categories"]) -> Float[Array, "rows outputs"]:
        found = self.vectors[codes + jnp.asarray(self.first, dtype=codes.dtype)[None]]
        return found.reshape(len(codes), self.n_outputs)


@final
class InputLayer(eqx.Module):
    """Numbers as they are or, with waves, beside mixtures of their waves; categories embedded."""

    periodic: PeriodicFeatures | None
    categories: EmbeddedCategories | None
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
        """A layer for inputs of a shape; of numbers without ``n_waves`` it has nothing to learn."""
        periodic, n_outputs = None, shape.n_numbers + shape.n_extras
        if n_waves and shape.n_numbers:
            sizes = (shape.n_numbers, n_waves, n_mixtures)
            periodic = PeriodicFeatures.create(rng, *sizes, frequency=frequency)
            n_outputs = periodic.n_outputs + shape.n_extras
        if not shape.n_codes:
            return cls(periodic, None, n_outputs)
        categories = EmbeddedCategories.create(rng, shape.n_codes)
        return cls(periodic, categories, n_outputs + categories.n_outputs)

    def __call__(self, x: Inputs) -> Float[Array, "rows outputs"]:
        numbers = jnp.asarray(x.numbers)
        parts = [numbers if self.periodic is None else self.periodic(numbers)]
        if x.extras is not None:
            parts.append(jnp.asarray(x.extras))
        if self.categories is not None:
            parts.append(self.categories(jnp.asarray(x.codes)))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)
