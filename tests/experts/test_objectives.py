"""Objectives: the gradients that make them what they are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax import MeanVarianceRegressor
from sigmax.experts.combined import (
    NormalSpread,
    VarianceNetwork,
    beta_negative_log_likelihood,
    faithful_error,
    negative_log_likelihood,
    squared_error,
)
from sigmax.inputs import Inputs, InputShape
from sigmax.networks import TabularMLP
from sigmax.training import TrainingData


@pytest.fixture
def setting():
    """A network, a batch of all rows, and the data."""
    rng = np.random.default_rng(0)
    network = VarianceNetwork(
        mean=TabularMLP.create(rng, InputShape(2), (8,), 1, activation="tanh"),
        spread=NormalSpread.create(rng, InputShape(2), (8,), 1, activation="tanh"),
        gate=None,
        factor=jnp.ones(()),
        shrinkage=jnp.zeros(()),
        prior_variance=1.0,
        shrink_mean=False,
    )
    X = Inputs(rng.normal(size=(30, 2)).astype(np.float32))
    data = TrainingData.create(
        [X], [rng.normal(size=(30, 1))], [np.full(30, -1)], {"single": [np.arange(30)[:, None]]}
    )
    return network, data.rows(jnp.asarray(0), jnp.arange(30), jnp.ones(30)), data


def gradient(objective, setting):
    network, batch, data = setting
    return eqx.filter_grad(lambda n: jnp.sum(objective(n, batch, data)))(network)


def assert_equal(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_faithful_mean_learns_as_if_alone_and_variance_as_in_the_likelihood(setting):
    found = gradient(faithful_error, setting)
    assert_equal(found.mean, gradient(squared_error, setting).mean)
    assert_equal(found.spread, gradient(negative_log_likelihood, setting).spread)


def test_beta_likelihood_weighs_rows_by_their_standard_deviation(setting):
    network, batch, _ = setting
    std = network(batch.X).std[:, 0]

    def weighted(network, batch, data):
        return std * negative_log_likelihood(network, batch, data)

    found, expected = gradient(beta_negative_log_likelihood, setting), gradient(weighted, setting)
    assert_equal(found, expected)


@pytest.mark.parametrize("loss", ["likelihood", "beta", "faithful"])
def test_every_loss_learns_mean_and_spread(loss):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4, size=(400, 1))
    y = 3 * X[:, 0] + rng.normal(0, 0.2 + X[:, 0])
    model = MeanVarianceRegressor(loss=loss, hidden_sizes=(32,), n_steps=1500, random_state=0)
    mean, std = model.fit(X, y).predict([[0.5], [3.5]], return_std=True)
    np.testing.assert_allclose(mean, [1.5, 10.5], atol=1.0)
    assert std[1] == pytest.approx(3.7, rel=0.2)
    assert 0.5 < std[0] < std[1] / 2.5  # true: 0.7; 1,500 short steps leave it too wide
