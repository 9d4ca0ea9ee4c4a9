"""How far shares of rows stray by chance alone."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["CONFIDENCE", "chance_band", "share_interval"]

CONFIDENCE = 0.95


def chance_band(
    n_rows: int, shares: ArrayLike, confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between which shares of rows those of a true forecast lie, by the binomial distribution.

    Each share has its own band: one in twenty of them is outside by chance.

    Examples
    --------
    >>> low, high = chance_band(100, [0.5, 0.9])
    >>> low.tolist(), high.tolist()
    ([0.4, 0.84], [0.6, 0.95])
    """
    tail = (1 - confidence) / 2
    shares = np.asarray(shares, dtype=np.float64)
    low, high = (stats.binom.ppf(level, n_rows, shares) / n_rows for level in (tail, 1 - tail))
    return low, high


def share_interval(
    n_inside: int, n_rows: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Clopper and Pearson's exact confidence interval of a share.

    Examples
    --------
    >>> low, high = share_interval(9, 10)
    >>> round(low, 3), round(high, 3)
    (0.555, 0.997)
    """
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, n_inside, n_rows - n_inside + 1) if n_inside else 0.0
    high = stats.beta.ppf(1 - tail, n_inside + 1, n_rows - n_inside) if n_inside < n_rows else 1.0
    return float(low), float(high)
