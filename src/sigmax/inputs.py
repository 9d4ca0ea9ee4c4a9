"""Encoded rows of a table: a pytree of standardised arrays for networks and distances."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@final
class Inputs(eqx.Module):
    """Encoded rows; all leaves have the same leading axes.

    Examples
    --------
    >>> rows = Inputs(np.zeros((5, 3)))
    >>> len(rows), rows[:2].coordinates.shape
    (5, (2, 3))
    """

    numbers: Float[Array | np.ndarray, "*rows numbers"]
    """Standardised numbers, 0 for a missing value."""
    extras: Float[Array | np.ndarray, "*rows extras"] | None = None
    """Flags of missing values, cyclic parts of times, statistics of categories."""
    codes: Int[Array | np.ndarray, "*rows categories"] | None = None
    """Codes of categories, from 0 in every column."""
    position: Float[Array | np.ndarray, "*rows coordinates"] | None = None
    """Coordinates, if they are not equal to ``numbers``."""
    beyond: Float[Array | np.ndarray, "*rows reals"] | None = None
    """Distance of the first numbers from the range of the training data, before `within`."""
    n_codes: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def coordinates(self) -> Float[Array | np.ndarray, "*rows coordinates"]:
        """Coordinates for Euclidean distances, in neighbour graphs, forests and kernels."""
        return self.numbers if self.position is None else self.position

    @property
    def actual_coordinates(self) -> Float[Array | np.ndarray, "*rows coordinates"]:
        """Coordinates without clipping to the range of the training data, for gates."""
        if self.beyond is None:
            return self.coordinates
        n_reals = self.beyond.shape[-1]
        inside, others = self.coordinates[..., :n_reals], self.coordinates[..., n_reals:]
        return jnp.concatenate([inside + self.beyond, others], axis=-1)

    def within(
        self,
        lower: Float[Array | np.ndarray, " numbers"],
        upper: Float[Array | np.ndarray, " numbers"],
        n_reals: int,
    ) -> "Inputs":
        """Clip the numbers to bounds.

        The first ``n_reals`` numbers are also the first coordinates, and are clipped there, too.

        Examples
        --------
        >>> rows = Inputs(np.array([[0.5], [7.0]])).within(np.zeros(1), np.ones(1), 1)
        >>> rows.coordinates.ravel().tolist(), rows.beyond.ravel().tolist()
        ([0.5, 1.0], [0.0, 6.0])
        >>> rows.actual_coordinates.ravel().tolist()
        [0.5, 7.0]
        """
        xp = np if isinstance(self.numbers, np.ndarray) else jnp
        numbers = xp.clip(self.numbers, xp.asarray(lower)[None], xp.asarray(upper)[None])
        beyond = (self.numbers - numbers)[..., :n_reals]
        position = self.position
        if position is not None:
            inside = position[..., :n_reals] - beyond
            position = xp.concatenate([inside, position[..., n_reals:]], axis=-1)
        return Inputs(numbers, self.extras, self.codes, position, beyond, self.n_codes)

    def astype(self, dtype: Any) -> "Inputs":
        """Convert the numbers to another precision; codes stay."""

        leaves = jax.tree.map(np.asarray, self)
        return jax.tree.map(lambda x: x.astype(dtype) if x.dtype.kind == "f" else x, leaves)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "Inputs":
        return jax.tree.map(lambda leaf: leaf[rows], self)
