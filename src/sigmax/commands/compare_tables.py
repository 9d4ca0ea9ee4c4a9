"""The ranking of methods that were compared on a table, from the records alone."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sigmax.commands.score_tables import estimate_text
from sigmax.commands.scores import LEVELS, Estimate
from sigmax.commands.verdict import Gap, verdict
from sigmax.runs.records import Record
from sigmax.runs.tables import ReportTable

__all__ = [
    "by_method",
    "compare_tables",
    "difference",
    "full_title",
    "mean_score",
    "method_title",
    "ranked_table",
    "ranked_verdict",
    "record_groups",
    "weighted",
]

TITLES = {"crps": "CRPS", "log_likelihood": "log-likelihood"}
SIGNS = {"crps": 1.0, "log_likelihood": -1.0}
"""1 where less is better."""

Folds = dict[int, Record]
"""The records of a method that gave scores, by fold."""


def compare_tables(records: Sequence[Record]) -> list[ReportTable]:
    """For every table that was compared, a ranking by CRPS, one by log-likelihood, and the rest."""
    tables = []
    for group in record_groups(records):
        tables += [*(ranked_table(group, name) for name in TITLES), other_scores(group)]
    return tables


def record_groups(records: Sequence[Record]) -> list[list[Record]]:
    """The records of every comparison: of one table, with one set of options."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        task = record.task
        key = json.dumps([task.dataset, task.settings], sort_keys=True)  # a file sorts names, too
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def ranked_table(records: Sequence[Record], rank_by: str) -> ReportTable:
    """One row per method, the best first, with paired differences to it."""
    methods = by_method(records)
    means = {method: mean_score(folds, rank_by) for method, folds in methods.items()}
    order = sorted(methods, key=lambda method: SIGNS[rank_by] * means[method].value)
    (other,) = TITLES.keys() - {rank_by}
    rows = []
    for method in order:
        folds, best = methods[method], methods[order[0]]
        gap = "" if folds is best else estimate_text(difference(folds, best, rank_by))
        rows.append(
            [
                method_title(method, folds),
                estimate_text(means[method]),
                gap,
                estimate_text(mean_score(folds, other)),
                f"{100 * weighted(folds, 'coverage_90'):.1f} %",
                f"{np.mean([record.seconds['fit'] for record in folds.values()]):.3g}",
            ]
        )
    minus_best = f"{TITLES[rank_by]} minus best"
    return ReportTable(
        title=f"{full_title(records)}, ranked by {TITLES[rank_by]}",
        header=["method", TITLES[rank_by], minus_best, TITLES[other], "90 % cov.", "s to fit"],
        rows=rows,
        notes=[
            "± is one standard error over held-out rows; that of a difference is of the same rows.",
            "* had the table as numbers: in standard deviations, gaps flagged, the twenty most"
            " frequent levels as 0 and 1; all others had it as it is.",
            *left_out(records, methods),
        ],
    )


def ranked_verdict(records: Sequence[Record]) -> str:
    """The best method by CRPS beside a linear model, in a sentence; empty without either."""
    methods = by_method(records)
    linear = methods.pop("linear", None)
    methods.pop("marginal", None)
    if linear is None or not methods:
        return ""
    best = min(methods, key=lambda method: mean_score(methods[method], "crps").value)
    folds = methods[best]
    rmse = math.sqrt(weighted(folds, "rmse", power=2) / weighted(linear, "rmse", power=2))
    gap = Gap(
        plain="linear",
        plain_crps=mean_score(linear, "crps").value,
        crps=difference(folds, linear, "crps"),
        log_likelihood=difference(folds, linear, "log_likelihood"),
        rmse=rmse,
    )
    return f"{best}, the best of {len(methods)}: {verdict(gap)}"


def other_scores(records: Sequence[Record]) -> ReportTable:
    """RMSE, and coverage and width of intervals, without an order."""
    header = ["method", "RMSE"]
    for level in LEVELS:
        header += [f"{100 * level:g} % coverage", "width"]
    rows = []
    for method, folds in by_method(records).items():
        row = [method_title(method, folds), f"{math.sqrt(weighted(folds, 'rmse', power=2)):.4g}"]
        for level in LEVELS:
            row.append(f"{100 * weighted(folds, f'coverage_{100 * level:g}'):.1f} %")
            row.append(f"{weighted(folds, f'width_{100 * level:g}'):.4g}")
        rows.append(row)
    return ReportTable(title=f"{full_title(records)}, other scores", header=header, rows=rows)


def by_method(records: Sequence[Record]) -> dict[str, Folds]:
    """Every method that gave scores."""
    methods: dict[str, Folds] = {}
    for record in records:
        if record.status == "done":
            methods.setdefault(record.task.method, {})[record.task.split] = record
    return methods


def full_title(records: Sequence[Record]) -> str:
    options = records[0].task.settings["table"]["options"]
    file = Path(records[0].task.dataset).name
    by_time = f" by {options['time_column']}" if options.get("time_column") else ""
    return f"{options['target']} of {file}, {options['n_folds']} folds{by_time}"


def method_title(method: str, folds: Folds) -> str:
    """Its name, with a mark if it did not have the table as it is."""
    is_encoded = next(iter(folds.values())).data["input"] == "numbers"
    return f"{method} *" if is_encoded else method


def weighted(folds: Folds, name: str, *, power: int = 1) -> float:
    """The mean of a score, or of its square, over all held-out rows."""
    values = [record.scores[name] ** power for record in folds.values()]
    return float(np.average(values, weights=[r.data["n_test"] for r in folds.values()]))


def mean_score(folds: Folds, name: str) -> Estimate:
    """The mean over all held-out rows, and its error from those of blocks of rows."""
    return Estimate(weighted(folds, name), block_error(blocks(folds, sorted(folds), name)))


def difference(folds: Folds, best: Folds, name: str) -> Estimate:
    """By how much a score is higher than the best method's, on the folds that both have.

    The difference of their means; its error is that of differences of the same rows.
    """
    common = sorted(folds.keys() & best.keys())
    if not common:
        return Estimate(math.nan, math.nan)
    gaps = blocks(folds, common, name) - blocks(best, common, name)
    means = [weighted({fold: of[fold] for fold in common}, name) for of in (folds, best)]
    return Estimate(means[0] - means[1], block_error(gaps))


def blocks(folds: Folds, splits: Sequence[int], name: str) -> NDArray[np.float64]:
    return np.concatenate([folds[split].curves[name] for split in splits])


def block_error(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def left_out(records: Sequence[Record], methods: dict[str, Folds]) -> list[str]:
    """What gave no scores on some folds, and why."""
    others: dict[str, list[Record]] = {}
    for record in records:
        if record.status != "done":
            others.setdefault(record.task.method, []).append(record)
    notes = []
    for method, found in others.items():
        what = "not applicable" if found[0].status == "infeasible" else "failed"
        where = (
            f" on {len(found)} folds, and compared with the best on the others"
            if (method in methods)
            else ""
        )
        notes.append(f"{method}: {what}{where}: {found[0].reason}.")
    return notes
