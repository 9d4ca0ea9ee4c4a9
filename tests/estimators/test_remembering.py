"""New rows in the memory of a fitted model: what changes, what does not, and what it may claim."""

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from sigmax import GPRegressor, LocalRegressor, MeanVarianceRegressor
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.estimators import later_rows, remembering
from sigmax.estimators.local_predictor import LocalPredictor, as_mixture
from sigmax.estimators.member_forests import MemberForests
from sigmax.forests import Forests
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
def remembered(model, new_rows):
    return copy.deepcopy(model).partial_remember(*new_rows)


def parts_of(model, X):
    dist = model.predict_dist(X)
    return np.stack([dist.mean, dist.std, dist.quantile(0.1)])


def test_predictions_are_those_of_a_predictor_with_all_rows_in_its_memory(
    model, remembered, rows, new_rows
):
    queries = np.concatenate([rows[0][:40], new_rows[0][:40] + 0.05, [[30.0, 0.0]]])
    inputs = remembered._inputs(queries)
    X, y = (np.concatenate(parts) for parts in zip(rows, new_rows, strict=True))
    np.testing.assert_allclose(
        remembered.rows_.y[:, 0], (y - rows[1].mean()) / rows[1].std(), atol=1e-5
    )
    by_hand = LocalPredictor(
        remembered.networks_,
        Inputs(((X - rows[0].mean(axis=0)) / rows[0].std(axis=0)).astype(np.float32)),
        remembered.rows_.y,
        np.ones(380, np.float32),
    )
    found = remembered.predictor_.predict(inputs)
    np.testing.assert_allclose(by_hand.predict(inputs).dist.mean, found.dist.mean, atol=1e-4)
    assert np.all(np.asarray(found.foreign_share) <= 1 + 1e-6)
    # The factor acts as far as rows off the data of the fit are what a prediction rests on.
    expected: Any = as_mixture(by_hand.predict(inputs)).components
    scale = 1 + (remembered.memory_.factor - 1) * np.asarray(found.foreign_share) * (
        1 - np.asarray(found.gate)
    )
    widened = np.asarray(expected.scale) * np.repeat(scale, 3, axis=0)[..., None]
    complete: Any = as_mixture(remembered._with_forests(found, inputs)).components
    np.testing.assert_allclose(complete.scale, widened, rtol=1e-3)


def test_the_gate_is_that_of_all_rows(remembered, rows, new_rows):
    mean, std = rows[0].mean(axis=0), rows[0].std(axis=0)
    centers = (np.concatenate([rows[0], new_rows[0]]) - mean) / std
    gate = remembered.networks_.gate
    queries = np.random.default_rng(2).uniform([-3, -4], [10, 4], (200, 2))
    offsets = (((queries - mean) / std)[:, None] - centers[None]) * np.asarray(gate.relevance)[0]
    distance = np.linalg.norm(offsets, axis=2)
    nearest = np.take_along_axis(offsets, distance.argmin(axis=1)[:, None, None], axis=1)[:, 0]
    by_distance = np.maximum(distance.min(axis=1) - gate.margin[0], 0) / np.exp(gate.log_scale[0])
    by_axis = (np.abs(nearest).max(axis=1) - gate.axis_margin[0]) / gate.axis_scale[0]
    opening = 1 / (1 + np.exp(6.9077 - np.maximum(by_distance, by_axis)))
    at_zero = 1 / (1 + np.exp(6.9077))
    expected = np.clip((opening - at_zero) / (1 - at_zero), 0, 1)
    np.testing.assert_allclose(remembered.predict_gate(queries), expected, atol=2e-3)


def test_rows_may_come_together_or_one_by_one(model, remembered, new_rows):
    X, y = new_rows
    parts = copy.deepcopy(model)
    for part in (slice(0, 1), slice(1, 30), slice(30, None)):
        parts.partial_remember(X[part], y[part])
    queries = np.concatenate([X + 0.1, X - 6.0])
    np.testing.assert_array_equal(parts_of(parts, queries), parts_of(remembered, queries))
    assert parts.memory_ == remembered.memory_


def test_a_copy_is_cheap_and_leaves_the_model_alone(model, remembered, new_rows):
    before = parts_of(model, new_rows[0])
    copied = copy.deepcopy(model)
    assert copied.predictor_ is model.predictor_
    copied.partial_remember(new_rows[0][:3], new_rows[1][:3])
    np.testing.assert_array_equal(parts_of(model, new_rows[0]), before)
    assert len(copied.rows_.y) == 303 and len(model.rows_.y) == 300
    assert model.n_rows_ == copied.n_rows_ == copied.n_learned_ == 300


