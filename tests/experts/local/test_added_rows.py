"""Rows added to a fitted model: what changes, what does not, and the widths of intervals."""

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from sigmax import GPRegressor, LocalRegressor
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.experts.local import fitted as local_fitted
from sigmax.experts.local.fitted import LocalPredictor, StoredRows, as_mixture
from sigmax.inputs import Inputs

SMALL = {"preset": "fast", "hidden_sizes": (32, 32), "n_steps": 300, "weight_decay": 300.0}
NOISE = 0.2


def truth(X):
    return np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


def draw(rng, low, n):
    """Rows of a square of side 4, and their targets."""
    X = rng.uniform([low, -2], [low + 4, 2], (n, 2))
    return X, truth(X) + NOISE * rng.normal(size=n)


@pytest.fixture(scope="module")
def rows():
    return draw(np.random.default_rng(0), -2, 300)


@pytest.fixture(scope="module")
def model(rows):
    return LocalRegressor(**SMALL, random_state=0).fit(*rows)


@pytest.fixture(scope="module")
def new_rows():
    return draw(np.random.default_rng(1), 4, 80)


@pytest.fixture(scope="module")
def extended(model, new_rows):
    return copy.deepcopy(model).add_rows(*new_rows)


def fitted(model) -> Any:
    return model.model_.fitted


def counts(model) -> tuple[int, int, int, int]:
    one = fitted(model)
    return one.n_fitted, one.n_learned, one.n_centers, one.n_inducing


def inputs_of(model, X):
    return fitted(model).within_bounds(model.model_.encode(model.read(X)))


def parts_of(model, X):
    dist = model.predict_dist(X)
    return np.stack([dist.mean, dist.std, dist.quantile(0.1)])


def test_predictions_are_those_of_a_predictor_with_all_rows(model, extended, rows, new_rows):
    queries = np.concatenate([rows[0][:40], new_rows[0][:40] + 0.05, [[30.0, 0.0]]])
    inputs = inputs_of(extended, queries)
    X, y = (np.concatenate(parts) for parts in zip(rows, new_rows, strict=True))
    np.testing.assert_allclose(
        fitted(extended).rows.y[:, 0], (y - rows[1].mean()) / rows[1].std(), atol=1e-5
    )
    standardised = ((X - rows[0].mean(axis=0)) / rows[0].std(axis=0)).astype(np.float32)
    stored = Inputs(standardised), fitted(extended).rows.y, np.ones(380, np.float32)
    by_hand = LocalPredictor.create(fitted(extended).networks, StoredRows(*stored, np.arange(380)))
    found = fitted(extended).predictor.predict(inputs)
    np.testing.assert_allclose(by_hand.predict(inputs).dist.mean, found.dist.mean, atol=1e-4)
    assert np.all(np.asarray(found.new_share) <= 1 + 1e-6)
    # The factor acts as far as rows off the data of the fit are what a prediction rests on.
    expected: Any = as_mixture(by_hand.predict(inputs)).components
    scale = 1 + (fitted(extended).added_factor - 1) * np.asarray(found.new_share) * (
        1 - np.asarray(found.gate)
    )
    widened = np.asarray(expected.scale) * np.repeat(scale, 3, axis=0)[..., None]
    complete: Any = as_mixture(found.widened(fitted(extended).added_factor)).components
    np.testing.assert_allclose(complete.scale, widened, rtol=1e-3)


def test_the_gate_is_that_of_all_rows(extended, rows, new_rows):
    mean, std = rows[0].mean(axis=0), rows[0].std(axis=0)
    centers = (np.concatenate([rows[0], new_rows[0]]) - mean) / std
    gate = fitted(extended).networks.gate
    queries = np.random.default_rng(2).uniform([-3, -4], [10, 4], (200, 2))
    offsets = (((queries - mean) / std)[:, None] - centers[None]) * np.asarray(gate.relevance)[0]
    distance = np.linalg.norm(offsets, axis=2)
    nearest = np.take_along_axis(offsets, distance.argmin(axis=1)[:, None, None], axis=1)[:, 0]
    by_distance = np.maximum(distance.min(axis=1) - gate.margin[0], 0) / np.exp(gate.log_scale[0])
    by_axis = (np.abs(nearest).max(axis=1) - gate.axis_margin[0]) / gate.axis_scale[0]
    opening = 1 / (1 + np.exp(6.9077 - np.maximum(by_distance, by_axis)))
    at_zero = 1 / (1 + np.exp(6.9077))
    expected = np.clip((opening - at_zero) / (1 - at_zero), 0, 1)
    np.testing.assert_allclose(extended.predict_gate(queries), expected, atol=2e-3)


def test_rows_may_come_together_or_one_by_one(model, extended, new_rows):
    X, y = new_rows
    parts = copy.deepcopy(model)
    for part in (slice(0, 1), slice(1, 30), slice(30, None)):
        parts.add_rows(X[part], y[part])
    queries = np.concatenate([X + 0.1, X - 6.0])
    np.testing.assert_array_equal(parts_of(parts, queries), parts_of(extended, queries))
    assert fitted(parts).added_factor == fitted(extended).added_factor


