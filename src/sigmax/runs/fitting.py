"""What experiments do with models: create, fit together, time and score them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, final

import jax.monitoring
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import AbstractNetworkRegressor, AbstractRegressor, fit_together
from sigmax.metrics import coverage, crps, evaluate, log_likelihood, rmse
from sigmax.runs.methods import METHODS
from sigmax.runs.records import Task

__all__ = [
    "Stopwatch",
    "create_model",
    "fit_models",
    "own_settings",
    "score_parts",
    "score_prediction",
    "stopwatch",
    "with_settings",
]

AnyModel = TypeVar("AnyModel", bound=BaseEstimator)


@final
@dataclass
class Stopwatch:
    """Seconds of a block of code, of which tracing and compiling are kept apart."""

    run: float = 0.0
    compile: float = 0.0

    def per_model(self, n_models: int, *, together: int) -> dict[str, float]:
        """The seconds of a record: shared equally by the models of one call."""
        fit, compilation = self.run / n_models, self.compile / n_models
        return {"fit": fit, "compile": compilation, "together": float(together)}


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block. JAX reports compilations as they happen, to a listener of this block only."""
    watch, begin = Stopwatch(), time.perf_counter()

    def add_compilation(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            watch.compile += duration_secs

    jax.monitoring.register_event_duration_secs_listener(add_compilation)
    try:
        yield watch
    finally:
        jax.monitoring.unregister_event_duration_listener(add_compilation)
        whole = time.perf_counter() - begin
        watch.compile = min(watch.compile, whole)
        watch.run = whole - watch.compile


def create_model(task: Task) -> AbstractRegressor:
    """The task's method, with its settings and seed."""
    model = METHODS[task.method].create(task.seed)
    return with_settings(model, task.method, own_settings(task) | task.settings)


def own_settings(task: Task) -> dict[str, Any]:
    """What the method sets differently on the task's data set, unless the task sets it."""
    settings = METHODS[task.method].own_settings.get(task.dataset, {})
    return {name: value for name, value in settings.items() if name not in task.settings}


def with_settings(model: AnyModel, name: str, settings: dict[str, Any]) -> AnyModel:
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
    return watch.per_model(n, together=n if len(networks) == n else 1)


SCORES_APART = {
    "log_likelihood": log_likelihood,
    "crps": crps,
    "rmse": rmse,
    "coverage": coverage,
    "coverage_50": partial(coverage, level=0.5),
    "coverage_80": partial(coverage, level=0.8),
}


def score_prediction(y: NDArray, dist: Predictive) -> dict[str, float]:
    """All scores of a prediction, and the coverage of its 50 % and 80 % intervals."""
    more = {name: SCORES_APART[name](y, dist) for name in ("coverage_50", "coverage_80")}
    return evaluate(y, dist) | more


def score_parts(y: NDArray, dist: Predictive, known: NDArray) -> dict[str, float]:
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
