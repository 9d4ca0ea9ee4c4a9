"""Scores with standard errors, as numbers and tables, and the verdict on a model in a sentence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.report.tables import ReportTable, TableCell
from sigmax.report.validation import COVERAGE, at_end

Intervals = Callable[[float], NDArray[np.float64]]
"""Function from a level to the bounds (n, 2) of its intervals."""

LEVELS = (0.5, 0.8, 0.9, 0.95)
SCORE_TITLES = {"log_likelihood": "log-likelihood", "crps": "CRPS", "rmse": "RMSE"}
for percent in (f"{100 * level:g}" for level in LEVELS):
    SCORE_TITLES[f"coverage_{percent}"] = f"{percent} % coverage"
    SCORE_TITLES[f"width_{percent}"] = f"{percent} % interval width"
BASELINES = {
    "marginal": "marginal: ignores all columns and predicts the target's overall distribution.",
    "linear": "linear: Bayesian linear regression with constant noise variance.",
}
"""Baselines of every fit, with a sentence about each."""

SURE = 2.0
"""Number of standard errors from which a difference is more than chance."""
HIGHER = 1.1
"""Ratio of RMSEs from which a higher RMSE is named although the CRPS is lower."""
NATS = 0.1
"""Difference of log-likelihoods that is named in any case."""
ONE_ROW = 0.5
"""Share of the total squared error from which one row is named as its cause."""
VERDICT_TEXTS = {
    "linear": ("a linear model", "; use `--method linear`"),
    "marginal": ("the overall distribution of the target", ": the columns have no information"),
}
"""Name of each baseline in a verdict, and the advice if the model is no better."""


@final
@dataclass(frozen=True)
class Estimate:
    """A number with its standard error, which is NaN for a single row or group."""

    value: float
    error: float

    def to_json(self) -> dict[str, float | None]:
        """Value and error, None if not finite, which JSON cannot express."""
        numbers = {"value": self.value, "error": self.error}
        return {name: v if math.isfinite(v) else None for name, v in numbers.items()}


def summary_to_json(summary: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: estimate.to_json() for name, estimate in summary.items()}


@final
@dataclass(frozen=True)
class RowScores:
    """Scores of single rows by name, and the clusters of dependent rows."""

    values: Mapping[str, NDArray[np.float64]]
    clusters: NDArray[np.int64]
    """Rows with the same number are not independent."""

    def __len__(self) -> int:
        return len(self.clusters)

    def __getitem__(self, rows: Any) -> "RowScores":
        return RowScores({k: v[rows] for k, v in self.values.items()}, self.clusters[rows])

    @classmethod
    def join(cls, parts: Sequence["RowScores"]) -> "RowScores":
        """The rows of several parts, one after another, all independent."""
        names = parts[0].values
        values = {name: np.concatenate([part.values[name] for part in parts]) for name in names}
        return cls(values, np.arange(sum(map(len, parts))))

    def summary(self) -> dict[str, Estimate]:
        """The mean of every score, and the RMSE, with standard errors."""
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

    def minus(self, other: "RowScores", name: str) -> Estimate:
        """Mean difference of a score from another prediction of the same rows."""
        difference = self.values[name] - other.values[name]
        return Estimate(float(np.mean(difference)), standard_error(difference, self.clusters))


def score_rows(y: NDArray, dist: Any, intervals: Intervals | None = None) -> RowScores:
    """Scores of every row; ``intervals`` gives the bounds (n, 2) of a level, by default ``dist``.

    ``at_end`` is 1 where ``y`` is an end of its 90 % interval, as happens with rounded targets.
    """
    bounds = {level: (intervals or dist.interval)(level).T for level in LEVELS}
    scores = {
        "log_likelihood": dist.log_prob(y),
        "crps": dist.crps(y),
        "squared_error": (y - dist.mean) ** 2,
    }
    for level, (lower, upper) in bounds.items():
        scores[f"coverage_{level * 100:g}"] = ((lower <= y) & (y <= upper)).astype(np.float64)
        scores[f"width_{level * 100:g}"] = upper - lower
    scores["at_end"] = scores["coverage_90"] * at_end(y, *bounds[COVERAGE])
    return RowScores(scores, np.arange(len(y)))


def intervals_of(model: Any, X: Any, dist: Any, method: str) -> Intervals:
    """Intervals of rows with these densities, each of which is computed once."""
    if method == "distribution":
        return cache(dist.interval)
    return cache(lambda level: model.predict_interval(X, level, method="conformal"))


def standard_error(values: NDArray, clusters: NDArray[np.int64]) -> float:
    """Standard error of the mean of values that are independent between clusters only.

    It is NaN for one cluster, and never below that of independent values, as a few clusters may
    agree by chance.
    """
    if not np.all(np.isfinite(values)):
        return math.nan
    labels = np.unique(clusters, return_inverse=True)[1].reshape(-1)
    deviations = values - np.mean(values)
    sums = np.bincount(labels, weights=deviations)
    if len(sums) < 2:
        return math.nan
    squares = [len(part) / (len(part) - 1) * float(np.sum(part**2)) for part in (sums, deviations)]
    return math.sqrt(max(squares)) / len(values)


def estimate_text(estimate: Estimate, *, percent: bool = False) -> TableCell:
    """Number with its error, rounded to two digits of the error: '12,346 ± 79'."""
    scale, unit = (100, " %") if percent else (1, "")
    value, error = scale * estimate.value, scale * estimate.error
    if not np.isfinite(value):
        return TableCell("∞" if value > 0 else "−∞" if value < 0 else "unknown")
    size = max(error if np.isfinite(error) else 0.0, abs(value) / 1000) or 1.0
    digits = int(np.clip(1 - np.floor(np.log10(size)), 0, 12))
    text = f"{value:,.{digits}f}"
    has_error = np.isfinite(error) and error > 1e-9 * abs(value)  # the rest is rounding
    text += f" ± {error:,.{digits}f}" * bool(has_error)
    return TableCell(text + unit, value)


def score_text(name: str, estimate: Estimate) -> TableCell:
    return estimate_text(estimate, percent=name.startswith("coverage"))


def score_table(title: str, summaries: Mapping[str, Mapping[str, Estimate]]) -> ReportTable:
    notes = [note for name, note in BASELINES.items() if name in summaries]
    better = "Higher log-likelihood is better; lower CRPS and RMSE are better."
    return ReportTable(
        title=title,
        header=["score", *summaries],
        rows=[
            [score_title, *(score_text(name, scores[name]) for scores in summaries.values())]
            for name, score_title in SCORE_TITLES.items()
        ],
        notes=[f"± is one standard error. {better}", *notes],
    )


@final
@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """Scores of a model minus those of a baseline on the same rows, with paired errors."""

    baseline: str
    baseline_crps: float
    crps: Estimate
    log_likelihood: Estimate
    rmse: float
    worst_row: float = 0.0
    """Share of the worst row in the model's squared error."""


