"""Scores of held-out rows, each with a standard error: of all rows, or of a part of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.report.held_out import COVERAGE, at_end

__all__ = ["LEVELS", "Estimate", "RowScores", "score_model", "score_rows", "standard_error"]

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Of the intervals whose coverage and width are told."""

Intervals = Callable[[float], NDArray[np.float64]]


@final
@dataclass(frozen=True)
class Estimate:
    """A number with its standard error, which is not known of a single row or group."""

    value: float
    error: float

    def to_json(self) -> dict[str, float | None]:
        """With None for what is not finite, which JSON does not have."""
        numbers = {"value": self.value, "error": self.error}
        return {name: v if math.isfinite(v) else None for name, v in numbers.items()}


@final
@dataclass(frozen=True)
class RowScores:
    """Scores of single rows by name, and which rows belong together."""

    values: Mapping[str, NDArray[np.float64]]
    clusters: NDArray[np.int64]
    """Rows with the same number are not independent of each other."""

    def __len__(self) -> int:
        return len(self.clusters)

    def __getitem__(self, rows: Any) -> "RowScores":
        return RowScores({k: v[rows] for k, v in self.values.items()}, self.clusters[rows])

    @classmethod
    def join(cls, parts: Sequence["RowScores"]) -> "RowScores":
        """The rows of several parts, one after another."""
        values = {
            name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values
        }
        return cls(values, np.concatenate([part.clusters for part in parts]))

    def together(self, clusters: NDArray[np.int64]) -> "RowScores":
        """The same rows, of which those of one number belong together."""
        return RowScores(self.values, clusters)

    def summary(self) -> dict[str, Estimate]:
        """The mean of every score, and the root of that of squared errors, with its error."""
        means = {
            name: Estimate(float(np.mean(rows)), standard_error(rows, self.clusters))
            for name, rows in self.values.items()
        }
        squared, _ = means.pop("squared_error"), means.pop("at_end")
        rmse = math.sqrt(squared.value)
        error = squared.error / (2 * rmse) if rmse else 0.0
        return {
            "log_likelihood": means.pop("log_likelihood"),
            "crps": means.pop("crps"),
            "rmse": Estimate(rmse, error),
            **means,
        }

    def less(self, other: "RowScores", name: str) -> Estimate:
        """By how much a score is higher than another prediction's of the same rows."""
        gap = self.values[name] - other.values[name]
        return Estimate(float(np.mean(gap)), standard_error(gap, self.clusters))


def score_rows(
    y: NDArray[np.float64],
    dist: Any,
    *,
    intervals: Intervals | None = None,
) -> RowScores:
    """Log-density, CRPS, squared error, and coverage and width of intervals, of every row.

    And 1 where ``y`` is an end of its 90 % interval, which only rounded targets are.

    Parameters
    ----------
    dist
        A `Predictive` of these rows.
    intervals
        Gives the bounds (n, 2) of the intervals of a level; by default those of ``dist``.
    """
    scores = {
        "log_likelihood": dist.log_prob(y),
        "crps": dist.crps(y),
        "squared_error": (y - dist.mean) ** 2,
    }
    for level in LEVELS:
        lower, upper = (intervals or dist.interval)(level).T
        scores[f"coverage_{level * 100:g}"] = ((lower <= y) & (y <= upper)).astype(np.float64)
        scores[f"width_{level * 100:g}"] = upper - lower
    scores["at_end"] = scores["coverage_90"] * at_end(y, *(intervals or dist.interval)(COVERAGE).T)
    return RowScores(scores, np.arange(len(y)))


def score_model(model: Any, X: Any, y: NDArray[np.float64], method: str) -> tuple[Any, RowScores]:
    """The prediction of some rows, and their scores.

    ``method`` is that of the intervals, ``distribution`` or ``conformal``.
    """
    dist = model.predict_dist(X)
    if method == "distribution":
        return dist, score_rows(y, dist)

    def conformal(level: float) -> NDArray[np.float64]:
        return model.predict_interval(X, level, method="conformal")

    return dist, score_rows(y, dist, intervals=conformal)


def standard_error(values: NDArray, clusters: NDArray[np.int64]) -> float:
    """Of the mean of values that are independent between clusters only; nan of one cluster.

    It is never below that of independent values: a few clusters may agree by chance.

    Examples
    --------
    >>> values = np.array([1.0, 2.0, 3.0, 4.0])
    >>> round(standard_error(values, np.arange(4)), 4)  # std with n - 1, over the root of n
    0.6455
    >>> round(standard_error(values, np.array([0, 0, 1, 1])), 4)  # two means, 1.5 and 3.5
    1.0
    """
    if not np.all(np.isfinite(values)):
        return math.nan
    labels = np.unique(clusters, return_inverse=True)[1].reshape(-1)
    gaps = values - np.mean(values)
    sums = np.bincount(labels, weights=gaps)
    if len(sums) < 2:
        return math.nan
    squares = [len(part) / (len(part) - 1) * float(np.sum(part**2)) for part in (sums, gaps)]
    return math.sqrt(max(squares)) / len(values)
