"""Search by cells, against brute force."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from sigmax.experts.local.fitted import NearestRows


def test_in_all_cells_the_nearest_are_found_at_their_distances():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2, 400, 5)).astype(np.float32)
    queries = rng.normal(size=(2, 7, 5)).astype(np.float32)
    search = replace(NearestRows.build(jnp.asarray(rows)), k=9, n_cells=80)
    squared, numbers = search(jnp.asarray(queries))
    expected = ((queries[:, :, None] - rows[:, None]) ** 2).sum(axis=3)
    order = np.argsort(expected, axis=2)[:, :, :9]
    np.testing.assert_array_equal(numbers, order)
    np.testing.assert_allclose(squared, np.take_along_axis(expected, order, axis=2), rtol=1e-5)


def test_where_cells_hold_fewer_rows_than_asked_for_the_rest_is_infinitely_far():
    rows = np.random.default_rng(0).normal(size=(1, 100, 2)).astype(np.float32)
    search = replace(NearestRows.build(jnp.asarray(rows)), k=64, n_cells=1)
    squared, numbers = search(jnp.asarray(rows[:, :5]))
    assert squared.shape == numbers.shape == (1, 5, 64)
    assert np.isinf(squared).any(axis=2).all()
    assert np.all(np.asarray(numbers)[np.isinf(squared)] == 0)
    np.testing.assert_array_equal(numbers[0, :, 0], np.arange(5))
