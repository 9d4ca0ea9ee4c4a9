"""sigmax: predictive distributions you can trust.

Names are imported when they are first used, so that ``import sigmax`` itself costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sigmax.estimators import (
        BayesianRegressor,
        CombinedRegressor,
        GPRegressor,
        LocalRegressor,
        MCDropoutRegressor,
        MeanVarianceRegressor,
        SparseGPRegressor,
    )
    from sigmax.generative import VAE, CombVAE
    from sigmax.sampling import LocalitySampler
    from sigmax.version import __version__

__all__ = [
    "VAE",
    "BayesianRegressor",
    "CombVAE",
    "CombinedRegressor",
    "GPRegressor",
    "LocalRegressor",
    "LocalitySampler",
    "MCDropoutRegressor",
    "MeanVarianceRegressor",
    "SparseGPRegressor",
    "__version__",
]

HOMES = {
    "BayesianRegressor": "sigmax.estimators",
    "CombVAE": "sigmax.generative",
    "CombinedRegressor": "sigmax.estimators",
    "GPRegressor": "sigmax.estimators",
    "LocalRegressor": "sigmax.estimators",
    "LocalitySampler": "sigmax.sampling",
    "MCDropoutRegressor": "sigmax.estimators",
    "MeanVarianceRegressor": "sigmax.estimators",
    "SparseGPRegressor": "sigmax.estimators",
    "VAE": "sigmax.generative",
    "__version__": "sigmax.version",
}


def __getattr__(name: str):
    if name not in HOMES:
        raise AttributeError(f"module 'sigmax' has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__():
    return sorted(__all__)
