"""The seam between tables and arrays: what networks see, what distances see, what is kept."""

import numpy as np
import pandas as pd
import pytest
from table_cases import table_of

from sigmax.documents import decode, encode
from sigmax.features import Features, categories
from sigmax.features.categories import (
    MISMATCH,
    NEW,
    TextMap,
    category_statistics,
    cross_fitted_statistics,
)
from sigmax.features.features import MISSING_STEP
from sigmax.tables import Kind, Table, infer_schema
from sigmax.tables.table import as_frame, columns_of_frame


def as_table(frame: pd.DataFrame, schema=None) -> Table:
    columns = columns_of_frame(as_frame(frame))
    return Table.from_columns(columns, schema or infer_schema(frame))


def fit(frame: pd.DataFrame, y=None):
    table = as_table(frame)
    y = np.random.default_rng(1).normal(size=(len(table), 1)) if y is None else y
    return Features.fit(table, y, np.ones(len(table)), np.arange(len(table)))


def distances(features: Features, frame: pd.DataFrame) -> np.ndarray:
    position = np.asarray(features(as_table(frame, features.schema)).coordinates, dtype=float)
    return np.linalg.norm(position[:, None] - position[None], axis=2)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 5.0, 100.0] + 7.0


def fit_numbers(X, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    return Features.fit(table_of(X), np.zeros((len(X), 1)), weight, np.arange(len(X)))


def test_numbers_are_standardised_by_the_training_rows(X):
    weight = np.random.default_rng(1).uniform(1, 2, 30)
    _, rows = fit_numbers(X, weight)
    np.testing.assert_allclose(weight @ np.asarray(rows.numbers) / weight.sum(), 0, atol=1e-5)
    std = np.sqrt(weight @ np.asarray(rows.numbers) ** 2 / weight.sum())
    np.testing.assert_allclose(std, 1, rtol=1e-5)
    assert rows.numbers.dtype == np.float32


def test_numbers_alone_are_all_that_there_is(X):
    _, rows = fit_numbers(X)
    assert rows.numbers.shape[1] == 3 and rows.coordinates is rows.numbers
    assert rows.extras is None and rows.codes is None and rows.position is None


def test_distances_see_numbers_in_standard_deviations(X):
    features, _ = fit_numbers(X)
    moved = X.copy()
    moved[:, 1] += 2 * X[:, 1].std()
    here, there = (np.asarray(features(table_of(rows)).coordinates) for rows in (X, moved))
    np.testing.assert_allclose(np.linalg.norm(here - there, axis=1), 2, rtol=1e-4)


def test_a_missing_number_is_filled_in_by_rows_that_are_alike_in_what_it_depends_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    X[:, 1] = X[:, 0] + 0.1 * rng.normal(size=2000)
    features, _ = fit_numbers(X)
    gappy = X[:50].copy()
    gappy[:40, 1] = np.nan
    found = features.complete(table_of(gappy))
    assert found.choices is not None and found.n_rows == 50
    filled = found.table.numbers[found.choices, 1]  # (completions, rows)
    np.testing.assert_allclose(filled.mean(axis=0)[:40], X[:40, 0], atol=0.5)
    assert np.sqrt(np.mean((filled.mean(axis=0)[:40] - X[:40, 0]) ** 2)) < 0.15
    assert np.array_equal(found.table.numbers[:40, [0, 2, 3]], X[:40, [0, 2, 3]])
    np.testing.assert_array_equal(
        found.average(np.arange(len(found.table)))[40:], np.arange(40, 50)
    )
    independent = X[:40].copy()
    independent[:, 3] = np.nan
    found = features.complete(table_of(independent))
    spread = found.table.numbers[found.choices, 3].std(axis=0)
    assert 0.8 < spread.mean() < 1.1  # nothing is known about it


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "size": rng.normal(50, 10, n),
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(30, 5, n)),
            "cut": rng.choice(["good", "bad", "rare"], n, p=[0.6, 0.38, 0.02]),
            "zone": rng.choice([f"zone number {i}" for i in range(60)], n),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "paid": pd.Timestamp("2020-01-05") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    frame.loc[3, "cut"] = None
    return frame


@pytest.fixture(autouse=True)
def few_categories_are_fewer(monkeypatch):
    """Lower the limit, so that a column of sixty categories has many."""
    monkeypatch.setattr(categories, "MOST_ONE_HOT", 40)


