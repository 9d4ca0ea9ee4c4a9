"""Models of expensive functions, fitted to few rows again and again in optimisation."""

from typing import Any

import numpy as np

from sigmax.checks import check_choice
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import GPRegressor, LocalRegressor
from sigmax.experts.gaussian_process import LARGEST_VARYING

KINDS = ("auto", "gp", "local")

SINGLE_NEIGHBORHOOD = 64
"""Number of rows up to which one neighbourhood contains all of them."""


def fit_surrogate(
    X: np.ndarray, y: np.ndarray, *, kind: str = "auto", noise_free: bool = False, **settings: Any
) -> GPRegressor | LocalRegressor:
    """Fit an estimator for optimisation; ``settings`` replace the defaults that are chosen here.

    ``kind`` is "gp", a Gaussian process whose noise may depend on x unless ``noise_free``, or
    "local", a `LocalRegressor`; "auto" is the process, and with too many rows for it the latter.
    """
    if check_choice("kind", kind, KINDS) == "auto":
        kind = "gp" if len(X) <= LARGEST_VARYING else "local"
    if kind == "gp":
        model: Any = GPRegressor()
        noise = "constant" if noise_free else "varying"
        chosen: dict[str, Any] = {"noise": noise, "variance_prior": "sample"} | settings
    else:
        model, chosen = LocalRegressor(), local_defaults(len(X), noise_free) | settings
    arguments = model.get_params()
    unknown = sorted(chosen.keys() - arguments.keys() - model.expert().declared().keys())
    if unknown:
        raise InvalidArgumentError(
            f"`{unknown[0]}` is no setting of {type(model).__name__}, which `kind={kind!r}` fits."
        )
    model.set_params(**{name: chosen[name] for name in chosen if name in arguments})
    further = {name: chosen[name] for name in chosen if name not in arguments}
    if further:
        model.set_params(preset=model.expert().override(further))
    return model.fit(X, y)


def local_defaults(n_rows: int, noise_free: bool) -> dict[str, Any]:
    """Settings of a `LocalRegressor` for optimisation.

    If ``noise_free``, rows are interpolated: none are held out for early stopping. Few rows are one
    neighbourhood, which saves time.
    """
    defaults: dict[str, Any] = {"validation_fraction": 0.0} if noise_free else {}
    if n_rows <= SINGLE_NEIGHBORHOOD:
        defaults["n_primary"] = 1
    return defaults
