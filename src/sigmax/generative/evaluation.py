"""The bounds on log p(x), by row, in blocks of bounded memory."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.compilation import compiled
from sigmax.distributions import AbstractDistribution, Normal
from sigmax.generative.autoencoder import Autoencoder, Decoder, Encoder, divergence

__all__ = ["bounds", "decode", "encode"]

BUDGET = 2**26
"""Numbers that one call may hold at once: 256 MiB."""

LEAST_ROWS, MOST_ROWS = 32, 4096


@compiled
def encode(encoder: Encoder, x: Float[Array, "rows features"]) -> Normal:
    """q(z | x)."""
    return encoder(x)


@compiled
def decode(decoder: Decoder, z: Float[Array, "rows latent"]) -> AbstractDistribution:
    """p(x | z)."""
    return decoder(z)


@compiled
def bound_block(
    model: Autoencoder,
    x: Float[Array, "rows features"],
    key: PRNGKeyArray,
    *,
    n_samples: int,
    n_at_once: int,
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    r"""The evidence lower bound and the importance-weighted one, from the same draws.

    $\frac1S\sum_s \log p(x|z_s) - \text{KL}(q\|p)$ and
    $\log\frac1S\sum_s p(x|z_s)\,p(z_s)/q(z_s|x)$ with $z_s \sim q(z|x)$, summed up ``n_at_once``.
    """
    code, n_rows = model.encoder(x), len(x)
    mean, std = jnp.asarray(code.mean), jnp.asarray(code.std)

    def add(totals, draws):
        total, log_total = totals
        number, draw_key = draws
        noise = jax.random.normal(draw_key, (n_at_once, *mean.shape))
        z = mean[None] + std[None] * noise
        density = model.decoder(z.reshape(-1, z.shape[-1]))
        repeated = jnp.broadcast_to(x[None], (n_at_once, *x.shape)).reshape(-1, x.shape[-1])
        log_likelihood = jnp.sum(density.log_prob(repeated), axis=1).reshape(n_at_once, n_rows)
        # log p(z) - log q(z | x): the constants cancel
        log_ratio = jnp.sum(0.5 * (noise**2 - z**2) + jnp.log(std)[None], axis=2)
        counts = (number * n_at_once + jnp.arange(n_at_once) < n_samples)[:, None]
        total = total + jnp.sum(jnp.where(counts, log_likelihood, 0.0), axis=0)
        log_weight = jnp.where(counts, log_likelihood + log_ratio, -jnp.inf)
        return (total, jnp.logaddexp(log_total, logsumexp(log_weight, axis=0))), None

    n_rounds = -(-n_samples // n_at_once)
    start = jnp.zeros(n_rows), jnp.full(n_rows, -jnp.inf)
    draws = jnp.arange(n_rounds), jax.random.split(key, n_rounds)
    (total, log_total), _ = lax.scan(add, start, draws)
    return total / n_samples - divergence(code), log_total - math.log(n_samples)


def bounds(
    model: Autoencoder, X: np.ndarray, key: PRNGKeyArray, n_samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Both bounds for all rows of ``X``, which are in the units of the networks."""
    hidden = sum(len(shift) for shift in model.decoder.networks[0].shifts)
    n_draws = max(BUDGET // (12 * X.shape[1] + 4 * hidden), LEAST_ROWS)
    wanted = min(max(n_draws // n_samples, LEAST_ROWS), MOST_ROWS)
    n_rows = min(1 << (wanted.bit_length() - 1), max(LEAST_ROWS, 1 << (len(X) - 1).bit_length()))
    n_rounds = -(-n_samples // max(n_draws // n_rows, 1))
    sizes = {"n_samples": n_samples, "n_at_once": -(-n_samples // n_rounds)}
    blocks = []
    for number, start in enumerate(range(0, len(X), n_rows)):
        block = X[start : start + n_rows]
        padded = np.pad(block, ((0, n_rows - len(block)), (0, 0)))
        block_key = jax.random.fold_in(key, number)
        blocks.append(bound_block(model, jnp.asarray(padded), block_key, **sizes))
    elbo, log_prob = (np.concatenate(part)[: len(X)] for part in zip(*blocks, strict=True))
    return elbo.astype(np.float64), log_prob.astype(np.float64)
