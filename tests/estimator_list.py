"""The estimators that every contract test runs over, and their models, each fitted once.

Compilation is nearly all that these tests cost, and a program is compiled for every shape and every
setting. So all settings stand here, all tests share them and the rows below, and a model that no
test changes is fitted once for all tests of a worker.
"""

from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from sklearn.base import clone

from sigmax import (
    BayesianRegressor,
    CombinedRegressor,
    GPRegressor,
    LinearRegressor,
    LocalRegressor,
    MCDropoutRegressor,
    MeanVarianceRegressor,
    SigmaxRegressor,
    SparseGPRegressor,
)
from sigmax.estimators import AbstractRegressor

E = TypeVar("E", bound=AbstractRegressor)


def build(kind: type[E], preset: str | None = None, **settings: Any) -> E:
    """An estimator with settings that are arguments of its constructor, or fields of its expert."""
    model = kind() if preset is None else kind().set_params(preset=preset)
    return model.set_settings(**settings)


def changed(estimator: E, **settings: Any) -> E:
    """An unfitted copy with other settings, arguments or fields of its expert."""
    return fresh(estimator).set_settings(**settings)


SHORT: dict[str, Any] = {
    "hidden_sizes": (8,),
    "n_steps": 60,
    "learning_rate": 4e-2,
    "patience": 10,
    "random_state": 0,
}
SPREAD: dict[str, Any] = {"variance_learning_rate": 2e-2}
# With neighbourhoods of eight rows, as many inducing points as slots, and in LocalRegressor no
# weight decay, which goes by the number of rows, most numbers of rows have the same program.
COMBINED: dict[str, Any] = SPREAD | {
    "n_neighbors": 8,
    "n_secondary": 8,
    "variance_n_neighbors": 8,
    "variance_n_secondary": 8,
    "n_inducing": 256,
}
LOCAL: dict[str, Any] = {
    "n_neighbors": 8,
    "n_queries": 8,
    "n_waves": 4,
    "n_inducing": 256,
    "weight_decay": 0.0,
}
PROCESS: dict[str, Any] = {"n_restarts": 1, "max_iter": 20, "random_state": 0}


def make_estimators(n_members: int, n_draws: int, **of_variance: Any) -> list[AbstractRegressor]:
    """One of each kind, recalibrated where that is the default."""
    ensemble: dict[str, Any] = SHORT | {"n_members": n_members}
    return [
        build(CombinedRegressor, **ensemble | COMBINED | of_variance),
        build(MeanVarianceRegressor, **ensemble | SPREAD | of_variance),
        build(LocalRegressor, **ensemble | LOCAL),
        build(MCDropoutRegressor, n_draws=n_draws, **SHORT),
        build(BayesianRegressor, n_draws=n_draws, **SHORT),
        GPRegressor(**PROCESS),
        SparseGPRegressor(n_inducing=40, **PROCESS),
        LinearRegressor(),
        SigmaxRegressor("quick", random_state=0),
    ]


ESTIMATORS = make_estimators(n_members=2, n_draws=10)
SMALLEST = make_estimators(n_members=1, n_draws=2, warmup_fraction=0.0)
"""For scikit-learn's checks, which fit to data of some twenty shapes."""

NETWORKS = [e for e in ESTIMATORS if e.is_network]


def make_rows(n: int = 120, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - X[:, -1] ** 2 + 0.3 * rng.normal(size=n)


X, Y = make_rows()
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


def fresh(estimator: E) -> E:
    """An unfitted copy."""
    return cast(E, clone(estimator))


def name_of(estimator: AbstractRegressor) -> str:
    return type(estimator).__name__


@cache
def fitted_by_name(name: str, frame: bool) -> AbstractRegressor:
    (estimator,) = (e for e in ESTIMATORS if name_of(e) == name)
    return fresh(estimator).fit(FRAME if frame else X, Y)


def fitted(estimator: E, *, frame: bool = False) -> E:
    """The model of the rows with the settings of the list, which no test may change."""
    return cast(E, fitted_by_name(name_of(estimator), frame))
