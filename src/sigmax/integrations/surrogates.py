"""Gaussian processes of expensive functions, fitted again and again in optimisation."""

from typing import Any

import numpy as np

from sigmax.estimators import GPRegressor, SparseGPRegressor
from sigmax.experts.gaussian_process import LARGEST_VARYING


def fit_surrogate(
    X: np.ndarray, y: np.ndarray, *, noise_free: bool = False, **settings: Any
) -> GPRegressor | SparseGPRegressor:
    """Fit a Gaussian process for optimisation; ``settings`` replace the defaults chosen here.

    Its noise may depend on x unless ``noise_free``; with more than 1,000 rows it is sparse, and its
    noise constant.
    """
    model: GPRegressor | SparseGPRegressor = SparseGPRegressor()
    if len(X) <= LARGEST_VARYING:
        noise = "constant" if noise_free else "varying"
        model = GPRegressor(noise=noise, variance_prior="sample")
    return model.set_settings(**settings).fit(X, y)
