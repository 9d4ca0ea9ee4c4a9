"""The bounds on log p(x), against a model whose marginal is known."""

from typing import Any

import numpy as np
import pytest
from generative_cases import linear_gaussian
from scipy.stats import multivariate_normal

from sigmax.generative import autoencoder

LOADINGS = np.array([[1.0, -0.5, 0.3, 0.8], [0.2, 0.9, -0.7, 0.4]])


@pytest.fixture(scope="module")
def linear():
    vae, covariance = linear_gaussian(LOADINGS, noise_std=0.6)
    X = np.random.default_rng(1).multivariate_normal(np.zeros(4), covariance, 300)
    marginal: Any = multivariate_normal
    return vae, X, marginal(np.zeros(4), covariance).logpdf(X)


def test_the_linear_model_has_its_exact_decoder_and_encoder(linear):
    vae, X, _ = linear
    z = np.random.default_rng(0).normal(size=(5, 2))
    dist = vae.decode_dist(z)
    np.testing.assert_allclose(dist.mean, z @ LOADINGS, atol=1e-5)
    np.testing.assert_allclose(dist.std, 0.6, rtol=1e-5)
    posterior_variance = np.linalg.inv(np.eye(2) + LOADINGS @ LOADINGS.T / 0.36)
    np.testing.assert_allclose(vae.encode(X), X @ LOADINGS.T @ posterior_variance / 0.36, atol=1e-4)


def test_importance_sampling_finds_the_exact_marginal(linear):
    vae, X, exact = linear
    found = vae.log_prob(X, n_samples=500)
    assert np.abs(found - exact).max() < 0.35  # one row: an estimate of 500 draws
    assert abs(found.mean() - exact.mean()) < 0.01


def test_the_bound_grows_with_the_draws_and_the_elbo_is_below(linear):
    vae, X, exact = linear
    means = [vae.log_prob(X, n_samples=n).mean() for n in (1, 20, 500)]
    assert means[0] < means[1] - 0.02 < means[2] < exact.mean() + 0.01
    elbo = vae.elbo(X, n_samples=20).mean()
    assert elbo < means[1]
    assert abs(elbo - vae.elbo(X, n_samples=1).mean()) < 0.3  # the mean does not depend on it


def test_the_elbo_is_the_marginal_less_the_divergence_from_the_posterior(linear):
    vae, X, exact = linear
    true = np.linalg.inv(np.eye(2) + LOADINGS @ LOADINGS.T / 0.36)
    mine = 1.3**2 * np.diag(np.diag(true))  # the means agree
    ratio = np.linalg.solve(true, mine)
    gap = 0.5 * (np.trace(ratio) - 2 - np.log(np.linalg.det(ratio)))
    found = exact.mean() - vae.elbo(X, n_samples=500).mean()
    assert found == pytest.approx(gap, abs=0.02)


def test_blocks_change_nothing_but_the_draws(linear, monkeypatch):
    vae, X, _ = linear
    whole = vae.log_prob(X, n_samples=20)
    monkeypatch.setattr(autoencoder, "LARGEST_CALL", 32 * 5 * 64)  # a few dozen decodes at a time
    parts = vae.log_prob(X, n_samples=20)
    assert parts.shape == whole.shape
    assert abs(parts.mean() - whole.mean()) < 0.05


def test_scores_repeat_with_the_default_seed(linear):
    vae, X, _ = linear
    first, again = vae.elbo(X[:40]), vae.elbo(X[:40])
    np.testing.assert_array_equal(first, again)
    assert (vae.elbo(X[:40], random_state=1) != first).any()
