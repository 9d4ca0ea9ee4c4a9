"""The model that stands for an expensive function: fitted to few rows, again and again."""

from typing import Any

import numpy as np

from sigmax.checks import check_choice
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import GPRegressor, LocalRegressor
from sigmax.estimators.gaussian_process import LARGEST_VARYING
from sigmax.estimators.recipe import FEW_ROWS

__all__ = ["KINDS", "fit_surrogate"]

KINDS = ("auto", "gp", "local")

ALL_IN_ONE = 64
"""Up to so many rows, every neighbourhood is all of them: one in a batch is enough."""


def fit_surrogate(
    X: np.ndarray, y: np.ndarray, *, kind: str = "auto", noise_free: bool = False, **settings: Any
) -> GPRegressor | LocalRegressor:
    """An estimator for optimisation; ``settings`` come before what is chosen here.

    ``kind`` is "gp", a Gaussian process whose noise may depend on x unless ``noise_free``, or
    "local", a `LocalRegressor`; "auto" takes the process for as many rows as it can.
    """
    if check_choice("kind", kind, KINDS) == "auto":
        kind = "gp" if len(X) <= LARGEST_VARYING else "local"
    estimator: Any = GPRegressor
    noise = "constant" if noise_free else "varying"
    defaults: dict[str, Any] = {"noise": noise, "variance_prior": "sample"}
    if kind == "local":
        estimator, defaults = LocalRegressor, local_defaults(len(X), noise_free)
    unknown = sorted(set(settings) - set(estimator._get_param_names()))
    if unknown:
        raise InvalidArgumentError(
            f"`{unknown[0]}` is no setting of {estimator.__name__}, which `kind={kind!r}` fits."
        )
    return estimator(**defaults | settings).fit(X, y)


def local_defaults(n_rows: int, noise_free: bool) -> dict[str, Any]:
    """Settings of a `LocalRegressor` for optimisation.

    There are no forests, which have no gradient, and no map of the target, with which a variance
    has no closed form. Predictions from few rows are not recalibrated: that takes them to the mean
    of y, where there is nothing to choose between. Few rows train in a fraction of the time, as one
    neighbourhood holds them all. If ``noise_free``, no rows are held out to stop the training
    early: few rows without noise are learned as they are.
    """
    defaults: dict[str, Any] = {"n_trees": 0, "target_map": "none"}
    if n_rows < FEW_ROWS:
        defaults["recalibrate"] = False
        if noise_free:
            defaults["validation_fraction"] = 0.0
    if n_rows <= ALL_IN_ONE:
        defaults["n_primary"] = 1
    return defaults
