"""Active learning: a few labels to begin with, and each round the pool's most wanted rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sigmax.active_learning import ACQUISITIONS, choose, split_for_active_learning
from sigmax.data import UCI_SETS, load_uci
from sigmax.plots import tidy
from sigmax.runs.fitting import create_model, fit_models, score_prediction
from sigmax.runs.methods import METHODS, SIX_METHODS
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, infeasible
from sigmax.runs.registry import Experiment, register
from sigmax.runs.tables import ReportTable, mean_and_error, three_decimals

__all__ = ["active_figures", "active_tables", "run_active"]

N_ROUNDS = 10


def run_active(job: Sequence[Task]) -> list[Record]:
    """All repeats of a job, round by round: fit, score on the test rows, choose from the pool."""
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
    seconds = {"fit": 0.0, "compile": 0.0, "together": 1.0}
    for number in range(N_ROUNDS + 1):
        models = [create_model(model_task(task)) for task in job]
        times = fit_models(models, [(data.X[rows], data.y[rows]) for rows in labelled])
        seconds = {
            "fit": seconds["fit"] + times["fit"],
            "compile": seconds["compile"] + times["compile"],
            "together": times["together"],
        }
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
    records = []
    for task, scores in zip(job, rounds, strict=True):
        curves = {
            name: [score[name] for score in scores] for name in ("rmse", "log_likelihood", "crps")
        }
        areas = {f"{name}_area": float(np.mean(values[1:])) for name, values in curves.items()}
        records.append(done(task, scores=areas, curves=curves, seconds=seconds, machine=machine))
    return records


def model_task(task: Task) -> Task:
    """The task without what its model need not know."""
    settings = {name: value for name, value in task.settings.items() if name != "acquisition"}
    return replace(task, settings=settings)


Kind = tuple[str, str]
"""Method and acquisition."""


def kind_of(task: Task) -> Kind:
    return task.method, task.settings["acquisition"]


def by_kind(records: Sequence[Record]) -> tuple[dict[str, dict[Kind, dict[int, Record]]], list]:
    """Done records by data set, kind and repeat; and all kinds, in the order of the methods."""
    sets = group_done(records, lambda task: task.dataset)
    found = {
        name: {
            kind: {record.task.split: record for record in repeats}
            for kind, repeats in group_done(sets[name], kind_of).items()
        }
        for name in UCI_SETS
        if name in sets
    }
    methods: list[str] = list(METHODS)
    acquisitions: list[str] = list(ACQUISITIONS)
    kinds = {kind for curves in found.values() for kind in curves}
    order = sorted(kinds, key=lambda k: (methods.index(k[0]), acquisitions.index(k[1])))
    return found, order


def kind_title(kind: Kind) -> str:
    return f"{METHODS[kind[0]].title}, {kind[1]}"


def active_tables(records: Sequence[Record]) -> list[ReportTable]:
    """The mean over the rounds of RMSE and log-likelihood, and where random is beaten."""
    found, kinds = by_kind(records)
    return [
        active_table(found, kinds, "rmse_area", "RMSE", -1),
        active_table(found, kinds, "log_likelihood_area", "log-likelihood", 1),
    ]


def active_table(found, kinds: Sequence[Kind], score: str, title: str, better: int) -> ReportTable:
    """One row per data set, one column per kind; + marks what is ahead of random."""
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
        f"{kind_title(kind)}: ahead of random on {sum(won)} of {len(won)} data sets."
        for kind, won in wins.items()
        if won
    ]
    return ReportTable(
        title=f"active learning: mean test {title} over rounds 1 to {N_ROUNDS}",
        header=["data set", *map(kind_title, kinds)],
        rows=rows,
        notes=[
            "20 % labelled, 60 % pool, 20 % test; each round 1 % of the pool; ± standard error"
            " over the repeats. + is better and − worse than the same method with rows at random,"
            " in the mean of the paired repeats.",
            *counts,
        ],
    )


def active_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """RMSE and log-likelihood against the round, one panel per data set."""
    found, kinds = by_kind(records)
    if not found:
        return {}
    return {
        f"active_{score}": active_figure(found, kinds, score, label)
        for score, label in (("rmse", "RMSE"), ("log_likelihood", "log-likelihood"))
    }


def active_figure(found, kinds: Sequence[Kind], score: str, label: str) -> Figure:
    """Medians over the repeats; a line style per acquisition, and a colour per method or kind."""
    looks: list[Any] = ["-", "--", "-.", (0, (5, 1)), (0, (1, 1)), ":"]
    names: list[str] = list(ACQUISITIONS)
    styles = dict(zip(names, looks, strict=True))
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
    place = {"loc": "outside upper center", "ncols": min(n_columns, len(lines)), "frameon": False}
    figure.legend(list(lines.values()), list(lines), fontsize=9, **place)
    return figure


register(
    Experiment(
        name="active",
        about="active learning: the rows of highest variance against rows at random",
        datasets=tuple(name for name in UCI_SETS if name != "year"),
        methods=SIX_METHODS,
        n_splits=10,
        variants=lambda choice: [
            {"acquisition": name} for name in choice.acquisitions or ("variance", "random")
        ],
        # at the end a fifth is labelled, and a tenth of three fifths
        n_rows=lambda dataset: UCI_SETS[dataset].n_rows * 26 // 100,
        other_datasets=UCI_SETS,
        run=run_active,
        tables=active_tables,
        figures=active_figures,
    )
)
