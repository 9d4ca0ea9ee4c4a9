"""Weather: models trained on one year of temperatures, scored on the variance of all years."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sigmax.data import STATIONS, Station, load_station
from sigmax.paper.benchmark import method_rows
from sigmax.plots import Curve, draw_prediction, draw_spread, model_panels
from sigmax.report.tables import ReportTable
from sigmax.runs.experiments import Experiment
from sigmax.runs.methods import METHODS, SIX_METHODS, create_model, fit_models
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, in_order

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
