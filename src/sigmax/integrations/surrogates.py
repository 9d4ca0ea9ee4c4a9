"""The model that stands for an expensive function: fitted to few rows, again and again."""

from typing import Any

import numpy as np

from sigmax.estimators import LocalRegressor
from sigmax.estimators.recipe import FEW_ROWS

__all__ = ["fit_surrogate"]

ALL_IN_ONE = 64
"""Up to so many rows, every neighbourhood is all of them: one in a batch is enough."""


def fit_surrogate(
    X: np.ndarray, y: np.ndarray, *, noise_free: bool = False, **settings: Any
) -> LocalRegressor:
    """A `LocalRegressor` for optimisation; ``settings`` come before what is chosen here.

    There are no forests, which have no gradient, and no map of the target, with which a variance
    has no closed form. Predictions from few rows are not recalibrated: that takes them to the mean
    of y, where there is nothing to choose between. Few rows train in a fraction of the time, as one
    neighbourhood holds them all. If ``noise_free``, no rows are held out to stop the training
    early: few rows without noise are learned as they are.
    """
    defaults: dict[str, Any] = {"n_trees": 0, "target_map": "none"}
    if len(X) < FEW_ROWS:
        defaults["recalibrate"] = False
        if noise_free:
            defaults["validation_fraction"] = 0.0
    if len(X) <= ALL_IN_ONE:
        defaults["n_primary"] = 1
    estimator = LocalRegressor(**defaults | settings)
    estimator.fit(X, y)
    return estimator
