"""Permutation importance and dependence, against plain loops over a known model."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_cases import make_rows

from sigmax.distributions import Normal, Predictive
from sigmax.report import importance
from sigmax.report.importance import (
    DEPENDENCE_ROWS,
    MOST_VALUES,
    choose_values,
    find_dependence,
    permutation_importance,
)
from sigmax.tables import Kind, infer_schema


def test_importance_agrees_with_a_loop():
    X, y, model = make_rows(150)
    found = permutation_importance(model, X, y, seed=3)
    assert found.n_rows == 150 and found.n_permutations == 2
    rng = np.random.default_rng(3)
    orders = [rng.permutation(150) for _ in range(2)]
    mean, std = model.moments(X)
    for i, column in enumerate(X.columns):
        means, stds = [], []
        for order in orders:
            changed = X.copy()
            changed[column] = [X[column].iloc[j] for j in order]
            one, other = model.moments(changed)
            means.append(one)
            stds.append(other)
        shift = np.sqrt(np.mean((np.array(means) - mean[None]) ** 2))
        rise = np.sqrt(np.mean((np.array(means) - y[None]) ** 2)) - np.sqrt(
            np.mean((mean - y) ** 2)
        )
        change = np.mean(np.abs(np.log(np.array(stds)) - np.log(std)[None]))
        assert found.mean_shift[i] == pytest.approx(shift, rel=1e-9, abs=1e-9)
        assert found.error_rise[i] == pytest.approx(rise, rel=1e-6, abs=1e-9)
        assert found.spread_change[i] == pytest.approx(change, rel=1e-9, abs=1e-9)


def test_columns_are_important_for_what_they_drive():
    X, y, model = make_rows(300)
    found = permutation_importance(model, X, y)
    by_name = {name: i for i, name in enumerate(found.columns)}
    assert found.columns[found.order()[0]] == "size"
    assert found.mean_shift[by_name["day"]] == 0 < found.spread_change[by_name["day"]]
    assert found.spread_change[by_name["size"]] == 0
    assert found.mean_shift[by_name["noise"]] == found.spread_change[by_name["noise"]] == 0


def test_the_cost_is_bounded_for_many_columns(monkeypatch):
    X, y, model = make_rows(300)
    wide = pd.concat([X, *(X[["noise"]].add_suffix(str(i)) for i in range(100))], axis=1)
    monkeypatch.setattr(importance, "MOST_PREDICTIONS", 6000)
    found = permutation_importance(model, wide, y)
    assert found.n_rows == 57 and found.n_permutations == 1


def test_dependence_is_the_average_over_rows_with_one_cell_replaced():
    X, _, model = make_rows(500)
    schema = infer_schema(X)
    found = {one.column: one for one in find_dependence(model, X, schema, list(X.columns))}
    rows = X.iloc[:DEPENDENCE_ROWS]
    for name, one in found.items():
        for i, text in enumerate(one.names):
            cell = text if name in ("kind", "day") else one.values[i]
            dist = model.predict_dist(rows.assign(**{name: cell}))
            assert one.averages[0][i] == pytest.approx(dist.mean.mean()), (name, text)
            assert one.averages[1][i] == pytest.approx(dist.interval(0.9)[:, 0].mean())
            assert one.averages[2][i] == pytest.approx(dist.interval(0.9)[:, 1].mean())
    assert found["kind"].kind is Kind.CATEGORY and found["kind"].names == ("b", "a")
    assert found["day"].kind is Kind.TIME and np.all(np.diff(found["day"].values) > 0)
    assert found["size"].counts.sum() == X["size"].notna().sum()
    assert found["kind"].counts.tolist() == [(X["kind"] == level).sum() for level in ("b", "a")]


def test_missing_values_of_a_category_are_a_value_of_their_own():
    X, _, model = make_rows(60)
    X.loc[:9, "kind"] = None
    (found,) = find_dependence(model, X, infer_schema(X), ["kind"])
    assert "(missing)" in found.names and found.counts[found.names.index("(missing)")] == 10


def test_chosen_numbers_are_quantiles_that_occur_in_the_column():
    values = np.random.default_rng(0).normal(size=1000)
    cells = choose_values(values, Kind.NUMBER)
    assert len(cells) == MOST_VALUES
    expected = np.quantile(values, np.linspace(0.01, 0.99, MOST_VALUES), method="nearest")
    np.testing.assert_array_equal(values[cells], expected)


class Rides:
    """Minutes between two times, and the day of the first, make the mean."""

    def predict_dist(self, X: pd.DataFrame) -> Predictive:
        start, end = (pd.to_datetime(X[name], format="mixed") for name in ("start", "end"))
        minutes = (end - start).dt.total_seconds().to_numpy() / 60
        return Predictive(Normal(minutes + 100 * start.dt.day.to_numpy(float), np.ones(len(X))))


def make_rides(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    first = pd.Timestamp("2024-03-01")
    start: Any = first + pd.to_timedelta(rng.integers(0, 20, n), unit="D")
    end = start + pd.to_timedelta(rng.integers(1, 60, n), unit="min")
    return pd.DataFrame(
        {"end": end.strftime("%Y-%m-%d %H:%M"), "start": start.strftime("%Y-%m-%d")}
    )


def test_times_move_together_and_the_time_between_them_has_its_own_dependence():
    X = make_rides(200)
    length, start, end = find_dependence(Rides(), X, infer_schema(X), ["start", "end"])
    assert length.column == "minutes from start to end"
    np.testing.assert_allclose(np.diff(length.averages[0]), np.diff(length.values))
    times: Any = pd.to_datetime(start.values, unit="s")
    np.testing.assert_allclose(np.diff(start.averages[0]), 100 * np.diff(times.day))  # lengths stay
    assert end.kind is Kind.TIME and len(end.values) == MOST_VALUES


def test_columns_that_are_permuted_together_keep_what_is_between_them():
    X = make_rides(200)
    y = Rides().predict_dist(X).mean
    found = permutation_importance(Rides(), X, y, together=("start", "end"))
    assert found.columns == ("start and end",)
    order = np.random.default_rng(0).permutation(200)
    shift = np.sqrt(np.mean((y[order] - y) ** 2))
    assert found.mean_shift[0] == pytest.approx(shift, rel=0.1)  # other permutations as well
