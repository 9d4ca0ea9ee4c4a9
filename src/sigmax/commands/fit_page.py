"""The report of a fit: what was understood, the scores, and two pictures."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.commands.scores import LEVELS, Estimate
from sigmax.distributions import Predictive
from sigmax.metrics import pit
from sigmax.plots import BAND, INK, MODEL, QUIET, tidy
from sigmax.runs.html import Section, render_page
from sigmax.runs.tables import ReportTable
from sigmax.tables.profile import Profile

__all__ = ["estimate_text", "fit_page", "score_table", "score_titles"]

MOST_POINTS = 400
"""Rows that a picture shows."""


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
            "± is one standard error. Of the log-likelihood more is better, of CRPS and RMSE less.",
            "marginal: the smoothed distribution of the training targets, the same for every row.",
            "linear: ridge regression on a simple encoding, with Normal noise of one variance.",
        ],
    )


def fit_page(
    facts: Mapping[str, Any],
    scores: ReportTable,
    profile: Profile,
    y: NDArray[np.float64],
    dist: Predictive,
) -> str:
    """The page as HTML; whatever comes from the file is shown as text."""
    features = ReportTable(
        title=f"{profile.n_rows:,} rows; columns that the model learns from",
        header=["column", "kind", "gaps", "different values", "from", "to"],
        rows=[
            [c.name, c.kind.value, f"{c.n_gaps:,}", f"{c.n_distinct:,}", c.low, c.high]
            for c in profile.columns
        ],
        notes=[f"Left out for want of a target: {profile.target.n_gaps:,} rows."],
        in_words=True,
    )
    findings = ReportTable(
        title="what to look at",
        header=["what", "finding"],
        rows=[[finding.code, finding.text] for finding in profile.findings],
        notes=[] if profile.findings else ["Nothing was found."],
        in_words=True,
    )
    how = ReportTable(
        title="how it was fitted",
        header=["what", "how"],
        rows=[
            ["held out", f"{facts['rows']['test']:,} of {facts['rows']['with_target']:,} rows"],
            ["split", facts["split"]],
            ["the model in this folder learned from", facts["fitted_to"]],
            ["intervals", facts["intervals"]],
            *([name, text] for name, text in facts["versions"].items()),
        ],
        in_words=True,
    )
    pictures = {
        "held-out rows, predicted and observed": as_png(predicted_and_observed(y, dist)),
        "coverage of central intervals": as_png(coverage_curve(y, dist)),
    }
    sections = [
        Section("Scores", [scores], pictures),
        Section("What was understood", [findings, features]),
        Section("How it was fitted", [how]),
    ]
    return render_page(f"sigmax: {facts['target']} of {facts['source']}", sections)


def predicted_and_observed(y: NDArray[np.float64], dist: Predictive) -> Figure:
    """Held-out targets over their predicted means, with 90 % intervals."""
    shown = np.linspace(0, len(y) - 1, min(len(y), MOST_POINTS)).astype(int)
    mean, (lower, upper) = dist.mean[shown], dist[shown].interval(0.9).T
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.vlines(mean, lower, upper, color=BAND, lw=1.5, label="90 % interval")
    axes.scatter(mean, y[shown], s=8, color=INK, alpha=0.6, lw=0, label="observed")
    axes.axline((float(mean[0]), float(mean[0])), slope=1, color=MODEL, lw=1, label="mean")
    axes.set(xlabel="predicted mean", ylabel="observed")
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)
    return figure


def coverage_curve(y: NDArray[np.float64], dist: Predictive) -> Figure:
    """The share of held-out targets inside central intervals, over that which is promised."""
    centrality = np.sort(np.abs(2 * pit(y, dist) - 1))
    share = np.arange(1, len(y) + 1) / len(y)
    figure = Figure(figsize=(4.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=QUIET, lw=1, ls=":", label="promised")
    axes.step(centrality, share, where="post", color=MODEL, lw=1.8, label="observed")
    axes.set(xlabel="coverage promised", ylabel="coverage observed", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)
    return figure


def as_png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()
