"""Rows as they come in use: missing cells, unseen categories, later dates."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV

from sigmax import LocalRegressor

N_ROWS = 500


def rmse(predicted, y):
    return np.sqrt(np.mean((predicted - y) ** 2))


def covered(model, X, y):
    lower, upper = model.predict_interval(X, 0.9).T
    return np.mean((lower <= y) & (y <= upper))


def draw(rng, n):
    """Eight columns: the first two correlated, three that matter, four that do not."""
    X = rng.normal(size=(n, 8))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    return X, X[:, 0] + np.sin(2 * X[:, 2]) + 0.5 * X[:, 3] + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    model = LocalRegressor(preset="fast", random_state=0).fit(*draw(rng, N_ROWS))
    return model, *draw(rng, 400)


@pytest.mark.parametrize("column", [4, 7])
def test_a_missing_cell_of_a_column_that_does_not_matter_costs_nothing(numbers, column):
    model, X, y = numbers
    blanked = X.copy()
    blanked[:, column] = np.nan
    assert rmse(model.predict(blanked), y) < 1.05 * rmse(model.predict(X), y)
    assert np.mean(model.predict_gate(blanked) > 0.5) < 0.05
    assert covered(model, blanked, y) > 0.85


@pytest.mark.parametrize("column", [0, 2, 3])
def test_a_missing_cell_costs_what_its_column_is_worth(numbers, column):
    model, X, y = numbers
    blanked = X.copy()
    blanked[:, column] = np.nan
    noise = rmse(model.predict(X), y)
    # What the column explains, of which the correlated one still tells 64 %.
    lost = {0: 0.36, 2: 0.5, 3: 0.25}[column]
    assert rmse(model.predict(blanked), y) < 1.15 * np.sqrt(noise**2 + lost)
    assert covered(model, blanked, y) > 0.82
    total, before = (model.predict_uncertainty(rows)["total"] for rows in (blanked, X))
    assert np.mean(total) > 1.3 * np.mean(before)
    # Row by row it is the same, alone or among others.
    np.testing.assert_allclose(model.predict(blanked[:3]), model.predict(blanked)[:3], rtol=1e-4)


def test_rows_without_any_cell_are_the_marginal(numbers):
    model, _, y = numbers
    dist = model.predict_dist(np.full((3, 8), np.nan))
    assert np.all(np.abs(dist.mean - y.mean()) < 0.5)
    assert np.all((dist.std > 0.6 * y.std()) & (dist.std < 1.4 * y.std()))


def test_conformal_intervals_know_missing_cells(numbers):
    model, X, _ = numbers
    blanked = X.copy()
    blanked[:, 2] = np.nan
    widths = [
        np.diff(model.predict_interval(rows, 0.9, method="conformal")) for rows in (X, blanked)
    ]
    assert widths[1].mean() > 1.3 * widths[0].mean()


def test_saved_models_fill_in_the_same_cells(numbers, tmp_path):
    model, X, _ = numbers
    blanked = X[:20].copy()
    blanked[:10, 0] = blanked[5:15, 3] = np.nan
    model.save(tmp_path / "model")
    loaded = LocalRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(blanked), model.predict(blanked))
    np.testing.assert_array_equal(loaded.predict_gate(blanked), model.predict_gate(blanked))


def test_a_column_that_does_not_matter_does_not_open_the_gate(numbers):
    model, X, y = numbers
    far = X.copy()
    far[:, 6] = 6.0
    assert np.mean(model.predict_gate(far) > 0.5) < 0.1
    assert rmse(model.predict(far), y) < 1.3 * rmse(model.predict(X), y)
    far[:, 0] = 9.0
    assert np.mean(model.predict_gate(far) > 0.5) > 0.9


def test_new_groups_are_predicted_from_the_other_columns():
    """The name of the group is a column, and the rows to predict belong to other groups."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), 15)
    level = rng.normal(size=40)[group]
    X = pd.DataFrame({"group": [f"g{g}" for g in group], "level": level, "x": rng.normal(size=600)})
    y = 10 * level + 3 * np.asarray(X["x"]) + rng.normal(size=600)
    is_train = group < 30
    model: Any = LocalRegressor(preset="fast", random_state=0).fit(X[is_train], y[is_train])
    test, y_test = X[~is_train], y[~is_train]
    columns = ["level", "x"]
    ridge = RidgeCV().fit(X.loc[is_train, columns], y[is_train]).predict(test[columns])
    spread = np.std(y_test)
    assert rmse(model.predict(test), y_test) < rmse(ridge, y_test) + 0.3 * spread
    assert np.mean(model.predict_gate(test) > 0.5) < 0.2
    assert covered(model, test, y_test) > 0.8


def test_a_rare_category_does_not_discard_what_the_other_columns_say():
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 40, 400)
    kind = rng.choice(["a", "b", "c"], 400).astype(object)
    kind[:2] = "rare"
    y = x + rng.normal(size=400)
    X = pd.DataFrame({"x": x, "kind": kind, "z": rng.normal(size=400)})
    model = LocalRegressor(preset="fast", random_state=0).fit(X, y)
    new = pd.DataFrame({"x": [31.0, 5.0], "kind": ["rare"] * 2, "z": [0.0, 0.0]})
    assert np.all(np.abs(model.predict(new) - [31, 5]) < 5)


@pytest.fixture(scope="module")
def dated():
    rng = np.random.default_rng(0)
    years = np.sort(rng.uniform(0, 5, 900))
    X = pd.DataFrame(
        {
            "date": pd.Timestamp("2020-01-01")
            + pd.to_timedelta((365.25 * years).round(), unit="D"),
            "x": rng.normal(size=900),
        }
    )
    y = 10 + 2 * years + np.sin(2 * np.pi * years) + X["x"].to_numpy() + 0.3 * rng.normal(size=900)
    is_train = years < 3
    model: Any = LocalRegressor(preset="fast", random_state=0).fit(X[is_train], y[is_train])
    return model, X, y, years


@pytest.mark.parametrize("first", [3, 4])
def test_later_dates_go_on_with_trend_season_and_the_other_columns(dated, first):
    model, X, y, years = dated
    rows = (years >= first) & (years < first + 1)
    later, actual = X[rows], y[rows]
    assert np.mean(model.predict_gate(later) > 0.5) < 0.05
    assert rmse(model.predict(later), actual) < 0.9
    assert covered(model, later, actual) > 0.75
    assert np.corrcoef(model.predict(later), actual)[0, 1] > 0.9


def test_the_uncertainty_grows_with_the_time_since_the_last_row(dated):
    model, X, _, _ = dated
    rows = X.iloc[[0] * 4].assign(
        x=0.0, date=pd.to_datetime(["2022-12-31", "2023-12-31", "2024-12-31", "2025-12-31"])
    )
    assert np.all(np.diff(model.predict_uncertainty(rows)["total"]) > 0)


def test_a_trend_in_a_number_goes_on_beyond_its_range():
    rng = np.random.default_rng(3)
    t = rng.uniform(0, 1.2, 500)
    X, y = np.column_stack([t, rng.normal(size=500)]), 6 * t + 0.3 * rng.normal(size=500)
    is_train = t < 1
    model: Any = LocalRegressor(preset="fast", random_state=0).fit(X[is_train], y[is_train])
    assert covered(model, X[~is_train], y[~is_train]) > 0.85
    assert rmse(model.predict(X[~is_train]), y[~is_train]) < 0.6
