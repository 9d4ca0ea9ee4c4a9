"""Relevance of columns for the target, from extremely randomised trees on some of the rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

MOST_ROWS = 1000
"""Rows that trees are grown on, at most."""

N_TREES = 25

PRIOR_ROWS = 10
"""Number of rows that the assumption of equally relevant columns counts for."""


def trees(seed: int, n_columns: int, **settings: Any) -> ExtraTreesRegressor:
    """Trees that try enough columns in every split to find the relevant ones."""
    share = 1.0 if n_columns <= 20 else max(0.1, 20 / n_columns)
    return ExtraTreesRegressor(
        N_TREES, min_samples_leaf=3, max_features=share, random_state=seed, **settings
    )


def column_relevance(
    coordinates: NDArray[np.floating],
    y: NDArray[np.floating],
    column_of: NDArray[np.intp],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Relevance of every coordinate for the target, from 0 to 1: that of its column.

    It is the square root of the column's importance in a forest, divided by that of the most
    important column. The importance of a shuffled copy of the column, which is due to chance, is
    subtracted. The fewer the rows, the nearer to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> y = X[:, :1] + 0.1 * rng.normal(size=(500, 1))
    >>> column_relevance(X, y, np.arange(3), rng).round(1)
    array([1. , 0.1, 0.1])
    """
    n_columns = int(column_of.max(initial=-1)) + 1
    if n_columns < 2 or len(y) < 4 or not np.ptp(y):
        return np.ones(coordinates.shape[1])
    rows = rng.permutation(len(y))[:MOST_ROWS]
    X, y = np.asarray(coordinates)[rows], np.asarray(y)[rows]
    both = np.concatenate([X, X[rng.permutation(len(X))]], axis=1)
    forest = trees(int(rng.integers(2**31)), both.shape[1]).fit(both, y.squeeze())
    true, chance = (
        np.bincount(column_of, part, minlength=n_columns)
        for part in np.split(forest.feature_importances_, 2)
    )
    excess = np.maximum(true - np.maximum(chance, chance.mean()), 0.0)
    share = excess / excess.max() if excess.max() > 0 else np.ones(n_columns)
    n = len(y)
    return np.sqrt((n * share + PRIOR_ROWS) / (n + PRIOR_ROWS))[column_of]
