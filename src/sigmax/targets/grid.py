"""Targets that repeat: whole numbers, rounded values, and heaps such as the zeros of rain."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["TargetGrid", "repeat_probability", "target_step"]

TOLERANCE = 1e-3
"""Of a multiple of the step, in steps: targets are binary fractions of decimal numbers."""

HEAP = 0.02
"""A value with at least this share of all rows is a heap."""

FEWEST_IN_HEAP = 5

ROUNDING = 1e-5
"""Of a step: multiples of decimal fractions are not exact, of those in single precision least."""

NEAR_SHARE = 0.05
"""Of the other values, this share lies within the step that is assumed around a heap."""


@final
@dataclass(frozen=True, eq=False)
class TargetGrid:
    """Values that many rows share: all multiples of a step, or heaps among other values."""

    step: float
    """The distance within which values cannot be told apart; 0 where any value may occur."""
    values: NDArray[np.float64]
    """One value of a grid on which all rows lie, or all heaps; none where neither is sure."""
    is_full: bool
    """Whether all rows lie on the grid."""
    lowest: float = -np.inf
    """The least value, if many rows have it, as they have zero among counts: nothing is below."""
    highest: float = np.inf
    """The greatest, if many rows have it."""

    @classmethod
    def find(cls, y: NDArray[np.float64]) -> "TargetGrid":
        """The grid of some targets.

        If all values are multiples of one step, up to a shift, it is that step; that new values
        will be such multiples, too, is taken as sure where values are had by two rows on average.
        Otherwise, if values are repeated by many rows among others that are not, it is the distance
        from the nearest of them within which a twentieth of the others lie.
        """
        none = np.empty(0)
        values, counts = np.unique(y, return_counts=True)
        is_heap = counts >= max(HEAP * len(y), FEWEST_IN_HEAP)
        lowest = float(values[0]) if is_heap[0] else -np.inf
        highest = float(values[-1]) if is_heap[-1] else np.inf
        if len(values) == 1:
            return cls(0.0, none, False)
        gaps = np.diff(values)
        step = float(gaps.min())
        multiples = gaps / step
        if len(values) > 2 and np.all(np.abs(multiples - np.round(multiples)) < TOLERANCE):
            digits = 15 - int(np.ceil(np.log10(np.abs(values).max() + step)))
            is_sure = 2 * len(values) <= len(y)
            step = float(np.round(step, digits))
            return (
                cls(step, values[:1], True, lowest, highest) if is_sure else cls(step, none, False)
            )
        if not is_heap.any():
            return cls(0.0, none, False)
        others = y[~is_heap[np.searchsorted(values, y)]]
        if not len(others):
            return cls(step, values, False, lowest, highest)
        heaps = values[is_heap]
        distances = [np.quantile(np.abs(others - heap), NEAR_SHARE) for heap in heaps]
        return cls(float(min(distances)), heaps, False, lowest, highest)

    def with_values(self, y: NDArray[np.float64]) -> "TargetGrid":
        """The grid once it is known that values ``y`` occur, too.

        A value between those of the grid takes its certainty away, one beyond the least or the
        greatest value this bound.

        Examples
        --------
        >>> counts = TargetGrid(1.0, np.array([0.0]), True, lowest=0.0)
        >>> counts.with_values(np.array([7.0, -1.0])).lowest
        -inf
        >>> counts.with_values(np.array([2.5])).ends(np.array([[0.4, 2.7]]))
        array([[0.4, 2.7]])
        """
        lowest = self.lowest if y.min() >= self.lowest else -np.inf
        highest = self.highest if y.max() <= self.highest else np.inf
        if self.is_full:
            places = (y - self.values[0]) / self.step
            if np.any(np.abs(places - np.round(places)) >= TOLERANCE):
                return TargetGrid(self.step, np.empty(0), False)
        return replace(self, lowest=lowest, highest=highest)

    def ends(self, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
        """The interval of values with that of the density around them: last axis lower, upper.

        A value stands for all within half a step of it. On a grid the ends are so rounded to its
        values. An end within half a step of a heap takes the heap in; among the values between
        heaps it stays where it is. No end lies beyond a heap that is the least or the greatest
        value.

        Examples
        --------
        >>> counts = TargetGrid.find(np.array([0.0, 0.0, 1.0, 2.0, 2.0, 5.0, 1.0, 5.0]))
        >>> counts.ends(np.array([[0.4, 2.7], [0.6, 2.2]]))
        array([[0., 3.],
               [1., 2.]])
        >>> rain = TargetGrid(0.2, np.array([0.0]), False)
        >>> rain.ends(np.array([[0.05, 2.7], [-0.3, -0.04], [0.3, 0.9]]))
        array([[ 0. ,  2.7],
               [-0.3,  0. ],
               [ 0.3,  0.9]])
        """
        if not len(self.values):
            return bounds
        bounds = np.clip(bounds, self.lowest, self.highest)
        if self.is_full:
            first = self.values[0]
            rounded = first + self.step * np.round((bounds - first) / self.step)
            is_exact = float(first).is_integer() and float(self.step).is_integer()
            slack = 0.0 if is_exact else ROUNDING * self.step
            return rounded + slack * np.array([-1.0, 1.0])
        distance = bounds[..., None] - self.values
        nearest = np.argmin(np.abs(distance), axis=-1)
        heap = self.values[nearest]
        is_near = np.abs(bounds - heap) <= self.step / 2
        outward = np.stack(
            [np.minimum(bounds[..., 0], heap[..., 0]), np.maximum(bounds[..., 1], heap[..., 1])],
            axis=-1,
        )
        return np.where(is_near, outward, bounds)


def target_step(y: NDArray[np.float64]) -> float:
    """The distance within which targets cannot be told apart, or 0 where any value may occur.

    Examples
    --------
    >>> target_step(np.array([3.0, 0.0, 7.0, 8.0, 7.0])), target_step(np.array([0.1, 0.3, 0.4]))
    (1.0, 0.1)
    >>> rng = np.random.default_rng(0)
    >>> target_step(rng.normal(size=50))
    0.0
    >>> rain = np.where(rng.uniform(size=500) < 0.6, 0.0, rng.exponential(size=500))
    >>> 0.02 < target_step(rain) < 0.1
    True
    """
    return TargetGrid.find(y).step


def repeat_probability(y: NDArray[np.floating]) -> float:
    """The probability that two rows have the same target.

    Examples
    --------
    >>> repeat_probability(np.array([0.0, 0.0, 1.0, 2.0])), repeat_probability(np.arange(4.0))
    (0.375, 0.25)
    """
    _, counts = np.unique(y, return_counts=True)
    return float(np.sum((counts / len(y)) ** 2))
