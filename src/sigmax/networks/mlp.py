"""The multilayer perceptron that every other network is made of."""

import itertools
from collections.abc import Callable, Sequence
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

__all__ = ["ACTIVATIONS", "MLP"]

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
    >>> mlp = MLP.create(jax.random.key(0), 3, (50,), 2, activation="relu")
    >>> mlp(jnp.ones((7, 3))).shape
    (7, 2)
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    activation: str = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        n_inputs: int,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
        output_bias: float = 0.0,
    ) -> "MLP":
        """Random layers: He-normal weights, biases spread so that kinks lie among the data.

        The last layer starts small, near the constant ``output_bias``: standardised targets have
        mean 0, and a spread should start from one level for all rows.
        """
        sizes = [n_inputs, *hidden_sizes, n_outputs]
        weights, biases = [], []
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, i))
            is_last = i == len(sizes) - 2
            gain = 0.1 if is_last and hidden_sizes else 2**0.5
            weights.append(jax.random.normal(weight_key, (fan_in, fan_out)) * gain / fan_in**0.5)
            if is_last:
                biases.append(jnp.full(fan_out, output_bias, dtype=jnp.float32))
            else:
                biases.append(jax.random.uniform(bias_key, (fan_out,), minval=-1.0, maxval=1.0))
        return cls(tuple(weights), tuple(biases), activation)

    def __call__(self, x: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
        activate = ACTIVATIONS[self.activation]
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = (activate(x) if i else x) @ weight + bias[None]
        return x
