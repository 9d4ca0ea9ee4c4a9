"""sigmax: predictive distributions you can trust.

Names and modules are imported when they are first used, so that ``import sigmax`` itself costs
nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sigmax.active_learning as active_learning
    import sigmax.calibration as calibration
    import sigmax.data as data
    import sigmax.distributions as distributions
    import sigmax.errors as errors
    import sigmax.estimators as estimators
    import sigmax.generative as generative
    import sigmax.metrics as metrics
    import sigmax.neighbors as neighbors
    import sigmax.networks as networks
    import sigmax.plots as plots
    import sigmax.sample_distances as sample_distances
    import sigmax.sampling as sampling
    import sigmax.scorers as scorers
    import sigmax.training as training
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
    "active_learning",
    "calibration",
    "data",
    "distributions",
    "errors",
    "estimators",
    "generative",
    "metrics",
    "neighbors",
    "networks",
    "plots",
    "sample_distances",
    "sampling",
    "scorers",
    "training",
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
"""The modules of names; all other public names are modules themselves."""


def __getattr__(name: str):
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"sigmax.{name}")
    raise AttributeError(f"module 'sigmax' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
