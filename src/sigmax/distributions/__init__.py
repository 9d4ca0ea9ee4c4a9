"""Predictive distributions: moments, quantiles, intervals and scores."""

from sigmax.distributions.base import AbstractComponent, AbstractDistribution, blend_factor
from sigmax.distributions.bounded import Bounded
from sigmax.distributions.mixture import Mixture
from sigmax.distributions.normal import Normal
from sigmax.distributions.predictive import Predictive
from sigmax.distributions.stacked import ExpertPart, PowerTransform, Stacked, Units, bernstein
from sigmax.distributions.student_t import StudentT, WeightedStudentT, log_gamma, log_gamma_ratio

__all__ = [
    "AbstractComponent",
    "AbstractDistribution",
    "Bounded",
    "ExpertPart",
    "Mixture",
    "Normal",
    "PowerTransform",
    "Predictive",
    "Stacked",
    "StudentT",
    "Units",
    "WeightedStudentT",
    "bernstein",
    "blend_factor",
    "log_gamma",
    "log_gamma_ratio",
]
