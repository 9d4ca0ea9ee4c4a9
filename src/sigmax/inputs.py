"""Encoded rows of a table: a pytree of standardised arrays for networks and distances."""

from dataclasses import field
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from sigmax.values import STATIC, AbstractValue, AnyArray, namespace, tree_map


@final
class Inputs(AbstractValue):
    """Encoded rows; all leaves have the same leading axes.

    Examples
    --------
    >>> rows = Inputs(np.zeros((5, 3)))
    >>> len(rows), rows[:2].coordinates.shape
    (5, (2, 3))
    """

    numbers: Float[AnyArray, "*rows numbers"]
    """Standardised numbers, 0 for a missing value."""
    extras: Float[AnyArray, "*rows extras"] | None = None
    """Flags of missing values, cyclic parts of times, statistics of categories."""
    codes: Int[AnyArray, "*rows categories"] | None = None
    """Codes of categories, from 0 in every column."""
    position: Float[AnyArray, "*rows coordinates"] | None = None
    """Coordinates, if they are not equal to ``numbers``."""
    beyond: Float[AnyArray, "*rows reals"] | None = None
    """Distance of the first numbers from the range of the training data, before `within`."""
    n_codes: tuple[int, ...] = field(default=(), metadata=STATIC)

    @property
    def coordinates(self) -> Float[AnyArray, "*rows coordinates"]:
        """Coordinates for Euclidean distances, in neighbour graphs, forests and kernels."""
        return self.numbers if self.position is None else self.position

    @property
    def actual_coordinates(self) -> Float[AnyArray, "*rows coordinates"]:
        """Coordinates without clipping to the range of the training data, for gates."""
        if self.beyond is None:
            return self.coordinates
        n_reals = self.beyond.shape[-1]
        inside, others = self.coordinates[..., :n_reals], self.coordinates[..., n_reals:]
        return namespace(inside, others).concatenate([inside + self.beyond, others], axis=-1)

    def within(
        self, lower: Float[AnyArray, " numbers"], upper: Float[AnyArray, " numbers"], n_reals: int
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
        xp = namespace(self.numbers, self.position)
        numbers = xp.clip(self.numbers, xp.asarray(lower)[None], xp.asarray(upper)[None])
        beyond = (self.numbers - numbers)[..., :n_reals]
        position = self.position
        if position is not None:
            inside = position[..., :n_reals] - beyond
            position = xp.concatenate([inside, position[..., n_reals:]], axis=-1)
        return Inputs(numbers, self.extras, self.codes, position, beyond, self.n_codes)

    def astype(self, dtype: Any) -> "Inputs":
        """Convert the numbers to another precision; codes stay."""

        leaves = tree_map(np.asarray, self)
        return tree_map(lambda x: x.astype(dtype) if x.dtype.kind == "f" else x, leaves)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "Inputs":
        return tree_map(lambda leaf: leaf[rows], self)
