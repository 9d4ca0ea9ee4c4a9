"""Held-out rows: copies together, the last by time, whole groups, and folds."""

import numpy as np
import pandas as pd
import pytest

from sigmax.cli.rows import ColumnOptions, cross_validation, hold_out_rows
from sigmax.cli.scores import standard_error
from sigmax.errors import InvalidDataError

BY_DAY = ColumnOptions(target="x", time_column="day")
BY_SITE = ColumnOptions(target="x", group_column="site")


def frame(n=100):
    days = pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d")
    return pd.DataFrame({"day": days, "site": np.arange(n) % 7, "x": np.arange(n) % 30})


def test_duplicates_are_on_one_side_of_a_random_split():
    labels = frame()["x"].to_numpy()
    for seed in range(20):
        split = hold_out_rows(frame(), labels, 0.2, ColumnOptions(target="x"), seed)
        assert not set(labels[split.train]) & set(labels[split.test])
        assert sorted([*split.train, *split.test]) == list(range(100))
        assert 16 <= len(split.test) <= 24


def test_the_last_rows_by_time_are_held_out_and_equal_times_are_not_divided():
    table = frame()
    split = hold_out_rows(table, np.arange(100), 0.2, BY_DAY)
    assert split.test.tolist() == list(range(80, 100))
    table["day"] = np.arange(100) // 15  # the last part begins within a time
    split = hold_out_rows(table, np.arange(100), 0.2, BY_DAY)
    assert not set(table["day"][split.train]) & set(table["day"][split.test])
    table.loc[:2, "day"] = np.nan
    split = hold_out_rows(table, np.arange(100), 0.2, BY_DAY)
    assert {0, 1, 2} <= set(split.train) and "3 rows without a time" in split.how


def test_whole_groups_are_held_out():
    split = hold_out_rows(frame(), np.arange(100), 0.3, BY_SITE)
    sites = frame()["site"]
    assert not set(sites[split.train]) & set(sites[split.test])
    assert len(np.unique(split.clusters)) == len(set(sites[split.test]))


@pytest.mark.parametrize(
    ("values", "words"),
    [("text", "must contain numbers or dates"), ("2024-01-01", "too few different times")],
)
def test_a_column_that_gives_no_order_raises_an_error(values, words):
    with pytest.raises(InvalidDataError, match=words):
        hold_out_rows(frame().assign(day=values), np.arange(100), 0.2, BY_DAY)


def test_one_group_raises_an_error():
    with pytest.raises(InvalidDataError, match="1 groups"):
        hold_out_rows(frame().assign(site=1), np.arange(100), 0.2, BY_SITE)


@pytest.mark.parametrize("n_labels", [3, 5, 40, 100])
def test_every_row_is_tested_in_one_fold_and_none_is_empty(n_labels):
    labels = np.arange(100) % n_labels
    folds = cross_validation(labels, 5, seed=1)
    tested = np.concatenate([test for _, test in folds])
    assert sorted(tested) == list(range(100)) and all(len(test) for _, test in folds)
    for train, test in folds:
        assert not set(train) & set(test)
        if n_labels > 5:
            assert not set(labels[train]) & set(labels[test])


def test_the_error_of_clusters_is_that_of_their_means():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(50), 10)
    values = rng.normal(size=50)[groups] + 0.1 * rng.normal(size=500)
    means = values.reshape(50, 10).mean(axis=1)
    expected = means.std(ddof=1) / np.sqrt(50)
    assert standard_error(values, groups) == pytest.approx(expected)
    assert np.isnan(standard_error(values, np.zeros(500, dtype=int)))
