"""Experts: methods of regression, as frozen settings whose `fit` returns a fitted value."""

from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut
from sigmax.experts.combined import Combined
from sigmax.experts.gaussian_process import GaussianProcess, SparseGaussianProcess
from sigmax.experts.linear import Linear, Marginal
from sigmax.experts.local import Local
from sigmax.experts.rows import Rows, TrainingRows
from sigmax.experts.stochastic import Bayesian, Dropout

__all__ = [
    "AbstractExpert",
    "AbstractFitted",
    "Bayesian",
    "Combined",
    "Dropout",
    "GaussianProcess",
    "HeldOut",
    "Linear",
    "Local",
    "Marginal",
    "Rows",
    "SparseGaussianProcess",
    "TrainingRows",
]
