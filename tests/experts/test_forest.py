"""The forest of the stack: leaves as samples of the target."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import ExtraTreeRegressor

from sigmax.distributions import Mixture
from sigmax.documents import decode
from sigmax.documents import encode as encode_value
from sigmax.estimators import LinearRegressor
from sigmax.experts.forest import LEAF, MOST_ROWS, Forest, Forests, grow_tree
from sigmax.experts.rows import Rows
from sigmax.features import TargetUnits
from sigmax.random import make_key


def encode(X: np.ndarray, y: np.ndarray) -> Rows:
    given = LinearRegressor().read_training(X, y)
    return Rows.encode(given, TargetUnits.fit(given.y, given.weight))


def test_steps_and_two_modes_are_predicted():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 2))
    y = np.where(X[:, 0] > 0.5, rng.choice([-3.0, 3.0], 500), 0.0) + 0.1 * rng.normal(size=500)
    rows = encode(X, y)
    fitted = Forest().fit(rows, make_key(0))
    mean = np.asarray(fitted.density(rows.X).components.mean)[:, :, 0] * y.std() + y.mean()
    left, right = mean[:, X[:, 0] < 0.45], mean[:, X[:, 0] > 0.55]
    assert np.mean(np.abs(left) < 1) > 0.75
    assert np.mean(np.abs(right) > 2) > 0.75 and 0.3 < np.mean(right > 0) < 0.7


def test_duplicates_do_not_predict_each_other():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 2)), 2, axis=0)
    y = np.repeat(rng.normal(size=60), 2) + 1e-3 * rng.normal(size=120)  # noise, given twice
    fitted = Forest().fit(encode(X, y), make_key(0))
    mixture = fitted.held_out.dist
    assert isinstance(mixture, Mixture)
    mean = np.asarray(mixture.components.mean).mean(axis=0)[:, 0]
    assert abs(np.corrcoef(mean, fitted.held_out.y[:, 0])[0, 1]) < 0.5


def test_few_equal_and_constant_rows_are_fitted():
    for X, y in (
        (np.zeros((5, 1)), np.arange(5.0)),
        (np.arange(2.0)[:, None], np.array([0.0, 1.0])),
        (np.arange(30.0)[:, None], np.zeros(30)),
    ):
        rows = encode(X, y)
        dist = Forest().fit(rows, make_key(0)).density(rows.X)
        assert np.isfinite(np.asarray(dist.components.mean)).all()


# Trees.

N_ROWS, N_TREES = 200, 4


def make_rows(n: int = N_ROWS):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, (X[:, :1] ** 2 + 0.1 * rng.normal(size=(n, 1))), rng.uniform(0.5, 2.0, n)


def grow(X, y, weight, learned, n_trees, rng):
    """Forests whose rows for those asked while they grow are those of `rows_at`."""
    asked = X[: len(X) // 2 + 1]
    forests, leaf_rows = Forests.grow(X, y, weight, learned, n_trees, rng, asked)
    np.testing.assert_array_equal(leaf_rows, forests.rows_at(asked))
    return forests


@pytest.fixture(scope="module")
def forests():
    learned = [np.arange(0, N_ROWS, 2), np.arange(1, N_ROWS, 2)]
    return grow(*make_rows(), learned, N_TREES, np.random.default_rng(1))


def test_every_learned_row_is_sent_to_itself_and_the_others_to_learned_ones(forests):
    found = forests.rows_at(make_rows()[0])
    assert found.shape == (2, N_TREES, N_ROWS)
    for member in (0, 1):
        own = np.arange(member, N_ROWS, 2)
        assert (found[member][:, own] == own).all()
        assert (found[member] % 2 == member).all()


def test_paths_are_those_of_scikit_learn():
    X, y, weight = make_rows()
    rows, seed = np.arange(N_ROWS), np.random.default_rng(5)
    tree = ExtraTreeRegressor(
        max_features=3, random_state=int(np.random.default_rng(5).integers(2**31))
    ).fit(X, y, sample_weight=weight)
    parts, _ = grow_tree(X, y, weight, rows, seed, X)
    forest = Forests(*parts, np.zeros((1, 1), np.int32))
    new = np.random.default_rng(2).normal(size=(500, 3)).astype(np.float32)
    np.testing.assert_allclose(y[forest.rows_at(new)[0, 0], 0], tree.predict(new), rtol=1e-6)


def test_of_rows_that_no_split_parts_one_is_drawn_by_weight():
    X, y = np.zeros((2, 1), np.float32), np.array([[0.0], [1.0]])
    rng = np.random.default_rng(0)
    forests = grow(X, y, np.array([1.0, 3.0]), [np.arange(2)], 2000, rng)
    # A share of 3/4 has a standard deviation of 0.0097 here: five of them, under 1 seed in 10^6.
    assert forests.rows_at(X[:1]).mean() == pytest.approx(0.75, abs=0.05)


def test_of_very_many_rows_a_tree_learns_some():
    X, y, weight = make_rows(MOST_ROWS + 500)
    (feature, *_), _ = grow_tree(X, y, weight, np.arange(len(X)), np.random.default_rng(0), X[:1])
    assert np.sum(feature == LEAF) == MOST_ROWS


def test_blocks_of_rows_change_nothing(forests, monkeypatch):
    X = make_rows()[0]
    expected = forests.rows_at(X)
    monkeypatch.setattr("sigmax.experts.forest.PATHS_AT_ONCE", 100)
    np.testing.assert_array_equal(forests.rows_at(X), expected)


def test_what_was_saved_is_what_is_read(forests):
    read = decode(Forests, *encode_value(forests))
    X = make_rows()[0]
    np.testing.assert_array_equal(read.rows_at(X), forests.rows_at(X))
    read.check_paths(2, N_ROWS, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 0), ("right", -2), ("right", 10**6), ("feature", 3), ("feature", -2), ("roots", -1)],
)
def test_paths_that_do_not_end_raise_an_error(forests, name, value):
    changed = getattr(forests, name).copy()
    changed.flat[0] = value
    with pytest.raises(ValueError, match="paths that do not end"):
        replace(forests, **{name: changed}).check_paths(2, N_ROWS, 3)


def test_forests_of_another_number_of_members_raise_an_error(forests):
    with pytest.raises(ValueError, match="paths that do not end"):
        forests.check_paths(3, N_ROWS, 3)
