"""Student's t: its tails, its limits and the Gamma mixture that it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from sigmax.distributions import Normal, StudentT, log_gamma, log_gamma_ratio

cdf = jax.jit(lambda dist, y: dist.cdf(y))
quantile = jax.jit(lambda dist, q: dist.quantile(q))


def standard(df, shape=()) -> StudentT:
    df = np.broadcast_to(np.asarray(df, float), shape or np.shape(df)).copy()
    return StudentT(np.zeros_like(df), df, np.ones_like(df))


def test_log_gamma_ratio_is_scipys():
    a = np.geomspace(0.25, 100, 200)
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            log_gamma_ratio(jnp.asarray(a)), np.log(special.poch(a, 0.5)), rtol=0, atol=1e-10
        )


def test_log_gamma_is_scipys():
    a = np.geomspace(1, 1e6, 400)
    with jax.enable_x64(True):
        got, slope = log_gamma(jnp.asarray(a)), jax.vmap(jax.grad(log_gamma))(jnp.asarray(a))
        np.testing.assert_allclose(got, special.gammaln(a), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(slope, special.digamma(a), rtol=1e-7, atol=1e-8)


def test_two_half_steps_of_log_gamma_ratio_are_one_step_of_the_factorial():
    a = np.geomspace(0.25, 1e8, 200)
    with jax.enable_x64(True):
        steps = log_gamma_ratio(jnp.asarray(a)) + log_gamma_ratio(jnp.asarray(a + 0.5))
        np.testing.assert_allclose(steps, np.log(a), rtol=0, atol=1e-10)


def test_the_gradient_of_log_gamma_ratio_is_a_difference_of_digammas():
    a = np.geomspace(0.25, 1e4, 200)
    expected = special.digamma(a + 0.5) - special.digamma(a)
    slope = jax.jit(jax.vmap(jax.grad(log_gamma_ratio)))
    np.testing.assert_allclose(slope(jnp.asarray(a, jnp.float32)), expected, rtol=1e-4)
    with jax.enable_x64(True):
        np.testing.assert_allclose(slope(jnp.asarray(a)), expected, rtol=1e-8)


@pytest.mark.parametrize("df", [2.01, 30.0, 1e6, 1e8])
def test_log_prob_in_float32_is_as_good_as_its_rounding(df):
    z = np.linspace(-6, 6, 101, dtype=np.float32)
    dist = standard(np.float32(df), z.shape)
    got = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), dist).log_prob(z)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, stats.t.logpdf(np.float64(z), df), rtol=5e-7, atol=5e-7)


def test_student_t_is_the_gamma_mixture_of_normals():
    precision = stats.gamma(2.3, scale=1 / 1.7)
    y, mean = 0.9, 0.4
    density = precision.expect(lambda t: stats.norm.pdf(y, mean, t**-0.5))
    below = precision.expect(lambda t: stats.norm.cdf(y, mean, t**-0.5))
    with jax.enable_x64(True):
        dist = StudentT.from_inverse_gamma(*jnp.array([[mean], [2.3], [1.7]]))
        assert jnp.exp(dist.log_prob(jnp.array([y])))[0] == pytest.approx(density, rel=1e-7)
        assert dist.cdf(jnp.array([y]))[0] == pytest.approx(below, rel=1e-7)
        assert dist.variance[0] == pytest.approx(1.7 / 1.3)


@pytest.mark.parametrize("df", [1.0, 2.01, 5.0, 100.0, 1e4, 1e6])
def test_cdf_keeps_its_digits_from_the_centre_to_the_far_tail(df):
    z = -np.r_[0, np.geomspace(1e-9, 1e8 if df < 10 else 30, 200)]
    rounding = 1e-9 if df > 2 else 2e-8
    with jax.enable_x64(True):
        dist = standard(df, z.shape)
        np.testing.assert_allclose(cdf(dist, z), stats.t.cdf(z, df), rtol=rounding)
        np.testing.assert_allclose(cdf(dist, -z), stats.t.cdf(-z, df), rtol=rounding)
        rise = cdf(dist, -z) - cdf(dist, z)  # at the centre, where most formulas cancel
        np.testing.assert_allclose(rise, 1 - 2 * stats.t.cdf(z, df), atol=2 * rounding)


@pytest.mark.parametrize("df", [1.0, 2.01, 5.0, 100.0, 1e6])
def test_quantile_is_scipys_far_into_both_tails(df):
    q = np.r_[np.geomspace(1e-12, 0.5, 30), 1 - np.geomspace(1e-9, 0.4, 20)]
    with jax.enable_x64(True):
        got = quantile(standard(df, q.shape), q)
    np.testing.assert_allclose(got, stats.t.ppf(q, df), rtol=1e-7, atol=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(q=st.floats(1e-6, 1 - 1e-6), log_df=st.floats(0, 14), log_scale=st.floats(-10, 10))
def test_the_cdf_of_the_quantile_is_the_level(q, log_df, log_scale):
    with jax.enable_x64(True):
        dist = StudentT(*np.array([[-0.3], [np.exp(log_df)], [np.exp(log_scale)]]))
        root = quantile(dist, np.array([q]))
        assert cdf(dist, root)[0] == pytest.approx(q, rel=1e-9)


def test_many_degrees_of_freedom_are_the_normal():
    @jax.jit
    def scores(dist, y):
        others = dist.mean_difference, dist.quantile(0.01)
        return dist.log_prob(y), dist.cdf(y), dist.crps(y), dist.absolute_error(y), *others

    y = np.array([-5.0, -1.0, 0.0, 0.3, 2.5])
    mean, scale, df = np.full(5, 0.2), np.full(5, 1.7), np.full(5, 1e6)
    with jax.enable_x64(True):
        expected = scores(Normal(mean, scale), y)
        for got, normal in zip(scores(StudentT(mean, df, scale), y), expected, strict=True):
            np.testing.assert_allclose(got, normal, rtol=2e-4)
    single = scores(jax.tree.map(jnp.float32, StudentT(mean, df, scale)), jnp.float32(y))
    for got, normal in zip(single, expected, strict=True):
        np.testing.assert_allclose(got, normal, rtol=2e-4)


@pytest.mark.parametrize("df", [1.0, 1.5, 2.0, 2.0 + 1e-6, 2.1])
def test_gradients_stay_finite_where_moments_vanish(df):
    assert np.isfinite(heavy_gradient(jnp.array([df]))).all()


@jax.jit
@jax.grad
def heavy_gradient(df):
    dist, one = StudentT(jnp.zeros(1), df, jnp.ones(1)), jnp.ones(1)
    scores = (
        dist.log_prob(one),
        dist.cdf(0 * one),
        dist.quantile(0.1),
        dist.variance,
        dist.crps(one),
    )
    return sum(jnp.where(jnp.isfinite(score), score, 0.0)[0] for score in scores)


def test_moments_that_do_not_exist_are_infinite():
    dist = standard([0.9, 1.0, 1.5, 2.0, 2.5])
    np.testing.assert_array_equal(np.isinf(dist.variance), dist.df <= 2)
    np.testing.assert_array_equal(np.isinf(dist.crps(np.zeros(5))), dist.df <= 1)
    np.testing.assert_array_equal(np.isinf(dist.absolute_difference(dist)), dist.df <= 1)


def test_the_mean_difference_of_equals_is_the_closed_form():
    with jax.enable_x64(True):
        dist = standard([2.01, 2.5, 4.0, 30.0, 1e3, 1e6])
        np.testing.assert_allclose(dist.absolute_difference(dist), dist.mean_difference, rtol=3e-6)
