"""Dropout: masks and their scale. Flipout: independent perturbations, divergence, gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from sigmax.experts.stochastic import Bayesian, DropoutNetwork, FlipoutLayer
from sigmax.inputs import Inputs
from sigmax.networks import TabularMLP


def build_dropout(rate):
    mlp = TabularMLP.create(
        np.random.default_rng(0), Inputs(np.zeros((1, 3))), (64,), 2, activation="tanh"
    )
    return DropoutNetwork(mlp, jnp.asarray([0.0, 2.0]), rate)


@pytest.fixture
def x():
    return Inputs(jax.random.normal(jax.random.key(1), (5, 3)))


def test_without_dropout_it_is_the_deterministic_network(x):
    network = build_dropout(0.0)
    dist = network.sample(x, jax.random.key(0))
    np.testing.assert_allclose(dist.mean, network.mean(x), rtol=1e-5)
    np.testing.assert_allclose(dist.std, np.tile(np.exp([0.0, -1.0]), (5, 1)), rtol=1e-6)


def test_a_shared_mask_is_the_same_in_every_row(x):
    network, key = build_dropout(0.3), jax.random.key(0)
    same_rows = x[jnp.zeros(4, dtype=int)]
    shared = network(same_rows, key, shared=True)
    np.testing.assert_allclose(shared, jnp.tile(shared[:1], (4, 1)))
    assert jnp.std(network(same_rows, key), axis=0).min() > 1e-4


def test_a_linear_layer_is_right_in_the_mean_over_masks():
    """20,000 masks, 5 standard errors: 1 seed in a million fails by chance."""
    mlp = TabularMLP.create(
        np.random.default_rng(0), Inputs(np.zeros((1, 3))), (), 1, activation="tanh"
    )
    network = DropoutNetwork(mlp, jnp.zeros(1), 0.4)
    x = Inputs(jnp.asarray([[1.0, -2.0, 0.5]]))
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.vmap(lambda key: network(x, key, shared=True))(keys)).ravel()
    expected = float(mlp(x)[0, 0])
    assert abs(draws.mean() - expected) < 5 * draws.std() / np.sqrt(len(draws))


def build_flipout(std=0.3):
    expert = Bayesian(hidden_sizes=(16,), activation="tanh")
    network = expert.create(np.random.default_rng(0), Inputs(np.zeros((1, 3))), 1)
    raw = float(np.log(np.expm1(std)))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.full_like(leaf, raw) if "raw_std" in str(path[-1]) else leaf, network
    )


def test_without_posterior_variance_it_is_the_deterministic_network(x):
    network = build_flipout(std=1e-9)
    for shared in (True, False):
        drawn = network(x, jax.random.key(0), shared=shared)
        np.testing.assert_allclose(drawn.mean, network(x, None).mean, atol=1e-6)


def test_perturbations_are_independent_across_rows_of_a_batch():
    """Equal rows: correlation of two rows over 4,000 draws under 5 / sqrt(4,000); shared: 1."""
    layer = build_flipout().layers[0]
    x = jnp.tile(jnp.asarray([[0.7, -0.2, 1.1]]), (2, 1))
    keys = jax.random.split(jax.random.key(0), 4000)

    def correlation(*, shared):
        draws = jax.vmap(lambda key: layer(x, key, shared=shared)[:, 0])(keys)
        return np.corrcoef(np.asarray(draws).T)[0, 1]

    assert abs(correlation(shared=False)) < 5 / np.sqrt(4000)
    assert correlation(shared=True) == pytest.approx(1, abs=1e-5)


def test_each_row_alone_has_the_distribution_of_a_weight_draw():
    """Variance of one row over 20,000 draws, both ways, to 6 standard errors."""
    layer = build_flipout().layers[0]
    x = jnp.asarray([[0.7, -0.2, 1.1]])
    keys = jax.random.split(jax.random.key(0), 20_000)
    expected = 0.09 * (float(jnp.sum(x**2)) / 3 + 1)
    for shared in (True, False):
        draws = np.asarray(jax.vmap(lambda key, s=shared: layer(x, key, shared=s)[0, 0])(keys))
        assert draws.var() == pytest.approx(expected, rel=6 * np.sqrt(2 / 20_000))


def test_gradients_vary_less_than_with_one_shared_draw():
    network = build_flipout()
    x = Inputs(jax.random.normal(jax.random.key(1), (64, 3)))
    y = jnp.sin(x.numbers[:, :1])
    keys = jax.random.split(jax.random.key(0), 300)

    def total_variance(*, shared):
        def loss(network, key):
            return -jnp.mean(network(x, key, shared=shared).log_prob(y))

        gradients = jax.jit(jax.vmap(eqx.filter_grad(loss), (None, 0)))(network, keys)
        return sum(float(jnp.var(leaf, axis=0).sum()) for leaf in jax.tree.leaves(gradients))

    assert total_variance(shared=False) < 0.5 * total_variance(shared=True)


def test_divergence_is_that_of_quadrature():
    layer = FlipoutLayer(
        *(
            jnp.full(shape, v)
            for shape, v in (((1, 1), 0.4), ((1, 1), -1.0), ((1,), -0.2), ((1,), 0.3))
        )
    )

    def divergence(mean, raw):
        std = np.log1p(np.exp(raw))

        def integrand(w):
            log_posterior = stats.norm.logpdf(w, mean, std)
            return np.exp(log_posterior) * (log_posterior - stats.norm.logpdf(w))

        return integrate.quad(integrand, -12, 12)[0]

    expected = divergence(0.4, -1.0) + divergence(-0.2, 0.3)
    assert float(layer.divergence()) == pytest.approx(expected, rel=1e-5)


def test_noise_is_positive_whatever_is_learned():
    network = eqx.tree_at(lambda n: n.raw_noise, build_flipout(), jnp.asarray([-200.0]))
    assert network.noise_variance[0] > 0
