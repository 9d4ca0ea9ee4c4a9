"""Encoder, decoder and the two halves of the evidence lower bound."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.distributions import AbstractDistribution, Normal
from sigmax.generative.batch_norm import MOMENTUM, NormalizedMLP
from sigmax.generative.likelihoods import AbstractLikelihood
from sigmax.networks import inverse_softplus

__all__ = ["Autoencoder", "Decoder", "Encoder", "divergence", "place_code"]

LEAST_CODE_STD = 1e-4
INITIAL_CODE_STD = 0.3
Keep = float | Float[Array, ""]


@final
class Encoder(eqx.Module):
    """q(z | x): one network for the mean of the code, one for its standard deviation."""

    mean: NormalizedMLP
    spread: NormalizedMLP

    @classmethod
    def create(
        cls, rng: np.random.Generator, n_features: int, hidden_sizes: Sequence[int], n_latent: int
    ) -> "Encoder":
        bias = inverse_softplus(INITIAL_CODE_STD)
        sizes = (n_features, hidden_sizes, n_latent)
        return cls(
            NormalizedMLP.create(rng, *sizes),
            NormalizedMLP.create(rng, *sizes, output_bias=bias, output_gain=0.1),
        )

    @property
    def n_latent(self) -> int:
        return self.mean.bias.shape[-1]

    def __call__(self, x: Float[Array, "rows features"]) -> Normal:
        return as_code(self.mean(x), self.spread(x))

    def learn(
        self, x: Float[Array, "rows features"], keep: Keep = MOMENTUM
    ) -> tuple[Normal, "Encoder"]:
        """As `__call__`, by the moments of the batch, and with newer running moments."""
        mean, newer_mean = self.mean.learn(x, keep=keep)
        spread, newer_spread = self.spread.learn(x, keep=keep)
        return as_code(mean, spread), Encoder(newer_mean, newer_spread)


def as_code(mean: Float[Array, "rows latent"], spread: Float[Array, "rows latent"]) -> Normal:
    return Normal(mean, LEAST_CODE_STD + jax.nn.softplus(spread))


@final
class Decoder(eqx.Module):
    """p(x | z): networks of which the first gives the mean, and what their outputs mean."""

    networks: tuple[NormalizedMLP, ...]
    likelihood: AbstractLikelihood

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        n_latent: int,
        hidden_sizes: Sequence[int],
        likelihood: AbstractLikelihood,
    ) -> "Decoder":
        """Networks that start near the mean and the standard deviation of the data."""
        networks = tuple(
            NormalizedMLP.create(
                rng, n_latent, hidden_sizes, len(bias), output_bias=bias, output_gain=0.1
            )
            for bias in likelihood.initial_outputs()
        )
        return cls(networks, likelihood)

    def __call__(self, z: Float[Array, "rows latent"]) -> AbstractDistribution:
        return self.likelihood(tuple(network(z) for network in self.networks), z)

    def learn(
        self, z: Float[Array, "rows latent"], keep: Keep = MOMENTUM
    ) -> tuple[AbstractDistribution, "Decoder"]:
        """As `__call__`, by the moments of the batch, and with newer running moments."""
        outputs, networks = zip(*(n.learn(z, keep=keep) for n in self.networks), strict=True)
        return self.likelihood(outputs, z), Decoder(networks, self.likelihood)


@final
class Autoencoder(eqx.Module):
    """The whole model of one seed, in the units of the networks."""

    encoder: Encoder
    decoder: Decoder

    def refresh(
        self,
        x: Float[Array, "rows features"],
        noise: Float[Array, "rows latent"],
        keep: Keep,
    ) -> "Autoencoder":
        """The same model with running moments blended with those of a batch."""
        code, encoder = self.encoder.learn(x, keep)
        _, decoder = self.decoder.learn(place_code(code, noise), keep)
        return Autoencoder(encoder, decoder)

    def elbo(
        self, x: Float[Array, "rows features"], key: PRNGKeyArray
    ) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
        """Log-likelihood at one drawn code, and the divergence from the prior, by row."""
        code = self.encoder(x)
        z = place_code(code, jax.random.normal(key, code.shape))
        return jnp.sum(self.decoder(z).log_prob(x), axis=1), divergence(code)


def place_code(code: Normal, noise: Float[Array, "rows latent"]) -> Float[Array, "rows latent"]:
    """A draw of every code from standard Normal ``noise``, differentiable in mean and std."""
    return jnp.asarray(code.mean + code.std * noise)


def divergence(code: Normal) -> Float[Array, " rows"]:
    """KL(q(z | x) || N(0, I)) of every row."""
    mean, std = jnp.asarray(code.mean), jnp.asarray(code.std)
    return jnp.sum(0.5 * (mean**2 + std**2 - 1) - jnp.log(std), axis=1)
