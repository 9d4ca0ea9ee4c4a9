"""Networks: perceptrons over rows of a table, and the extrapolation gate."""

from sigmax.extrapolation import (
    NO_CENTER,
    ExtrapolationGate,
    create_gate,
    gate_relevance,
    k_means_centers,
)
from sigmax.networks.mlp import (
    ACTIVATIONS,
    MLP,
    SMALLEST_VARIANCE,
    InputLayer,
    TabularMLP,
    inverse_softplus,
)

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "NO_CENTER",
    "SMALLEST_VARIANCE",
    "ExtrapolationGate",
    "InputLayer",
    "TabularMLP",
    "create_gate",
    "gate_relevance",
    "inverse_softplus",
    "k_means_centers",
]
