"""Factor and tails for a mixture, against members whose errors and disagreement are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax.distributions import StudentT
from sigmax.estimators.recalibration import (
    Recalibration,
    held_out_factor,
    held_out_predictions,
    mixture_recalibration,
    recalibrated,
)
from sigmax.inputs import Inputs
from sigmax.training import Fold, TrainingData

N_ROWS = 4000


class Guess(eqx.Module):
    """A member that says the same of every row, but for an error of its own."""

    error: jax.Array
    std: jax.Array
    factor: jax.Array
    most_df: jax.Array
    shrinkage: jax.Array
    prior_variance: float = eqx.field(static=True, default=1.0)


def guess(network, rows, data):
    mean = rows.X.numbers @ network.error[:, None]
    return StudentT(mean, jnp.full_like(mean, 1e6), jnp.full_like(mean, network.std))


def mixture_factor(*case):
    """By how much standard deviations grow, whatever the tails."""
    found = mixture_recalibration(held_out_predictions(*case))
    df = min(float(found.most_df), 1e6)
    return float(found.factor) * np.sqrt(df / (df - 2))


def make_case(errors: np.ndarray, std: float, df: float = np.inf):
    """Members that see independent errors in as many features, on rows y ~ t(0, 1)."""
    rng = np.random.default_rng(0)
    n_members = len(errors)
    X = rng.normal(size=(N_ROWS, n_members)).astype(np.float32)
    y = rng.normal(size=(N_ROWS, 1)).astype(np.float32)
    if df < np.inf:
        y = y / np.sqrt(rng.chisquare(df, y.shape) / df).astype(np.float32)
    single = np.arange(N_ROWS)[:, None]
    graphs, weight = {"single": [single]}, np.ones(N_ROWS)
    data = TrainingData.create([Inputs(X)], [y], [np.zeros(N_ROWS, int)], graphs, [weight])
    held_out = [np.arange(N_ROWS // 2) * 2 for _ in errors]
    folds = Fold.create([np.ones(N_ROWS)], held_out, [0] * n_members, data.n_slots)
    ones = jnp.ones(n_members)
    parts = jnp.diag(jnp.asarray(errors)), std * ones, ones, jnp.inf * ones, 0 * ones
    return Guess(*parts), folds, data


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
    assert mixture_factor(networks, folds, data, guess) == pytest.approx(expected, rel=0.02)


def test_one_member_has_nobody_to_disagree_with():
    case = make_case(np.array([0.5], np.float32), 0.7)
    single = float(held_out_factor(*case, guess))
    # A bound of 30 may suit Normal rows as well as none: their std then differs a little.
    assert mixture_factor(*case, guess) == pytest.approx(single, rel=0.01)


def test_wild_members_lose_at_most_half_of_the_factor():
    # The std is such that both factors lie inside their ranges, of which one is wider.
    case = make_case(np.full(4, 3.0, np.float32), 1.0)
    half = float(held_out_factor(*case, guess)) / 2
    assert mixture_factor(*case, guess) == pytest.approx(half, rel=0.01)


@pytest.mark.parametrize(("df", "expected"), [(np.inf, np.inf), (12.0, 12.0), (3.0, 4.0)])
def test_the_tails_are_those_of_held_out_rows(df, expected):
    case = make_case(np.zeros(3, np.float32), 8.0, df)
    found = mixture_recalibration(held_out_predictions(*case, guess))
    assert float(found.most_df) == expected
    if df >= 12:
        assert float(found.factor) == pytest.approx(1 / 8, rel=0.05)


def test_all_members_get_factor_and_tails():
    networks, _, _ = make_case(np.zeros(3, np.float32), 1.0)
    found = Recalibration(jnp.asarray(1.5), jnp.asarray(6.0), jnp.asarray(0.25))
    networks = recalibrated(networks, found)
    np.testing.assert_array_equal(networks.factor, [1.5, 1.5, 1.5])
    np.testing.assert_array_equal(networks.most_df, [6.0, 6.0, 6.0])
    np.testing.assert_array_equal(networks.shrinkage, [0.25, 0.25, 0.25])
