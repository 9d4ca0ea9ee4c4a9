"""Rows of a table as networks and distances take them: a pytree of arrays, and its shape."""

from dataclasses import dataclass
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

__all__ = ["InputShape", "Inputs"]


@final
@dataclass(frozen=True)
class InputShape:
    """What a network has to know of its inputs before it sees any."""

    n_numbers: int


@final
class Inputs(eqx.Module):
    """Some rows; all leaves share their leading axes.

    Examples
    --------
    >>> rows = Inputs(np.zeros((5, 3)))
    >>> len(rows), rows[:2].coordinates.shape, rows.input_shape
    (5, (2, 3), InputShape(n_numbers=3))
    """

    numbers: Float[Array | np.ndarray, "*rows numbers"]
    """In standard deviations from the mean."""

    @property
    def coordinates(self) -> Float[Array | np.ndarray, "*rows coordinates"]:
        """Euclidean coordinates: near rows are near in them.

        Neighbour graphs, extrapolation gates and kernels in input space see these alone.
        """
        return self.numbers

    @property
    def input_shape(self) -> InputShape:
        return InputShape(self.numbers.shape[-1])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "Inputs":
        return jax.tree.map(lambda leaf: leaf[rows], self)
