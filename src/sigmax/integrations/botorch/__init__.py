"""Bayesian optimisation with BoTorch, whose model is a `GPRegressor` or a `LocalRegressor`."""

from importlib import import_module

from sigmax.errors import MissingExtraError

try:
    import_module("botorch")
except ImportError as error:
    raise MissingExtraError(
        'sigmax.integrations.botorch needs BoTorch: pip install "sigmax[botorch]".'
    ) from error

from sigmax.integrations.botorch.model import SigmaxModel, fit_sigmax_model
from sigmax.integrations.botorch.posterior import MemberPosterior

__all__ = ["MemberPosterior", "SigmaxModel", "fit_sigmax_model"]
