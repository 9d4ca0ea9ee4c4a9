"""Batch norm: by the batch while learning, by running moments otherwise."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from sigmax.generative.autoencoder import NormalizedMLP


def make_network(n_inputs=3):
    return NormalizedMLP.create(np.random.default_rng(0), n_inputs, (8, 5), np.zeros(2), 1.0)


learn = eqx.filter_jit(lambda network, x, **settings: network.learn(x, **settings))


def rows(n_rows, seed=0, n_inputs=3):
    x = 2 + 3 * np.random.default_rng(seed).normal(size=(n_rows, n_inputs))
    return jnp.asarray(x, dtype=jnp.float32)


def test_a_learning_layer_is_normalised_by_its_batch():
    network, x = make_network(), np.asarray(rows(50), dtype=float)
    for weight, gain, shift in zip(
        network.weights[:-1], network.gains, network.shifts, strict=True
    ):
        x = x @ np.asarray(weight, dtype=float)
        x = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
        x = np.maximum(x * np.asarray(gain) + np.asarray(shift), 0)
    expected = x @ np.asarray(network.weights[-1]) + np.asarray(network.bias)
    np.testing.assert_allclose(learn(network, rows(50))[0], expected, atol=1e-4)


def test_both_modes_agree_once_the_moments_have_settled():
    network, x = make_network(), rows(4000)
    for _ in range(3):
        _, network = learn(network, x, keep=0.0)
    np.testing.assert_allclose(network(x), learn(network, x)[0], atol=1e-3)


def test_running_moments_move_slowly():
    network = make_network()
    _, newer = learn(network, rows(50))
    mean = rows(50).mean(axis=0) @ network.weights[0]
    np.testing.assert_allclose(newer.moments[0].mean, 0.01 * mean, rtol=1e-3)
    np.testing.assert_array_equal(newer.weights[0], network.weights[0])


def test_neighbourhoods_are_normalised_by_the_reference_rows():
    network, reference, local = make_network(), rows(200), rows(3, seed=1) / 100
    both, _ = learn(network, jnp.concatenate([reference, local]), n_reference=200)
    alone, newer = learn(network, reference, keep=0.0)
    np.testing.assert_allclose(both[:200], alone, atol=1e-5)
    np.testing.assert_allclose(both[200:], newer(local), atol=1e-4)
