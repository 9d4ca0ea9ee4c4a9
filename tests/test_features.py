"""The seam between tables and arrays: what networks see, what distances see, what is kept."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from sigmax.features import Features, Table
from sigmax.inputs import Inputs, InputShape


class Reader(BaseEstimator):
    """An estimator that has learned the names of columns."""

    def fit(self, X, y):
        self.table_, _ = Table.read_training(self, X, y)
        return self


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 5.0, 100.0] + 7.0


def test_numbers_are_standardised_by_the_training_rows(X):
    weight = np.random.default_rng(1).uniform(1, 2, 30)
    rows = Features.fit(Table(X), weight)(Table(X))
    np.testing.assert_allclose(weight @ np.asarray(rows.numbers) / weight.sum(), 0, atol=1e-5)
    std = np.sqrt(weight @ np.asarray(rows.numbers) ** 2 / weight.sum())
    np.testing.assert_allclose(std, 1, rtol=1e-5)
    assert rows.numbers.dtype == np.float32


def test_distances_see_numbers_in_standard_deviations(X):
    features = Features.fit(Table(X), np.ones(30))
    moved = X.copy()
    moved[:, 1] += 2 * X[:, 1].std()
    here, there = (np.asarray(features(Table(rows)).coordinates) for rows in (X, moved))
    np.testing.assert_allclose(np.linalg.norm(here - there, axis=1), 2, rtol=1e-4)


def test_blank_rows_have_the_shape_and_type_of_real_ones(X):
    features = Features.fit(Table(X), np.ones(30))
    real, blank = features(Table(X)), features.blank(30)
    assert real.input_shape == blank.input_shape == InputShape(3)
    assert real.numbers.shape == blank.numbers.shape and real.numbers.dtype == blank.numbers.dtype


def test_what_is_saved_gives_the_same_inputs_and_other_columns_are_refused(X):
    features = Features.fit(Table(X), np.ones(30))
    again = Features.from_state(features.state(), 3)
    np.testing.assert_array_equal(again(Table(X)).numbers, features(Table(X)).numbers)
    with pytest.raises(ValueError, match=r"features\.mean is float64\(3,\), not float64\(4,\)"):
        Features.from_state(features.state(), 4)


def test_some_rows_of_a_table_are_those_rows_of_its_inputs(X):
    features, some = Features.fit(Table(X), np.ones(30)), np.array([4, 4, 0])
    np.testing.assert_array_equal(
        features(Table(X)[some]).numbers, features(Table(X))[some].numbers
    )
    assert len(Table(X)[some]) == len(Inputs(X)[some]) == 3


def test_rows_to_predict_need_the_columns_that_were_learned_from(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    reader = Reader().fit(frame, X[:, 0])
    np.testing.assert_array_equal(Table.read(reader, frame).numbers, X)
    with pytest.raises(ValueError, match="feature names should match"):
        Table.read(reader, frame[["a", "c", "b"]])
    with pytest.raises(ValueError, match="X has 2 features"):
        Table.read(Reader().fit(X, X[:, 0]), X[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        Table.read(Reader().fit(X, X[:, 0]), X * np.nan)
