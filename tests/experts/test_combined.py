"""Mean, spread and gate together: the paper's equation for the variance; and the objectives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax import MeanVarianceRegressor
from sigmax.distributions import Normal, StudentT
from sigmax.experts.combined import (
    InverseGammaSpread,
    NormalSpread,
    VarianceNetwork,
    beta_negative_log_likelihood,
    faithful_error,
    negative_log_likelihood,
    squared_error,
)
from sigmax.extrapolation import ExtrapolationGate
from sigmax.inputs import Inputs
from sigmax.networks import TabularMLP
from sigmax.training import TrainingData


def build(
    spread: type[InverseGammaSpread | NormalSpread] = InverseGammaSpread,
    *,
    gate=True,
    shrink_mean=False,
    prior_variance=1.0,
    n_outputs=3,
):
    rng = np.random.default_rng(0)
    shape = (Inputs(np.zeros((1, 2))), (16,), n_outputs)
    centers = np.random.default_rng(0).normal(size=(10, 2))
    return VarianceNetwork(
        mean=TabularMLP.create(rng, *shape, activation="tanh", output_bias=0.5),
        spread=spread.create(rng, *shape, activation="tanh"),
        gate=ExtrapolationGate.create(centers, 10, scale=0.1) if gate else None,
        factor=jnp.ones(()),
        prior_variance=prior_variance,
        shrink_mean=shrink_mean,
    )


@pytest.fixture
def x():
    return Inputs(jax.random.normal(jax.random.key(3), (40, 2)) * 2)


@pytest.mark.parametrize("spread", [InverseGammaSpread, NormalSpread])
def test_expected_variance_follows_the_papers_equation(spread, x):
    network = build(spread, prior_variance=1.7)
    gate = network.gate_value(x)[:, None]
    on_data = network.spread(x, network.mean(x)).variance
    expected = (1 - gate) * on_data + gate * 1.7
    np.testing.assert_allclose(network(x).variance, expected, rtol=1e-5)
    assert 0.05 < float(gate.mean()) < 0.95  # the rows tell


def test_gated_rate_is_that_of_the_design():
    network = build()
    x = Inputs(jax.random.normal(jax.random.key(5), (20, 2)))
    before, after = network.spread(x, network.mean(x)), network(x)
    assert isinstance(before, StudentT) and isinstance(after, StudentT)
    gate, concentration = network.gate_value(x)[:, None], before.df / 2
    rate = (1 - gate) * before.scale**2 * concentration + gate * (concentration - 1)
    np.testing.assert_allclose(after.scale**2 * concentration, rate, rtol=1e-4)


def test_far_away_the_variance_is_the_prior():
    far = Inputs(jnp.array([[60.0, -50.0]]))
    np.testing.assert_allclose(build()(far).variance, 1.0, rtol=1e-4)
    np.testing.assert_allclose(build(shrink_mean=True)(far).mean, 0.0, atol=1e-6)
    assert jnp.abs(build()(far).mean).min() > 0  # the paper leaves the mean alone


def test_without_gate_the_density_is_that_of_the_spread(x):
    network = build(NormalSpread, gate=False)
    dist = network(x)
    assert isinstance(dist, Normal)
    expected = network.spread(x, network.mean(x)).variance
    np.testing.assert_allclose(dist.variance, expected, rtol=1e-6)
    assert (network.gate_value(x) == 0).all()


def test_factor_widens_the_data_but_not_the_prior():
    network = build(gate=True)
    wide = eqx.tree_at(lambda n: n.factor, network, jnp.asarray(2.0))
    assert network.gate is not None
    near = Inputs(network.gate.inducing_points[:3])
    np.testing.assert_allclose(wide(near).variance, 4 * network(near).variance, rtol=1e-3)
    far = Inputs(jnp.array([[60.0, -50.0]]))
    np.testing.assert_allclose(wide(far).variance, 1.0, rtol=1e-4)


def test_concentration_always_leaves_a_variance(x):
    spread = build().spread
    shut = eqx.tree_at(lambda s: s.concentration.mlp.biases[-1], spread, jnp.full(3, -100.0))
    variance = shut(x, jnp.zeros((40, 3))).variance
    assert jnp.isfinite(variance).all() and (variance > 0).all()


@pytest.fixture
def setting():
    """A network, a batch of all rows, and the data."""
    rng, network = np.random.default_rng(0), build(NormalSpread, gate=False, n_outputs=1)
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
