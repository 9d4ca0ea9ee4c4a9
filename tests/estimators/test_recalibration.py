"""The factor for a mixture, against members whose errors and disagreement are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax.distributions import Normal
from sigmax.estimators.recalibration import held_out_factor, mixture_factor, with_factor
from sigmax.training import Fold, TrainingData

N_ROWS = 4000


class Guess(eqx.Module):
    """A member that says the same of every row, but for an error of its own."""

    error: jax.Array
    std: jax.Array
    factor: jax.Array


def guess(network, rows, data):
    mean = rows.X @ network.error[:, None]
    return Normal(mean, jnp.full_like(mean, network.std))


def make_case(errors: np.ndarray, std: float):
    """Members that see independent errors in as many features, on rows y ~ N(0, 1)."""
    rng = np.random.default_rng(0)
    n_members = len(errors)
    X = rng.normal(size=(N_ROWS, n_members)).astype(np.float32)
    y = rng.normal(size=(N_ROWS, 1)).astype(np.float32)
    single = np.arange(N_ROWS)[:, None]
    data = TrainingData.create([X], [y], [np.zeros(N_ROWS, int)], [[single]], [np.ones(N_ROWS)])
    held_out = [np.arange(N_ROWS // 2) * 2 for _ in errors]
    folds = Fold.create([np.ones(N_ROWS)], held_out, [0] * n_members, data.n_slots)
    ones = jnp.ones(n_members)
    return Guess(jnp.diag(jnp.asarray(errors)), std * ones, ones), folds, data


@pytest.mark.parametrize("error", [0.0, 0.3, 0.5])
def test_the_mixture_gets_the_spread_that_its_mean_needs(monkeypatch, error):
    monkeypatch.setattr("sigmax.estimators.recalibration.ROWS_TO_DISAGREE_ON", 2000)
    n_members, std = 5, 0.7
    networks, folds, data = make_case(np.full(n_members, error, np.float32), std)
    single = float(held_out_factor(networks, folds, data, guess))
    assert single == pytest.approx(np.sqrt(1 + error**2) / std, rel=0.05)
    # The members' means have the variance error², most often less: its median over rows.
    draws = np.random.default_rng(1).normal(0, error, size=(20_000, n_members))
    disagreement = np.median(draws.var(axis=1, ddof=1))
    expected = np.sqrt(single**2 - 2 * disagreement / std**2)
    assert float(mixture_factor(networks, folds, data, guess)) == pytest.approx(expected, rel=0.02)


def test_one_member_has_nobody_to_disagree_with():
    case = make_case(np.array([0.5], np.float32), 0.7)
    assert float(mixture_factor(*case, guess)) == pytest.approx(
        float(held_out_factor(*case, guess))
    )


def test_wild_members_lose_at_most_half_of_the_factor():
    case = make_case(np.full(4, 3.0, np.float32), 0.2)
    half = float(held_out_factor(*case, guess)) / 2
    assert float(mixture_factor(*case, guess)) == pytest.approx(half)


def test_all_members_get_the_factor():
    networks = with_factor(make_case(np.zeros(3, np.float32), 1.0)[0], jnp.asarray(1.5))
    np.testing.assert_array_equal(networks.factor, [1.5, 1.5, 1.5])
