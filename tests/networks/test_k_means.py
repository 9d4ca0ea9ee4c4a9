"""Centres of k-means."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import MiniBatchKMeans

from sigmax.networks.gate import k_means_centers


@pytest.mark.parametrize("n_features", [2, 30])
def test_centers_are_about_as_near_as_those_of_scikit_learn(n_features):
    rows = np.random.default_rng(0).normal(size=(2000, n_features))
    centers = k_means_centers(rows, 100, seed=0)
    assert centers.shape == (100, n_features)
    known = MiniBatchKMeans(100, n_init="auto", batch_size=2048, random_state=0)
    reference = known.fit(rows).inertia_
    assert np.sum(cdist(rows, centers).min(axis=1) ** 2) < 1.05 * reference


def test_a_few_rows_far_from_all_others_have_a_center():
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    rows[:3] += 50
    centers = k_means_centers(rows, 100, seed=0)
    assert cdist(rows[:3], centers).min(axis=1).max() < 5


def test_copies_of_few_rows_are_their_own_centers():
    rows = np.repeat(np.arange(8.0).reshape(4, 2), 100, axis=0)
    centers = k_means_centers(rows, 10, seed=0)
    assert cdist(rows, centers).min(axis=1).max() < 1e-5
    one = k_means_centers(np.full((50, 2), 1e6), 10, seed=0)
    np.testing.assert_allclose(one, 1e6)


def test_centers_follow_the_seed_and_the_offset():
    rows = np.random.default_rng(0).normal(size=(500, 3))
    first, again = (k_means_centers(rows, 20, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(k_means_centers(rows + 1e4, 20, seed=3), first + 1e4, atol=0.02)
