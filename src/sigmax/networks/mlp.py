"""The multilayer perceptron that every other network is made of."""

import itertools
from collections.abc import Callable, Sequence
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sigmax.compilation import on_device
from sigmax.inputs import Inputs, InputShape
from sigmax.networks.input_layer import InputLayer

__all__ = ["ACTIVATIONS", "MLP", "TabularMLP"]

ACTIVATIONS: dict[str, Callable] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


@final
class MLP(eqx.Module):
    """Linear layers with an activation between them, over rows.

    Examples
    --------
    >>> mlp = MLP.create(np.random.default_rng(0), 3, (50,), 2, activation="relu")
    >>> mlp(jnp.ones((7, 3))).shape
    (7, 2)
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    activation: str = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        n_inputs: int,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
        output_bias: float = 0.0,
        output_gain: float = 0.1,
    ) -> "MLP":
        """Random layers: He-normal weights, biases spread so that kinks lie among the data.

        By default the last layer starts small, near the constant ``output_bias``: standardised
        targets have mean 0, and a spread should start from one level for all rows. Drawn on the
        host, where nothing needs compiling.
        """
        sizes = [n_inputs, *hidden_sizes, n_outputs]
        weights, biases = [], []
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            is_last = i == len(sizes) - 2
            gain = output_gain if is_last else 2**0.5
            weights.append(rng.normal(0, gain / fan_in**0.5, (fan_in, fan_out)))
            biases.append(np.full(fan_out, output_bias) if is_last else rng.uniform(-1, 1, fan_out))
        as_single = [on_device(array, np.float32) for array in (*weights, *biases)]
        return cls(tuple(as_single[: len(weights)]), tuple(as_single[len(weights) :]), activation)

    def __call__(self, x: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
        activate = ACTIVATIONS[self.activation]
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = (activate(x) if i else x) @ weight + bias[None]
        return x


@final
class TabularMLP(eqx.Module):
    """A perceptron behind an input layer of its own: from rows of a table."""

    inputs: InputLayer
    mlp: MLP

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        shape: InputShape,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
        output_bias: float = 0.0,
    ) -> "TabularMLP":
        """Random layers, as those of `MLP`."""
        inputs = InputLayer.create(rng, shape)
        sizes = (inputs.n_outputs, hidden_sizes, n_outputs)
        return cls(inputs, MLP.create(rng, *sizes, activation=activation, output_bias=output_bias))

    def __call__(self, x: Inputs) -> Float[Array, "rows outputs"]:
        return self.mlp(self.inputs(x))
