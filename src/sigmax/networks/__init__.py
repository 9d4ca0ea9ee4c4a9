"""Networks: perceptrons over rows of a table, and the extrapolation gate."""

from sigmax.networks.gate import (
    NO_CENTER,
    ExtrapolationGate,
    blend_factor,
    create_gate,
    k_means_centers,
    mean_gates,
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
    "blend_factor",
    "create_gate",
    "inverse_softplus",
    "k_means_centers",
    "mean_gates",
]
