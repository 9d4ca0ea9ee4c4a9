"""Scores as tables of text: what they are called, and numbers with their errors."""

from collections.abc import Mapping

import numpy as np

from sigmax.commands.scores import LEVELS, Estimate
from sigmax.runs.tables import ReportTable

__all__ = ["PLAIN_NOTES", "estimate_text", "score_table", "score_titles"]


PLAIN_NOTES = {
    "marginal": "marginal: the overall distribution of the target, whatever the columns say.",
    "linear": "linear: Bayesian linear regression with noise of one variance.",
}


def score_titles() -> dict[str, str]:
    """What scores are called in tables, in their order."""
    titles = {"log_likelihood": "log-likelihood", "crps": "CRPS", "rmse": "RMSE"}
    for level in LEVELS:
        titles[f"coverage_{level * 100:g}"] = f"coverage of {level * 100:g} % intervals"
        titles[f"width_{level * 100:g}"] = f"their mean width ({level * 100:g} %)"
    return titles


def estimate_text(estimate: Estimate, *, percent: bool = False) -> str:
    """A number with its error, in as many digits as the error makes worth while.

    Examples
    --------
    >>> estimate_text(Estimate(12345.6, 78.9)), estimate_text(Estimate(0.9034, 0.012), percent=True)
    ('12,346 ± 79', '90.3 ± 1.2 %')
    """
    value, error = (
        100 * number if percent else number for number in (estimate.value, estimate.error)
    )
    unit = " %" if percent else ""
    if not np.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "unknown"
    scale = max(error if np.isfinite(error) else 0.0, abs(value) / 1000) or 1.0
    digits = int(np.clip(1 - np.floor(np.log10(scale)), 0, 12))
    text = f"{value:,.{digits}f}"
    has_error = np.isfinite(error) and error > 1e-9 * abs(value)  # the rest is rounding
    return f"{text} ± {error:,.{digits}f}{unit}" if has_error else text + unit


def score_table(summaries: Mapping[str, Mapping[str, Estimate]], target: str) -> ReportTable:
    """One row per score, one column for the model and each plain predictor."""
    rows = [
        [
            title,
            *(
                estimate_text(found[name], percent=name.startswith("coverage"))
                for found in summaries.values()
            ),
        ]
        for name, title in score_titles().items()
    ]
    return ReportTable(
        title=f"scores of {target} on held-out rows",
        header=["score", *summaries],
        rows=rows,
        notes=[
            "± is one standard error. Higher log-likelihood is better; lower CRPS and RMSE are"
            " better.",
            *(note for name, note in PLAIN_NOTES.items() if name in summaries),
        ],
    )