def score_difference(model: RowScores, other: RowScores, baseline: str) -> ScoreDifference:
    squares, others = (one.values["squared_error"] for one in (model, other))
    total = float(np.sum(squares))
    return ScoreDifference(
        baseline=baseline,
        baseline_crps=float(np.mean(other.values["crps"])),
        crps=model.minus(other, "crps"),
        log_likelihood=model.minus(other, "log_likelihood"),
        rmse=math.sqrt(total / max(float(np.sum(others)), 1e-300)),
        worst_row=float(np.max(squares)) / total if total else 0.0,
    )


def verdict(delta: ScoreDifference) -> str:
    """Compare a model with a baseline in one sentence.

    A model is better if its CRPS is lower by more than chance, or is lower and the log-likelihood
    is higher by more than chance.
    """
    name, advice = VERDICT_TEXTS[delta.baseline]
    scale = 1 / delta.baseline_crps if delta.baseline_crps else math.nan
    share = Estimate(scale * delta.crps.value, scale * delta.crps.error)
    crps = f"CRPS {difference_text(share, percent=True)}"
    density = f"log-likelihood {difference_text(delta.log_likelihood)}"
    if is_sure(delta.crps, -1) or (delta.crps.value < 0 and is_sure(delta.log_likelihood, 1)):
        is_lower = delta.log_likelihood.value < -NATS or is_sure(delta.log_likelihood, -1)
        caveats = [density] if is_lower else []
        caveats += [f"RMSE {rmse_text(delta)}"] if delta.rmse > HIGHER else []
        but = f", but {' and '.join(caveats)}" if caveats else ""
        return f"Better than {name}: {crps}{but}."
    lead = "Worse" if is_sure(delta.crps, 1) else "No better"
    return f"{lead} than {name}: {crps}, {density}, RMSE {rmse_text(delta)}{advice}."


def is_sure(delta: Estimate, sign: int) -> bool:
    """True if a difference has this sign by more than chance; False if its error is unknown."""
    return sign * delta.value > SURE * delta.error


def difference_text(delta: Estimate, *, percent: bool = False) -> str:
    size = estimate_text(Estimate(abs(delta.value), delta.error), percent=percent)
    return f"{size} {'lower' if delta.value < 0 else 'higher'}"


def rmse_text(delta: ScoreDifference) -> str:
    cause = " because of one row" if delta.worst_row > ONE_ROW and delta.rmse > HIGHER else ""
    if delta.rmse >= 1.5:
        return f"{delta.rmse:.1f} times as high{cause}"
    return f"{100 * abs(delta.rmse - 1):.1f} % {'lower' if delta.rmse < 1 else 'higher'}{cause}"