def test_shapes_of_all_kinds_together(frame):
    features, rows = fit(frame)
    # Size, age, two times, the time between them, and two statistics of zones.
    assert rows.numbers.shape[1] == 7
    n_codes = dict(zip(["cut", "zone"], rows.n_codes, strict=True))
    assert n_codes["cut"] == 4 and 50 < n_codes["zone"] <= 61  # code 0 is new or rare
    for n_rows in (2, 7):
        blank = features.blank(n_rows)
        assert blank.n_codes == rows.n_codes and blank.numbers.shape[1] == rows.numbers.shape[1]
        for name in ("numbers", "extras", "codes", "position"):
            real, empty = getattr(rows, name), getattr(blank, name)
            assert empty.shape == (n_rows, *real.shape[1:]) and empty.dtype == real.dtype


def test_two_levels_are_one_step_apart_however_rare(frame):
    features, _ = fit(frame)
    row = frame.iloc[[0, 0, 0, 0]].assign(cut=["good", "bad", "rare", None])
    found = distances(features, row)
    np.testing.assert_allclose(found[~np.eye(4, dtype=bool)], MISMATCH, rtol=1e-5)


def test_a_gap_among_numbers_is_at_the_mean_and_a_step_away(frame):
    features, rows = fit(frame)
    mean = frame["age"].mean()
    row = frame.iloc[[0, 0]].assign(age=[np.nan, mean])
    np.testing.assert_allclose(distances(features, row)[0, 1], MISSING_STEP, rtol=1e-4)
    is_empty = frame["age"].isna().to_numpy()
    assert set(np.asarray(rows.extras)[is_empty, 0]) == {1.0}
    assert set(np.asarray(rows.extras)[~is_empty, 0]) == {0.0}


@pytest.mark.parametrize(
    "change", [{"cut": "unheard of"}, {"size": np.nan}, {"sold": pd.NaT}, {"zone": None}]
)
def test_unknown_cells_are_filled_in_and_all_others_stay(frame, change):
    features, _ = fit(frame)
    rows = as_table(frame.iloc[:20].assign(**change), features.schema)
    is_unknown = features.unknown(rows)
    assert is_unknown.sum(axis=0).tolist().count(20) == 1 and is_unknown.sum() == 20
    found = features.complete(rows)
    assert found.choices is not None and found.choices.shape == (16, 20)
    assert not features.unknown(found.table).any()
    original, one = as_table(frame.iloc[:20], features.schema), found.table[:20]
    column = int(np.flatnonzero(is_unknown[0])[0])
    before, after = (np.delete(table.values, column, axis=1) for table in (rows, one))
    assert np.array_equal(before[:, :4], after[:, :4]) or column < 4
    assert not features.unknown(original).any()


def test_a_missing_time_keeps_the_time_to_the_other_that_its_donor_has(frame):
    paid = frame["sold"] + pd.Timedelta(days=7)
    features, _ = fit(frame.assign(paid=paid))
    rows = as_table(frame.iloc[:5].assign(paid=pd.NaT), features.schema)
    found = features.complete(rows).table
    names = [column.name for column in features.schema.of_kind(Kind.TIME)]
    apart = found.times[:, names.index("paid")] - found.times[:, names.index("sold")]
    np.testing.assert_allclose(apart, 7 * 86400)


def test_unseen_categories_are_known_where_most_are_new(frame):
    """Each of 400 names stands once: one more is no surprise."""
    rng = np.random.default_rng(0)
    names = frame.assign(name=[f"{i} {rng.integers(1_000_000)}" for i in range(len(frame))])
    features, _ = fit(names)
    new = names.iloc[[0]].assign(name="someone else")
    assert not features.unknown(as_table(new, features.schema)).any()


def test_every_coordinate_belongs_to_a_column(frame):
    features, rows = fit(frame)
    found = features.column_of()
    assert found.shape == rows.coordinates.shape[1:] and set(found) == set(range(6))
    statistics = np.asarray(rows.coordinates)[:, features.statistics()]
    assert set(found[features.statistics()]) == {5} and statistics.shape == (400, 2)


def test_new_and_rare_levels_share_a_code(frame):
    features, _ = fit(frame.assign(cut=["once"] + ["often"] * (len(frame) - 1)))
    rows = frame.iloc[[0, 0, 0]].assign(cut=["once", "new", "often"])
    codes = np.asarray(features(as_table(rows, features.schema)).codes)
    assert codes[0, 0] == codes[1, 0] == NEW != codes[2, 0]


