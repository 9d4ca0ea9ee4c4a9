"""`sigmax evaluate`: scores of labelled rows, all together and by parts."""

import json

import numpy as np
import pandas as pd
import pytest
from command_cases import fails_with, run

from sigmax.cli.evaluate import (
    EvaluateOptions,
    evaluate_chunks,
    evaluation_report,
    find_parts,
    new_content,
)
from sigmax.cli.rows import fingerprint, hash_rows, training_row_caution
from sigmax.estimators import load_estimator
from sigmax.metrics import crps, interval_width, log_likelihood, rmse
from sigmax.table_model import load_folder
from sigmax.tables import infer_schema


@pytest.fixture(scope="module")
def scores(model, table, tmp_path_factory):
    out = tmp_path_factory.mktemp("scores") / "new" / "scores.json"  # no such folder yet
    result = run("evaluate", model, table, "--by", "vehicle", "--out", out)
    assert result.exit_code == 0, result.output
    assert "Left out 5 rows" in result.output and "Scores by vehicle" in result.output
    return json.loads(out.read_text())


def test_scores_are_those_of_the_metrics(scores, model, table):
    frame = pd.read_csv(table).dropna(subset=["minutes"])
    loaded = load_estimator(model / "model")
    y = frame["minutes"].to_numpy()
    dist = loaded.predict_dist(frame[loaded.feature_names_in_])
    expected = {
        "crps": crps(y, dist),
        "log_likelihood": log_likelihood(y, dist),
        "rmse": rmse(y, dist),
        "width_90": interval_width(y, dist),
    }
    for name, value in expected.items():
        assert scores["scores"][name]["value"] == pytest.approx(value, rel=1e-4)
    error = dist.crps(y).std(ddof=1) / np.sqrt(len(y))
    assert scores["scores"]["crps"]["error"] == pytest.approx(error, rel=1e-4)
    assert scores["rows"] == len(y) == 255


def test_parts_are_groups_and_their_scores_average_to_those_of_all(scores, table):
    frame = pd.read_csv(table).dropna(subset=["minutes"])
    counts = frame["vehicle"].value_counts()
    parts = scores["parts"]
    assert {name: part["rows"] for name, part in parts.items()} == counts.to_dict()
    values = [part["scores"]["crps"]["value"] for part in parts.values()]
    mean = np.average(values, weights=[part["rows"] for part in parts.values()])
    assert mean == pytest.approx(scores["scores"]["crps"]["value"])


def test_time_is_cut_into_ten_equal_parts(model, table, tmp_path):
    out = tmp_path / "scores.json"
    result = run("evaluate", model, table, "--time-column", "ordered", "--out", out)
    assert result.exit_code == 0 and "Scores by period of ordered" in result.output
    parts = json.loads(out.read_text())["parts"]
    assert len(parts) == 10 and {part["rows"] for part in parts.values()} == {25, 26}
    assert list(parts) == sorted(parts)


def test_parts_by_time_or_group_hold_every_row_and_divide_no_time():
    days = ["2025-01-01"] * 400 + ["2025-01-02"] * 80 + [None] * 20
    frame = pd.DataFrame({"day": days})
    parts = find_parts(frame, EvaluateOptions(time_column="day"))
    assert {name: len(rows) for name, rows in parts.items()} == {
        "2025-01-01 to 2025-01-01": 400,
        "2025-01-02 to 2025-01-02": 80,
        "missing": 20,
    }
    numbers = pd.DataFrame({"day": np.random.default_rng(0).integers(0, 30, 500)})
    parts = find_parts(numbers, EvaluateOptions(time_column="day"))
    assert sorted(np.concatenate([*parts.values()])) == list(range(500)) and len(parts) == 10
    days = [set(numbers["day"].iloc[rows]) for rows in parts.values()]
    assert sum(map(len, days)) == 30  # no day is in two parts
    mixed = pd.DataFrame({"site": pd.Series([1, "1", 2, None] * 5, dtype=object)})
    parts = find_parts(mixed, EvaluateOptions(by="site"))
    assert {name: len(rows) for name, rows in parts.items()} == {"1": 10, "2": 5, "missing": 5}


