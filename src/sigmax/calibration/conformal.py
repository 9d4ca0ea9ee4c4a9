"""Conformal intervals from the standardised errors of calibration rows.

The score of a calibration row is the absolute error of its predicted mean over its predicted
standard deviation. It is finite for any tails of y and of the density, so that one outlier among
many rows does not make intervals infinite, and it needs only these two numbers of a model.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from sigmax.checks import check_number
from sigmax.errors import InvalidDataError

ROUNDING = 1e-12
"""Relative tolerance, as (n + 1) times a coverage such as 0.9 may be just above an integer."""

MOST_HALVINGS = 60
ROWS_AT_ONCE = 16_384


def conformal_quantile(scores, coverage: float = 0.9, sample_weight=None) -> float:
    """Score that a new one exceeds with a probability of at most ``1 - coverage``.

    Of n exchangeable scores it is number ⌈(n + 1) coverage⌉ in ascending order; infinite if n is
    smaller than that, as with eight scores and a coverage of 0.9.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores of rows that were not used for training.
    coverage : float
        Nominal coverage, above 0 and below 1.
    sample_weight : array-like of shape (n,), optional
        Weight of each score; the new one has their mean weight.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 20.0), 0.9)
    18.0
    >>> conformal_quantile(np.arange(1.0, 9.0), 0.9)
    inf
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 1 or np.isnan(scores).any():
        raise InvalidDataError("`scores` must be one number per row, without nan.")
    weight = np.ones(len(scores))
    if sample_weight is not None:
        weight = np.asarray(sample_weight, np.float64)
    if weight.shape != scores.shape or not np.all((weight >= 0) & np.isfinite(weight)):
        raise InvalidDataError("`sample_weight` must be one finite weight of at least 0 per row.")
    zero = np.zeros((1, 1))
    return float(upper_bound(zero, zero + 1, [Ranked.create(scores, weight)], coverage)[0])


