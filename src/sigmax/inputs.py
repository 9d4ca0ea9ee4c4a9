"""Rows of a table as networks and distances take them: a pytree of arrays, and its shape."""

from dataclasses import dataclass
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@final
@dataclass(frozen=True)
class InputShape:
    """What a network has to know of its inputs before it sees any."""

    n_numbers: int
    n_extras: int = 0
    n_codes: tuple[int, ...] = ()
    """Codes of every column of categories."""


@final
class Inputs(eqx.Module):
    """Some rows; all leaves share their leading axes.

    Examples
    --------
    >>> rows = Inputs(np.zeros((5, 3)))
    >>> len(rows), rows[:2].coordinates.shape, rows.input_shape.n_numbers
    (5, (2, 3), 3)
    """

    numbers: Float[Array | np.ndarray, "*rows numbers"]
    """In standard deviations from the mean, and 0 for a gap."""
    extras: Float[Array | np.ndarray, "*rows extras"] | None = None
    """Further numbers: flags of gaps, cyclic parts of times, statistics of levels."""
    codes: Int[Array | np.ndarray, "*rows categories"] | None = None
    """Categories, from 0 in every column."""
    position: Float[Array | np.ndarray, "*rows coordinates"] | None = None
    """The coordinates, where they are not the numbers themselves."""
    beyond: Float[Array | np.ndarray, "*rows reals"] | None = None
    """How far the first numbers lie beyond the range of the training data, before `within`."""
    n_codes: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def coordinates(self) -> Float[Array | np.ndarray, "*rows coordinates"]:
        """Euclidean coordinates: near rows are near in them.

        Neighbour graphs, forests and kernels in input space see these alone.
        """
        return self.numbers if self.position is None else self.position

    @property
    def actual_coordinates(self) -> Float[Array | np.ndarray, "*rows coordinates"]:
        """The coordinates of the rows where they are, also beyond the range of the training data.

        Extrapolation gates see these.
        """
        if self.beyond is None:
            return self.coordinates
        n_reals = self.beyond.shape[-1]
        inside, others = self.coordinates[..., :n_reals], self.coordinates[..., n_reals:]
        return jnp.concatenate([inside + self.beyond, others], axis=-1)

    @property
    def input_shape(self) -> InputShape:
        n_extras = 0 if self.extras is None else self.extras.shape[-1]
        return InputShape(self.numbers.shape[-1], n_extras, self.n_codes)

    def within(
        self,
        lower: Float[Array | np.ndarray, " numbers"],
        upper: Float[Array | np.ndarray, " numbers"],
        n_reals: int,
    ) -> "Inputs":
        """The rows with their numbers taken to the nearest within bounds.

        The first ``n_reals`` numbers are the first coordinates, too, which move with them.

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
        """The rows with numbers of another precision; codes stay."""

        def convert(leaf: Any) -> Any:
            leaf = np.asarray(leaf)
            return leaf.astype(dtype) if leaf.dtype.kind == "f" else leaf

        return jax.tree.map(convert, self)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "Inputs":
        return jax.tree.map(lambda leaf: leaf[rows], self)
