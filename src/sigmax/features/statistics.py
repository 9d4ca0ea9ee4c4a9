"""Mean and spread of the targets by level, shrunk where rows are few, and cross-fitted."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["cross_fitted_statistics", "level_statistics"]

N_FOLDS = 5


def level_statistics(
    codes: NDArray[np.int32], n_levels: int, y: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean and logarithm of the standard deviation of ``y`` at every level, shrunk to all rows'.

    A level's mean is that of its rows and of k more at the mean of all, where k is the variance
    within levels over that between them. Its variance is that of its rows and of two more of the
    usual variance, and that of its mean. The last row is that of a level without rows.

    Parameters
    ----------
    codes
        Levels of the rows, in ``range(n_levels)``; others are left out.
    y
        Targets (rows, outputs) in standardised units.

    Returns
    -------
    statistics : array of shape (n_levels + 1, 2 * outputs)
        Means, then logarithms of standard deviations.
    """
    known = (codes >= 0) & (codes < n_levels)
    codes, y, weight = codes[known], y[known], weight[known]
    count = np.bincount(codes, weight, minlength=n_levels + 1)
    columns = []
    for target in y.T:
        total = max(weight.sum(), 1e-12)
        center = weight @ target / total
        variance = weight @ (target - center) ** 2 / total + 1e-6
        sums = np.bincount(codes, weight * (target - center), minlength=n_levels + 1)
        raw = sums / np.maximum(count, 1e-12)
        residual = target - center - raw[codes]
        squares = np.bincount(codes, weight * residual**2, minlength=n_levels + 1)
        n_levels_seen = max(int(np.sum(count > 0)), 1)
        n_repeated = len(target) - n_levels_seen
        within = squares.sum() / total * len(target) / n_repeated if n_repeated else variance / 2
        between = max(variance - within, 0.01 * variance)
        k = np.clip(within / between, 0.5, 100.0)
        mean = sums / (count + k)
        own = (squares + 2 * within) / (count + 2)
        spread = own + between * k / (count + k)  # and how little is known about the mean
        columns.append((center + mean, 0.5 * np.log(spread + 1e-3 * variance)))
    return np.column_stack([means for means, _ in columns] + [logs for _, logs in columns])


def cross_fitted_statistics(
    codes: NDArray[np.int32],
    n_levels: int,
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    groups: NDArray[np.int_],
) -> NDArray[np.float64]:
    """Every row's statistics from rows of other folds, so that no row sees its own target.

    Rows of one group (copies of each other) share a fold.
    """
    fold = groups % N_FOLDS
    found = np.empty((len(codes), 2 * y.shape[1]))
    for k in range(N_FOLDS):
        own = fold == k
        if not own.any():
            continue
        if own.all():
            statistics = level_statistics(codes[:0], n_levels, y[:0], weight[:0])
        else:
            statistics = level_statistics(codes[~own], n_levels, y[~own], weight[~own])
        found[own] = statistics[np.where(codes[own] < 0, n_levels, codes[own])]
    return found