def test_mistakes_are_reported_in_a_sentence(model, table, tmp_path):
    frame = pd.read_csv(table)
    frame.drop(columns="minutes").to_csv(tmp_path / "unlabelled.csv", index=False)
    frame.assign(minutes=np.nan).to_csv(tmp_path / "empty.csv", index=False)
    for arguments, words in {
        (tmp_path / "unlabelled.csv",): ["no column 'minutes'"],
        (tmp_path / "empty.csv",): ["missing in all 260 rows"],
        (table, "--by", "nothing"): ["--by", "'nothing'"],
        (table, "--by", "vehicle", "--time-column", "ordered"): ["Choose one"],
        (table, "--time-column", "vehicle"): ["numbers or dates"],
    }.items():
        assert fails_with(run("evaluate", model, *arguments), *words), arguments


def test_a_report_of_new_rows_says_that_the_model_learned_from_them(model, table, tmp_path):
    report = tmp_path / "new" / "report.html"  # a folder that is not there yet
    result = run("evaluate", model, table, "--by", "vehicle", "--report", report)
    assert result.exit_code == 0, result.output
    page = report.read_text()
    first = page.split('<ol class="warnings">')[1].split("</li>")[0]
    assert "training rows" in first and "of these rows, so their scores are too good" in first
    assert "WARNING: training rows" in result.output
    assert "of 255 labelled rows of this file were inside" in page
    assert "Coverage by vehicle" in page and "Coverage over ordered" in page
    assert f"sigmax evaluate {model} {table} --by vehicle --report {report}" in page


def test_a_report_names_columns_with_unseen_categories_and_values_out_of_range(model, table):
    saved, frame = load_folder(model), pd.read_csv(table).dropna(subset=["minutes"])
    assert new_content(saved, frame) == []
    changed = frame.assign(vehicle="rocket", ordered="2031-05-05 12:00", distance_km=1e9)
    categories, ranges = new_content(saved, changed)
    assert categories.code == "unseen categories" and "'vehicle' (100 %)" in categories.text
    assert "'distance_km' (100 %)" in ranges.text and "'ordered' (100 %)" in ranges.text
    rows = evaluate_chunks(saved, [changed], EvaluateOptions(), keep_rows=True)
    assert rows.rows is not None
    page = evaluation_report(saved, "new.csv", rows, EvaluateOptions()).page()
    assert {"unseen categories", "out of range"} <= {warning.code for warning in page.warnings}


def test_training_rows_are_known_again_whatever_their_order_and_types(model, table):
    saved, frame = load_folder(model), pd.read_csv(table).dropna(subset=["minutes"])

    def warns(rows):
        found = evaluate_chunks(saved, [rows], EvaluateOptions())
        assert found.verdict and found.to_json()["verdict"] == found.verdict
        return any(caution.code == "training rows" for caution in found.cautions)

    assert warns(frame.iloc[::-3]) and warns(frame.iloc[:12].astype(object))
    some = frame.iloc[:100].copy()
    some.loc[some.index[10:], "minutes"] += 1.0
    assert warns(some)  # ten in a hundred
    assert not warns(frame.assign(minutes=frame["minutes"] + 1.0))


@pytest.mark.parametrize("n", [2_000, 120_000])
def test_training_rows_are_distinguished_from_rows_that_are_equal_by_chance(n):
    rng = np.random.default_rng(0)

    def draw(n_rows, n_values):
        frame = pd.DataFrame(
            {"a": rng.integers(0, n_values, n_rows), "b": ["x", "y"] * (n_rows // 2)}
        )
        return hash_rows(frame, rng.integers(0, 5, n_rows).astype(float), infer_schema(frame))

    for n_values in (20, n // 10, 10**9):  # nearly all rows have duplicates, some, none
        hashes = draw(n, n_values)
        known = fingerprint(hashes, n)
        assert training_row_caution(hashes[:1000], known)
        if n_values > 20:
            assert not training_row_caution(draw(1000, n_values), known)


def test_a_report_in_chunks_is_that_of_the_whole(model, table):
    saved, frame = load_folder(model), pd.read_csv(table)
    whole, parts = (
        evaluate_chunks(saved, chunks, EvaluateOptions(), keep_rows=True)
        for chunks in ([frame], [frame.iloc[:100], frame.iloc[100:]])
    )
    assert whole.rows is not None and parts.rows is not None
    np.testing.assert_allclose(parts.rows.pit, whole.rows.pit, atol=1e-5)
    np.testing.assert_array_equal(parts.rows.numbers, whole.rows.numbers)
    assert parts.rows.numbers[0] == 6  # five rows without a target come before it
