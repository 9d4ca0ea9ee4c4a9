"""Kernel regression in a learned metric: the update against a textbook, the sums against loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sigmax.distributions import StudentT
from sigmax.inputs import Inputs, InputShape
from sigmax.networks import (
    MLP,
    ExtrapolationGate,
    InputLayer,
    KernelParameters,
    LocalNetwork,
    PeriodicFeatures,
    Sums,
    TrainingSet,
    wave,
    weighted_sums,
)


@pytest.fixture
def network():
    rng = np.random.default_rng(0)
    inputs = InputLayer.create(rng, InputShape(3), n_waves=4, n_mixtures=2, frequency=0.1)

    def create(n_outputs):
        shape = (inputs.n_outputs, (8,), n_outputs)
        return MLP.create(rng, *shape, activation="silu", output_gain=1.0)

    return LocalNetwork(
        inputs=inputs,
        embedding=create(5),
        mean=create(2),
        spread=create(4),
        kernel=KernelParameters(jnp.asarray(0.3), jnp.asarray(-0.5)),
        gate=ExtrapolationGate.create(rng.normal(size=(10, 3)), 10, scale=0.3, margin=2.0),
        factor=jnp.ones(()),
        most_df=jnp.asarray(jnp.inf),
        shrinkage=jnp.zeros(()),
        input_scale=1.5,
        min_concentration=1.1,
        prior_variance=1.0,
    )


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(64, 3)), rng.normal(size=(64, 2))
    return Inputs(jnp.asarray(X, dtype=jnp.float32)), jnp.asarray(y, dtype=jnp.float32)


def test_periodic_features_are_the_formula():
    features = PeriodicFeatures.create(np.random.default_rng(0), 2, 3, 4, frequency=0.5)
    x = np.array([[0.3, -1.2]])
    expected = [x]
    for j in range(2):
        wave = np.cos(2 * np.pi * (x[0, j] * features.frequencies[j] + features.phases[j]))
        expected.append(np.maximum(wave @ features.weights[j] + features.biases[j], 0)[None])
    np.testing.assert_allclose(features(jnp.asarray(x)), np.hstack(expected), rtol=1e-4, atol=1e-5)


def test_wave_is_the_cosine():
    turns = np.linspace(-3, 3, 2001)
    np.testing.assert_allclose(wave(jnp.asarray(turns)), np.cos(2 * np.pi * turns), atol=3e-6)
    slope = jax.vmap(jax.grad(wave))(jnp.asarray(turns[1:-1]))
    expected = -2 * np.pi * np.sin(2 * np.pi * turns[1:-1])
    np.testing.assert_allclose(slope, expected, atol=1e-3)


def test_update_with_whole_rows_is_the_textbook_posterior_predictive(network):
    """Five observations, each of weight 1, one after the other."""
    rng = np.random.default_rng(2)
    y = rng.normal(1.0, 2.0, size=5)
    mean, alpha, beta, kappa = 0.4, 2.0, 1.3, float(jnp.exp(network.kernel.log_prior_rows))
    prior = StudentT.from_inverse_gamma(
        jnp.full((1, 1), mean), jnp.full((1, 1), alpha), jnp.full((1, 1), beta)
    )
    residuals = jnp.asarray(y - mean, dtype=jnp.float32)[:, None]
    found = network.update(prior, weighted_sums(jnp.ones((1, 5)), residuals))
    for value in y:
        beta += 0.5 * kappa / (kappa + 1) * (value - mean) ** 2
        mean = (kappa * mean + value) / (kappa + 1)
        kappa, alpha = kappa + 1, alpha + 0.5
    scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
    z = (0.7 - mean) / scale
    log_density = stats.t.logpdf(z, 2 * alpha) - np.log(scale)
    np.testing.assert_allclose(found.dist.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.dist.log_prob(jnp.full((1, 1), 0.7)), log_density, rtol=1e-5)
    aleatoric, epistemic = beta / (alpha - 1), beta / (alpha - 1) / kappa
    share = epistemic / (aleatoric + epistemic)
    np.testing.assert_allclose(found.epistemic_share, share, rtol=1e-5)


def test_without_support_the_prediction_is_the_prior(network, rows):
    X, _ = rows
    prior = network.prior(network.embed(X))
    nothing = jnp.zeros_like(prior.mean)
    found = network.update(prior, Sums(nothing[:, 0], nothing, nothing))
    np.testing.assert_allclose(found.dist.mean, prior.mean, rtol=1e-6)
    np.testing.assert_allclose(found.dist.df, prior.df, rtol=1e-6)
    np.testing.assert_allclose(found.count, 0)
    own = np.exp(network.kernel.log_prior_rows)
    np.testing.assert_allclose(found.dist.scale, prior.scale * np.sqrt(1 + 1 / own), rtol=1e-5)


def test_weights_are_the_formula(network, rows):
    X, _ = rows
    coordinates = network.embed(X).coordinates
    found = network.kernel_weights(coordinates[:4], coordinates)
    z, x = np.asarray(network.embedding(network.inputs(X))), np.asarray(X.numbers)
    for i in range(4):
        squared = np.sum((z[i] - z) ** 2, axis=1) + np.sum((x[i] - x) ** 2, axis=1) / 1.5**2
        np.testing.assert_allclose(found[i], np.exp(0.3 - squared / 2), rtol=1e-3, atol=1e-6)


def test_kernel_sums_by_blocks_are_those_over_all_rows(network, rows, monkeypatch):
    X, y = rows
    weight = jnp.asarray(np.random.default_rng(3).uniform(0, 2, 64), dtype=jnp.float32)
    whole = network.embed_training_set(X, y, weight)
    expected = network.kernel_sums(network.embed(X[:5]).coordinates, whole)
    monkeypatch.setattr("sigmax.networks.local.ROWS_PER_BLOCK", 16)
    training_set = network.embed_training_set(X, y, weight)
    found = network.kernel_sums(network.embed(X[:5]).coordinates, training_set)
    for a, b in zip(
        jax.tree.leaves((found, training_set)), jax.tree.leaves((expected, whole)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_far_away_nothing_contributes_and_the_prior_is_that_of_y(network, rows):
    X, y = rows
    training_set = network.embed_training_set(X, y, jnp.ones(64))
    for axis in range(3):
        for step in (-30.0, 30.0):
            found = network(Inputs(X.numbers.at[:, axis].add(step)), training_set)
            assert np.all(found.count < 1e-6)
            np.testing.assert_allclose(found.dist.variance, 1.0, rtol=1e-3)
            np.testing.assert_allclose(found.dist.mean, 0.0, atol=1e-2)


def test_a_half_open_gate_halves_the_kernel_sums_and_widens_the_prior(network, rows):
    X, y = rows
    gate = ExtrapolationGate.create(np.zeros((1, 3)), 1, scale=0.22)
    network = eqx.tree_at(lambda n: n.gate, network, gate)
    training_set = network.embed_training_set(X, y, jnp.ones(64))
    embedded, g = network.embed(X), np.asarray(network.gate_value(X))[:, None]
    sums = network.kernel_sums(embedded.coordinates, training_set)
    own, count = np.exp(network.kernel.log_prior_rows), (1 - g) * np.asarray(sums.count)[:, None]
    average = embedded.mean + sums.total / sums.count[:, None]
    expected = (own * (1 - g**2) * embedded.mean + count * average) / (own + count)
    found = network(X, training_set)
    assert 0.1 < np.median(g) < 0.9
    np.testing.assert_allclose(found.dist.mean, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.count, count[:, 0], rtol=1e-4)


def test_rows_without_weight_do_not_contribute(network, rows):
    X, y = rows
    weight = jnp.ones(64).at[10:].set(0.0)
    given = network(X, network.embed_training_set(X, y, weight)).dist
    changed = network(X, network.embed_training_set(X, y.at[10:].set(99.0), weight)).dist
    np.testing.assert_allclose(given.mean, changed.mean, rtol=1e-5)
    assert isinstance(network.embed_training_set(X, y, weight), TrainingSet)


def test_tails_are_bounded_on_the_data_only(network, rows):
    X, y = rows
    training_set = network.embed_training_set(X, y, jnp.ones(64))
    bounded = eqx.tree_at(lambda n: n.most_df, network, jnp.asarray(3.0))
    here, far = Inputs(network.gate.inducing_points), Inputs(jnp.full((10, 3), 50.0))
    predict = eqx.filter_jit(lambda network, X: network(X, training_set).dist)
    assert np.all(predict(network, here).df > 4)
    np.testing.assert_allclose(predict(bounded, here).df, 3.0, rtol=1e-2)
    expected, found = predict(network, far), predict(bounded, far)
    for name in ("mean", "df", "scale"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5)