def test_a_copy_is_cheap_and_leaves_the_model_alone(model, extended, new_rows):
    before = parts_of(model, new_rows[0])
    copied = copy.deepcopy(model)
    assert fitted(copied).predictor is fitted(model).predictor
    copied.add_rows(new_rows[0][:3], new_rows[1][:3])
    np.testing.assert_array_equal(parts_of(model, new_rows[0]), before)
    assert len(fitted(copied).rows) == 303 and len(fitted(model).rows) == 300
    assert counts(model) == counts(copied)
    assert fitted(copied).n_fitted == fitted(copied).n_learned == 300


def test_saved_and_pickled_it_is_the_same(extended, new_rows, tmp_path):
    expected = parts_of(extended, new_rows[0])
    extended.save(tmp_path / "model")
    loaded = LocalRegressor.load(tmp_path / "model")
    for other in (loaded, pickle.loads(pickle.dumps(extended))):
        np.testing.assert_array_equal(parts_of(other, new_rows[0]), expected)
        assert fitted(other).added_factor == fitted(extended).added_factor
        assert counts(other) == counts(extended)
    both = [copy.deepcopy(one).add_rows([[20.0, 0.0]], [3.0]) for one in (loaded, other)]
    assert fitted(both[0]).added_factor == fitted(both[1]).added_factor
    assert len(fitted(both[0]).rows) == 381


def test_fifty_rows_one_by_one_compile_once(model, new_rows):
    watched: list[Any] = [local_fitted.validate, local_fitted.predict_members]
    own = copy.deepcopy(model)
    own.add_rows(new_rows[0][:1], new_rows[1][:1]).predict(new_rows[0][:5])
    before = [function.n_compiled() for function in watched]
    for row in range(1, 50):
        own.add_rows(new_rows[0][row : row + 1], new_rows[1][row : row + 1])
        own.predict(new_rows[0][:5])
    assert [function.n_compiled() for function in watched] == before


def test_explanations_number_the_added_rows_on(extended, new_rows):
    named, weights = extended.explain_neighbors(new_rows[0][:20], k=5)
    assert np.mean(named[:, 0] == 300 + np.arange(20)) > 0.6
    assert named.max() < 380 and np.all(weights[:, 0] > 0)


