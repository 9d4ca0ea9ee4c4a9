"""The gate follows the codes wherever they go."""

import jax
import jax.numpy as jnp
import numpy as np

from sigmax.extrapolation import NO_CENTER, ExtrapolationGate
from sigmax.generative.autoencoder import lloyd_step, refit_gate


def clusters(n_codes, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    centers = np.array([[-2.0, 0.0], [2.0, 0.0]])[rng.integers(0, 2, n_codes)]
    return jnp.asarray(centers + shift + 0.1 * rng.normal(size=(n_codes, 2)), dtype=jnp.float32)


def opening(gate, z):
    z = jnp.asarray(z, dtype=jnp.float32)
    return np.asarray(gate(z, jnp.full(len(z), NO_CENTER)))


def test_two_centers_find_two_clusters():
    centers = jnp.array([[-0.1, 0.3], [0.2, 0.1]])
    for _ in range(3):
        centers = lloyd_step(centers, clusters(400, 0), jnp.zeros((2, 2)))
    np.testing.assert_allclose(centers, [[-2, 0], [2, 0]], atol=0.05)


def test_a_center_without_codes_moves_to_its_spare():
    centers = jnp.array([[-2.0, 0.0], [2.0, 0.0], [50.0, 50.0]])
    spare = jnp.array([[7.0, 7.0], [7.0, 7.0], [1.9, 0.1]])
    moved = lloyd_step(centers, clusters(400, 0), spare)
    np.testing.assert_allclose(moved[2], [1.9, 0.1])


def test_the_gate_is_shut_on_codes_also_after_they_have_moved():
    gate = ExtrapolationGate.create(np.zeros((20, 2)), 20, scale=1.0, margin=1.0)
    follow = jax.jit(refit_gate)
    for shift in (0.0, 10.0):
        key = jax.random.key(int(shift))
        gate = follow(gate, clusters(400, 0, shift), clusters(400, 1, shift), key)
        new = opening(gate, clusters(400, 2, shift))
        assert np.mean(new < 0.02) > 0.98 and new.max() < 0.3
        middle = [[shift, shift]]  # between the clusters, two away from either
        assert opening(gate, middle)[0] > 0.99
    assert opening(gate, [[-2.0, 0.0]])[0] > 0.99  # where codes were before
