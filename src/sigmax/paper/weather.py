"""Calibration of variances: one year of weather to learn from, a century to be scored against."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sigmax.data import STATIONS, Station, load_station
from sigmax.plots import Curve, draw_prediction, draw_spread, model_panels
from sigmax.runs.fitting import create_model, fit_models
from sigmax.runs.methods import METHODS, SIX_METHODS
from sigmax.runs.records import Record, Task, describe_machine, done, group_done, in_order
from sigmax.runs.registry import Experiment, register
from sigmax.runs.tables import ReportTable, mean_and_error

__all__ = ["run_weather", "score_weather", "weather_figures", "weather_tables"]

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
        if task.split == 0:  # the draw of the picture
            curves |= {"y": y, **truth}
        scores = score_weather(station, curve)
        parts = {"curves": curves, "seconds": seconds, "machine": machine}
        records.append(done(task, scores=scores, **parts))
    return records


def score_weather(station: Station, curve: Curve) -> dict[str, float]:
    """A prediction for every calendar day against what the years say.

    Returns
    -------
    dict with
        ``variance_error``, the mean |σ²_true - σ²|, the paper's Err, in squared degrees;
        ``std_error``, the mean |σ_true - σ|, in degrees;
        ``variance_bias``, the mean σ² - σ²_true: below 0 where the model is too sure;
        ``mean_error``, the root mean squared difference of the means.
    """
    variance, true_variance = curve.std**2, station.variance()
    return {
        "variance_error": float(np.abs(variance - true_variance).mean()),
        "std_error": float(np.abs(curve.std - np.sqrt(true_variance)).mean()),
        "variance_bias": float((variance - true_variance).mean()),
        "mean_error": float(np.sqrt(np.mean((curve.mean - station.mean()) ** 2))),
    }


def by_station(records: Sequence[Record]) -> dict[str, dict[str, list[Record]]]:
    """Done records: station -> title of the method -> draws."""
    found: dict[str, dict[str, list[Record]]] = {}
    draws = group_done(in_order(records, METHODS), lambda task: (task.dataset, task.method))
    for (station, method), records in draws.items():
        found.setdefault(station, {})[METHODS[method].title] = records
    return found


def weather_tables(records: Sequence[Record]) -> list[ReportTable]:
    """One table per station, one row per method."""
    columns = ("variance_error", "std_error", "variance_bias", "mean_error")
    return [
        ReportTable(
            title=f"{station_title(name)}: one year to learn from,"
            f" {max(map(len, methods.values()))} draws",
            header=["model", "Err σ²", "Err σ", "bias σ²", "RMSE of mean"],
            rows=[
                [title, *(mean_and_error([r.scores[column] for r in draws]) for column in columns)]
                for title, draws in methods.items()
            ],
            notes=[
                "Err: mean absolute difference from the variance (standard deviation) over the"
                " years, in °C² (°C); bias: mean difference, below 0 where the model is too sure;"
                " ± standard error over the draws."
            ],
        )
        for name, methods in by_station(records).items()
    ]


def weather_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Per station the pictures of the first draw: predictions, and standard deviations."""
    figures: dict[str, Figure] = {}
    for name, methods in by_station(records).items():
        shown = {
            title: record
            for title, draws in methods.items()
            for record in draws
            if record.task.split == 0
        }
        if not shown:
            continue
        stem = Path(name).name.split(".")[0]
        figures[stem] = prediction_figure(name, shown)
        figures[f"{stem}_std"] = spread_figure(name, shown)
    return figures


def station_title(name: str) -> str:
    """A known station's title, or the name of a file."""
    return STATIONS.get(name, Path(name).name.split(".")[0])


def titled_curves(shown: dict[str, Record]) -> dict[str, Curve]:
    """The curves, each title with its error."""
    return {
        f"{title}: Err {record.scores['variance_error']:.2f}": Curve.read(record.curves)
        for title, record in shown.items()
    }


def station_figure(
    name: str, shown: dict[str, Record], draw: Callable[[Axes, Curve], None], ylabel: str
) -> Figure:
    """A panel per model, along the days of the year."""
    return model_panels(
        titled_curves(shown),
        draw,
        title=station_title(name),
        xlabel="day of the year",
        ylabel=ylabel,
    )


def prediction_figure(name: str, shown: dict[str, Record]) -> Figure:
    """Every model's band over the data, and the true one in lines."""
    some = next(iter(shown.values())).curves
    data = DAYS, np.asarray(some["y"])
    true_mean, true_std = np.asarray(some["true_mean"]), np.asarray(some["true_std"])

    def draw(axes: Axes, curve: Curve) -> None:
        draw_prediction(axes, DAYS, curve, data=data, true_mean=true_mean, true_std=true_std)

    return station_figure(name, shown, draw, "maximum temperature (°C)")


def spread_figure(name: str, shown: dict[str, Record]) -> Figure:
    """Every model's standard deviation against that over the years."""
    true_std = np.asarray(next(iter(shown.values())).curves["true_std"])

    def draw(axes: Axes, curve: Curve) -> None:
        draw_spread(axes, DAYS, curve, true_std=true_std)

    return station_figure(name, shown, draw, "standard deviation (°C)")


register(
    Experiment(
        name="weather",
        about="one year of temperatures to learn from, a century to be judged by",
        datasets=tuple(STATIONS),
        methods=SIX_METHODS,
        n_splits=5,
        check_dataset=load_station,  # an error now rather than a failed record each
        n_rows=lambda station: len(DAYS),
        run=run_weather,
        tables=weather_tables,
        figures=weather_figures,
    )
)
