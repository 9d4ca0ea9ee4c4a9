"""Methods by their command-line names: create, fit, time and score the models of a task."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, final

from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import (
    AbstractRegressor,
    BayesianRegressor,
    CombinedRegressor,
    GPRegressor,
    LocalRegressor,
    MCDropoutRegressor,
    MeanVarianceRegressor,
    SigmaxRegressor,
    SparseGPRegressor,
    fit_together,
)
from sigmax.experts.rows import LARGEST_EXACT
from sigmax.metrics import coverage, crps, evaluate, log_likelihood, rmse
from sigmax.runs.records import Task

AnyModel = TypeVar("AnyModel", bound=BaseEstimator)


@final
@dataclass(frozen=True)
class Method:
    """Method of a comparison: its title in tables, and a function from a seed to a model."""

    title: str
    create: Callable[[int], Any]
    is_network: bool = True
    """True if several models can be trained in one call."""
    largest: int | None = None
    """Maximum number of training rows, or None."""
    dataset_settings: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Data set -> settings for it that differ from the defaults, as JSON values."""


PAPER_UNITS = {name: {"hidden_sizes": [100]} for name in ("protein", "year")}
"""One hidden layer of 100 units; the paper's preset has 50, for all other sets."""


METHODS = {
    "gp": Method(
        "GP", lambda seed: GPRegressor(random_state=seed), is_network=False, largest=LARGEST_EXACT
    ),
    "sgp": Method("SGP", lambda seed: SparseGPRegressor(random_state=seed), is_network=False),
    "nn": Method("NN", lambda seed: MeanVarianceRegressor(random_state=seed)),
    "bnn": Method("BNN", lambda seed: BayesianRegressor(random_state=seed)),
    "mc-dropout": Method("MC-Dropout", lambda seed: MCDropoutRegressor(random_state=seed)),
    "ens-nn": Method("Ens-NN", lambda seed: MeanVarianceRegressor(n_members=5, random_state=seed)),
    "nn-paper": Method(
        "NN (paper)",
        lambda seed: MeanVarianceRegressor(preset="paper", random_state=seed),
        dataset_settings=PAPER_UNITS,
    ),
    "combined-paper": Method(
        "Combined (paper)",
        lambda seed: CombinedRegressor(preset="paper", random_state=seed),
        dataset_settings=PAPER_UNITS,
    ),
    "combined": Method("Combined", lambda seed: CombinedRegressor(random_state=seed)),
    "local-fast": Method(
        "Local (fast)", lambda seed: LocalRegressor(preset="fast", random_state=seed)
    ),
    "local": Method("Local", lambda seed: LocalRegressor(random_state=seed)),
    "sigmax": Method("Sigmax", lambda seed: SigmaxRegressor(random_state=seed), is_network=False),
}

SIX_METHODS = ("gp", "nn", "bnn", "mc-dropout", "ens-nn", "combined")
"""Methods of the paper's smaller experiments."""


@final
@dataclass
class Stopwatch:
    """Seconds of a block of code: tracing and compiling, and the rest."""

    run: float = 0.0
    compile: float = 0.0

    def per_model(self, n_models: int, *, together: int) -> dict[str, float]:
        """The ``seconds`` of a record, shared equally by the models of one call."""
        fit, compilation = self.run / n_models, self.compile / n_models
        return {"fit": fit, "compile": compilation, "together": float(together)}


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block; JAX reports the compilations in it to a listener."""
    import jax.monitoring  # not imported by the command `sigmax fit`

    watch, begin = Stopwatch(), time.perf_counter()

    def add_compilation(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            watch.compile += duration_secs

    jax.monitoring.register_event_duration_secs_listener(add_compilation)
    try:
        yield watch
    finally:
        jax.monitoring.unregister_event_duration_listener(add_compilation)
        total = time.perf_counter() - begin
        watch.compile = min(watch.compile, total)
        watch.run = total - watch.compile


def create_model(task: Task) -> AbstractRegressor:
    model = METHODS[task.method].create(task.seed)
    of_dataset = METHODS[task.method].dataset_settings.get(task.dataset, {})
    return with_settings(model, task.method, {**of_dataset, **task.settings})


def with_settings(model: AnyModel, name: str, settings: dict[str, Any]) -> AnyModel:
    """Set parameters of a model from JSON values; raise an error for unknown ones."""
    known = set(model.get_params())
    if isinstance(model, AbstractRegressor) and "preset" in known:
        known |= set(model.presets["default"].declared())
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InvalidArgumentError(f"{name} has no setting {', '.join(unknown)}.")
    tuples = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
    if isinstance(model, AbstractRegressor):
        return model.set_settings(**tuples)
    return model.set_params(**tuples)


def fit_models(
    models: Sequence[AbstractRegressor], data: Sequence[tuple[NDArray, NDArray]]
) -> dict[str, float]:
    """Fit each model to its data, networks in one call; return the seconds per model."""
    with stopwatch() as watch:
        is_joint = all(model.is_network for model in models)
        if is_joint:
            fit_together(models, data)
        else:
            for model, (X, y) in zip(models, data, strict=True):
                model.fit(X, y)
    n = len(models)
    return watch.per_model(n, together=n if is_joint else 1)


SUBSET_SCORES = {
    "log_likelihood": log_likelihood,
    "crps": crps,
    "rmse": rmse,
    "coverage": coverage,
    "coverage_50": partial(coverage, level=0.5),
    "coverage_80": partial(coverage, level=0.8),
}


def score_prediction(y: NDArray, dist: Predictive) -> dict[str, float]:
    """All scores of a prediction, with the coverage of 50 % and 80 % intervals."""
    more = {name: SUBSET_SCORES[name](y, dist) for name in ("coverage_50", "coverage_80")}
    return evaluate(y, dist) | more


def score_parts(y: NDArray, dist: Predictive, is_duplicate: NDArray) -> dict[str, float]:
    """Scores of duplicates and of new rows, as ``copies_crps``, ``new_crps`` and so on.

    Empty without duplicates; without scores of new rows if every row is a duplicate.
    """
    parts = {"copies": is_duplicate, "new": ~is_duplicate} if is_duplicate.any() else {}
    return {
        f"{part}_{name}": score(y[rows], dist[rows])
        for part, rows in parts.items()
        if rows.any()
        for name, score in SUBSET_SCORES.items()
    }
