"""A network with a Gaussian on every weight, perturbed independently in every row (Flipout)."""

import itertools
from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.compilation import on_device
from sigmax.distributions import Normal
from sigmax.inputs import Inputs, InputShape
from sigmax.networks.heads import INITIAL_VARIANCE, SMALLEST_VARIANCE, inverse_softplus
from sigmax.networks.input_layer import InputLayer
from sigmax.networks.mlp import ACTIVATIONS

__all__ = ["FlipoutLayer", "FlipoutNetwork"]

INITIAL_STD = 0.02


@final
class FlipoutLayer(eqx.Module):
    """A linear layer whose weights and biases have independent Gaussian posteriors.

    The prior is N(0, 1) in the scale in which the layer keeps the size of its inputs: a weight is
    its Gaussian over the square root of the number of inputs.
    """

    weight_mean: Float[Array, "inputs outputs"]
    weight_raw_std: Float[Array, "inputs outputs"]
    bias_mean: Float[Array, " outputs"]
    bias_raw_std: Float[Array, " outputs"]

    @classmethod
    def create(
        cls, rng: np.random.Generator, n_inputs: int, n_outputs: int, *, gain: float
    ) -> "FlipoutLayer":
        shape = (n_inputs, n_outputs)
        raw = inverse_softplus(INITIAL_STD)
        return cls(
            on_device(rng.normal(0, gain, shape), np.float32),
            on_device(np.full(shape, raw), np.float32),
            on_device(rng.uniform(-gain, gain, n_outputs), np.float32),
            on_device(np.full(n_outputs, raw), np.float32),
        )

    def perturbations(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, "inputs outputs"], Float[Array, " outputs"]]:
        """One draw of weights and biases, less their means."""
        weight_key, bias_key = jax.random.split(key)
        weight = jax.random.normal(weight_key, self.weight_mean.shape)
        bias = jax.random.normal(bias_key, self.bias_mean.shape)
        return (
            weight * jax.nn.softplus(self.weight_raw_std),
            bias * jax.nn.softplus(self.bias_raw_std),
        )

    def __call__(
        self, x: Float[Array, "rows inputs"], key: PRNGKeyArray | None, *, shared: bool = False
    ) -> Float[Array, "rows outputs"]:
        """The layer at its mean weights, or perturbed: by random signs per row, or ``shared``."""
        scale = x.shape[1] ** -0.5
        mean = scale * x @ self.weight_mean + self.bias_mean[None]
        if key is None:
            return mean
        weight, bias = self.perturbations(key)
        if shared:
            return mean + scale * x @ weight + bias[None]
        in_key, out_key = jax.random.split(jax.random.fold_in(key, 1))
        signs_in = jax.random.rademacher(in_key, x.shape, dtype=x.dtype)
        signs_out = jax.random.rademacher(out_key, mean.shape, dtype=x.dtype)
        return mean + signs_out * (scale * (x * signs_in) @ weight + bias[None])

    def divergence(self) -> Float[Array, ""]:
        """KL divergence of the posterior from the prior N(0, 1)."""

        def of(mean, raw_std):
            std = jax.nn.softplus(raw_std)
            return jnp.sum(0.5 * (std**2 + mean**2 - 1) - jnp.log(std))

        weights = of(self.weight_mean, self.weight_raw_std)
        return weights + of(self.bias_mean, self.bias_raw_std)


@final
class FlipoutNetwork(eqx.Module):
    """A Bayesian perceptron and one noise level per output, which is learned, not inferred."""

    inputs: InputLayer
    layers: tuple[FlipoutLayer, ...]
    raw_noise: Float[Array, " outputs"]
    activation: str = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        shape: InputShape,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
    ) -> "FlipoutNetwork":
        inputs = InputLayer.create(rng, shape)
        sizes = list(itertools.pairwise([inputs.n_outputs, *hidden_sizes, n_outputs]))
        layers = tuple(
            FlipoutLayer.create(rng, *pair, gain=0.1 if i == len(sizes) - 1 else 1.0)
            for i, pair in enumerate(sizes)
        )
        raw = on_device(np.full(n_outputs, inverse_softplus(INITIAL_VARIANCE)), np.float32)
        return cls(inputs, layers, raw, activation)

    @property
    def noise_variance(self) -> Float[Array, " outputs"]:
        """Variance of the observation noise: positive whatever is learned."""
        return jax.nn.softplus(self.raw_noise) + SMALLEST_VARIANCE

    def __call__(self, rows: Inputs, key: PRNGKeyArray | None, *, shared: bool = False) -> Normal:
        """The density at the mean weights (no key), per-row perturbed ones, or one ``shared``."""
        x, activate = self.inputs(rows), ACTIVATIONS[self.activation]
        for i, layer in enumerate(self.layers):
            layer_key = None if key is None else jax.random.fold_in(key, i)
            x = layer(activate(x) if i else x, layer_key, shared=shared)
        std = jnp.sqrt(self.noise_variance)
        return Normal(x, jnp.broadcast_to(std[None], x.shape))

    def sample(self, rows: Inputs, key: PRNGKeyArray) -> Normal:
        """The density under one draw of all weights."""
        return self(rows, key, shared=True)

    def divergence(self) -> Float[Array, ""]:
        """KL divergence of all weights from their prior."""
        return jnp.sum(jnp.stack([layer.divergence() for layer in self.layers]))
