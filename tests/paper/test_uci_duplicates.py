"""New rows and duplicates: detection, scores in records, and tables."""

import numpy as np
import pytest
from paper_cases import make_record
from scipy import stats

from sigmax.data import UCI_SETS, RegressionData
from sigmax.data.uci import Split
from sigmax.distributions import Normal, Predictive
from sigmax.paper import uci
from sigmax.paper.benchmark import uci_tables
from sigmax.paper.uci import UCI, describe_split, is_duplicate, run_splits
from sigmax.runs.experiments import Choice
from sigmax.runs.methods import create_model, score_parts, score_prediction
from sigmax.runs.records import Record, Task


@pytest.fixture
def data(monkeypatch) -> RegressionData:
    """A set of 60 rows: ten of the test rows have a training X, four of them with another y."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    X[50:60], y[50:60] = X[:10], y[:10]
    y[50:54] += 1.0
    splits: list[Split] = [(np.arange(40), np.arange(40, 60)), (np.arange(10, 50), np.arange(10))]
    found = RegressionData("wine_red", X, y, splits, UCI_SETS["wine_red"])
    monkeypatch.setattr(uci, "load_uci", lambda name: found)
    return found


def test_a_duplicate_equals_a_training_row():
    rng = np.random.default_rng(0)
    rows = rng.choice([-0.0, 0.0, 1.0, 2.0], size=(60, 3))
    train, test = np.arange(30), np.arange(30, 60)
    expected = [any((rows[i] == rows[j]).all() for j in train) for i in test]
    assert 0 < sum(expected) < 30
    assert is_duplicate(rows, train, test).tolist() == expected


def test_the_share_of_duplicates_is_in_the_metadata(data):
    assert describe_split(data, 0)["copies_of_X"] == 0.5


def test_parts_have_the_scores_of_their_rows():
    rng = np.random.default_rng(1)
    mean, y, known = rng.normal(size=30), rng.normal(size=30), rng.random(30) < 0.4
    scores = score_parts(y, Predictive(Normal(mean, np.full(30, 0.7))), known)
    for part, rows in (("copies", known), ("new", ~known)):
        expected = stats.norm.logpdf(y[rows], mean[rows], 0.7).mean()
        assert scores[f"{part}_log_likelihood"] == pytest.approx(expected)
        assert scores[f"{part}_rmse"] == pytest.approx(np.sqrt(np.mean((y - mean)[rows] ** 2)))
        for level, name in ((0.5, "coverage_50"), (0.8, "coverage_80"), (0.9, "coverage")):
            reach = 0.7 * stats.norm.ppf(0.5 + level / 2)
            held = np.mean(np.abs(y - mean)[rows] <= reach)
            assert scores[f"{part}_{name}"] == pytest.approx(held)


def test_without_duplicates_or_without_new_rows_there_are_no_separate_scores():
    dist, y = Predictive(Normal(np.zeros(3), np.ones(3))), np.zeros(3)
    assert score_parts(y, dist, np.zeros(3, bool)) == {}
    only = score_parts(y, dist, np.ones(3, bool))
    assert only and all(name.startswith("copies_") for name in only)
    assert only["copies_crps"] == score_prediction(y, dist)["crps"]


def test_records_hold_the_scores_of_both_parts(data):
    settings = {"max_iter": 5, "n_restarts": 1}
    chosen = Choice(datasets=["wine_red"], methods=["gp"], n_splits=2, settings=settings)
    tasks = UCI.choose(chosen)
    apart, whole = (Record.from_line(r.to_line()) for r in run_splits(tasks))
    halves = [apart.scores[f"{part}_log_likelihood"] for part in ("copies", "new")]
    assert np.mean(halves) == pytest.approx(apart.scores["log_likelihood"])
    assert apart.scores["coverage_50"] <= apart.scores["coverage_80"] <= apart.scores["coverage"]
    assert not any(name.startswith(("copies_", "new_")) for name in whole.scores)
    assert whole.data["copies_of_X"] == 0


def make(method, split, *, data, **scores) -> Record:
    usual = {"log_likelihood": 0.5, "rmse": 0.6, "crps": 0.3, "coverage": 0.9}
    return make_record("wine_red", method, split, usual | scores, data=data)


def test_tables_show_new_rows_and_duplicates_if_records_have_both():
    facts = {"copies_of_X": 0.25}
    records = []
    for split, luck in enumerate((-0.1, 0.1)):
        parts = {"new_log_likelihood": -1.0 + luck, "copies_log_likelihood": 2.0 + luck}
        records.append(make("local", split, data=facts, **parts))
        parts = {"new_log_likelihood": -0.5 + luck, "copies_log_likelihood": 0.0 + luck}
        records.append(make("nn", split, data=facts, **parts))
        records.append(make("gp", split, data=facts))
    tables = {table.title: table for table in uci_tables(records)}
    table = tables["uci: test log-likelihood, new rows and duplicates"]
    assert table.header == ["data set", "GP", "NN", "Local"]
    assert table.rows == [
        ["wine_red, new rows", "", "**-0.50 ± 0.10**", "-1.00 ± 0.10"],
        ["wine_red, duplicates", "", "0.00 ± 0.10", "**2.00 ± 0.10**"],
    ]
    assert "An empty cell has no record with separate scores." in table.notes
    notes = " ".join(tables["uci: test log-likelihood"].notes)
    assert "training row: wine_red 25.0 %." in notes


def test_sets_without_duplicates_have_no_such_tables():
    none = uci_tables([make("nn", 0, data={"copies_of_X": 0.0})])
    assert not any("duplicates" in table.title for table in none)


@pytest.mark.parametrize("method", ["nn-paper", "combined-paper"])
def test_the_papers_recipe_has_a_hundred_units_on_protein_and_year(method):
    def units(dataset, **settings):
        task = Task(experiment="uci", dataset=dataset, method=method, settings=settings)
        return create_model(task).settings()["hidden_sizes"]

    assert units("protein") == units("year") == (100,)
    assert units("boston") == (50,)
    assert units("protein", hidden_sizes=[8]) == (8,)
