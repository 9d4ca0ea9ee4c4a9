"""Active learning: a few labels to begin with, and each round the pool's most wanted rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from sigmax.active_learning import choose, split_for_active_learning
from sigmax.data import UCI_SETS, load_uci
from sigmax.experiments.engines import Job
from sigmax.experiments.fits import create_model, fit_models, judge
from sigmax.experiments.methods import METHODS
from sigmax.experiments.records import Record, Task, describe_machine, done, infeasible
from sigmax.experiments.tables import Table, mean_and_error
from sigmax.experiments.uci import ROWS_TOGETHER
from sigmax.plots import tidy

__all__ = ["active_figures", "active_tables", "active_tasks", "group_repeats", "run_active"]

N_ROUNDS = 10


def active_tasks(
    datasets: Sequence[str],
    methods: Sequence[str],
    acquisitions: Sequence[str],
    n_repeats: int,
    seed: int,
    settings: dict,
) -> list[Task]:
    """One task per data set, method, acquisition and repeat, each with its own rows to start."""
    return [
        Task(
            experiment="active",
            dataset=dataset,
            method=method,
            split=repeat,
            seed=seed + repeat,
            settings={**settings, "acquisition": acquisition},
        )
        for dataset in datasets
        for method in methods
        for acquisition in acquisitions
        for repeat in range(n_repeats)
    ]


def group_repeats(tasks: Sequence[Task], *, device: str) -> list[Job]:
    """Repeats in one job: they go from round to round together."""
    alike: dict[str, list[Task]] = {}
    for task in tasks:
        kind = f"{task.dataset} {task.method} {sorted(task.settings.items())}"
        alike.setdefault(kind, []).append(task)
    jobs = []
    for group in alike.values():
        n_rows = round(0.26 * UCI_SETS[group[0].dataset].n_rows)
        n_together = max(1, ROWS_TOGETHER[device] // n_rows)
        if not METHODS[group[0].method].is_network:
            n_together = 1
        jobs += [tuple(group[i : i + n_together]) for i in range(0, len(group), n_together)]
    return jobs


def run_active(job: Sequence[Task]) -> list[Record]:
    """All repeats of a job, round by round: fit, judge on the test rows, choose from the pool."""
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
            rounds[i].append(judge(data.y[test], model.predict_dist(data.X[test])))
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


Curves = dict[tuple[str, str], dict[int, Record]]


def by_dataset(records: Sequence[Record]) -> dict[str, Curves]:
    """Done records: data set -> (method, acquisition) -> repeat."""
    found: dict[str, Curves] = {}
    for record in records:
        if record.status == "done":
            kind = (record.task.method, record.task.settings["acquisition"])
            found.setdefault(record.task.dataset, {}).setdefault(kind, {})[record.task.split] = (
                record
            )
    return found


def active_tables(records: Sequence[Record]) -> list[Table]:
    """The mean over the rounds of RMSE and log-likelihood, and by how much random is beaten."""
    tables, found = [], by_dataset(records)
    kinds = list(dict.fromkeys(kind for curves in found.values() for kind in curves))
    for score, title, sign in (
        ("rmse_area", "RMSE", -1),
        ("log_likelihood_area", "log-likelihood", 1),
    ):
        rows = []
        for dataset, curves in found.items():
            row = [dataset]
            for method, acquisition in kinds:
                repeats = curves.get((method, acquisition), {})
                if not repeats:
                    row.append("-")
                    continue
                text = mean_and_error([r.scores[score] for r in repeats.values()], digits=3)
                control = curves.get((method, "random"), {})
                common = sorted(set(repeats) & set(control))
                if acquisition != "random" and common:
                    gains = [
                        sign * (repeats[i].scores[score] - control[i].scores[score]) for i in common
                    ]
                    wins = float(np.mean(gains)) > 0
                    text += " +" if wins else " −"
                row.append(text)
            rows.append(row)
        header = [f"{METHODS[method].title}, {acquisition}" for method, acquisition in kinds]
        tables.append(
            Table(
                title=f"active learning: mean test {title} over rounds 1 to {N_ROUNDS}",
                header=["data set", *header],
                rows=rows,
                notes=[
                    "20 % labelled, 60 % pool, 20 % test; each round 1 % of the pool; ± standard"
                    " error over the repeats. + is better and − worse than the same method with"
                    " rows at random, in the mean of the paired repeats."
                ],
            )
        )
    return tables


def active_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """RMSE and log-likelihood against the round, one column per data set."""
    found = by_dataset(records)
    if not found:
        return {}
    kinds = list(dict.fromkeys(kind for curves in found.values() for kind in curves))
    methods = list(dict.fromkeys(method for method, _ in kinds))
    styles = {"variance": "-", "epistemic": "--", "information": "-.", "random": ":"}
    figure = Figure(figsize=(1 + 2.9 * len(found), 5.6), layout="constrained")
    grid = figure.subplots(2, len(found), squeeze=False, sharex=True)
    for column, (dataset, curves) in enumerate(found.items()):
        for axes, score in zip(grid[:, column], ("rmse", "log_likelihood"), strict=True):
            for (method, acquisition), repeats in curves.items():
                values = np.mean([r.curves[score] for r in repeats.values()], axis=0)
                axes.plot(
                    values,
                    styles.get(acquisition, "-"),
                    color=f"C{methods.index(method)}",
                    lw=1.4,
                    label=f"{METHODS[method].title}, {acquisition}",
                )
            tidy(axes)
        grid[0, column].set_title(dataset, fontsize=10)
        grid[1, column].set_xlabel("round", fontsize=9)
    grid[0, 0].set_ylabel("RMSE")
    grid[1, 0].set_ylabel("log-likelihood")
    lines = {
        text: line
        for axes in grid.flat
        for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(lines.values()),
        list(lines),
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    return {"active": figure}