def test_saved_and_pickled_it_is_the_same(remembered, new_rows, tmp_path):
    expected = parts_of(remembered, new_rows[0])
    remembered.save(tmp_path / "model")
    loaded = LocalRegressor.load(tmp_path / "model")
    for other in (loaded, pickle.loads(pickle.dumps(remembered))):
        np.testing.assert_array_equal(parts_of(other, new_rows[0]), expected)
        assert other.memory_ == remembered.memory_
    both = [copy.deepcopy(one).partial_remember([[20.0, 0.0]], [3.0]) for one in (loaded, other)]
    assert both[0].memory_ == both[1].memory_ and len(both[0].rows_.y) == 381


def test_fifty_rows_one_by_one_compile_once(model, new_rows):
    watched: list[Any] = [remembering.judge, later_rows.predict_members_with_later]
    own = copy.deepcopy(model)
    own.partial_remember(new_rows[0][:1], new_rows[1][:1]).predict(new_rows[0][:5])
    before = [program.n_programs() for program in watched]
    for row in range(1, 50):
        own.partial_remember(new_rows[0][row : row + 1], new_rows[1][row : row + 1])
        own.predict(new_rows[0][:5])
    assert [program.n_programs() for program in watched] == before


def test_explanations_name_the_new_rows_by_numbers_that_go_on(remembered, new_rows):
    named, weights = remembered.explain_neighbors(new_rows[0][:20], k=5)
    assert np.mean(named[:, 0] == 300 + np.arange(20)) > 0.6
    assert named.max() < 380 and np.all(weights[:, 0] > 0)


def test_intervals_hold_what_they_say_where_rows_were_remembered():
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
            own = copy.deepcopy(model).partial_remember(*draw(rng, 4, n))
            dist, near = own.predict_dist(X), own.predict_gate(X) < 0.1
            bounds = dist.interval(0.9)
            inside = (bounds[:, 0] <= y) & (y <= bounds[:, 1])
            covered.append(inside[near].mean())
        errors.append(np.mean((dist.mean - y)[near] ** 2))
        stds.append(np.median(dist.std))
        changes.append(np.abs(parts_of(own, old)[:2] - elsewhere[:2]).mean())
    assert np.mean(covered[::2]) > 0.87 and np.mean(covered[1::2]) > 0.87
    assert np.mean(errors) < 0.4 * np.mean(before_errors)
    assert np.mean(stds) < 0.8 and np.mean(changes) < 0.02


