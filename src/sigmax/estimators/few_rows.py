"""What a small number of rows leaves unknown: how wide, and with which tails.

A scale that was found from n values is not known. For Normal values, the next one follows a
Student-t with n - 1 degrees of freedom, about their mean, which is not known either.
"""

import math

import numpy as np

from sigmax.estimators.recalibration import DF_BOUNDS

__all__ = ["few_rows_bounds", "few_rows_factor", "few_rows_shrinkages", "few_rows_spread"]

SHRINKAGES = np.linspace(0.0, 1.0, 5)
"""How far predictions may be taken to what is known without x: what held-out rows choose from."""

FEWEST_TO_TRUST = 6
"""With fewer rows than this, predictions are taken at least half of the way."""


def few_rows_factor(n_rows: int) -> float:
    """What a scale that was found from so few rows must be widened by.

    It is the 95 % quantile of a Student-t with n - 1 degrees of freedom over that of a Normal.

    Examples
    --------
    >>> [round(few_rows_factor(n), 2) for n in (2, 3, 5, 10, 50)]
    [3.84, 1.78, 1.3, 1.11, 1.02]
    """
    from scipy.stats import norm, t

    return float(t.ppf(0.95, max(n_rows - 1, 1)) / norm.ppf(0.95))


def few_rows_spread(n_rows: int) -> float:
    """The spread of a new value, over the standard deviation of ``n_rows`` known ones.

    The error of their mean and the missing degree of freedom of their variance are in it.

    Examples
    --------
    >>> [round(few_rows_spread(n), 2) for n in (2, 3, 5, 10, 50)]
    [6.65, 2.51, 1.59, 1.23, 1.04]
    """
    n_rows = max(n_rows, 2)
    return few_rows_factor(n_rows) * math.sqrt((n_rows + 1) / (n_rows - 1))


def few_rows_bounds(n_rows: int) -> np.ndarray:
    """Bounds on the degrees of freedom that so few rows allow: they know no lighter tails.

    Examples
    --------
    >>> few_rows_bounds(3), few_rows_bounds(21)
    (array([4.]), array([12.,  6.,  4.]))
    """
    return DF_BOUNDS[DF_BOUNDS <= max(n_rows - 1, DF_BOUNDS[-1])]


def few_rows_shrinkages(n_rows: int) -> np.ndarray:
    """How far predictions from so few rows may be taken to the mean and the variance of y.

    Examples
    --------
    >>> few_rows_shrinkages(3), few_rows_shrinkages(20)
    (array([0.5 , 0.75, 1.  ]), array([0.  , 0.25, 0.5 , 0.75, 1.  ]))
    """
    return SHRINKAGES[SHRINKAGES >= (0.5 if n_rows < FEWEST_TO_TRUST else 0.0)]
