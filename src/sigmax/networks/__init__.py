"""Arrays in, distribution parameters out: Equinox modules of one member, no member axis."""

from sigmax.networks.dropout import DropoutNetwork
from sigmax.networks.edges import Edges
from sigmax.networks.extrapolation import NO_CENTER, OFFSET, ExtrapolationGate, blend_factor
from sigmax.networks.flipout import FlipoutLayer, FlipoutNetwork
from sigmax.networks.heads import AbstractSpread, InverseGammaSpread, NormalSpread, inverse_softplus
from sigmax.networks.input_layer import InputLayer
from sigmax.networks.local import (
    COMPONENT_GAIN,
    ROWS_PER_BLOCK,
    EmbeddedRows,
    KernelParameters,
    LocalNetwork,
    LocalPosterior,
    Sums,
    TrainingSet,
    sums_over_lists,
    weighted_sums,
)
from sigmax.networks.mlp import ACTIVATIONS, MLP, TabularMLP
from sigmax.networks.periodic import PeriodicFeatures, wave
from sigmax.networks.shrinkage import toward_prior
from sigmax.networks.variance_network import VarianceNetwork
from sigmax.networks.weighted_student_t import WeightedStudentT

__all__ = [
    "ACTIVATIONS",
    "COMPONENT_GAIN",
    "MLP",
    "NO_CENTER",
    "OFFSET",
    "ROWS_PER_BLOCK",
    "AbstractSpread",
    "DropoutNetwork",
    "Edges",
    "EmbeddedRows",
    "ExtrapolationGate",
    "FlipoutLayer",
    "FlipoutNetwork",
    "InputLayer",
    "InverseGammaSpread",
    "KernelParameters",
    "LocalNetwork",
    "LocalPosterior",
    "NormalSpread",
    "PeriodicFeatures",
    "Sums",
    "TabularMLP",
    "TrainingSet",
    "VarianceNetwork",
    "WeightedStudentT",
    "blend_factor",
    "inverse_softplus",
    "sums_over_lists",
    "toward_prior",
    "wave",
    "weighted_sums",
]
