"""The ablation: all sixteen combinations of the four ideas, everything else equal."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sigmax.data import UCI_SETS
from sigmax.paper.uci import run_splits
from sigmax.plots import MODEL, QUIET, tidy
from sigmax.runs.records import Record, Task, group_done
from sigmax.runs.registry import Experiment, register
from sigmax.runs.tables import ReportTable, mean_and_error

__all__ = ["SWITCHES", "ablation_figures", "ablation_tables", "combination"]

SWITCHES = {"locality": "LS", "split": "MV", "inverse_gamma": "IG", "extrapolate": "EX"}


def all_switches() -> list[dict[str, Any]]:
    """Every combination of the four switches."""
    on_or_off = itertools.product([False, True], repeat=len(SWITCHES))
    return [dict(zip(SWITCHES, values, strict=True)) for values in on_or_off]


def combination(task: Task) -> str:
    """The ideas that are on, as in ``LS+IG``; ``none`` is a plain mean-variance network."""
    return "+".join(SWITCHES[s] for s in SWITCHES if task.settings.get(s)) or "none"


COMBINATIONS = sorted(
    (
        "+".join(itertools.compress(SWITCHES.values(), values)) or "none"
        for values in itertools.product([True, False], repeat=len(SWITCHES))
    ),
    key=lambda name: 0 if name == "none" else name.count("+") + 1,
)


Cells = dict[str, dict[int, float]]
"""Combination -> split -> score."""


def by_combination(records: Sequence[Record], score: str) -> dict[tuple[str, str], Cells]:
    """Scores of done records, by method and data set."""
    found, order = group_done(records, lambda task: (task.method, task.dataset)), list(UCI_SETS)
    return {
        kind: {
            name: {record.task.split: record.scores[score] for record in splits}
            for name, splits in group_done(found[kind], combination).items()
        }
        for kind in sorted(found, key=lambda kind: (kind[0], order.index(kind[1])))
    }


def ablation_tables(records: Sequence[Record]) -> list[ReportTable]:
    """Log-likelihood and RMSE by combination, and what each idea changes in the mean."""
    tables = []
    for score, title in (("log_likelihood", "log-likelihood"), ("rmse", "RMSE")):
        found = by_combination(records, score)
        for method in dict.fromkeys(method for method, _ in found):
            columns = {dataset: cells for (m, dataset), cells in found.items() if m == method}
            rows = [
                [name, *(cell(cells.get(name, {})) for cells in columns.values())]
                for name in COMBINATIONS
                if any(name in cells for cells in columns.values())
            ]
            rows += [
                [f"with {idea} − without", *(mean_change(c, idea) for c in columns.values())]
                for idea in SWITCHES.values()
            ]
            tables.append(
                ReportTable(
                    title=f"ablation of {method}: test {title}",
                    header=["ideas", *columns],
                    rows=rows,
                    notes=[
                        "± standard error over the splits. With an idea minus without it: the mean"
                        " over the eight pairs of combinations that differ in it alone."
                    ],
                )
            )
    return tables


def cell(values: dict[int, float]) -> str:
    return mean_and_error(list(values.values())) if values else ""


def mean_change(cells: Cells, idea: str) -> str:
    """Mean over splits of the difference that an idea makes, over all pairs that differ in it."""
    by_split: dict[int, list[float]] = {}
    for name, values in cells.items():
        ideas = [] if name == "none" else name.split("+")
        if idea not in ideas:
            continue
        without = cells.get("+".join(other for other in ideas if other != idea) or "none", {})
        for split in set(values) & set(without):
            by_split.setdefault(split, []).append(values[split] - without[split])
    return mean_and_error([np.mean(gains) for gains in by_split.values()]) if by_split else ""


def ablation_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Per method one picture: test log-likelihood of every combination on every data set."""
    found, figures = by_combination(records, "log_likelihood"), {}
    for method in dict.fromkeys(method for method, _ in found):
        columns = {dataset: cells for (m, dataset), cells in found.items() if m == method}
        figure = Figure(figsize=(1.5 + 2.2 * len(columns), 4.2), layout="constrained")
        grid = figure.subplots(1, len(columns), squeeze=False, sharey=True)
        heights = range(len(COMBINATIONS))
        for axes, (dataset, cells) in zip(grid[0], columns.items(), strict=True):
            for height, name in zip(heights, COMBINATIONS, strict=True):
                values = np.array(list(cells.get(name, {}).values()))
                if not len(values):
                    continue
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                color = MODEL if name.count("+") == 3 else QUIET
                axes.errorbar(values.mean(), height, xerr=error, fmt="o", ms=4, color=color)
            axes.set_title(dataset, fontsize=10)
            axes.set_xlabel("log-likelihood", fontsize=9)
            axes.grid(axis="y", color="#eeeeee")
            tidy(axes)
        grid[0, 0].set_yticks(list(heights), COMBINATIONS, fontsize=8)
        figures[f"ablation_{method}"] = figure
    return figures


register(
    Experiment(
        name="ablation",
        about="all sixteen combinations of the paper's four ideas",
        datasets=("boston", "concrete", "energy", "yacht", "wine_red", "superconduct"),
        methods=("combined-paper", "combined"),
        n_splits=5,
        variants=lambda choice: all_switches(),
        most_splits=lambda dataset: UCI_SETS[dataset].n_splits,
        n_rows=lambda dataset: UCI_SETS[dataset].n_rows,
        other_datasets=UCI_SETS,
        run=run_splits,
        tables=ablation_tables,
        figures=ablation_figures,
    )
)
