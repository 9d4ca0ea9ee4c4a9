"""UCI benchmark on the standard splits, its timings, and the ablation of the four ideas."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.data import UCI_SETS, RegressionData, load_uci
from sigmax.paper.benchmark import standard_error, uci_tables
from sigmax.plots import MODEL, QUIET, tidy
from sigmax.report.tables import ReportTable, mean_and_error
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import (
    METHODS,
    create_model,
    fit_models,
    score_parts,
    score_prediction,
    stopwatch,
)
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, infeasible


def run_splits(job: Sequence[Task]) -> list[Record]:
    data, machine = load_uci(job[0].dataset), describe_machine()
    splits = [data.splits[task.split] for task in job]
    largest = METHODS[job[0].method].largest
    n_train = max(len(train) for train, _ in splits)
    if largest is not None and n_train > largest:
        reason = f"{n_train:,} training rows; an exact Gaussian process takes {largest:,}"
        return [
            infeasible(task, reason, data=describe_split(data, task.split), machine=machine)
            for task in job
        ]
    models = [create_model(task) for task in job]
    seconds = fit_models(models, [(data.X[train], data.y[train]) for train, _ in splits])
    records = []
    for task, model, (train, test) in zip(job, models, splits, strict=True):
        with stopwatch() as watch:
            dist = model.predict_dist(data.X[test])
        y, duplicates = data.y[test], is_duplicate(data.X, train, test)
        scores = score_prediction(y, dist) | score_parts(y, dist, duplicates)
        times, metadata = {**seconds, "predict": watch.run}, describe_split(data, task.split)
        records.append(done(task, scores=scores, seconds=times, data=metadata, machine=machine))
    return records


def describe_split(data: RegressionData, split: int) -> dict[str, Any]:
    """Metadata of a split: hash and shape, share of duplicates, number of distinct targets."""
    train, test = data.splits[split]
    return {
        "hash": data.content_hash,
        "n_train": len(train),
        "n_test": len(test),
        "n_features": data.X.shape[1],
        "copies_of_X": float(np.mean(is_duplicate(data.X, train, test))),
        "n_distinct_targets": len(np.unique(data.y)),
    }


def is_duplicate(rows: NDArray, train: NDArray, test: NDArray) -> NDArray[np.bool_]:
    """True for each test row that equals a training row in every column."""
    rows = rows + 0.0  # -0.0 becomes 0.0, which has other bytes
    known = {row.tobytes() for row in rows[train]}
    return np.array([row.tobytes() in known for row in rows[test]], dtype=bool)


UCI = Experiment(
    name="uci",
    about="the UCI benchmark on standard splits",
    datasets=tuple(UCI_SETS),
    methods=tuple(METHODS),
    n_splits=20,
    most_splits=lambda dataset: UCI_SETS[dataset].n_splits,
    n_rows=lambda dataset: UCI_SETS[dataset].n_rows,
    run=run_splits,
    tables=uci_tables,
)

TIMINGS = replace(
    UCI,
    name="timings",
    about="seconds of every method alone on the first split, without compilation",
    n_splits=1,
    n_rows=None,
)


# Ablation: all sixteen combinations of the four ideas, all else equal.

SWITCHES = {"locality": "LS", "split": "MV", "inverse_gamma": "IG", "extrapolate": "EX"}


def combination(task: Task) -> str:
    """Names of the active ideas: ``LS+IG``; ``none`` is a plain mean-variance network."""
    return "+".join(SWITCHES[s] for s in SWITCHES if task.settings.get(s)) or "none"


COMBINATIONS = [
    "+".join(names) or "none"
    for size in range(len(SWITCHES) + 1)
    for names in itertools.combinations(SWITCHES.values(), size)
]


def by_combination(records: Sequence[Record]) -> dict[str, dict[str, dict[str, list[Record]]]]:
    """Done records: method -> data set -> combination -> splits."""
    ordered = sorted(records, key=lambda r: (r.task.method, list(UCI_SETS).index(r.task.dataset)))
    return group_done(ordered, lambda t: t.method, lambda t: t.dataset, combination)


def ablation_tables(records: Sequence[Record]) -> list[ReportTable]:
    tables = []
    for score, title in (("log_likelihood", "log-likelihood"), ("rmse", "RMSE")):
        for method, columns in by_combination(records).items():
            sets = [
                {
                    name: {r.task.split: r.scores[score] for r in found}
                    for name, found in set_.items()
                }
                for set_ in columns.values()
            ]
            rows = [
                [name, *(mean_and_error([*cells.get(name, {}).values()]) for cells in sets)]
                for name in COMBINATIONS
                if any(name in cells for cells in sets)
            ]
            rows += [
                [f"with {idea} − without", *(mean_change(cells, idea) for cells in sets)]
                for idea in SWITCHES.values()
            ]
            table = ReportTable(
                title=f"ablation of {method}: test {title}",
                header=["ideas", *columns],
                rows=rows,
                notes=[
                    "± standard error over the splits. With an idea − without it: mean over the"
                    " eight pairs of combinations that differ only in this idea."
                ],
            )
            tables.append(table)
    return tables


def mean_change(cells: dict[str, dict[int, float]], idea: str) -> str:
    """Mean difference of all pairs of combinations that differ only in an idea."""
    by_split: dict[int, list[float]] = {}
    for name, values in cells.items():
        ideas = name.split("+")
        if idea in ideas:
            without = cells.get("+".join(other for other in ideas if other != idea) or "none", {})
            for split in set(values) & set(without):
                by_split.setdefault(split, []).append(values[split] - without[split])
    return mean_and_error([np.mean(gains) for gains in by_split.values()])


def ablation_figures(records: Sequence[Record]) -> dict[str, Figure]:
    figures = {}
    for method, columns in by_combination(records).items():
        figure = Figure(figsize=(1.5 + 2.2 * len(columns), 4.2), layout="constrained")
        grid = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
        for axes, (dataset, cells) in zip(grid, columns.items(), strict=True):
            for height, name in enumerate(COMBINATIONS):
                if name in cells:
                    values = np.array([r.scores["log_likelihood"] for r in cells[name]])
                    look = {"fmt": "o", "ms": 4, "color": MODEL if name.count("+") == 3 else QUIET}
                    axes.errorbar(values.mean(), height, xerr=standard_error(values), **look)
            axes.set_title(dataset, fontsize=10)
            axes.set_xlabel("log-likelihood", fontsize=9)
            axes.grid(axis="y", color="#eeeeee")
            tidy(axes)
        grid[0].set_yticks(range(len(COMBINATIONS)), COMBINATIONS, fontsize=8)
        figures[f"ablation_{method}"] = figure
    return figures


ABLATION = replace(
    UCI,
    name="ablation",
    about="all sixteen combinations of the paper's four ideas",
    datasets=("boston", "concrete", "energy", "yacht", "wine_red", "superconduct"),
    methods=("combined-paper", "combined"),
    n_splits=5,
    variants=lambda choice: [
        dict(zip(SWITCHES, values, strict=True))
        for values in itertools.product([False, True], repeat=len(SWITCHES))
    ],
    other_datasets=UCI_SETS,
    tables=ablation_tables,
    figures=ablation_figures,
)
