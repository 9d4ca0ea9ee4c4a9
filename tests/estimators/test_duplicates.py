"""Duplicates of training rows: merged where they are no measurements, kept where they are."""

import warnings

import numpy as np
import pytest

from sigmax import GPRegressor
from sigmax.errors import TrainingWarning

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(300, 2)), rng.normal(size=300)


def read(X, y, weight=None):
    """The rows that an estimator learns from."""
    return GPRegressor().read_training(X, y, weight)


@pytest.mark.parametrize("n_copies", [60, 100, 300, 600])
def test_duplicates_of_some_rows_are_merged(n_copies):
    copies = np.arange(n_copies) % 300
    with pytest.warns(TrainingWarning, match=f"{n_copies} of {300 + n_copies} rows are exact dup"):
        found = read(np.r_[X, X[copies]], np.r_[Y, Y[copies]])
    np.testing.assert_array_equal(found.indices, np.arange(300))
    np.testing.assert_array_equal(found.weight, 1.0 + np.bincount(copies, minlength=300))


def test_a_random_part_of_a_table_appended_to_itself_is_merged():
    drawn = rng.permutation(np.r_[:300, :300, :300])[:600]
    with pytest.warns(TrainingWarning, match="exact duplicates"):
        found = read(X[drawn], Y[drawn])
    assert len(found.y) == len(np.unique(drawn)) and found.weight.sum() == 600


def test_weights_of_duplicates_add_up():
    weight = rng.uniform(0.5, 2.0, 600)
    with pytest.warns(TrainingWarning, match="300 of 600"):
        found = read(np.tile(X, (2, 1)), np.tile(Y, 2), weight)
    np.testing.assert_allclose(found.weight, weight[:300] + weight[300:])


def test_draws_of_few_different_rows_are_measurements():
    cells = rng.integers(0, 4, (500, 3)).astype(float)
    exact = cells.sum(axis=1)  # the same target for the same cells
    rated = np.round(exact / 3 + rng.normal(0, 0.5, 500))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read(cells, exact).y) == len(read(cells, rated).y) == 500


def test_replicates_of_a_design_stay_and_its_appended_rows_are_merged():
    design = np.repeat(rng.normal(size=(60, 2)), 4, axis=0)
    rating = np.round(2 + rng.normal(0, 0.7, 240))
    assert len(read(design, rating).y) == 240
    with pytest.warns(TrainingWarning, match="240 of 480"):
        found = read(np.tile(design, (2, 1)), np.tile(rating, 2))
    order, expected = (
        np.lexsort(np.c_[rows, y].T)
        for rows, y in ((found.table.numbers, found.y), (design, rating))
    )
    np.testing.assert_array_equal(found.table.numbers[order], design[expected])
    np.testing.assert_array_equal(found.y[order, 0], rating[expected])
    np.testing.assert_array_equal(found.weight, 2.0)


@pytest.mark.parametrize("rate", [0.2, 1.0, 5.0])
def test_independent_draws_are_chance(rate):
    """Equal rates are the hardest case; under one in a hundred is taken for duplicates."""
    from sigmax.experts.rows import can_be_chance

    drawn = rng.poisson(rate, (300, 200))
    assert np.mean([can_be_chance(counts[counts > 0]) for counts in drawn]) > 0.97
