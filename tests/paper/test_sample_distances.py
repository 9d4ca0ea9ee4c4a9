"""Distances of samples: scipy in one dimension, closed forms and shifts in more."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from sigmax.paper.generative import energy_distance, share_off_data, sliced_wasserstein

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("sizes", [(50, 50), (50, 71), (1, 8)])
def test_one_column_agrees_with_scipy(sizes):
    a, b = RNG.normal(size=sizes[0]), RNG.gamma(2, size=sizes[1])
    A, B = a[:, None], b[:, None]
    assert energy_distance(A, B) == pytest.approx(stats.energy_distance(a, b))
    assert sliced_wasserstein(A, B) == pytest.approx(stats.wasserstein_distance(a, b))


def test_energy_distance_is_that_of_all_pairs_one_by_one():
    A, B = RNG.normal(size=(25, 3)), RNG.normal(size=(30, 3)) + 1

    def mean_distance(one, other):
        return np.mean([np.linalg.norm(a - b) for a in one for b in other])

    squared = 2 * mean_distance(A, B) - mean_distance(A, A) - mean_distance(B, B)
    assert energy_distance(A, B) == pytest.approx(np.sqrt(squared))


def test_energy_distance_of_two_normals_is_that_of_the_closed_form():
    """Standard normals of the line, 2 apart: 5 standard errors over 20 pairs of samples."""
    shift = 2.0
    # E|N(m, 2)| = 2 / sqrt(pi) exp(-m² / 4) + m (1 - 2 Phi(-m / sqrt 2))
    apart = 2 / np.sqrt(np.pi) * np.exp(-(shift**2) / 4)
    apart += shift * (1 - 2 * stats.norm.cdf(-shift / np.sqrt(2)))
    squared = 2 * apart - 4 / np.sqrt(np.pi)
    pairs = RNG.normal(size=(20, 2, 1000, 1))
    found = np.array([energy_distance(a, b + shift) for a, b in pairs])
    assert found.mean() == pytest.approx(np.sqrt(squared), abs=5 * found.std() / np.sqrt(20))


def test_energy_distance_of_equal_distributions_shrinks_to_its_floor():
    A, B = RNG.normal(size=(2, 2000, 2))
    floor = np.sqrt(2 * cdist(A, A).mean() / len(A))
    assert 0.5 * floor < energy_distance(A, B) < 2 * floor
    assert energy_distance(A, A) == 0


def test_distance_of_shifted_rows_is_the_mean_shift_over_directions():
    """A shift by v moves a direction by |θ·v|: 2/π |v| on average in the plane."""
    A = RNG.normal(size=(500, 2))
    shift = np.array([3.0, 4.0])
    found = sliced_wasserstein(A, A + shift, n_directions=4000)
    assert found == pytest.approx(10 / np.pi, rel=0.03)
    assert found == sliced_wasserstein(A, A + shift, n_directions=4000)


def test_share_off_data_counts_rows_that_are_farther_than_data_are():
    reference, fresh, more = np.split(RNG.uniform(size=(12_000, 2)), [10_000, 11_000])
    assert share_off_data(more, reference, fresh) < 0.01
    half = np.concatenate([more[:500], more[:500] + 3])
    assert share_off_data(half, reference, fresh) == pytest.approx(0.5, abs=0.01)