def test_the_same_row_gives_the_same_inputs_in_any_batch(frame):
    features, _ = fit(frame)
    table = as_table(
        frame.assign(zone=[f"zone {i % 90}" for i in range(len(frame))]), features.schema
    )
    together, alone = features(table), features(table[np.array([17])])
    for name in ("numbers", "extras", "codes", "position"):
        np.testing.assert_array_equal(getattr(together, name)[17:18], getattr(alone, name))


def test_times_are_a_trend_cycles_and_the_time_between(frame):
    features, rows = fit(frame)
    between = (frame["paid"] - frame["sold"]).dt.total_seconds().to_numpy()
    standard = (between - between.mean()) / between.std()
    found = np.asarray(rows.numbers)
    assert np.min([np.abs(np.abs(column) - np.abs(standard)).max() for column in found.T]) < 1e-3
    assert features.cycles == (("week", "year"), ("week", "year"))  # all at midnight
    first = frame.iloc[[0, 0, 0]].assign(
        sold=pd.to_datetime(["2021-01-04", "2021-01-11", "2021-01-08"])
    )
    week = np.asarray(features(as_table(first, features.schema)).extras)
    cyclic = [j for j in range(week.shape[1]) if abs(week[0, j] - week[2, j]) > 0.5]
    assert cyclic and np.allclose(week[0, cyclic], week[1, cyclic], atol=1e-4)


def test_what_is_saved_gives_the_same_inputs_and_other_shapes_are_refused(frame):
    features, _ = fit(frame)
    document, arrays = encode(features)
    again = decode(Features, document, arrays)
    new = as_table(frame.assign(zone="zone 12", cut="unheard of"), features.schema)
    for name in ("numbers", "extras", "codes", "position"):
        np.testing.assert_array_equal(getattr(again(new), name), getattr(features(new), name))
    schema = document["schema"] | {"columns": document["schema"]["columns"][1:]}
    with pytest.raises(ValueError, match="do not fit the schema"):
        decode(Features, document | {"schema": schema}, arrays)
    wrong = arrays | {"categories.0.codes": arrays["categories.0.codes"][1:]}
    with pytest.raises(ValueError, match=r"'categories\.0\.codes' has the shape"):
        decode(Features, document, wrong)


def test_statistics_of_levels_are_shrunk_where_rows_are_few():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [500, 500, 2]).astype(np.int32)
    y = (np.array([-1.0, 1.0, 1.0])[codes] + 0.5 * rng.normal(size=len(codes)))[:, None]
    found = category_statistics(codes, 3, y, np.ones(len(codes)))
    np.testing.assert_allclose(found[:2, 0], [-1, 1], atol=0.1)
    np.testing.assert_allclose(np.exp(found[:2, 1]), 0.5, atol=0.05)
    assert 0 < found[2, 0] < y[codes == 2].mean()
    np.testing.assert_allclose(found[3, 0], y.mean(), atol=1e-6)  # a level without rows
    np.testing.assert_allclose(np.exp(found[3, 1]), y.std(), rtol=0.15)


def test_no_row_sees_its_own_target_or_that_of_a_copy():
    rng = np.random.default_rng(0)
    codes, groups = rng.integers(0, 30, 200).astype(np.int32), np.arange(200) // 2
    y, changed = rng.normal(size=(200, 1)), np.zeros(200, dtype=bool)
    changed[:2] = True
    other = np.where(changed[:, None], 100.0, y)
    before, after = (
        cross_fitted_statistics(codes, 30, target, np.ones(200), groups) for target in (y, other)
    )
    np.testing.assert_array_equal(before[changed], after[changed])
    assert np.any(before != after)


def test_statistics_say_nothing_about_noise():
    """With a level for every second row, what rows see of the target must not predict it."""
    rng = np.random.default_rng(0)
    codes, y = rng.integers(0, 1000, 2000).astype(np.int32), rng.normal(size=(2000, 1))
    found = cross_fitted_statistics(codes, 1000, y, np.ones(2000), np.arange(2000))
    assert abs(np.corrcoef(found[:, 0], y[:, 0])[0, 1]) < 0.08


def test_names_that_share_letters_are_near():
    names = [f"{rank} officer {i}" for rank in ("police", "fire") for i in range(30)]
    text = TextMap.fit(names, np.ones(len(names)))
    points = text(["police officer 7", "police officer 99", "fire officer 7"])
    near, far = np.linalg.norm(points[0] - points[1]), np.linalg.norm(points[0] - points[2])
    assert near < far
