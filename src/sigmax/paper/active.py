"""Active learning: in each round, the acquisition function chooses rows of the pool to label."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sigmax.active_learning import ACQUISITIONS, choose, split_for_active_learning
from sigmax.data import UCI_SETS, load_uci
from sigmax.plots import tidy
from sigmax.report.tables import ReportTable, mean_and_error, three_decimals
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import METHODS, SIX_METHODS, create_model, fit_models, score_prediction
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, infeasible

N_ROUNDS = 10


def run_active(job: Sequence[Task]) -> list[Record]:
    """Run all repeats of a job: each round fits, scores, and chooses rows of the pool."""
    data, machine = load_uci(job[0].dataset), describe_machine()
    acquisition = job[0].settings["acquisition"]
    n_rows, largest = len(data.y), METHODS[job[0].method].largest
    parts = [split_for_active_learning(n_rows, random_state=task.seed) for task in job]
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


Kind = tuple[str, str]
"""Method and acquisition."""


def by_kind(records: Sequence[Record]) -> tuple[dict[str, dict[Kind, dict[int, Record]]], list]:
    """Done records by data set, kind and repeat; and all kinds, in the order of methods."""
    sets = group_done(records, lambda task: task.dataset)
    found = {
        name: {
            kind: {record.task.split: record for record in repeats}
            for kind, repeats in group_done(
                sets[name], lambda task: (task.method, task.settings["acquisition"])
            ).items()
        }
        for name in UCI_SETS
        if name in sets
    }
    present = {kind for curves in found.values() for kind in curves}
    return found, [kind for kind in itertools.product(METHODS, ACQUISITIONS) if kind in present]


def kind_title(kind: Kind) -> str:
    return f"{METHODS[kind[0]].title}, {kind[1]}"


def active_tables(records: Sequence[Record]) -> list[ReportTable]:
    """Mean RMSE and log-likelihood over the rounds, compared with random rows."""
    found, kinds = by_kind(records)
    return [
        active_table(found, kinds, "rmse_area", "RMSE", -1),
        active_table(found, kinds, "log_likelihood_area", "log-likelihood", 1),
    ]


def active_table(found, kinds: Sequence[Kind], score: str, title: str, better: int) -> ReportTable:
    """One row per data set, one column per kind; + marks kinds that are better than random."""
    rows, wins = [], {kind: [] for kind in kinds if kind[1] != "random"}
    for dataset, curves in found.items():
        row = [dataset]
        everything = [r.scores[score] for repeats in curves.values() for r in repeats.values()]
        for kind in kinds:
            repeats, control = curves.get(kind, {}), curves.get((kind[0], "random"), {})
            if not repeats:
                row.append("")
                continue
            values = [record.scores[score] for record in repeats.values()]
            text = mean_and_error(values, digits=three_decimals(np.median(everything)))
            common = sorted(set(repeats) & set(control))
            if kind in wins and common:
                gains = [repeats[i].scores[score] - control[i].scores[score] for i in common]
                wins[kind].append(better * float(np.mean(gains)) > 0)
                text += " +" if wins[kind][-1] else " −"
            row.append(text)
        rows.append(row)
    counts = [
        f"{kind_title(kind)}: better than random on {sum(won)} of {len(won)} data sets."
        for kind, won in wins.items()
        if won
    ]
    return ReportTable(
        title=f"active learning: mean test {title} over rounds 1 to {N_ROUNDS}",
        header=["data set", *map(kind_title, kinds)],
        rows=rows,
        notes=[
            "20 % labelled, 60 % pool, 20 % test; each round 1 % of the pool; ± standard error"
            " over the repeats. + is better and − worse than the same method with random rows, in"
            " the mean over paired repeats.",
            *counts,
        ],
    )


def active_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """RMSE and log-likelihood by round, one panel per data set."""
    found, kinds = by_kind(records)
    scores = {"rmse": "RMSE", "log_likelihood": "log-likelihood"} if found else {}
    return {
        f"active_{score}": active_figure(found, kinds, score, label)
        for score, label in scores.items()
    }


def active_figure(found, kinds: Sequence[Kind], score: str, label: str) -> Figure:
    """Medians over the repeats; line styles show acquisitions, colours methods or kinds."""
    looks: list[Any] = ["-", "--", "-.", (0, (5, 1)), (0, (1, 1)), ":"]
    styles: dict[str, Any] = dict(zip(ACQUISITIONS, looks, strict=True))
    methods = list(dict.fromkeys(method for method, _ in kinds))
    n_columns = min(4, len(found))
    n_rows = -(-len(found) // n_columns)
    figure = Figure(figsize=(1 + 2.8 * n_columns, 1 + 2.1 * n_rows), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True)
    lines = {}
    for axes, (dataset, curves) in zip(grid.flat, found.items(), strict=False):
        for kind in kinds:
            if kind not in curves:
                continue
            values = np.median([r.curves[score] for r in curves[kind].values()], axis=0)
            shade = kinds.index(kind) if len(methods) == 1 else methods.index(kind[0])
            look: dict[str, Any] = {"color": f"C{shade}", "ls": styles[kind[1]]}
            (lines[kind_title(kind)],) = axes.plot(values, lw=1.4, **look)
        axes.set_title(dataset, fontsize=10)
        tidy(axes)
    for axes in grid.flat[len(found) :]:
        axes.remove()
    figure.supxlabel("round", fontsize=10)
    figure.supylabel(f"test {label}, median over the repeats", fontsize=10)
    legend = {"loc": "outside upper center", "ncols": min(n_columns, len(lines)), "frameon": False}
    figure.legend(list(lines.values()), list(lines), fontsize=9, **legend)
    return figure


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
