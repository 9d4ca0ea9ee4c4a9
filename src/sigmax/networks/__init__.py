"""Arrays in, distribution parameters out: Equinox modules of one member, no member axis."""

from sigmax.networks.doubt import toward_prior
from sigmax.networks.dropout import DropoutNetwork
from sigmax.networks.extrapolation import NO_CENTER, ExtrapolationGate
from sigmax.networks.flipout import FlipoutLayer, FlipoutNetwork
from sigmax.networks.heads import AbstractSpread, InverseGammaSpread, NormalSpread, inverse_softplus
from sigmax.networks.local import (
    ROWS_PER_BLOCK,
    Evidence,
    LocalNetwork,
    Memory,
    Sums,
    View,
    Voice,
    listen_to,
    sum_up,
)
from sigmax.networks.mlp import ACTIVATIONS, MLP
from sigmax.networks.periodic import PeriodicFeatures, wave
from sigmax.networks.variance_network import VarianceNetwork

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "NO_CENTER",
    "ROWS_PER_BLOCK",
    "AbstractSpread",
    "DropoutNetwork",
    "Evidence",
    "ExtrapolationGate",
    "FlipoutLayer",
    "FlipoutNetwork",
    "InverseGammaSpread",
    "LocalNetwork",
    "Memory",
    "NormalSpread",
    "PeriodicFeatures",
    "Sums",
    "VarianceNetwork",
    "View",
    "Voice",
    "inverse_softplus",
    "listen_to",
    "sum_up",
    "toward_prior",
    "wave",
]