def test_intervals_have_their_nominal_coverage_where_rows_were_added():
    """Over seeds: sharp and near the targets there, and elsewhere as before."""
    covered, errors, stds, changes, before_errors = [], [], [], [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = LocalRegressor(**SMALL, random_state=seed).fit(*draw(rng, -2, 300))
        X, y = draw(rng, 4, 400)
        old, _ = draw(rng, -2, 200)
        old = old[old[:, 0] < 0.5]
        before, elsewhere = model.predict(X), parts_of(model, old)
        before_errors.append(np.mean((before - y) ** 2))
        for n in (3, 80):
            own = copy.deepcopy(model).add_rows(*draw(rng, 4, n))
            dist, near = own.predict_dist(X), np.asarray(own.predict_gate(X)) < 0.1
            bounds = dist.interval(0.9)
            inside = (bounds[:, 0] <= y) & (y <= bounds[:, 1])
            covered.append(inside[near].mean())
        errors.append(np.mean((dist.mean - y)[near] ** 2))
        stds.append(np.median(dist.std))
        changes.append(np.abs(parts_of(own, old)[:2] - elsewhere[:2]).mean())
    assert np.mean(covered[::2]) > 0.87 and np.mean(covered[1::2]) > 0.87
    assert np.mean(errors) < 0.4 * np.mean(before_errors)
    assert np.mean(stds) < 0.8 and np.mean(changes) < 0.02


def test_duplicates_do_not_narrow_intervals(model, new_rows):
    """Each row twice: the errors that count are those without the duplicate."""
    X, y = new_rows[0][:20], new_rows[1][:20]
    once = copy.deepcopy(model).add_rows(X, y)
    twice = copy.deepcopy(model).add_rows(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    # The others count twice: predictions rest on them more, and are better by some per cent.
    assert fitted(twice).added_factor >= 0.85 * fitted(once).added_factor
    known = copy.deepcopy(model).add_rows(*[part[:5] for part in new_rows])
    n_centers = np.sum(fitted(known).networks.gate.is_used[0])
    known.add_rows(*[part[:5] for part in new_rows])
    assert np.sum(fitted(known).networks.gate.is_used[0]) == n_centers == 305


def test_rows_on_the_data_widen_nothing(model, rows):
    X, y = draw(np.random.default_rng(5), -1, 1)
    own = copy.deepcopy(model).add_rows(X * 0.1, y)
    found = fitted(own).predictor.predict(inputs_of(own, X))
    assert np.all(np.asarray(found.new_share) == 0)


def test_weights_are_in_the_units_of_the_fit(model, rows, new_rows):
    X, y = new_rows[0][:10], new_rows[1][:10]
    weighted = LocalRegressor(**SMALL, random_state=0).fit(*rows, sample_weight=np.full(300, 5.0))
    expected = parts_of(copy.deepcopy(model).add_rows(X, y), X)
    for weight in (None, np.full(10, 5.0)):
        own = copy.deepcopy(weighted).add_rows(X, y, sample_weight=weight)
        np.testing.assert_allclose(parts_of(own, X), expected, rtol=1e-3, atol=1e-3)
    some = copy.deepcopy(model).add_rows(X, y, sample_weight=np.arange(10) % 2)
    np.testing.assert_array_equal(fitted(some).rows.indices[300:], 300 + np.arange(1, 10, 2))


def test_errors_are_clear_and_change_nothing(model, new_rows):
    own, (X, y) = copy.deepcopy(model), new_rows
    known = dict(vars(own))
    with pytest.raises(InvalidDataError, match=r"shape \(n,\)"):
        own.add_rows(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="non-zero"):
        own.add_rows(X, y, sample_weight=np.zeros(80))
    with pytest.raises(ValueError, match="inconsistent"):
        own.add_rows(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        own.add_rows(X, np.where(y > 0, np.nan, y))
    incomplete = X.copy()
    incomplete[3, 1] = np.nan
    with pytest.raises(InvalidDataError, match="missing in row 4"):
        own.add_rows(incomplete, y)
    assert all(value is known[name] for name, value in vars(own).items())
    with pytest.raises(NotFittedError):
        LocalRegressor().add_rows(X, y)
    other = GPRegressor(n_restarts=1, max_iter=5).fit(X, y)
    with pytest.raises(InvalidArgumentError, match="stores no training rows"):
        other.add_rows(X, y)


@pytest.fixture(scope="module")
def shop():
    """Counts that jump, with a category and missing values."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"size": rng.uniform(0, 10, 400), "kind": rng.choice(["a", "b", "c"], 400)})
    X.loc[:9, "size"] = np.nan
    steps = np.array([4, 30, 12, 45, 2, 25, 50, 8, 35, 18])
    rate = steps[X["size"].fillna(0).astype(int)] + 6 * (X["kind"] == "b")
    return X, rng.poisson(rate).astype(float)


@pytest.fixture(scope="module")
def shop_model(shop):
    return LocalRegressor(**SMALL, random_state=1).fit(*shop)


def test_predictions_follow_added_rows_also_of_counts(shop_model):
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"size": rng.uniform(20, 24, 60), "kind": ["a"] * 60})
    y = rng.poisson(40, 60).astype(float)
    together = copy.deepcopy(shop_model).add_rows(X, y)
    apart = copy.deepcopy(shop_model)
    for part in (slice(0, 25), slice(25, None)):
        apart.add_rows(X.iloc[part], y[part])
    queries = pd.DataFrame({"size": rng.uniform(20, 24, 200), "kind": ["a"] * 200})
    np.testing.assert_array_equal(parts_of(together, queries), parts_of(apart, queries))
    fresh, bounds = rng.poisson(40, 200), together.predict_interval(queries, 0.9)
    assert np.mean((bounds[:, 0] <= fresh) & (fresh <= bounds[:, 1])) > 0.85
    assert np.abs(together.predict(queries) - 40).mean() < 8
    assert np.mean(bounds == np.round(bounds)) > 0.8  # all but ends beyond the observed counts
    named, _ = together.explain_neighbors(queries, k=3)
    assert np.mean(named >= 400) > 0.9


def test_rows_of_an_unseen_category_are_stored_and_count(shop_model):
    X = pd.DataFrame({"size": [3.0] * 30 + [np.nan], "kind": ["new"] * 31})
    own = copy.deepcopy(shop_model).add_rows(X, np.full(31, 50.0))
    other = pd.DataFrame({"size": [3.0], "kind": ["other"]})
    assert len(fitted(own).rows) == 431
    before, after = (model.predict(other)[0] for model in (shop_model, own))
    assert before < after < 50


def test_new_targets_are_values_at_which_intervals_may_end(shop_model, shop):
    X, _ = shop
    assert shop_model.model_.target.repeated[0].is_rounded
    assert 3.25 not in shop_model.model_.target.repeated[0].values
    own = copy.deepcopy(shop_model).add_rows(X[:2], [3.25, 4.0])
    assert 3.25 in own.model_.target.repeated[0].values


def test_with_a_search_for_the_nearest_rows_sums_run_over_all_added_rows(
    model, extended, new_rows, monkeypatch
):
    pytest.importorskip("faiss")
    monkeypatch.setattr("sigmax.experts.local.fitted.LARGEST_EXHAUSTIVE", 100)
    searched = pickle.loads(pickle.dumps(model))
    assert fitted(searched).predictor.nearest is not None
    searched.add_rows(*new_rows)
    assert fitted(searched).predictor.nearest is not None
    queries = np.concatenate([new_rows[0] + 0.1, new_rows[0] - 6.0])
    expected = parts_of(extended, queries)
    np.testing.assert_allclose(parts_of(searched, queries), expected, atol=0.1)
