"""Units: rows are standardised on the training rows, in float64, before JAX sees them."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Standardizer"]

FARTHEST = 1e5
"""Standardised values beyond this are cut: farther than far changes nothing but overflows."""


@dataclass(frozen=True)
class Standardizer:
    """``(values - mean) / scale`` by column, and back."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(
        cls, values: np.ndarray, weight: np.ndarray, *, constant_scale: float | None = None
    ) -> "Standardizer":
        """Weighted mean and standard deviation of every column.

        A column that never varies has no scale of its own: it gets 1, or, with
        ``constant_scale``, that share of its own size (a target then keeps a spread that is small
        in its units).

        Examples
        --------
        >>> standard = Standardizer.fit(np.array([[1.0], [3.0]]), np.ones(2))
        >>> standard(np.array([[5.0]]))
        array([[3.]], dtype=float32)
        """
        share = weight / weight.sum()
        largest = np.max(np.abs(values), axis=0)
        unit = np.where(largest > 0, largest, 1.0)  # squares of 1e200 overflow
        mean = share @ (values / unit)
        std = np.sqrt(share @ (values / unit - mean) ** 2)
        mean, std = mean * unit, std * unit
        varies = std > 8 * np.finfo(float).eps * largest
        fallback = np.ones_like(std) if constant_scale is None else constant_scale * unit
        return cls(mean, np.where(varies, std, fallback))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Standardised values, in single precision."""
        standard = (values - self.mean) / self.scale
        return np.clip(standard, -FARTHEST, FARTHEST).astype(np.float32)
