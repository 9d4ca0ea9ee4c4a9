"""What follows the networks between chunks of steps: the gate, and the moments of batch norm."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PRNGKeyArray

from sigmax.generative.autoencoder import Autoencoder, place_code
from sigmax.generative.data import GenerativeData, ModelRows
from sigmax.generative.latent_gate import follow_codes
from sigmax.generative.likelihoods import GatedStudentLikelihood
from sigmax.training import over_members

__all__ = ["move_gates", "refresh_all_moments"]

CODES_FOR_THE_GATE = 4096
BATCHES_FOR_THE_MOMENTS = 20


def move_gate(
    model: Autoencoder, key: PRNGKeyArray, fold: ModelRows, data: GenerativeData
) -> Autoencoder:
    """``model`` with its gate moved to where the codes are now."""
    likelihood = model.decoder.likelihood
    assert isinstance(likelihood, GatedStudentLikelihood)
    row_key, noise_key, center_key = jax.random.split(key, 3)
    picks = jax.random.randint(row_key, (2 * CODES_FOR_THE_GATE,), 0, len(fold.learned))
    code = model.encoder(fold.take(data, picks))
    codes = place_code(code, jax.random.normal(noise_key, code.shape))
    half = CODES_FOR_THE_GATE
    gate = follow_codes(likelihood.gate, codes[:half], codes[half:], center_key)
    return eqx.tree_at(lambda m: m.decoder.likelihood.gate, model, gate)


def refresh_moments(
    model: Autoencoder, key: PRNGKeyArray, fold: ModelRows, data: GenerativeData, n_batch: int
) -> Autoencoder:
    """``model`` with moments averaged over ordinary batches: running ones lag behind."""
    row_key, noise_key = jax.random.split(key)
    shape = (BATCHES_FOR_THE_MOMENTS, n_batch)
    picks = jax.random.randint(row_key, shape, 0, len(fold.learned))
    noise = jax.random.normal(noise_key, (*shape, model.encoder.n_latent))
    numbers = jnp.arange(BATCHES_FOR_THE_MOMENTS, dtype=jnp.float32)

    def refresh(model, draws):
        picks, noise, number = draws
        return model.refresh(fold.take(data, picks), noise, number / (number + 1)), None

    return lax.scan(refresh, model, (picks, noise, numbers))[0]


move_gates = over_members(move_gate, 3)
refresh_all_moments = over_members(refresh_moments, 3)
