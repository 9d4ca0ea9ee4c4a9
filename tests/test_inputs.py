"""Units, against NumPy and at the edges of the number line."""

import numpy as np
import pytest

from sigmax.features.target import FARTHEST, Standardizer


def test_standardised_training_rows_have_mean_0_and_std_1():
    values = np.random.default_rng(0).normal(5, 3, (400, 3))
    found = Standardizer.fit(values, np.ones(400))(values)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-6)
    assert found.dtype == np.float32


def test_weights_count_like_repeats():
    values, weight = np.array([[1.0], [2.0], [7.0]]), np.array([1, 3, 2])
    weighted = Standardizer.fit(values, weight)
    repeated = Standardizer.fit(np.repeat(values, weight, axis=0), np.ones(6))
    np.testing.assert_allclose([weighted.mean, weighted.scale], [repeated.mean, repeated.scale])


@pytest.mark.parametrize("size", [1e-300, 1e-8, 1.0, 1e8, 1e200])
def test_scale_survives_any_size(size):
    values = size * np.array([[1.0], [2.0], [4.0]])
    found = Standardizer.fit(values, np.ones(3))
    np.testing.assert_allclose(found.scale, size * np.std([1, 2, 4]))


def test_constant_columns_get_a_scale_all_the_same():
    values = np.full((5, 2), [7.0, 0.0])
    np.testing.assert_array_equal(Standardizer.fit(values, np.ones(5)).scale, [1, 1])
    target = Standardizer.fit(values, np.ones(5), constant_scale=1e-6)
    np.testing.assert_allclose(target.scale, [7e-6, 1e-6])


def test_values_beyond_all_measure_are_cut():
    found = Standardizer(np.zeros(1), np.ones(1))(np.array([[1e300], [-1e300]]))
    np.testing.assert_array_equal(found, [[FARTHEST], [-FARTHEST]])
