"""Arrays in, distribution parameters out: Equinox modules of one member, no member axis."""

from sigmax.networks.dropout import DropoutNetwork
from sigmax.networks.extrapolation import NO_CENTER, ExtrapolationGate, gate_from_data
from sigmax.networks.flipout import FlipoutLayer, FlipoutNetwork
from sigmax.networks.heads import AbstractSpread, InverseGammaSpread, NormalSpread
from sigmax.networks.mlp import ACTIVATIONS, MLP
from sigmax.networks.variance_network import VarianceNetwork

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "NO_CENTER",
    "AbstractSpread",
    "DropoutNetwork",
    "ExtrapolationGate",
    "FlipoutLayer",
    "FlipoutNetwork",
    "InverseGammaSpread",
    "NormalSpread",
    "VarianceNetwork",
    "gate_from_data",
]
