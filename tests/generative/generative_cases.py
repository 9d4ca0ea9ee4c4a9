"""Small data and models that several test files share."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sigmax.generative import VAE
from sigmax.generative.autoencoder import VAEModel
from sigmax.generative.vae import VAESettings

SMALL: dict[str, Any] = {
    "hidden_sizes": (32,),
    "n_steps": 200,
    "batch_size": 128,
    "random_state": 0,
}


def two_arcs(n_rows: int, seed: int) -> np.ndarray:
    """Rows of four numbers, seen with noise, about two half circles in the plane."""
    rng = np.random.default_rng(seed)
    side = np.where(rng.random(n_rows) < 0.5, 1.0, -1.0)
    angle = rng.uniform(0, np.pi, n_rows)
    a, b = side * (0.5 + np.cos(angle)), side * np.sin(angle)
    clean = np.column_stack([a - b, a**2 + b / 2, a * b - a, a + b])
    return clean + rng.normal(0, 0.15, clean.shape)


def linear_gaussian(loadings: np.ndarray, noise_std: float) -> tuple[VAE, np.ndarray]:
    """A VAE whose decoder is exactly ``z @ loadings``, and the covariance of x under it.

    Two units with opposite weights make a linear function of a ReLU: relu(a) - relu(-a) = a. The
    encoder has the right linear mean and a std that is a little too wide.
    """
    n_latent, n_features = loadings.shape
    precision = np.eye(n_latent) + loadings @ loadings.T / noise_std**2
    gain = loadings.T @ np.linalg.inv(precision).T / noise_std**2  # E[z | x] = x @ gain
    settings = VAESettings(
        likelihood="shared",
        n_latent=n_latent,
        hidden_sizes=(2 * n_latent,),
        scaling="none",
        min_std=1e-6,
    )
    rows = np.ones((2, n_features), np.float32)
    start = settings.create(rows, None, np.random.default_rng(0))

    def linear(network, matrix):
        """``network`` made to compute ``x @ matrix``, whatever batch norm adds to a variance."""
        size = len(matrix)
        to_units = np.hstack([np.eye(size), -np.eye(size)])
        back = np.vstack([matrix, -matrix])
        if network.weights[0].shape != to_units.shape:  # more features than units: two per output
            to_units = np.hstack([matrix, -matrix])
            back = np.vstack([np.eye(matrix.shape[1]), -np.eye(matrix.shape[1])])
        network = replace(network, "weights", (to_units, back))
        network = replace(network, "shifts", (np.zeros(2 * n_latent),))
        network = replace(network, "gains", (np.full(2 * n_latent, np.sqrt(1 + 1e-5)),))
        return replace(network, "bias", np.zeros(matrix.shape[1]))

    encoder, decoder = start.encoder, start.decoder
    std = 1.3 * np.sqrt(np.diag(np.linalg.inv(precision)))
    mean, spread = encoder.networks
    spread = linear(spread, np.zeros((n_features, n_latent)))
    spread = replace(spread, "bias", np.log(np.expm1(std - 1e-4)))
    encoder = dataclasses.replace(encoder, networks=(linear(mean, gain), spread))
    likelihood = replace(decoder.likelihood, "log_std", np.log(noise_std - 1e-6))
    networks = (linear(decoder.networks[0], loadings),)
    decoder = dataclasses.replace(decoder, networks=networks, likelihood=likelihood)
    vae = VAE("shared")
    vae.n_features_in_ = n_features
    vae.model_ = VAEModel(dataclasses.replace(start, encoder=encoder, decoder=decoder), None, {})
    return vae, loadings.T @ loadings + noise_std**2 * np.eye(n_features)


def replace(module: Any, name: str, values: Any) -> Any:
    """A copy with one field of arrays in single precision."""
    single = jax.tree.map(lambda array: jnp.asarray(array, dtype=jnp.float32), values)
    return dataclasses.replace(module, **{name: single})