@final
@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Scores of calibration rows, and the model that predicted each of them.

    With one model the interval of a new row is that of split conformal prediction. With the models
    of several folds it is that of CV+ (Barber, Candès, Ramdas and Tibshirani 2021): its ends are
    quantiles of the means of all models, each plus or minus the scores of its own held-out rows
    times its own standard deviation. Memory grows with the rows, not with pairs of them.

    Examples
    --------
    >>> y, zero, one = np.arange(-9.0, 10.0)[:, None], np.zeros((19, 1)), np.ones((19, 1))
    >>> scores = ConformalScores.create(y, zero, one)
    >>> scores.interval(np.full((1, 1, 1), 5.0), np.full((1, 1, 1), 2.0), coverage=0.5)
    array([[[-5., 15.]]])
    """

    score: Float[np.ndarray, "rows outputs"]
    weight: Float[np.ndarray, " rows"]
    fold: Int[np.ndarray, " rows"]
    """Number of the model that was not trained on the row."""

    @classmethod
    def create(
        cls,
        y: Float[np.ndarray, "rows outputs"],
        mean: Float[np.ndarray, "rows outputs"],
        std: Float[np.ndarray, "rows outputs"],
        weight: Float[np.ndarray, " rows"] | None = None,
        fold: Int[np.ndarray, " rows"] | None = None,
    ) -> "ConformalScores":
        """Scores of rows from their predictions; without ``fold`` by one model."""
        weight = np.ones(len(y)) if weight is None else weight
        fold = np.zeros(len(y), dtype=np.int64) if fold is None else fold
        return cls(over(np.abs(y - mean), std), weight, fold)

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: Bool[np.ndarray, " rows"]) -> "ConformalScores":
        return ConformalScores(self.score[rows], self.weight[rows], self.fold[rows])

    def interval(
        self,
        mean: Float[np.ndarray, "models new outputs"],
        std: Float[np.ndarray, "models new outputs"],
        coverage: float = 0.9,
    ) -> Float[np.ndarray, "new outputs 2"]:
        """Intervals of new rows from the predictions of all models: last axis lower, upper."""
        bounds = np.empty((*mean.shape[1:], 2))
        for output, scores in enumerate(self.score.T):
            ranked = [
                Ranked.create(scores[self.fold == k], self.weight[self.fold == k])
                for k in range(len(mean))
            ]
            for first in range(0, mean.shape[1], ROWS_AT_ONCE):
                rows = slice(first, first + ROWS_AT_ONCE)
                center, spread = mean[:, rows, output], std[:, rows, output]
                ends = [
                    -upper_bound(-center, spread, ranked, coverage),
                    upper_bound(center, spread, ranked, coverage),
                ]
                # With a small coverage, models that disagree may swap the ends.
                bounds[rows, output] = np.sort(np.stack(ends, axis=-1), axis=-1)
        return bounds


@final
@dataclass(frozen=True, eq=False)
class Ranked:
    """Scores in ascending order, with cumulative weights."""

    score: Float[np.ndarray, " rows"]
    total: Float[np.ndarray, " rows_and_one"]
    """Cumulative weights, starting with 0."""

    @classmethod
    def create(
        cls, score: Float[np.ndarray, " rows"], weight: Float[np.ndarray, " rows"]
    ) -> "Ranked":
        order = np.argsort(score, kind="stable")
        order = order[weight[order] > 0]
        return cls(score[order], np.concatenate([[0.0], np.cumsum(weight[order])]))

    def quantile(self, weight: float) -> float:
        """Smallest score whose cumulative weight is at least this."""
        position = int(np.searchsorted(self.total[1:], weight))
        return float(self.score[position]) if position < len(self.score) else np.inf

    def weight_up_to(self, score: Float[np.ndarray, " new"]) -> Float[np.ndarray, " new"]:
        """Cumulative weight of the scores up to each of these."""
        return self.total[np.searchsorted(self.score, score, side="right")]


def upper_bound(
    mean: Float[np.ndarray, "models new"],
    std: Float[np.ndarray, "models new"],
    ranked: list[Ranked],
    coverage: float,
) -> Float[np.ndarray, " new"]:
    """Conformal quantile of each model's mean plus its scores times its standard deviation.

    Found by bisection between the smallest and the largest quantile of a single model.
    """
    coverage = check_number("coverage", coverage, above=0.0, below=1.0)
    n_rows = sum(len(own.score) for own in ranked)
    total = sum(own.total[-1] for own in ranked)
    needed = coverage * (1 - ROUNDING) * (total + total / max(n_rows, 1))
    if not n_rows or needed > total:
        return np.full(mean.shape[1], np.inf)
    known = [k for k, own in enumerate(ranked) if len(own.score)]
    alone = np.stack(
        [
            mean[k] + times(std[k], ranked[k].quantile(needed / total * ranked[k].total[-1]))
            for k in known
        ]
    )
    low, high = alone.min(axis=0), alone.max(axis=0)
    low = np.where(np.isinf(high), high, low)  # infinite if that of a single model is
    precision = ROUNDING * np.maximum(np.abs(low), np.abs(high))
    for _ in range(MOST_HALVINGS):
        is_open = low + precision < high
        if not is_open.any():
            break
        middle = np.where(is_open, low / 2 + high / 2, high)
        below = sum(ranked[k].weight_up_to(over(middle - mean[k], std[k])) for k in known)
        high = np.where(is_open & (below >= needed), middle, high)
        low = np.where(is_open & (below < needed), middle, low)
    return high


def over(error: np.ndarray, std: np.ndarray) -> np.ndarray:
    """``error / std``, 0 for an error of 0 even if the standard deviation is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / std)


def times(std: np.ndarray, score: float) -> np.ndarray:
    """``score * std``, infinite if either is infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(std) | np.isinf(score), np.inf, score * std)