def test_a_twin_says_nothing_about_widths(model, new_rows):
    """Each row twice: the errors that count are those without the twin."""
    X, y = new_rows[0][:20], new_rows[1][:20]
    once = copy.deepcopy(model).partial_remember(X, y)
    twice = copy.deepcopy(model).partial_remember(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    # The others count twice: predictions rest on them more, and are better by some per cent.
    assert twice.memory_.factor >= 0.85 * once.memory_.factor
    known = copy.deepcopy(model).partial_remember(*[part[:5] for part in new_rows])
    n_centers = np.sum(known.networks_.gate.is_used[0])
    known.partial_remember(*[part[:5] for part in new_rows])
    assert np.sum(known.networks_.gate.is_used[0]) == n_centers == 305


def test_rows_on_the_data_widen_nothing(model, rows):
    X, y = draw(np.random.default_rng(5), -1, 1)
    own = copy.deepcopy(model).partial_remember(X * 0.1, y)
    assert np.all(np.asarray(own.predictor_.predict(own._inputs(X)).foreign_share) == 0)


def test_weights_count_in_the_units_of_the_fit(model, rows, new_rows):
    X, y = new_rows[0][:10], new_rows[1][:10]
    weighted = LocalRegressor(**SMALL, random_state=0).fit(*rows, sample_weight=np.full(300, 5.0))
    expected = parts_of(copy.deepcopy(model).partial_remember(X, y), X)
    for weight in (None, np.full(10, 5.0)):
        own = copy.deepcopy(weighted).partial_remember(X, y, sample_weight=weight)
        np.testing.assert_allclose(parts_of(own, X), expected, rtol=1e-3, atol=1e-3)
    some = copy.deepcopy(model).partial_remember(X, y, sample_weight=np.arange(10) % 2)
    np.testing.assert_array_equal(some.rows_.indices[300:], 300 + np.arange(1, 10, 2))


def test_errors_are_clear_and_change_nothing(model, new_rows):
    own, (X, y) = copy.deepcopy(model), new_rows
    known = dict(vars(own))
    with pytest.raises(InvalidDataError, match=r"shape \(n,\)"):
        own.partial_remember(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="non-zero"):
        own.partial_remember(X, y, sample_weight=np.zeros(80))
    with pytest.raises(ValueError, match="inconsistent"):
        own.partial_remember(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        own.partial_remember(X, np.where(y > 0, np.nan, y))
    gap = X.copy()
    gap[3, 1] = np.nan
    with pytest.raises(InvalidDataError, match="missing in row 4"):
        own.partial_remember(gap, y)
    assert all(value is known[name] for name, value in vars(own).items())
    with pytest.raises(NotFittedError):
        LocalRegressor().partial_remember(X, y)
    for other in (GPRegressor(), MeanVarianceRegressor()):
        with pytest.raises(InvalidArgumentError, match="keeps no rows"):
            other.partial_remember(X, y)


@pytest.fixture(scope="module")
def shop():
    """Counts that jump, with a category and gaps."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"size": rng.uniform(0, 10, 400), "kind": rng.choice(["a", "b", "c"], 400)})
    X.loc[:9, "size"] = np.nan
    steps = np.array([4, 30, 12, 45, 2, 25, 50, 8, 35, 18])
    rate = steps[X["size"].fillna(0).astype(int)] + 6 * (X["kind"] == "b")
    return X, rng.poisson(rate).astype(float)


@pytest.fixture(scope="module")
def shop_model(shop):
    return LocalRegressor(**SMALL, random_state=1).fit(*shop)


def test_forests_name_the_new_rows_and_predictions_follow_them(shop_model):
    with_forests, kept = copy.deepcopy(shop_model), shop_model.rows_
    X, rng = kept.X.coordinates, np.random.default_rng(0)
    grown, _ = Forests.grow(X, kept.y, kept.weight, [np.arange(400)] * 2, 12, rng, X[:1])
    with_forests.forests_ = MemberForests(grown, 0.4, 1.0)
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"size": rng.uniform(20, 24, 60), "kind": ["a"] * 60})
    y = rng.poisson(40, 60).astype(float)
    together = copy.deepcopy(with_forests).partial_remember(X, y)
    apart = copy.deepcopy(with_forests)
    for part in (slice(0, 25), slice(25, None)):
        apart.partial_remember(X.iloc[part], y[part])
    queries = pd.DataFrame({"size": rng.uniform(20, 24, 200), "kind": ["a"] * 200})
    np.testing.assert_array_equal(parts_of(together, queries), parts_of(apart, queries))
    coordinates = np.asarray(together._inputs(queries).coordinates)
    assert np.mean(together.forests_.named(coordinates) >= 400) > 0.9
    fresh, bounds = rng.poisson(40, 200), together.predict_interval(queries, 0.9)
    assert np.mean((bounds[:, 0] <= fresh) & (fresh <= bounds[:, 1])) > 0.85
    assert np.abs(together.predict(queries) - 40).mean() < 8
    assert np.mean(bounds == np.round(bounds)) > 0.8  # all but ends beyond the observed counts
    named, _ = together.explain_neighbors(queries, k=3)
    assert np.mean(named >= 400) > 0.9


def test_rows_of_a_category_that_the_fit_does_not_know_are_kept_and_count(shop_model):
    X = pd.DataFrame({"size": [3.0] * 30 + [np.nan], "kind": ["new"] * 31})
    own = copy.deepcopy(shop_model).partial_remember(X, np.full(31, 50.0))
    other = pd.DataFrame({"size": [3.0], "kind": ["other"]})
    assert len(own.rows_.y) == 431
    before, after = (model.predict(other)[0] for model in (shop_model, own))
    assert before < after < 50


def test_new_targets_are_values_at_which_intervals_may_end(shop_model, shop):
    X, _ = shop
    assert shop_model.units_.repeated[0].is_rounded
    assert 3.25 not in shop_model.units_.repeated[0].values
    own = copy.deepcopy(shop_model).partial_remember(X[:2], [3.25, 4.0])
    assert 3.25 in own.units_.repeated[0].values


def test_trees_with_rows_added_send_every_row_to_itself():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(120, 3)).astype(np.float32)
    X[110] = X[3]
    rows, weight = [np.arange(60), np.arange(60)], np.ones(120)
    old, _ = Forests.grow(X[:60], X[:60, :1], weight[:60], rows, 5, rng, X[:1])
    together = old.with_rows(X, weight, 60)
    apart = old.with_rows(X[:90], weight[:90], 60).with_rows(X, weight, 90, n_before=30)
    for name, part in together.state().items():
        np.testing.assert_array_equal(part, apart.state()[name])
    named = together.rows_at(X)
    own = np.arange(120)
    single = ~np.isin(own, [3, 110])
    assert np.all(named[..., single] == own[single])
    assert set(named[..., 110].ravel()) <= {3, 110} and np.all(old.rows_at(X) < 60)
    Forests.from_state(together.state(), 2, 120, 3)  # refuses what is not sound


def test_where_the_nearest_rows_are_searched_new_rows_are_summed_over(
    model, remembered, new_rows, monkeypatch
):
    pytest.importorskip("faiss")
    monkeypatch.setattr("sigmax.estimators.local_predictor.LARGEST_EXHAUSTIVE", 100)
    searched = copy.deepcopy(model)
    searched._set_rows(model.rows_)
    assert searched.predictor_.nearest is not None
    searched.partial_remember(*new_rows)
    assert searched.predictor_.nearest is not None
    queries = np.concatenate([new_rows[0] + 0.1, new_rows[0] - 6.0])
    expected = parts_of(remembered, queries)
    np.testing.assert_allclose(parts_of(searched, queries), expected, atol=0.1)
