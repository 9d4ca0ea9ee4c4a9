"""What a step of training makes small, and the two vectors that learn."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from sigmax.generative.autoencoder import Autoencoder, Decoder, divergence, place_code
from sigmax.generative.batch_norm import AbstractFrozen
from sigmax.generative.likelihoods import GatedStudentLikelihood
from sigmax.networks import ExtrapolationGate

__all__ = ["Vectors", "bound_loss", "take_apart", "variance_loss"]

Vectors = tuple[Float[Array, " body"], Float[Array, " spread"]]


def is_fixed(node: Any) -> bool:
    return isinstance(node, AbstractFrozen | ExtrapolationGate)


def take_apart(model: Autoencoder) -> tuple[Vectors, Any, Callable[[Vectors, Any], Autoencoder]]:
    """What learns, as two vectors, what does not, and the way back to a model.

    The first vector is the encoder and the mean, the second the decoder's other networks. One
    vector makes an optimiser a handful of operations, however many layers there are.
    """
    arrays, rest = eqx.partition(model, eqx.is_inexact_array, is_leaf=is_fixed)
    mean, *spread = arrays.decoder.networks
    body, restore_body = ravel_pytree((arrays.encoder, mean, arrays.decoder.likelihood))
    others, restore_spread = ravel_pytree(tuple(spread))

    def rebuild(vectors: Vectors, rest: Any) -> Autoencoder:
        encoder, mean, likelihood = restore_body(vectors[0])
        networks = (mean, *restore_spread(vectors[1]))
        learned = Autoencoder(encoder, Decoder(networks, likelihood))
        return eqx.combine(learned, rest, is_leaf=is_fixed)

    return (body, others), rest, rebuild


def bound_loss(
    model: Autoencoder,
    x: Float[Array, "rows features"],
    noise: Float[Array, "rows latent"],
    weight: Float[Array, ""],
    *,
    is_warm_up: bool,
) -> tuple[Float[Array, ""], tuple[Autoencoder, Float[Array, "rows latent"], tuple]]:
    """The negative bound, the divergence times ``weight``; in the warm-up under one common std.

    With it the model with newer moments, the codes, and the two parts of the bound.
    """
    code, encoder = model.encoder.learn(x)
    z = place_code(code, noise)
    if is_warm_up:
        assert isinstance(model.decoder.likelihood, GatedStudentLikelihood)
        mean, newer = model.decoder.networks[0].learn(z)
        density = model.decoder.likelihood.warm_up(mean)
        decoder = eqx.tree_at(lambda d: d.networks[0], model.decoder, newer)
    else:
        density, decoder = model.decoder.learn(z)
    log_likelihood = jnp.mean(jnp.sum(density.log_prob(x), axis=1))
    kl = jnp.mean(divergence(code))
    return weight * kl - log_likelihood, (Autoencoder(encoder, decoder), z, (log_likelihood, kl))


def variance_loss(
    model: Autoencoder,
    x: Float[Array, "local features"],
    noise: Float[Array, "local latent"],
    share: Float[Array, " local"],
    codes: Float[Array, "rows latent"],
) -> Float[Array, ""]:
    """The weighted negative log-likelihood of a locality batch.

    A few neighbourhoods have other moments than the data, so batch norm goes by the ``codes`` of
    an ordinary batch. Encoder and mean, held fixed, go by their running moments.
    """
    z = lax.stop_gradient(place_code(model.encoder(x), noise))
    mean, *spread = model.decoder.networks
    both, n_codes = jnp.concatenate([lax.stop_gradient(codes), z]), len(codes)
    outputs = [net.learn(both, n_reference=n_codes)[0][n_codes:] for net in spread]
    density = model.decoder.likelihood((lax.stop_gradient(mean(z)), *outputs), z)
    return -jnp.sum(share * jnp.sum(density.log_prob(x), axis=1))
