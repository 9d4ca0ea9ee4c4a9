"""Calibration of variances: one year of weather to learn from, a century to be judged by."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.data import Station
from sigmax.estimators import AbstractRegressor
from sigmax.experiments.methods import Method
from sigmax.experiments.tables import Table, mean_and_error
from sigmax.plots import Curve, draw_prediction, draw_spread, model_panels

__all__ = [
    "WeatherResult",
    "WeatherScores",
    "run_weather",
    "score_weather",
    "weather_figures",
    "weather_table",
]


@dataclass(frozen=True, kw_only=True)
class WeatherScores:
    """How far a model's variance is from the one over the years, over all calendar days."""

    variance_error: float
    """Mean |σ²_true - σ²|, the paper's Err, in squared degrees."""
    std_error: float
    """Mean |σ_true - σ|, in degrees."""
    variance_bias: float
    """Mean σ² - σ²_true: below 0 where the model is too sure."""
    mean_error: float
    """Root mean squared difference between the model's mean and that over the years."""


@dataclass(frozen=True, eq=False)
class WeatherResult:
    """Scores of every draw by the models' titles, and what the pictures of the first show."""

    station: Station
    data: tuple[NDArray, NDArray]
    curves: dict[str, Curve]
    scores: dict[str, list[WeatherScores]]


def score_weather(station: Station, curve: Curve) -> WeatherScores:
    """A prediction for every calendar day against what the years say."""
    variance, true_variance = curve.std**2, station.variance()
    return WeatherScores(
        variance_error=float(np.abs(variance - true_variance).mean()),
        std_error=float(np.abs(curve.std - np.sqrt(true_variance)).mean()),
        variance_bias=float((variance - true_variance).mean()),
        mean_error=float(np.sqrt(np.mean((curve.mean - station.mean()) ** 2))),
    )


def predict_year(model: AbstractRegressor, station: Station, draw: int) -> Curve:
    """Fit a model to one draw of a year, and let it predict every calendar day."""
    model.fit(*station.draw_year(draw))
    return Curve(*model.predict(station.days, return_std=True))


def run_weather(
    station: Station,
    methods: Mapping[str, Method],
    draws: Iterable[int],
    *,
    report: Callable[[str], None] = lambda what: None,
) -> WeatherResult:
    """Fit every method to every draw of a year; ``report`` hears of each fit before it."""
    draws = list(draws)
    curves, scores = {}, {method.title: [] for method in methods.values()}
    for draw in draws:
        for method in methods.values():
            report(f"{station.name}, draw {draw}: {method.title}")
            curve = predict_year(method.create(draw), station, draw)
            scores[method.title].append(score_weather(station, curve))
            curves.setdefault(method.title, curve)
    X, y = station.draw_year(draws[0])
    return WeatherResult(station, (X[:, 0], y), curves, scores)


def weather_table(results: Iterable[WeatherResult]) -> Table:
    """One row per station and model."""
    columns = ("variance_error", "std_error", "variance_bias", "mean_error")
    rows, n_draws = [], 0
    for result in results:
        for title, scores in result.scores.items():
            n_draws = len(scores)
            cells = [
                mean_and_error([getattr(score, column) for score in scores]) for column in columns
            ]
            rows.append([f"{result.station.name}: {title}", *cells])
    return Table(
        title=f"weather: one year to learn from, {n_draws} draws",
        header=["station: model", "Err σ² (°C²)", "Err σ (°C)", "bias σ² (°C²)", "RMSE mean (°C)"],
        rows=rows,
        notes=[
            "Err: mean absolute difference from the variance (and from the standard deviation) over"
            " the years, over the calendar days; bias: mean difference, below 0 where the model is"
            " too sure; mean ± standard error over the draws."
        ],
    )


def weather_figures(result: WeatherResult) -> dict[str, Figure]:
    """The pictures of the first draw by their names: predictions, and standard deviations."""
    stem = result.station.stem
    return {stem: prediction_figure(result), f"{stem}_std": spread_figure(result)}


def titled_curves(result: WeatherResult) -> dict[str, Curve]:
    """The curves, each title with the error of the draw that is shown."""
    return {
        f"{title}: Err {result.scores[title][0].variance_error:.2f}": curve
        for title, curve in result.curves.items()
    }


def prediction_figure(result: WeatherResult) -> Figure:
    """The first draw: every model's band over the data, and the true one in lines."""
    station, grid = result.station, result.station.days[:, 0]
    truth = {"true_mean": station.mean(), "true_std": np.sqrt(station.variance())}

    def draw(axes: Axes, curve: Curve) -> None:
        draw_prediction(axes, grid, curve, data=result.data, **truth)

    return model_panels(
        titled_curves(result),
        draw,
        title=station.name,
        xlabel="day of the year",
        ylabel="maximum temperature (°C)",
    )


def spread_figure(result: WeatherResult) -> Figure:
    """The first draw: every model's standard deviation against that over the years."""
    station, grid = result.station, result.station.days[:, 0]
    true_std = np.sqrt(station.variance())

    def draw(axes: Axes, curve: Curve) -> None:
        draw_spread(axes, grid, curve, true_std=true_std)

    return model_panels(
        titled_curves(result),
        draw,
        title=station.name,
        xlabel="day of the year",
        ylabel="standard deviation (°C)",
    )
