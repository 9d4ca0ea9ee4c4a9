"""What experiments do with models: make them for tasks, fit them together, time and judge them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import jax.monitoring
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import AbstractNetworkRegressor, AbstractRegressor, fit_together
from sigmax.experiments.methods import METHODS
from sigmax.experiments.records import Task
from sigmax.metrics import coverage, evaluate

__all__ = ["Stopwatch", "change", "create_model", "fit_models", "judge", "stopwatch"]

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
    return change(METHODS[task.method].create(task.seed), task.method, task.settings)


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


def judge(y: NDArray, dist: Predictive) -> dict[str, float]:
    """All scores of a prediction, and the coverage of its 50 % intervals."""
    scores = evaluate(y, dist)
    scores["coverage_50"] = coverage(y, dist, level=0.5)
    return scores
