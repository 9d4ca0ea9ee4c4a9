"""Experiments with one input, so that predictions are curves: the toy problem, and weather."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sigmax.data import STATIONS, Station, ToyProblem, load_station
from sigmax.estimators import AbstractRegressor
from sigmax.metrics import coverage, log_likelihood
from sigmax.paper.benchmark import method_rows
from sigmax.plots import Curve, draw_prediction, draw_spread, model_panels, shade_range
from sigmax.report.tables import ReportTable
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import METHODS, SIX_METHODS, create_model, fit_models
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, in_order

# The toy problem: models against the true mean and std, inside and outside the data.

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
    methods=(*SIX_METHODS, "local", "sigmax"),
    n_splits=1,
    n_rows=lambda dataset: N_ROWS,
    run=run_toy,
    tables=toy_tables,
    figures=toy_figures,
)


# Weather: models trained on one year of temperatures, scored on the variance of all years.

DAYS = np.arange(1, 366)


def run_weather(job: Sequence[Task]) -> list[Record]:
    """Fit a method to each draw of a year, and score it against all years."""
    station, machine = load_station(job[0].dataset), describe_machine()
    models = [create_model(task) for task in job]
    draws = [station.draw_year(task.seed) for task in job]
    seconds = fit_models(models, draws)
    truth = {"true_mean": station.mean(), "true_std": np.sqrt(station.variance())}
    records = []
    for task, model, (_, y) in zip(job, models, draws, strict=True):
        curve = Curve(*model.predict(station.days, return_std=True))
        curves = {"mean": curve.mean, "std": curve.std}
        if task.split == 0:  # the draw of the figures
            curves |= {"y": y, **truth}
        scores = score_weather(station, curve)
        parts = {"curves": curves, "seconds": seconds, "machine": machine}
        records.append(done(task, scores=scores, **parts))
    return records


def score_weather(station: Station, curve: Curve) -> dict[str, float]:
    """Scores of a prediction for every calendar day against mean and variance of all years.

    ``variance_error`` is the paper's Err, mean |σ²_true - σ²|, and ``std_error`` mean |σ_true - σ|;
    ``variance_bias``, mean σ² - σ²_true, is below 0 if the model is overconfident, and
    ``mean_error`` is the root mean squared difference of the means.
    """
    variance, true_variance = curve.std**2, station.variance()
    return {
        "variance_error": float(np.abs(variance - true_variance).mean()),
        "std_error": float(np.abs(curve.std - np.sqrt(true_variance)).mean()),
        "variance_bias": float((variance - true_variance).mean()),
        "mean_error": float(np.sqrt(np.mean((curve.mean - station.mean()) ** 2))),
    }


COLUMNS = {
    "Err σ²": ("variance_error", 2),
    "Err σ": ("std_error", 2),
    "bias σ²": ("variance_bias", 2),
    "RMSE of mean": ("mean_error", 2),
}


def by_station(records: Sequence[Record]) -> dict[str, dict[str, list[Record]]]:
    """Done records: station -> method -> draws."""
    ordered = in_order(records, METHODS)
    return group_done(ordered, lambda task: task.dataset, lambda task: task.method)


def weather_tables(records: Sequence[Record]) -> list[ReportTable]:
    return [
        ReportTable(
            title=f"{station_title(name)}: one year of training data,"
            f" {max(map(len, methods.values()))} draws",
            header=["model", *COLUMNS],
            rows=method_rows(METHODS, methods, COLUMNS),
            notes=[
                "Err: mean absolute difference from the variance (standard deviation) over the"
                " years, in °C² (°C); bias: mean difference, below 0 if the model is overconfident;"
                " ± standard error over the draws."
            ],
        )
        for name, methods in by_station(records).items()
    ]


def station_title(name: str) -> str:
    return STATIONS.get(name, Path(name).name.split(".")[0])


def weather_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Figures of the first draw of each station: predictions, and standard deviations."""
    figures: dict[str, Figure] = {}
    for name, methods in by_station(records).items():
        shown = {
            f"{METHODS[method].title}: Err {record.scores['variance_error']:.2f}": record.curves
            for method, draws in methods.items()
            for record in draws
            if record.task.split == 0
        }
        if shown:
            stem = Path(name).name.split(".")[0]
            figures[stem], figures[f"{stem}_std"] = station_figures(station_title(name), shown)
    return figures


def station_figures(title: str, shown: dict[str, dict[str, list[float]]]) -> tuple[Figure, Figure]:
    """Prediction and standard deviation of each model, with those over all years."""
    first = {name: np.asarray(values) for name, values in next(iter(shown.values())).items()}
    true_mean, true_std = first["true_mean"], first["true_std"]

    def prediction(axes: Axes, curve: Curve) -> None:
        data = DAYS, first["y"]
        draw_prediction(axes, DAYS, curve, data=data, true_mean=true_mean, true_std=true_std)

    def std(axes: Axes, curve: Curve) -> None:
        draw_spread(axes, DAYS, curve, true_std=true_std)

    curves = {name: Curve.read(found) for name, found in shown.items()}
    panels = partial(model_panels, curves, title=title, xlabel="day of the year")
    return (
        panels(prediction, ylabel="maximum temperature (°C)"),
        panels(std, ylabel="standard deviation (°C)"),
    )


WEATHER = Experiment(
    name="weather",
    about="one year of temperatures to train on, the variance of all years to score",
    datasets=tuple(STATIONS),
    methods=SIX_METHODS,
    n_splits=5,
    check_dataset=load_station,  # an error before the run, not failed records
    n_rows=lambda station: len(DAYS),
    run=run_weather,
    tables=weather_tables,
    figures=weather_figures,
)
