"""What experiments do with models: make them for tasks, fit them together, time and judge them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import jax.monitoring
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import AbstractNetworkRegressor, AbstractRegressor, fit_together
from sigmax.paper.methods import METHODS
from sigmax.paper.records import Task
from sigmax.metrics import coverage, crps, evaluate, log_likelihood, rmse

__all__ = [
    "Stopwatch",
    "change",
    "create_model",
    "fit_models",
    "judge",
    "judge_apart",
    "own_settings",
    "stopwatch",
]

Model = TypeVar("Model", bound=BaseEstimator)


class Stopwatch:
    """Seconds of a block of code, and how many of them were tracing and compiling."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.compile = 0.0
        self.run = 0.0

    def hear(self, event: str, seconds: float) -> None:
        if event.startswith("/jax/core/compile/"):
            self.compile += seconds

    def stop(self) -> None:
        whole = time.perf_counter() - self.begin
        self.compile = min(self.compile, whole)
        self.run = whole - self.compile


WATCHES: list[Stopwatch] = []


def tell_watches(event: str, duration: float, **_: Any) -> None:
    for watch in WATCHES:
        watch.hear(event, duration)


jax.monitoring.register_event_duration_secs_listener(tell_watches)  # pyright: ignore


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block; compilation, which JAX reports as it goes, is kept apart."""
    watch = Stopwatch()
    WATCHES.append(watch)
    try:
        yield watch
    finally:
        watch.stop()
        WATCHES.remove(watch)


def create_model(task: Task) -> AbstractRegressor:
    """The task's method, with its settings and seed."""
    model = METHODS[task.method].create(task.seed)
    return change(model, task.method, own_settings(task) | task.settings)


def own_settings(task: Task) -> dict[str, Any]:
    """What the method sets differently on the task's data set, unless the task sets it."""
    settings = METHODS[task.method].own_settings.get(task.dataset, {})
    return {name: value for name, value in settings.items() if name not in task.settings}


def change(model: Model, name: str, settings: dict[str, Any]) -> Model:
    """The model with settings as JSON has them; what it does not have is refused by name."""
    unknown = sorted(set(settings) - set(model.get_params()))
    if unknown:
        raise InvalidArgumentError(f"{name} has no setting {', '.join(unknown)}.")
    tuples = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
    return model.set_params(**tuples)


def fit_models(
    models: Sequence[AbstractRegressor], data: Sequence[tuple[NDArray, NDArray]]
) -> dict[str, float]:
    """Fit each model to its data, networks in one training; the seconds are those of one model."""
    with stopwatch() as watch:
        networks = [model for model in models if isinstance(model, AbstractNetworkRegressor)]
        if len(networks) == len(models):
            fit_together(networks, data)
        else:
            for model, (X, y) in zip(models, data, strict=True):
                model.fit(X, y)
    n = len(models)
    together = float(n if len(networks) == n else 1)
    return {"fit": watch.run / n, "compile": watch.compile / n, "together": together}


SCORES_APART = {
    "log_likelihood": log_likelihood,
    "crps": crps,
    "rmse": rmse,
    "coverage": coverage,
    "coverage_50": partial(coverage, level=0.5),
    "coverage_80": partial(coverage, level=0.8),
}


def judge(y: NDArray, dist: Predictive) -> dict[str, float]:
    """All scores of a prediction, and the coverage of its 50 % and 80 % intervals."""
    more = {name: SCORES_APART[name](y, dist) for name in ("coverage_50", "coverage_80")}
    return evaluate(y, dist) | more


def judge_apart(y: NDArray, dist: Predictive, known: NDArray) -> dict[str, float]:
    """Scores of the copies, which are the ``known`` rows, and of the new rows.

    They are named ``copies_crps``, ``new_crps`` and so on. There are none without copies, for the
    new rows are all rows then, and none of new rows where every row is a copy.
    """
    parts = {"copies": known, "new": ~known} if known.any() else {}
    return {
        f"{part}_{name}": score(y[rows], dist[rows])
        for part, rows in parts.items()
        if rows.any()
        for name, score in SCORES_APART.items()
    }
