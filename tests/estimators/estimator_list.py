"""The list of estimators that every contract test runs over, small enough to be quick."""

from typing import TypeVar, cast

from sklearn.base import clone

from sigmax import (
    BayesianRegressor,
    CombinedRegressor,
    GPRegressor,
    LocalRegressor,
    MCDropoutRegressor,
    MeanVarianceRegressor,
    SparseGPRegressor,
)
from sigmax.estimators import AbstractNetworkRegressor, AbstractRegressor

E = TypeVar("E", bound=AbstractRegressor)

SMALL = {"hidden_sizes": (16,), "n_steps": 400, "random_state": 0}

ESTIMATORS: list[AbstractRegressor] = [
    CombinedRegressor(n_members=2, **SMALL),
    MeanVarianceRegressor(n_members=2, **SMALL),
    # Recalibration, which has tests of its own, would be half a minute of compilation here.
    LocalRegressor(
        n_members=2, n_waves=4, n_primary=4, recalibrate=False, **SMALL | {"n_steps": 150}
    ),
    MCDropoutRegressor(n_draws=10, **SMALL),
    BayesianRegressor(n_draws=10, **SMALL),
    GPRegressor(n_restarts=1, max_iter=20, random_state=0),
    SparseGPRegressor(n_inducing=40, n_restarts=1, max_iter=20, random_state=0),
]

NETWORKS = [e for e in ESTIMATORS if isinstance(e, AbstractNetworkRegressor)]


def fresh(estimator: E) -> E:
    """An unfitted copy."""
    return cast(E, clone(estimator))
