"""Encoded rows of a table: a pytree of standardised arrays for networks and distances."""

from collections.abc import Iterator
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
    """Numbers of inputs of each kind, from which a network is created."""

    n_numbers: int
    n_extras: int = 0
    n_codes: tuple[int, ...] = ()
    """Number of codes of every column of categories."""


@final
class Inputs(eqx.Module):
    """Encoded rows; all leaves have the same leading axes.

    Examples
    --------
    >>> rows = Inputs(np.zeros((5, 3)))
    >>> len(rows), rows[:2].coordinates.shape, rows.input_shape.n_numbers
    (5, (2, 3), 3)
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


FARTHEST = 1e5
"""Limit to which standardised values are clipped, against overflow."""

COLUMNS_AT_ONCE = 8


@final
@dataclass(frozen=True)
class Standardizer:
    """Standardisation ``(values - mean) / scale`` of columns."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(
        cls, values: np.ndarray, weight: np.ndarray, *, constant_scale: float | None = None
    ) -> "Standardizer":
        """Weighted mean and standard deviation of every column, without missing values (NaN).

        The scale of a constant column is 1 or, with ``constant_scale``, that share of its absolute
        value, so that the spread of a constant target is small in its units.

        Examples
        --------
        >>> standard = Standardizer.fit(np.array([[1.0], [3.0]]), np.ones(2))
        >>> standard(np.array([[5.0]]))
        array([[3.]], dtype=float32)
        """
        of_rows = weight / weight.sum()
        mean, scale = np.empty(values.shape[1]), np.empty(values.shape[1])
        for j, column in enumerate(columns_of(values)):
            share, is_empty = of_rows, np.isnan(column)
            if is_empty.any():
                column, share = column[~is_empty], weight[~is_empty] / weight[~is_empty].sum()
            largest = float(np.max(np.abs(column), initial=0.0))
            unit = largest if largest > 0 else 1.0  # squares of 1e200 overflow
            center = share @ (column / unit)
            std = np.sqrt(share @ (column / unit - center) ** 2)
            varies = std > 8 * np.finfo(float).eps
            constant = 1.0 if constant_scale is None else constant_scale * unit
            mean[j], scale[j] = center * unit, std * unit if varies else constant
        return cls(mean, scale)

    def __call__(self, values: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """Standardised values, by default in single precision."""
        standard = values - self.mean
        standard /= self.scale
        return np.clip(standard, -FARTHEST, FARTHEST, out=standard).astype(dtype)

    def check(self) -> None:
        """Raise ValueError unless means are finite and scales are finite and above 0."""
        if not (np.isfinite(self.mean).all() and np.isfinite(self.scale).all()):
            raise ValueError("means and scales must be finite")
        if self.mean.shape != self.scale.shape or not (self.scale > 0).all():
            raise ValueError("scales must be above 0, one for every mean")


def columns_of(values: np.ndarray) -> Iterator[np.ndarray]:
    """Columns of a matrix, copied in blocks, which is faster than one by one."""
    for first in range(0, values.shape[1], COLUMNS_AT_ONCE):
        yield from np.ascontiguousarray(values[:, first : first + COLUMNS_AT_ONCE].T)
