"""Experts: methods of regression, as frozen settings whose `fit` returns a fitted value.

Those that JAX compiles are imported when they are first used.
"""

import sys
from typing import TYPE_CHECKING, Any

from sigmax.experts.base import COMPILED, AbstractExpert, AbstractFitted, HeldOut, import_compiled
from sigmax.experts.forest import Forest
from sigmax.experts.linear import Linear, Marginal
from sigmax.experts.matern import MaternProcess
from sigmax.experts.rows import Rows, TrainingRows

if TYPE_CHECKING:
    from sigmax.experts.combined import Combined
    from sigmax.experts.gaussian_process import GaussianProcess, SparseGaussianProcess
    from sigmax.experts.local import Local
    from sigmax.experts.stochastic import Bayesian, Dropout

__all__ = [
    "AbstractExpert",
    "AbstractFitted",
    "Bayesian",
    "Combined",
    "Dropout",
    "Forest",
    "GaussianProcess",
    "HeldOut",
    "Linear",
    "Local",
    "Marginal",
    "MaternProcess",
    "Rows",
    "SparseGaussianProcess",
    "TrainingRows",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"No attribute {name} of sigmax.experts")
    import_compiled()
    modules = (vars(sys.modules[f"{__name__}.{own}"]) for own in COMPILED)
    return next(module[name] for module in modules if name in module)
