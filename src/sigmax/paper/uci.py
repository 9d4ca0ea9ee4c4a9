"""Experiments on the UCI sets: the benchmark, its timings, the ablation, and active learning."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.active_learning import ACQUISITIONS, choose
from sigmax.data import UCI_SETS, RegressionData, load_uci
from sigmax.paper.benchmark import standard_error, uci_tables
from sigmax.plots import MODEL, QUIET, tidy
from sigmax.random import make_key, named_generator
from sigmax.report.tables import ReportTable, mean_and_error, three_decimals
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import (
    METHODS,
    SIX_METHODS,
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


# Active learning: in each round, the acquisition function chooses rows of the pool to label.

N_ROUNDS = 10


def run_active(job: Sequence[Task]) -> list[Record]:
    data, machine = load_uci(job[0].dataset), describe_machine()
    acquisition = job[0].settings["acquisition"]
    n_rows, largest = len(data.y), METHODS[job[0].method].largest
    parts = [split_rows(n_rows, task.seed) for task in job]
    if largest is not None and len(parts[0][0]) + len(parts[0][1]) // 10 > largest:
        reason = f"more training rows than the {largest:,} of an exact Gaussian process"
        return [infeasible(task, reason, machine=machine) for task in job]
    labelled, pools = [part[0] for part in parts], [part[1] for part in parts]
    n_chosen = max(1, round(len(pools[0]) / 100))
    rounds: list[list[dict[str, float]]] = [[] for _ in job]
    model_tasks = [
        replace(task, settings={k: v for k, v in task.settings.items() if k != "acquisition"})
        for task in job
    ]
    seconds: Any = Counter()
    for number in range(N_ROUNDS + 1):
        models = [create_model(task) for task in model_tasks]
        times = fit_models(models, [(data.X[rows], data.y[rows]) for rows in labelled])
        seconds.update(times)
        seconds["together"] = times["together"]
        for i, (task, model) in enumerate(zip(job, models, strict=True)):
            test = parts[i][2]
            rounds[i].append(score_prediction(data.y[test], model.predict_dist(data.X[test])))
            if number == N_ROUNDS:
                continue
            seed = np.random.SeedSequence([task.seed, number]).generate_state(1)[0]
            settings = {"acquisition": acquisition, "random_state": int(seed)}
            chosen = choose(model, data.X[pools[i]], n_chosen, **settings)
            labelled[i] = np.concatenate([labelled[i], pools[i][chosen]])
            pools[i] = np.delete(pools[i], chosen)
    records, parts = [], {"seconds": dict(seconds), "machine": machine}
    for task, scores in zip(job, rounds, strict=True):
        names = ("rmse", "log_likelihood", "crps")
        curves = {name: [score[name] for score in scores] for name in names}
        areas = {f"{name}_area": float(np.mean(values[1:])) for name, values in curves.items()}
        records.append(done(task, scores=areas, curves=curves, **parts))
    return records


def split_rows(n_rows: int, seed: int) -> list[np.ndarray]:
    """Random split of the paper: 20 % labelled, 60 % pool, 20 % test, as row numbers."""
    order = named_generator(make_key(seed), "split").permutation(n_rows)
    n_test = round(0.2 * n_rows)
    return [np.sort(part) for part in np.split(order, [n_test, n_rows - n_test])]


Kind = tuple[str, str]


def by_kind(records: Sequence[Record]) -> tuple[dict[str, dict[Kind, list[Record]]], list[Kind]]:
    """Done records by data set and kind; and all kinds, in the order of methods."""
    known = [record for record in records if record.task.dataset in UCI_SETS]
    ordered = sorted(known, key=lambda record: list(UCI_SETS).index(record.task.dataset))
    found = group_done(
        ordered, lambda task: task.dataset, lambda task: (task.method, task.settings["acquisition"])
    )
    present = {kind for curves in found.values() for kind in curves}
    return found, [kind for kind in itertools.product(METHODS, ACQUISITIONS) if kind in present]


def kind_title(kind: Kind) -> str:
    return f"{METHODS[kind[0]].title}, {kind[1]}"


def active_tables(records: Sequence[Record]) -> list[ReportTable]:
    found, kinds = by_kind(records)
    tables = []
    for score, title, better in (("rmse", "RMSE", -1), ("log_likelihood", "log-likelihood", 1)):
        rows, wins = [], {kind: [] for kind in kinds if kind[1] != "random"}
        for dataset, curves in found.items():
            areas = {
                kind: {record.task.split: record.scores[f"{score}_area"] for record in repeats}
                for kind, repeats in curves.items()
            }
            middle = np.median([area for repeats in areas.values() for area in repeats.values()])
            row = [dataset]
            for kind in kinds:
                repeats, control = areas.get(kind, {}), areas.get((kind[0], "random"), {})
                text = mean_and_error(list(repeats.values()), digits=three_decimals(middle))
                common = set(repeats) & set(control)
                if kind in wins and common:
                    gain = float(np.mean([repeats[i] - control[i] for i in sorted(common)]))
                    wins[kind].append(better * gain > 0)
                    text += " +" if wins[kind][-1] else " −"
                row.append(text)
            rows.append(row)
        counts = [
            f"{kind_title(kind)}: better than random on {sum(won)} of {len(won)} data sets."
            for kind, won in wins.items()
            if won
        ]
        table = ReportTable(
            title=f"active learning: mean test {title} over rounds 1 to {N_ROUNDS}",
            header=["data set", *map(kind_title, kinds)],
            rows=rows,
            notes=[
                "20 % labelled, 60 % pool, 20 % test; each round 1 % of the pool; ± standard error"
                " over the repeats. + is better and − worse than the same method with random rows,"
                " in the mean over paired repeats.",
                *counts,
            ],
        )
        tables.append(table)
    return tables


def active_figures(records: Sequence[Record]) -> dict[str, Figure]:
    found, kinds = by_kind(records)
    looks: list[Any] = ["-", "--", "-.", (0, (5, 1)), ":"]
    styles: dict[str, Any] = dict(zip(ACQUISITIONS, looks, strict=True))
    methods = list(dict.fromkeys(method for method, _ in kinds))
    n_columns = max(1, min(4, len(found)))
    n_rows = -(-len(found) // n_columns)
    figures = {}
    for score, label in (("rmse", "RMSE"), ("log_likelihood", "log-likelihood")) if found else ():
        figure = Figure(figsize=(1 + 2.8 * n_columns, 1 + 2.1 * n_rows), layout="constrained")
        grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True)
        lines = {}
        for axes, (dataset, curves) in zip(grid.flat, found.items(), strict=False):
            for kind in (kind for kind in kinds if kind in curves):
                values = np.median([record.curves[score] for record in curves[kind]], axis=0)
                shade = kinds.index(kind) if len(methods) == 1 else methods.index(kind[0])
                look: dict[str, Any] = {"color": f"C{shade}", "ls": styles[kind[1]]}
                (lines[kind_title(kind)],) = axes.plot(values, lw=1.4, **look)
            axes.set_title(dataset, fontsize=10)
            tidy(axes)
        for axes in grid.flat[len(found) :]:
            axes.remove()
        figure.supxlabel("round", fontsize=10)
        figure.supylabel(f"test {label}, median over the repeats", fontsize=10)
        layout: dict[str, Any] = {"loc": "outside upper center", "fontsize": 9, "frameon": False}
        ncols = min(n_columns, len(lines))
        figure.legend(list(lines.values()), list(lines), ncols=ncols, **layout)
        figures[f"active_{score}"] = figure
    return figures


ACTIVE = Experiment(
    name="active",
    about="active learning: rows of highest variance against random rows",
    datasets=tuple(name for name in UCI_SETS if name != "year"),
    methods=SIX_METHODS,
    n_splits=10,
    variants=lambda choice: [
        {"acquisition": name} for name in choice.acquisitions or ("variance", "random")
    ],
    # finally labelled: a fifth, and a tenth of three fifths
    n_rows=lambda dataset: UCI_SETS[dataset].n_rows * 26 // 100,
    other_datasets=UCI_SETS,
    run=run_active,
    tables=active_tables,
    figures=active_figures,
)
