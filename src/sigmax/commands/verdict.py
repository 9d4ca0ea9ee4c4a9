"""Verdict on a model in one sentence: better than a plain model, and by how much."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from sigmax.commands.score_tables import estimate_text
from sigmax.commands.scores import Estimate, RowScores

__all__ = ["Gap", "row_gap", "verdict"]

SURE = 2.0
"""Standard errors of a difference that are more than chance."""
HIGHER = 1.1
"""Ratio of RMSEs from which a higher one is named although the CRPS is lower."""
NATS = 0.1
"""Difference of the log-likelihood that is named in any case."""
ONE_ROW = 0.5
"""Share of the squared error of all rows from which one row is named as its cause."""

PLAIN = {
    "linear": ("a linear model", "; `--method linear` fits one"),
    "marginal": ("the overall distribution of the target", ": the columns say nothing about it"),
}


@final
@dataclass(frozen=True, kw_only=True)
class Gap:
    """Scores of a model minus those of a plain one on the same rows, with paired errors."""

    plain: str
    """Name of the plain method."""
    plain_crps: float
    crps: Estimate
    log_likelihood: Estimate
    rmse: float
    """Ratio of the root mean square errors."""
    worst_row: float = 0.0
    """Share of the model's squared error that its worst row has."""


def row_gap(model: RowScores, other: RowScores, plain: str) -> Gap:
    """The gap of two predictions of the same rows."""
    squares, others = (one.values["squared_error"] for one in (model, other))
    total = float(np.sum(squares))
    return Gap(
        plain=plain,
        plain_crps=float(np.mean(other.values["crps"])),
        crps=model.less(other, "crps"),
        log_likelihood=model.less(other, "log_likelihood"),
        rmse=math.sqrt(total / max(float(np.sum(others)), 1e-300)),
        worst_row=float(np.max(squares)) / total if total else 0.0,
    )


def verdict(gap: Gap) -> str:
    """One sentence about a model beside a plain one.

    A model is better if its CRPS is lower by more than chance, or is lower and the log-likelihood
    is higher by more than chance.

    Examples
    --------
    >>> found = {"plain": "linear", "plain_crps": 2.0, "log_likelihood": Estimate(0.3, 0.1)}
    >>> verdict(Gap(**found, crps=Estimate(-0.46, 0.05), rmse=0.8))
    "CRPS 23.0 ± 2.5 % lower than a linear model's."
    >>> verdict(Gap(**found, crps=Estimate(-0.46, 0.05), rmse=3.1, worst_row=0.9))
    "CRPS 23.0 ± 2.5 % lower than a linear model's, but RMSE 3.1 times as high because of one row."
    >>> verdict(Gap(**found, crps=Estimate(0.02, 0.05), rmse=1.02)).split(": ")[0]
    'No better than a linear model'
    >>> verdict(Gap(**found, crps=Estimate(0.4, 0.05), rmse=1.3)).split(": ")[0]
    'Worse than a linear model'
    """
    name, advice = PLAIN[gap.plain]
    scale = 1 / gap.plain_crps if gap.plain_crps else math.nan
    share = Estimate(scale * gap.crps.value, scale * gap.crps.error)
    crps = f"CRPS {gap_text(share, percent=True)}"
    density = f"log-likelihood {gap_text(gap.log_likelihood)}"
    if is_sure(gap.crps, -1) or (gap.crps.value < 0 and is_sure(gap.log_likelihood, 1)):
        is_lower = gap.log_likelihood.value < -NATS or is_sure(gap.log_likelihood, -1)
        caveats = [density] if is_lower else []
        caveats += [f"RMSE {rmse_text(gap)}"] if gap.rmse > HIGHER else []
        but = f", but {' and '.join(caveats)}" if caveats else ""
        return f"{crps} than {name}'s{but}."
    lead = "Worse" if is_sure(gap.crps, 1) else "No better"
    return f"{lead} than {name}: {crps}, {density}, RMSE {rmse_text(gap)}{advice}."


def is_sure(gap: Estimate, sign: int) -> bool:
    """True if a difference has this sign by more than chance; an unknown error is not sure."""
    return sign * gap.value > SURE * gap.error


def gap_text(gap: Estimate, *, percent: bool = False) -> str:
    size = estimate_text(Estimate(abs(gap.value), gap.error), percent=percent)
    return f"{size} {'lower' if gap.value < 0 else 'higher'}"


def rmse_text(gap: Gap) -> str:
    cause = " because of one row" if gap.worst_row > ONE_ROW and gap.rmse > HIGHER else ""
    if gap.rmse >= 1.5:
        return f"{gap.rmse:.1f} times as high{cause}"
    return f"{100 * abs(gap.rmse - 1):.1f} % {'lower' if gap.rmse < 1 else 'higher'}{cause}"
