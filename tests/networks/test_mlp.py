"""The perceptron against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax.networks import MLP


@pytest.mark.parametrize("hidden_sizes", [(), (5,), (7, 4)])
def test_mlp_is_matrices_with_an_activation_between(hidden_sizes):
    mlp = MLP.create(np.random.default_rng(1), 3, hidden_sizes, 2, activation="tanh")
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    expected = x
    for i, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
        expected = (np.tanh(expected) if i else expected) @ np.asarray(weight) + np.asarray(bias)
    np.testing.assert_allclose(mlp(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6)


def test_mlp_starts_near_its_output_bias():
    mlp = MLP.create(np.random.default_rng(0), 4, (64, 64), 3, activation="silu", output_bias=0.7)
    x = jax.random.normal(jax.random.key(1), (500, 4))
    assert jnp.abs(mlp(x) - 0.7).mean() < 0.2
