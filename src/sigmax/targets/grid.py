"""Targets that repeat: whole numbers, rounded values, and heaps such as the zeros of rain."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["repeat_probability", "target_step"]

TOLERANCE = 1e-3
"""Of a multiple of the step, in steps: targets are binary fractions of decimal numbers."""

HEAP = 0.02
"""A value with at least this share of all rows is a heap."""

FEWEST_IN_HEAP = 5

NEAR_SHARE = 0.05
"""Of the other values, this share lies within the step that is assumed around a heap."""


def target_step(y: NDArray[np.float64]) -> float:
    """The distance within which targets cannot be told apart, or 0 where any value may occur.

    If all values are multiples of one step, up to a shift, it is that step. Otherwise, if one value
    is repeated by many rows among others that are not, it is the distance from it within which a
    twentieth of the others lie.

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
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 1:
        return 0.0
    gaps = np.diff(values)
    step = float(gaps.min())
    multiples = gaps / step
    if len(values) > 2 and np.all(np.abs(multiples - np.round(multiples)) < TOLERANCE):
        return float(np.round(step, 15 - int(np.ceil(np.log10(np.abs(values).max() + step)))))
    is_heap = counts >= max(HEAP * len(y), FEWEST_IN_HEAP)
    if not is_heap.any():
        return 0.0
    others = y[~is_heap[np.searchsorted(values, y)]]
    if not len(others):
        return step
    distances = [np.quantile(np.abs(others - heap), NEAR_SHARE) for heap in values[is_heap]]
    return float(min(distances))


def repeat_probability(y: NDArray[np.floating]) -> float:
    """The probability that two rows have the same target.

    Examples
    --------
    >>> repeat_probability(np.array([0.0, 0.0, 1.0, 2.0])), repeat_probability(np.arange(4.0))
    (0.375, 0.25)
    """
    _, counts = np.unique(y, return_counts=True)
    return float(np.sum((counts / len(y)) ** 2))
