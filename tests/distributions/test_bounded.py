"""Bounded densities against sums over a fine grid of SciPy's distributions."""

import numpy as np
import pytest
from scipy import stats

from sigmax.distributions import Bounded, Mixture, Predictive, StudentT

RNG = np.random.default_rng(0)
N = 5
COMPONENTS = StudentT(
    RNG.normal(1, 1, (3, N)), RNG.uniform(5, 9, (3, N)), RNG.uniform(0.5, 1.5, (3, N))
)
LOG_WEIGHT = np.log(RNG.dirichlet(np.ones(3), N).T)
BASE = Mixture(COMPONENTS, None, LOG_WEIGHT)
GRID = np.sinh(np.linspace(-9, 9, 100_001))[:, None]
BOUNDS = {
    "low": (0.0, np.inf),
    "both": (-2.0, 7.0),
    "high": (-np.inf, 2.0),
    "far": (-80.0, np.inf),
}


def density_of_base() -> np.ndarray:
    parts = stats.t.pdf(GRID[..., None, :], COMPONENTS.df, COMPONENTS.mean, COMPONENTS.scale)
    return np.sum(np.exp(LOG_WEIGHT) * parts, axis=-2)


MASS = density_of_base() * np.gradient(GRID[:, 0])[:, None]
MASS /= MASS.sum(axis=0)


@pytest.mark.parametrize("name", BOUNDS)
def test_moments_and_scores_are_those_of_values_moved_into_the_bounds(name):
    low, high = BOUNDS[name]
    t = np.clip(GRID, low, high)
    dist = Predictive(Bounded.create(BASE, low, high))
    y = np.clip(np.linspace(-1, 4, N), low, high)
    mean = np.sum(MASS * t, axis=0)
    np.testing.assert_allclose(dist.mean, mean, atol=2e-3)
    np.testing.assert_allclose(dist.variance, np.sum(MASS * (t - mean) ** 2, axis=0), rtol=0.01)
    np.testing.assert_allclose(
        dist.absolute_error(y), np.sum(MASS * np.abs(t - y), axis=0), atol=2e-3
    )
    gap = np.diff(t[:, 0], append=t.max())[:, None]
    score = np.sum(gap * (np.cumsum(MASS, axis=0) - (t >= y)) ** 2, axis=0)
    np.testing.assert_allclose(dist.crps(y), score, atol=2e-3)
    np.testing.assert_allclose(dist.cdf(y), np.sum(MASS * (t <= y), axis=0), atol=2e-3)
    parts = dist.aleatoric_variance + dist.epistemic_variance
    np.testing.assert_allclose(parts, dist.variance)


def test_between_the_bounds_the_density_is_as_without_and_beyond_it_is_zero():
    dist, base = Predictive(Bounded.create(BASE, 0.0, 3.0)), Predictive(BASE)
    np.testing.assert_array_equal(dist.log_prob(1.3), base.log_prob(1.3))
    np.testing.assert_array_equal(dist.cdf(0.0), base.cdf(0.0))
    for beyond in (-0.01, 3.01):
        assert np.all(dist.log_prob(beyond) == -np.inf)


@pytest.mark.parametrize("name", BOUNDS)
def test_quantiles_lie_between_the_bounds_and_invert_the_cdf(name):
    low, high = BOUNDS[name]
    dist = Predictive(Bounded.create(BASE, low, high))
    for q in (1e-3, 0.05, 0.5, 0.95, 0.999):
        value = dist.quantile(q)
        assert np.all((value >= low) & (value <= high))
        inner = (value > low) & (value < high)
        np.testing.assert_allclose(dist.cdf(value)[inner], q, rtol=1e-5)
    if np.isfinite(low):
        assert np.all(dist.cdf(low - 1e-9) == 0)


def test_draws_have_the_distribution():
    """Fails by chance once in a million seeds."""
    dist = Predictive(Bounded.create(BASE, 0.0, np.inf))
    drawn = dist.sample(2000, 0)
    assert drawn.min() >= 0
    for q in (0.1, 0.5, 0.9):
        value = dist.quantile(q)
        share = np.mean(drawn <= value, axis=0)
        np.testing.assert_allclose(share, dist.cdf(value), atol=0.05)


def test_what_lies_far_from_a_bound_is_as_without_it():
    far, base = Predictive(Bounded.create(BASE, -1e4, np.inf)), Predictive(BASE)
    np.testing.assert_allclose(far.mean, base.mean, rtol=1e-9)
    np.testing.assert_allclose(far.std, base.std, rtol=1e-6)
    np.testing.assert_allclose(far.log_prob(1.0), base.log_prob(1.0), rtol=1e-9)
    np.testing.assert_allclose(far.interval(), base.interval(), rtol=1e-6)


def test_several_outputs_have_bounds_of_their_own():
    leaves = (COMPONENTS.mean, COMPONENTS.df, COMPONENTS.scale)
    two = Mixture(StudentT(*(np.stack([leaf, leaf], axis=-1) for leaf in leaves)))
    both = Predictive(Bounded.create(two, np.array([0.0, -np.inf]), np.array([np.inf, 1.0])))
    ends = both.interval(0.9)
    assert ends[:, 0].min() >= 0 and ends[:, 1].max() <= 1
    np.testing.assert_allclose(both[1:3].mean, both.mean[1:3])
