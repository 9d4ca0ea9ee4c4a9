"""Two moons: the sampler against its definition, the density against the sampler."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import KDTree

from sigmax.data import TwoMoons
from sigmax.errors import InvalidDataError

PROBLEM = TwoMoons()


@pytest.fixture(scope="module")
def drawn():
    return PROBLEM.sample(100_000, random_state=0)


def test_latent_points_are_near_two_half_circles(drawn):
    """Each moon has half of the points, to 5 standard errors: 1 seed in a million fails."""
    _, latent = drawn
    arc = np.pi * np.linspace(0, 1, 200)
    upper = np.column_stack([0.5 + np.cos(arc), np.sin(arc)])
    gap = KDTree(np.concatenate([upper, -upper])).query(latent)[0]
    assert 0.24 < gap.max() < 0.25 + 0.01
    assert np.mean(latent[:, 1] > 0) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(len(latent)))


def test_jitter_is_uniform_in_distance_and_angles_are_uniform():
    still = TwoMoons(jitter=0.0).sample(20_000, random_state=1)[1]
    upper = still[:, 1] > 0
    for rows, x in ((still[upper], 0.5), (still[~upper], -0.5)):
        angle = np.arctan2(rows[:, 1], rows[:, 0] - x) % (2 * np.pi)
        share = angle / np.pi - (x < 0)
        assert stats.kstest(share, "uniform").pvalue > 1e-4  # 1 seed in 10,000 fails
    u = np.random.default_rng(0).random((3, 1000))
    moved = PROBLEM.latent(u[0] < 0.5, *u) - TwoMoons(jitter=0.0).latent(u[0] < 0.5, *u)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), u[2] / 4, atol=1e-12)


def test_observations_follow_the_four_formulas():
    z1, z2 = 0.6, -0.8  # of norm 1
    means = [z1 - z2, z1**2 + z2 / 2, z1 * z2 - z1, z1 + z2]
    variances = [0.03 + 0.05 * 3.6, 0.06, 0.08, 0.03 + 0.03 / 1.2]
    np.testing.assert_allclose(PROBLEM.mean(np.array([[z1, z2]]))[0], means)
    np.testing.assert_allclose(PROBLEM.std(np.array([[z1, z2]]))[0] ** 2, variances)


def test_noises_are_standard_and_independent(drawn):
    """100,000 draws: each moment to 5 standard errors, 1 seed in 100,000 fails."""
    X, latent = drawn
    noise = (X - PROBLEM.mean(latent)) / PROBLEM.std(latent)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=5 / np.sqrt(len(X)))
    np.testing.assert_allclose(np.cov(noise.T), np.eye(4), atol=5 * np.sqrt(2 / len(X)))


def test_density_is_that_of_the_sampler(drawn):
    """The average density over many latent draws, an estimate with a known error."""
    X = PROBLEM.sample(20, random_state=1)[0]
    latent = drawn[1][:, None]
    z = (X - PROBLEM.mean(latent[:, 0])[:, None]) / PROBLEM.std(latent[:, 0])[:, None]
    densities = np.prod(stats.norm.pdf(z) / PROBLEM.std(latent[:, 0])[:, None], axis=2)
    error = densities.std(axis=0) / np.sqrt(len(densities))
    np.testing.assert_array_less(
        np.abs(np.exp(PROBLEM.log_prob(X)) - densities.mean(axis=0)), 5 * error
    )


def test_density_has_converged():
    X = PROBLEM.sample(200, random_state=2)[0]
    finer = PROBLEM._log_prob(X, (96, 32, 12))
    np.testing.assert_allclose(PROBLEM.log_prob(X), finer, atol=1e-4)


def test_seed_determines_the_sample():
    first, again = (PROBLEM.sample(5, random_state=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, PROBLEM.sample(5, random_state=4)[0])


def test_wrong_shapes_raise_an_error():
    with pytest.raises(InvalidDataError, match=r"`X` must have shape \(n, 4\)"):
        PROBLEM.log_prob(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="`n_rows`"):
        PROBLEM.sample(0)
