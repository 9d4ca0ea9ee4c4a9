"""The toy experiment: known mean, known spread, and models judged on and off the data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.data import ToyProblem
from sigmax.estimators import AbstractRegressor, CombinedRegressor, MeanVarianceRegressor
from sigmax.metrics import coverage, log_likelihood
from sigmax.plots import draw_prediction, draw_spread, shade_range

__all__ = ["ToyCurve", "ToyResult", "ToyScores", "demo_models", "run_toy", "toy_figure"]


@dataclass(frozen=True, kw_only=True)
class ToyScores:
    """How close one model comes to the truth."""

    log_likelihood: float
    """Mean log density of fresh points."""
    excess: float
    """How much the true density has more, in nats."""
    std_error: float
    """Mean relative error of the standard deviation on [0.5, 9.5]."""
    coverage: float
    """Share of fresh points inside their 90 % intervals."""
    std_left: float
    """Standard deviation at x = -4, in units of that of y."""
    std_right: float
    """The same at x = 14."""


@dataclass(frozen=True)
class ToyCurve:
    """Mean and standard deviation of one model along the shown range."""

    mean: NDArray
    std: NDArray


@dataclass(frozen=True)
class ToyResult:
    """What the picture and the table are made from."""

    problem: ToyProblem
    X: NDArray
    y: NDArray
    grid: NDArray
    curves: dict[str, ToyCurve]
    scores: dict[str, ToyScores]


def demo_models(random_state: int) -> dict[str, AbstractRegressor]:
    """The models that the demonstration compares."""
    return {
        "NN": MeanVarianceRegressor(random_state=random_state),
        "Combined": CombinedRegressor(random_state=random_state),
    }


def score_toy(
    model: AbstractRegressor, problem: ToyProblem, y_std: float, random_state: int
) -> ToyScores:
    """A fitted model against the truth, on 10,000 fresh points and off the data."""
    X, y = problem.sample(10_000, random_state=random_state)
    dist = model.predict_dist(X)
    inside = np.linspace(0.5, 9.5, 181)
    _, std = model.predict(inside[:, None], return_std=True)
    _, outside = model.predict([[-4.0], [14.0]], return_std=True)
    achieved = log_likelihood(y, dist)
    return ToyScores(
        log_likelihood=achieved,
        excess=float(problem.log_prob(X[:, 0], y).mean()) - achieved,
        std_error=float(np.mean(np.abs(std / problem.std(inside) - 1))),
        coverage=coverage(y, dist, level=0.9),
        std_left=float(outside[0] / y_std),
        std_right=float(outside[1] / y_std),
    )


def run_toy(
    models: Mapping[str, AbstractRegressor],
    *,
    n_rows: int = 500,
    random_state: int = 0,
    report: Callable[[str], None] = lambda name: None,
) -> ToyResult:
    """Fit every model to the same points; ``report`` hears each name before its fit."""
    problem = ToyProblem()
    X, y = problem.sample(n_rows, random_state=random_state)
    grid = np.linspace(-4, 14, 361)
    curves, scores = {}, {}
    for name, model in models.items():
        report(name)
        model.fit(X, y)
        curves[name] = ToyCurve(*model.predict(grid[:, None], return_std=True))
        scores[name] = score_toy(model, problem, float(y.std()), random_state + 1)
    return ToyResult(problem, X, y, grid, curves, scores)


def toy_figure(result: ToyResult) -> Figure:
    """One column per model: the prediction above, its standard deviation below."""
    problem, grid = result.problem, result.grid
    on_data = (grid >= problem.lower) & (grid <= problem.upper)
    true_std = np.where(on_data, problem.std(grid), np.nan)
    figure = Figure(figsize=(1 + 4.4 * len(result.curves), 6.2), layout="constrained")
    upper, lower = figure.subplots(
        2, len(result.curves), squeeze=False, sharex=True, sharey="row", height_ratios=[3, 2]
    )
    for above, below, (name, curve) in zip(upper, lower, result.curves.items(), strict=True):
        draw_prediction(
            above,
            grid,
            curve.mean,
            curve.std,
            data=(result.X[:, 0], result.y),
            true_mean=problem.mean(grid),
        )
        draw_spread(below, grid, curve.std, true_std=true_std, prior_std=float(result.y.std()))
        for axes in (above, below):
            shade_range(axes, problem.lower, problem.upper)
        above.set_title(name, fontsize=11)
        below.set_xlabel("x")
    upper[0].set_ylim(-25, 25)
    lower[0].set_ylim(0, 10)
    upper[0].set_ylabel("y")
    lower[0].set_ylabel("standard deviation")
    for axes in (upper[0], lower[0]):
        axes.legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    return figure
