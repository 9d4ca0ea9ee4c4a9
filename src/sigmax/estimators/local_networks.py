"""Untrained networks of kernel regression in a learned metric."""

import math
from collections.abc import Callable

import equinox as eqx
import numpy as np

from sigmax.compilation import on_device
from sigmax.estimators.local_recipe import LocalRecipe
from sigmax.inputs import InputShape
from sigmax.networks import (
    COMPONENT_GAIN,
    MLP,
    Edges,
    ExtrapolationGate,
    InputLayer,
    KernelParameters,
    LocalNetwork,
)

__all__ = ["create_network"]

MIXTURES_PER_FEATURE = 8

FARTHEST_OFFSET = 0.75
"""Of a component from the mean at the start of training, in standard deviations of y."""


def create_network(
    rng: np.random.Generator,
    shape: InputShape,
    n_outputs: int,
    gate: ExtrapolationGate,
    edges: Edges,
    recipe: LocalRecipe,
) -> LocalNetwork:
    """One untrained member."""
    waves = {"n_waves": recipe.n_waves, "n_mixtures": MIXTURES_PER_FEATURE}
    inputs = InputLayer.create(rng, shape, **waves, frequency=recipe.frequency)

    shared = recipe.hidden_sizes[: recipe.n_shared_layers]
    own = recipe.hidden_sizes[recipe.n_shared_layers :]
    trunk, n_inputs = None, inputs.n_outputs
    if shared:
        n_inputs = shared[-1]
        sizes = (inputs.n_outputs, shared[:-1], n_inputs)
        trunk = MLP.create(rng, *sizes, activation="silu", output_gain=2**0.5)

    def network(n_outputs: int, output_gain: float = 0.1) -> MLP:
        gain = output_gain
        return MLP.create(rng, n_inputs, own, n_outputs, activation="silu", output_gain=gain)

    return LocalNetwork(
        inputs=inputs,
        trunk=trunk,
        embedding=network(recipe.embedding_size, 2 / math.sqrt(recipe.embedding_size)),
        mean=network(n_outputs),
        spread=create_spread(network, n_outputs, recipe.n_components),
        kernel=KernelParameters.create(recipe.prior_rows),
        gate=gate,
        edges=edges,
        factor=on_device(1.0, np.float32),
        most_df=on_device(np.inf, np.float32),
        shrinkage=on_device(0.0, np.float32),
        input_scale=recipe.input_scale,
        min_concentration=recipe.min_concentration,
        prior_variance=recipe.prior_variance,
    )


def create_spread(network: Callable[[int], MLP], n_outputs: int, n_components: int) -> MLP:
    """The network of the components' weights, offsets, concentrations and scales.

    The offsets start apart, or they would never part.
    """
    if n_components == 1:
        return network(2 * n_outputs)
    spread = network(4 * n_components * n_outputs)
    start = np.zeros((n_outputs, 4, n_components), dtype=np.float32)
    start[:, 1] = np.linspace(-FARTHEST_OFFSET, FARTHEST_OFFSET, n_components) / COMPONENT_GAIN
    biases = (*spread.biases[:-1], on_device(start.reshape(-1)))
    return eqx.tree_at(lambda mlp: mlp.biases, spread, biases)
