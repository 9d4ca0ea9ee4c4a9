"""The decoder's variance: small on the codes, that of the data away from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generative_cases import SMALL, two_arcs

from sigmax.generative import CombVAE
from sigmax.generative.autoencoder import divergence, sample_code
from sigmax.generative.vae import bound_loss


@pytest.fixture(scope="module")
def trained_comb():
    """A Comb-VAE after a real, if short, training, and its rows."""
    X = two_arcs(200, seed=0)
    return CombVAE(**SMALL).set_params(n_steps=1000).fit(X), X


def test_far_from_all_codes_the_variance_is_that_of_the_data(trained_comb):
    model, X = trained_comb
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    far = 15 * np.column_stack([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(
        model.decode_dist(far).variance, np.tile(X.var(axis=0), (12, 1)), rtol=0.05
    )
    assert (model.gate(far) > 0.999).all()


def test_on_the_codes_the_variance_does_not_collapse_to_that_of_the_data(trained_comb):
    model, X = trained_comb
    codes = model.encode_dist(X)
    prior = X.var(axis=0).sum()
    at_means = model.decode_dist(codes.mean).variance.sum(axis=1)
    at_draws = model.decode_dist(codes.sample(1, random_state=0)[0]).variance.sum(axis=1)
    assert np.quantile(at_means, 0.99) < prior / 4
    assert np.quantile(at_draws, 0.95) < prior / 4
    assert np.mean(model.gate(codes.mean) < 0.01) > 0.98


def test_the_codes_of_new_rows_are_on_the_codes(trained_comb):
    model, _ = trained_comb
    assert np.mean(model.gate(model.encode(two_arcs(300, seed=1))) < 0.05) > 0.97


def test_the_predicted_variance_is_the_error_of_the_reconstruction(trained_comb):
    model, _ = trained_comb
    new = two_arcs(1000, seed=2)
    dist = model.decode_dist(model.encode_dist(new).sample(1, random_state=0)[0])
    squared_error = ((new - dist.mean) ** 2).mean()
    assert 0.5 < dist.variance.mean() / squared_error < 2


def test_training_and_evaluation_agree(trained_comb):
    model, X = trained_comb
    rows, inner = jnp.asarray(model.model_.scaling(X)), model.model_.autoencoder
    noise = jax.random.normal(jax.random.key(0), (len(rows), 2))
    loss, _ = bound_loss(
        inner, rows, noise, jnp.asarray(1.0), is_warm_up=False
    )  # by moments of the batch
    code = inner.encoder(rows)
    density = inner.decoder(sample_code(code, noise))
    bound = density.log_prob(rows).sum(axis=1) - divergence(code)
    assert float(bound.mean()) == pytest.approx(-float(loss), abs=0.1)
