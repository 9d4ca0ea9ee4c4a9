"""What people hold in their hands: NumPy in, float64 out, clear refusals."""

import pickle
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sigmax.distributions import Mixture, Normal, Predictive, StudentT, evaluation
from sigmax.errors import InvalidArgumentError, InvalidDataError


def make(shape, n_members=3, seed=0) -> Predictive:
    rng = np.random.default_rng(seed)
    shape = (n_members, *shape)
    return Predictive(Mixture(Normal(rng.normal(size=shape), rng.uniform(0.5, 2, shape))))


@pytest.mark.parametrize("shape", [(7,), (7, 2), (1,)])
def test_everything_is_numpy_float64_of_the_shape_of_the_prediction(shape):
    dist, y = make(shape), np.zeros(shape)
    for name in ("mean", "variance", "std", "aleatoric_variance", "epistemic_variance"):
        assert getattr(dist, name).shape == shape and getattr(dist, name).dtype == np.float64
    for name in ("log_prob", "cdf", "crps"):
        value = getattr(dist, name)(y)
        assert type(value) is np.ndarray and value.shape == shape and value.dtype == np.float64
    assert dist.quantile(0.3).shape == shape
    assert dist.quantile([0.1, 0.5, 0.9]).shape == (*shape, 3)
    assert dist.interval().shape == (*shape, 2)
    assert dist.sample(4, random_state=0).shape == (4, *shape)
    assert dist.shape == shape and len(dist) == shape[0]


def test_scores_have_float64_digits_while_jax_is_set_to_float32():
    mean, std = np.array([1e6, 1e6 + 1]), np.array([1e-3, 2e-3])
    dist, y = Predictive(Normal(mean, std)), np.array([1e6 + 2e-3, 1e6 + 0.999])
    np.testing.assert_allclose(dist.log_prob(y), stats.norm.logpdf(y, mean, std), rtol=1e-12)
    np.testing.assert_allclose(dist.cdf(y), stats.norm.cdf(y, mean, std), rtol=1e-12)
    np.testing.assert_allclose(dist.quantile(0.1), stats.norm.ppf(0.1, mean, std), rtol=1e-15)
    assert jnp.asarray(1.0).dtype == jnp.float32  # and it still is


def test_members_of_any_kind_can_be_scored():
    mean, df, scale = np.random.default_rng(0).uniform(2.5, 9, (3, 4, 6))
    members = stats.t(df, mean, scale)
    dist = Predictive(Mixture(StudentT(mean, df, scale)))
    np.testing.assert_allclose(dist.cdf(1.0), members.cdf(1.0).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(members.cdf(dist.quantile(0.1)).mean(axis=0), 0.1, rtol=1e-6)
    assert np.all(dist.crps(1.0) < np.mean(np.abs(mean - 1.0), axis=0))


def test_padding_and_blocks_change_nothing(monkeypatch):
    dist, y = make((300, 2)), np.linspace(-3, 3, 600).reshape(300, 2)
    expected = dist.crps(y), dist.quantile([0.1, 0.9]), dist.variance
    monkeypatch.setattr(evaluation, "LARGEST_BLOCK", 128)
    got = dist.crps(y), dist.quantile([0.1, 0.9]), dist.variance
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(dist[200:].crps(y[200:]), expected[0][200:], rtol=1e-9)
    draws = dist.sample(50, random_state=0)
    assert draws.shape == (50, 300, 2) and len(np.unique(draws)) == draws.size


def test_another_number_of_rows_compiles_nothing():
    def score(n):
        dist = make((n,))
        dist.log_prob(np.zeros(n))
        dist.interval(0.5)
        return cast(Any, evaluation.compute).n_compiled()

    n_compiled = score(65)
    assert score(100) == n_compiled
    assert score(128) == n_compiled
    assert score(129) > n_compiled


def test_one_number_for_y_stands_for_all_rows():
    dist = make((4, 2))
    np.testing.assert_array_equal(dist.cdf(0.5), dist.cdf(np.full((4, 2), 0.5)))


def test_rows_are_taken_by_slice_mask_or_indices():
    dist = make((6, 2))
    for rows in (slice(1, 4), slice(None, None, -1), np.arange(6) % 2 == 0, [5, 0], np.array([3])):
        np.testing.assert_array_equal(dist[rows].mean, dist.mean[rows])
        assert dist[rows].dist.n_members == 3
    with pytest.raises(InvalidArgumentError, match="`rows` must be a slice, a mask or a list"):
        dist[2]
    with pytest.raises(InvalidDataError, match="`dist` must have at least one row"):
        dist[:0]


def test_a_single_model_has_no_epistemic_variance():
    dist = Predictive(Normal(np.zeros(3), np.full(3, 2.0)))
    np.testing.assert_array_equal(dist.epistemic_variance, 0)
    np.testing.assert_array_equal(dist.aleatoric_variance, 4)


def test_the_repr_says_what_it_is():
    assert repr(make((7, 2))) == "Predictive(Mixture of 3 Normal, shape=(7, 2))"
    assert repr(Predictive(Normal(np.zeros(3), np.ones(3)))) == "Predictive(Normal, shape=(3,))"


def test_a_pickled_prediction_scores_the_same():
    dist, y = make((5,)), np.zeros(5)
    again = pickle.loads(pickle.dumps(dist))
    np.testing.assert_array_equal(again.log_prob(y), dist.log_prob(y))


def test_draws_repeat_with_the_seed_and_come_from_any_random_state():
    dist = make((5,))
    np.testing.assert_array_equal(dist.sample(3, random_state=1), dist.sample(3, random_state=1))
    assert np.all(dist.sample(3, random_state=1) != dist.sample(3, random_state=2))
    for random_state in (None, np.random.RandomState(0), np.random.default_rng(0)):
        assert dist.sample(3, random_state=random_state).shape == (3, 5)


@pytest.mark.parametrize("leaf", [np.float32, jnp.asarray])
def test_float32_leaves_become_numpy_float64(leaf):
    dist = Predictive(Normal(leaf(np.zeros(3)) + leaf(0), leaf(np.ones(3)) + leaf(0)))
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(dist.dist))


