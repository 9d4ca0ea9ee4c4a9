"""The dropout network: masks, their scale, and its limit without them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax.experts.stochastic import DropoutNetwork
from sigmax.inputs import Inputs, InputShape
from sigmax.networks import TabularMLP


def build(rate):
    mlp = TabularMLP.create(np.random.default_rng(0), InputShape(3), (64,), 2, activation="tanh")
    return DropoutNetwork(mlp, jnp.asarray([0.0, 2.0]), rate)


@pytest.fixture
def x():
    return Inputs(jax.random.normal(jax.random.key(1), (5, 3)))


def test_without_dropout_it_is_the_deterministic_network(x):
    network = build(0.0)
    dist = network.sample(x, jax.random.key(0))
    np.testing.assert_allclose(dist.mean, network.mean(x), rtol=1e-5)
    np.testing.assert_allclose(dist.std, np.tile(np.exp([0.0, -1.0]), (5, 1)), rtol=1e-6)


def test_a_shared_mask_is_the_same_in_every_row(x):
    network, key = build(0.3), jax.random.key(0)
    same_rows = x[jnp.zeros(4, dtype=int)]
    shared = network(same_rows, key, shared=True)
    np.testing.assert_allclose(shared, jnp.tile(shared[:1], (4, 1)))
    assert jnp.std(network(same_rows, key), axis=0).min() > 1e-4


def test_a_linear_layer_is_right_in_the_mean_over_masks():
    """20,000 masks, 5 standard errors: 1 seed in a million fails by chance."""
    mlp = TabularMLP.create(np.random.default_rng(0), InputShape(3), (), 1, activation="tanh")
    network = DropoutNetwork(mlp, jnp.zeros(1), 0.4)
    x = Inputs(jnp.asarray([[1.0, -2.0, 0.5]]))
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.vmap(lambda key: network(x, key, shared=True))(keys)).ravel()
    expected = float(mlp(x)[0, 0])
    assert abs(draws.mean() - expected) < 5 * draws.std() / np.sqrt(len(draws))
