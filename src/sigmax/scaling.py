"""Units: rows are standardised on the training rows, in float64, before JAX sees them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

FARTHEST = 1e5
"""Standardised values beyond this are cut: farther than far changes nothing but overflows."""

COLUMNS_AT_ONCE = 8


@final
@dataclass(frozen=True)
class Standardizer:
    """``(values - mean) / scale`` by column, and back."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(
        cls, values: np.ndarray, weight: np.ndarray, *, constant_scale: float | None = None
    ) -> "Standardizer":
        """Weighted mean and standard deviation of every column, without gaps (NaN).

        A column that never varies has no scale of its own: it gets 1, or, with
        ``constant_scale``, that share of its own size (a target then keeps a spread that is small
        in its units).

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
    """The columns of a matrix, a few of which are copied at once.

    Eight numbers side by side come from memory together; a copy of all would take too much of it.
    """
    for first in range(0, values.shape[1], COLUMNS_AT_ONCE):
        yield from np.ascontiguousarray(values[:, first : first + COLUMNS_AT_ONCE].T)
