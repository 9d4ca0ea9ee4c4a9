"""A network whose units are dropped at random, in training and in prediction."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.distributions import Normal
from sigmax.inputs import Inputs
from sigmax.networks.mlp import ACTIVATIONS, TabularMLP

__all__ = ["DropoutNetwork"]


@final
class DropoutNetwork(eqx.Module):
    """A perceptron with dropout before every weight layer, and one noise level per output.

    ``log_precision`` is the paper's τ; it is chosen on held-out rows, and no step trains it.
    """

    mean: TabularMLP
    log_precision: Float[Array, " outputs"]
    rate: float = eqx.field(static=True)

    def __call__(
        self, rows: Inputs, key: PRNGKeyArray, *, shared: bool = False
    ) -> Float[Array, "rows outputs"]:
        """The mean under one mask: a fresh one for every row, or one ``shared`` by all rows."""
        x, mlp = self.mean.inputs(rows), self.mean.mlp
        activate = ACTIVATIONS[mlp.activation]
        for i, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
            x = activate(x) if i else x
            shape = (1, x.shape[1]) if shared else x.shape
            kept = jax.random.bernoulli(jax.random.fold_in(key, i), 1 - self.rate, shape)
            x = (jnp.broadcast_to(kept, x.shape) * x / (1 - self.rate)) @ weight + bias[None]
        return x

    def sample(self, rows: Inputs, key: PRNGKeyArray) -> Normal:
        """The density under one drawn mask."""
        mean = self(rows, key, shared=True)
        std = jnp.exp(-0.5 * self.log_precision)
        return Normal(mean, jnp.broadcast_to(std[None], mean.shape))
