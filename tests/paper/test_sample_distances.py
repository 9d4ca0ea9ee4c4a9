"""Distances of samples: scipy in one dimension, closed forms and shifts in more."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from sigmax import sample_distances
from sigmax.errors import InvalidDataError
from sigmax.sample_distances import energy_distance, share_off_data, sliced_wasserstein

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("sizes", [(50, 50), (50, 71), (1, 8)])
def test_one_column_agrees_with_scipy(sizes):
    a, b = RNG.normal(size=sizes[0]), RNG.gamma(2, size=sizes[1])
    A, B = a[:, None], b[:, None]
    assert energy_distance(A, B) == pytest.approx(stats.energy_distance(a, b))
    assert sliced_wasserstein(A, B) == pytest.approx(stats.wasserstein_distance(a, b))


def test_energy_distance_is_the_same_in_blocks(monkeypatch):
    A, B = RNG.normal(size=(40, 3)), RNG.normal(size=(30, 3)) + 1
    whole = energy_distance(A, B)
    squared = 2 * cdist(A, B).mean() - cdist(A, A).mean() - cdist(B, B).mean()
    assert whole == pytest.approx(np.sqrt(squared))
    monkeypatch.setattr(sample_distances, "BLOCK", 100)
    assert energy_distance(A, B) == pytest.approx(whole)


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
    settings = {"n_directions": 4000, "random_state": 0}
    assert sliced_wasserstein(A, A + shift, **settings) == pytest.approx(10 / np.pi, rel=0.03)
    squared = sliced_wasserstein(A, A + shift, order=2, **settings)
    assert squared == pytest.approx(np.sqrt(25 / 2), rel=0.03)
    again = sliced_wasserstein(A, A + shift, **settings)
    assert again == sliced_wasserstein(A, A + shift, **settings)


def test_share_off_data_counts_rows_that_are_farther_than_data_are():
    reference, fresh, more = np.split(RNG.uniform(size=(12_000, 2)), [10_000, 11_000])
    assert share_off_data(more, reference, fresh) < 0.01
    half = np.concatenate([more[:500], more[:500] + 3])
    assert share_off_data(half, reference, fresh) == pytest.approx(0.5, abs=0.01)
    assert share_off_data(more, reference, fresh, level=0.5) == pytest.approx(0.5, abs=0.1)


def test_invalid_samples_raise_an_error():
    for distance in (energy_distance, sliced_wasserstein):
        with pytest.raises(InvalidDataError, match="`a` must have the 3 columns of `b`, got 2"):
            distance(np.zeros((4, 2)), np.zeros((4, 3)))
        with pytest.raises(InvalidDataError, match=r"`b` must have shape \(n, d\), got \(4,\)"):
            distance(np.zeros((4, 2)), np.zeros(4))
        with pytest.raises(InvalidDataError, match="`a` must be finite"):
            distance(np.full((4, 2), np.nan), np.zeros((4, 2)))
    with pytest.raises(InvalidDataError, match="`fresh`"):
        share_off_data(np.zeros((4, 2)), np.zeros((4, 2)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="`n_directions`"):
        sliced_wasserstein(np.zeros((4, 2)), np.zeros((4, 2)), n_directions=0)
