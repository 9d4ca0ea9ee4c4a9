"""Bayesian optimisation with BoTorch, whose model is a `LocalRegressor`."""

from sigmax.integrations.botorch.extra import check_botorch

check_botorch()

from sigmax.integrations.botorch.model import SigmaxModel, fit_sigmax_model  # noqa: E402
from sigmax.integrations.botorch.posterior import MemberPosterior  # noqa: E402

__all__ = ["MemberPosterior", "SigmaxModel", "fit_sigmax_model"]