@pytest.mark.parametrize("method", ["log_prob", "cdf", "crps"])
def test_unusable_y_is_refused_with_the_reason(method):
    score = getattr(make((3,)), method)
    with pytest.raises(InvalidDataError, match=r"`y` must be .* shape \(3,\), got shape \(3, 1\)"):
        score(np.zeros((3, 1)))
    with pytest.raises(InvalidDataError, match="`y` must be finite, got 2 NaN or infinite values"):
        score([0.0, np.nan, np.inf])
    with pytest.raises(InvalidDataError, match="`y` must be numbers"):
        score(["a", "b", "c"])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, np.nan])
def test_levels_outside_zero_and_one_are_refused(level):
    dist = make((3,))
    with pytest.raises(InvalidArgumentError, match=r"`q` must be a finite number in \(0, 1\)"):
        dist.quantile(level)
    with pytest.raises(InvalidArgumentError, match="`q` must be"):
        dist.quantile([0.5, level])
    with pytest.raises(InvalidArgumentError, match="`coverage` must be"):
        dist.interval(level)


def test_no_draws_are_refused():
    with pytest.raises(InvalidArgumentError, match="`n` must be a whole number of at least 1"):
        make((3,)).sample(0)


def test_one_level_per_density_is_inverted():
    mean, df, scale = np.random.default_rng(0).uniform(2.5, 9, (3, 4, 6))
    q = np.linspace(0.01, 0.99, 24).reshape(4, 6)
    dist = Predictive(StudentT(mean, df, scale))
    np.testing.assert_allclose(dist.inverse_cdf(q), stats.t.ppf(q, df, mean, scale), rtol=1e-7)
    for bad in (q[0], np.zeros((4, 6)), np.full((4, 6), np.nan)):
        with pytest.raises(InvalidArgumentError, match=r"above 0 and below 1.*shape \(4, 6\)"):
            dist.inverse_cdf(bad)


def test_the_mean_distance_to_a_value_is_that_of_quadrature():
    dist = Predictive(StudentT(np.array([1.0]), np.array([5.0]), np.array([2.0])))
    expected: Any = stats.t(5.0, 1.0, 2.0).expect(lambda x: abs(x - 2.5))
    assert dist.absolute_error(2.5).item() == pytest.approx(expected, rel=1e-6)
