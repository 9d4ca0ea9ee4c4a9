"""Gates around data of few and of many features: new rows are on the data, moved rows are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax.networks import NO_CENTER
from sigmax.networks.gate import create_gate

N_INDUCING = 300


def gaussian(n_features):
    def draw(rng, n):
        return rng.normal(size=(n, n_features))

    return draw


def correlated(rng, n):
    """Eighty features made of five."""
    loadings = np.random.default_rng(1).normal(size=(5, 80))
    return rng.normal(size=(n, 5)) @ loadings + 0.1 * rng.normal(size=(n, 80))


def log_normal(rng, n):
    return np.exp(rng.normal(size=(n, 8)))


def one_hot(rng, n):
    return np.column_stack([np.eye(6)[rng.integers(0, 6, n)], rng.normal(size=(n, 4))])


DRAWS = {
    "1 feature": gaussian(1),
    "5 features": gaussian(5),
    "90 features": gaussian(90),
    "correlated": correlated,
    "log-normal": log_normal,
    "one-hot": one_hot,
}


def gate_and_new_rows(draw, n_rows):
    rng = np.random.default_rng(0)
    X, new = draw(rng, n_rows), draw(rng, 500)
    mean, std = X.mean(axis=0), X.std(axis=0)
    X, new = ((rows - mean) / std for rows in (X, new))
    gate, _ = create_gate(X.astype(np.float32), N_INDUCING, jax.random.key(0))

    def opening(rows):
        return np.asarray(gate(jnp.asarray(rows, jnp.float32), jnp.full(len(rows), NO_CENTER)))

    return opening, new


@pytest.mark.parametrize("n_rows", [250, 500])  # all are inducing points, or centres stand for them
@pytest.mark.parametrize("name", DRAWS)
def test_new_rows_are_on_the_data(name, n_rows):
    opening, new = gate_and_new_rows(DRAWS[name], n_rows)
    assert np.mean(opening(new) < 0.05) >= 0.97


@pytest.mark.parametrize("n_rows", [250, 500])
@pytest.mark.parametrize("name", [name for name in DRAWS if name != "log-normal"])
def test_ten_standard_deviations_along_one_feature_are_off_the_data(name, n_rows):
    opening, new = gate_and_new_rows(DRAWS[name], n_rows)
    for axis in {0, new.shape[1] // 2, new.shape[1] - 1}:
        for step in (-10, 10):
            moved = new.copy()
            moved[:, axis] += step
            assert np.mean(opening(moved) > 0.9) >= 0.98
