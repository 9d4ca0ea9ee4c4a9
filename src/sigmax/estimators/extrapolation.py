"""What the training rows say about rows far from them: relevant columns, and trends at the edges.

Both come from extremely randomised trees on some of the rows, which cost little beside a training.
"""

import warnings
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

from sigmax.networks import Edges

__all__ = ["column_relevance", "fit_edges"]

MOST_ROWS = 1000
"""Rows that trees are grown on."""

N_TREES = 25

PRIOR_ROWS = 10
"""Rows for which the assumption counts that all columns are equally relevant."""

EDGE = 0.1
"""Share of the rows beyond either edge that a column is validated on."""

FEWEST_BEYOND = 8
"""Rows beyond an edge without which nothing is said about it."""

MOST_COLUMNS = 6
"""Columns whose edges are looked at: the most relevant ones."""

LATER = 0.25
"""The same for times, of which later ones are the rule."""

MAY_CHANGE = 0.1
"""Standard deviation of a slope beyond the edge, as a share of the slope before it."""

LEAST_RELEVANCE = 0.2
"""Columns of less relevance have no trend."""


def trees(seed: int, n_columns: int, **settings) -> ExtraTreesRegressor:
    """Trees that look at enough columns in every split to find the relevant ones."""
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

    It is the square root of the column's importance in a forest, over that of the most important
    column. Every column has a shuffled copy beside it, whose importance is what chance gives and is
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


def fit_edges(
    coordinates: NDArray[np.floating],
    n_reals: int,
    y: NDArray[np.floating],
    relevance: NDArray[np.floating],
    times: NDArray[np.intp],
    rng: np.random.Generator,
) -> Edges:
    """Trends beyond the range of the training data, validated on the outermost rows.

    For every relevant number, two models learn from the rows within the central part of its range
    and predict the rows beyond either edge: a forest, which goes on as a constant, and a linear
    model with a forest of its residuals, which goes on with the slope of the linear one. The
    mixture with the least squared error decides how much of that slope is kept. What is left of the
    error, in excess of the forest's out-of-bag error, is what the variance grows by. All these rows
    together also say how far predictions beyond an edge should be taken to the mean of y.

    Parameters
    ----------
    coordinates
        The first ``n_reals`` are numbers, whose edges are looked at.
    times
        Numbers that are looked at whatever their relevance, and whose trend goes on for longer.
    """
    n_outputs = y.shape[1]
    slope, excess, doubt = np.zeros((3, 2, n_reals, n_outputs))
    X, rows = np.asarray(coordinates, np.float64), rng.permutation(len(y))[:MOST_ROWS]
    lowest, highest = X[:, :n_reals].min(axis=0), X[:, :n_reals].max(axis=0)
    length = np.stack([highest - lowest] * 2)
    validated = np.ones((2, n_reals))
    X, y = X[rows], np.asarray(y, np.float64)[rows]
    ranked = [j for j in np.argsort(-relevance[:n_reals]) if relevance[j] > LEAST_RELEVANCE]
    columns = dict.fromkeys([*times.tolist(), *map(int, ranked)])
    predicted, actual = [np.empty((0, n_outputs))], [np.empty((0, n_outputs))]
    for j in list(columns)[:MOST_COLUMNS]:
        share = LATER if j in times else EDGE
        low, high = np.quantile(X[:, j], [share, 1 - share])
        if j not in times:
            length[:, j] = low - lowest[j], highest[j] - high
        sides = np.stack([low - X[:, j], X[:, j] - high])
        is_inner = (sides <= 0).all(axis=0)
        if is_inner.sum() < 4 * FEWEST_BEYOND or (sides > 0).sum() < FEWEST_BEYOND:
            continue
        models = EdgeModels.fit(X[is_inner], y[is_inner], int(rng.integers(2**31)))
        center = y[is_inner].mean(axis=0)
        for side, distance in enumerate(sides):
            is_outer = distance > 0
            if is_outer.sum() < FEWEST_BEYOND:
                continue
            constant, linear = models.predict(X[is_outer])
            target, distance = y[is_outer], distance[is_outer]
            kept = projection(linear - constant, target - constant)
            squares = (target - constant - kept * (linear - constant)) ** 2
            slope[side, j] = kept * models.slope[:, j] * (-1, 1)[side]
            excess[side, j] = np.maximum(squares.mean(axis=0) - models.noise, 0.0)
            validated[side, j] = distance.mean()
            error = squares.mean(axis=0) / np.sum(distance**2)
            doubt[side, j] = error + (MAY_CHANGE * slope[side, j]) ** 2
            predicted.append(constant - center)
            actual.append(target - center)
    fade = 1.0
    if len(predicted) > 1:
        fade = 1 - projection(np.concatenate(predicted), np.concatenate(actual))
    parts = (slope, excess, doubt, validated, length, np.array(fade))
    return Edges(*(part.astype(np.float32) for part in parts))


@final
@dataclass(frozen=True, eq=False)
class EdgeModels:
    """A forest, and a linear model with a forest of its residuals."""

    forest: ExtraTreesRegressor
    linear: Ridge
    of_residuals: ExtraTreesRegressor
    noise: NDArray[np.float64]
    """Mean squared out-of-bag error of the first forest, of every output."""

    @classmethod
    def fit(cls, X: NDArray[np.float64], y: NDArray[np.float64], seed: int) -> "EdgeModels":
        forest = trees(seed, X.shape[1], bootstrap=True, oob_score=True)
        with warnings.catch_warnings():  # a row may be in the sample of every tree
            warnings.simplefilter("ignore")
            forest.fit(X, y.squeeze())
        linear = Ridge().fit(X, y)
        residuals = y - linear.predict(X).reshape(y.shape)
        of_residuals = trees(seed, X.shape[1]).fit(X, residuals.squeeze())
        errors = y - forest.oob_prediction_.reshape(y.shape)
        return cls(forest, linear, of_residuals, np.mean(errors**2, axis=0))

    @property
    def slope(self) -> NDArray[np.float64]:
        """Coefficients (outputs, columns)."""
        return np.atleast_2d(self.linear.coef_)

    def predict(self, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What both predict: (rows, outputs)."""
        constant, linear, more = (
            model.predict(X).reshape(len(X), -1)
            for model in (self.forest, self.linear, self.of_residuals)
        )
        return constant, linear + more


def projection(predicted: NDArray[np.float64], actual: NDArray[np.float64]) -> float:
    """Factor from 0 to 1 on ``predicted`` that is nearest to ``actual``.

    Examples
    --------
    >>> projection(np.array([[1.0], [-2.0]]), np.array([[0.5], [-1.0]]))
    0.5
    """
    squares = np.sum(predicted**2)
    return float(np.clip(np.sum(predicted * actual) / squares, 0.0, 1.0)) if squares else 0.0
