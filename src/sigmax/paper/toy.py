"""Toy experiment: models against the true mean and std, inside and outside the data."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sigmax.data import ToyProblem
from sigmax.estimators import AbstractRegressor
from sigmax.metrics import coverage, log_likelihood
from sigmax.paper.benchmark import method_rows
from sigmax.plots import Curve, draw_prediction, draw_spread, model_panels, shade_range
from sigmax.report.tables import ReportTable
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import METHODS, SIX_METHODS, create_model, fit_models
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, in_order

TOY_PROBLEM = ToyProblem()
GRID = np.linspace(-4, 14, 361)
N_ROWS = 500


def run_toy(job: Sequence[Task]) -> list[Record]:
    machine, models = describe_machine(), [create_model(task) for task in job]
    data = [TOY_PROBLEM.sample(N_ROWS, random_state=task.seed) for task in job]
    seconds = fit_models(models, data)
    records = []
    for task, model, (_, y) in zip(job, models, data, strict=True):
        mean, std = model.predict(GRID[:, None], return_std=True)
        scores = score_toy(model, float(y.std()), task.seed + 1)
        parts = {"curves": {"mean": mean, "std": std}, "seconds": seconds, "machine": machine}
        records.append(done(task, scores=scores, **parts))
    return records


def score_toy(model: AbstractRegressor, y_std: float, random_state: int) -> dict[str, float]:
    """Scores of a fitted model on 10,000 new points and outside the data.

    ``excess`` is the true mean log density minus ``log_likelihood``, ``std_error`` the mean
    relative error of the standard deviation on [0.5, 9.5], ``coverage`` that of 90 % intervals;
    ``std_left`` and ``std_right`` are standard deviations at x = -4 and 14, relative to y.
    """
    X, y = TOY_PROBLEM.sample(10_000, random_state=random_state)
    dist = model.predict_dist(X)
    inside = np.linspace(0.5, 9.5, 181)
    _, std = model.predict(inside[:, None], return_std=True)
    _, outside = model.predict([[-4.0], [14.0]], return_std=True)
    achieved = log_likelihood(y, dist)
    return {
        "log_likelihood": achieved,
        "excess": float(TOY_PROBLEM.log_prob(X[:, 0], y).mean()) - achieved,
        "std_error": float(np.mean(np.abs(std / TOY_PROBLEM.std(inside) - 1))),
        "coverage": coverage(y, dist, level=0.9),
        "std_left": float(outside[0] / y_std),
        "std_right": float(outside[1] / y_std),
    }


def toy_tables(records: Sequence[Record]) -> list[ReportTable]:
    columns = {
        "log p": ("log_likelihood", 3),
        "below true": ("excess", 3),
        "std error": ("std_error", 3),
        "90 % cov.": ("coverage", 3),
        "std(−4)": ("std_left", 2),
        "std(14)": ("std_right", 2),
    }
    methods = group_done(in_order(records, METHODS), lambda task: task.method)
    n_seeds = max(map(len, methods.values()), default=0)
    seeds = f", {n_seeds} seeds" if n_seeds > 1 else ""
    return [
        ReportTable(
            title=f"toy problem: 500 points, y = x sin x + 0.3 ε₁ + 0.3 x ε₂ on [0, 10]{seeds}",
            header=["model", *columns],
            rows=method_rows(METHODS, methods, columns),
            notes=[
                "Log-likelihood and coverage on 10,000 new points; mean relative error of std on"
                " [0.5, 9.5]; std at x = −4 and 14 in units of std(y)."
            ],
        )
    ]


def toy_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Figures of the first seed: predictions, and standard deviations."""
    done_first = [r for r in records if r.status == "done" and r.task.split == 0]
    shown = in_order(done_first, METHODS)
    if not shown:
        return {}
    X, y = TOY_PROBLEM.sample(N_ROWS, random_state=shown[0].task.seed)
    curves = {METHODS[r.task.method].title: Curve.read(r.curves) for r in shown}
    on_data = (GRID >= TOY_PROBLEM.lower) & (GRID <= TOY_PROBLEM.upper)
    true_std = np.where(on_data, TOY_PROBLEM.std(GRID), np.nan)

    def prediction(axes: Axes, curve: Curve) -> None:
        draw_prediction(axes, GRID, curve, data=(X[:, 0], y), true_mean=TOY_PROBLEM.mean(GRID))
        shade_range(axes, TOY_PROBLEM.lower, TOY_PROBLEM.upper)

    def std(axes: Axes, curve: Curve) -> None:
        draw_spread(axes, GRID, curve, true_std=true_std, prior_std=float(y.std()))
        shade_range(axes, TOY_PROBLEM.lower, TOY_PROBLEM.upper)

    label = "standard deviation"
    return {
        "toy": model_panels(curves, prediction, xlabel="x", ylabel="y", ylim=(-25.0, 25.0)),
        "toy_std": model_panels(curves, std, xlabel="x", ylabel=label, ylim=(0.0, 10.0)),
    }


TOY = Experiment(
    name="toy",
    about="true mean and std are known, inside and outside the data",
    datasets=("toy",),
    methods=(*SIX_METHODS, "local"),
    n_splits=1,
    n_rows=lambda dataset: N_ROWS,
    run=run_toy,
    tables=toy_tables,
    figures=toy_figures,
)
