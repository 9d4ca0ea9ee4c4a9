"""The toy experiment: known mean, known spread, and models judged on and off the data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.data import ToyProblem
from sigmax.estimators import AbstractRegressor
from sigmax.experiments.methods import Method
from sigmax.experiments.tables import Table
from sigmax.metrics import coverage, log_likelihood
from sigmax.plots import Curve, draw_prediction, draw_spread, model_panels, shade_range

__all__ = ["ToyResult", "ToyScores", "run_toy", "score_toy", "toy_figures", "toy_table"]


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


@dataclass(frozen=True, eq=False)
class ToyResult:
    """What the picture and the table are made from."""

    problem: ToyProblem
    X: NDArray
    y: NDArray
    grid: NDArray
    curves: dict[str, Curve]
    scores: dict[str, ToyScores]


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
    methods: Mapping[str, Method],
    *,
    n_rows: int = 500,
    random_state: int = 0,
    report: Callable[[str], None] = lambda title: None,
) -> ToyResult:
    """Fit every method to the same points; ``report`` hears each title before its fit."""
    problem = ToyProblem()
    X, y = problem.sample(n_rows, random_state=random_state)
    grid = np.linspace(-4, 14, 361)
    curves, scores = {}, {}
    for method in methods.values():
        report(method.title)
        model = method.create(random_state).fit(X, y)
        curves[method.title] = Curve(*model.predict(grid[:, None], return_std=True))
        scores[method.title] = score_toy(model, problem, float(y.std()), random_state + 1)
    return ToyResult(problem, X, y, grid, curves, scores)


def toy_table(result: ToyResult) -> Table:
    """One row per model."""
    return Table(
        title=f"toy problem: {len(result.y)} points, y = x sin x + 0.3 ε₁ + 0.3 x ε₂ on [0, 10]",
        header=["model", "log p", "below true", "std error", "90 % cov.", "std(−4)", "std(14)"],
        rows=[
            [
                title,
                f"{score.log_likelihood:.3f}",
                f"{score.excess:.3f}",
                f"{score.std_error:.1%}",
                f"{score.coverage:.1%}",
                f"{score.std_left:.2f}",
                f"{score.std_right:.2f}",
            ]
            for title, score in result.scores.items()
        ],
        notes=[
            "Log-likelihood and coverage on 10,000 fresh points; mean relative error of std on"
            " [0.5, 9.5]; std at x = −4 and 14 in units of std(y)."
        ],
    )


def toy_figures(result: ToyResult) -> dict[str, Figure]:
    """The pictures by their names: predictions, and standard deviations."""
    return {"toy": prediction_figure(result), "toy_std": spread_figure(result)}


def prediction_figure(result: ToyResult) -> Figure:
    """Every model's mean and two standard deviations, on the data and off them."""
    problem, grid = result.problem, result.grid

    def draw(axes: Axes, curve: Curve) -> None:
        data = result.X[:, 0], result.y
        draw_prediction(axes, grid, curve, data=data, true_mean=problem.mean(grid))
        shade_range(axes, problem.lower, problem.upper)

    return model_panels(result.curves, draw, xlabel="x", ylabel="y", ylim=(-25.0, 25.0))


def spread_figure(result: ToyResult) -> Figure:
    """Every model's standard deviation against x, and the true one where there are data."""
    problem, grid = result.problem, result.grid
    on_data = (grid >= problem.lower) & (grid <= problem.upper)
    true_std = np.where(on_data, problem.std(grid), np.nan)
    prior_std = float(result.y.std())

    def draw(axes: Axes, curve: Curve) -> None:
        draw_spread(axes, grid, curve, true_std=true_std, prior_std=prior_std)
        shade_range(axes, problem.lower, problem.upper)

    label = "standard deviation"
    return model_panels(result.curves, draw, xlabel="x", ylabel=label, ylim=(0.0, 10.0))
