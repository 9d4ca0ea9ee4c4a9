"""`sigmax evaluate`: scores of labelled rows, all together and by parts."""

import json

import numpy as np
import pandas as pd
import pytest
from command_cases import refused, run

from sigmax import LocalRegressor
from sigmax.metrics import crps, interval_width, log_likelihood, rmse


@pytest.fixture(scope="module")
def scores(model, table, tmp_path_factory):
    out = tmp_path_factory.mktemp("scores") / "scores.json"
    result = run("evaluate", model, table, "--by", "vehicle", "--out", out)
    assert result.exit_code == 0, result.output
    assert "left out: 5 rows" in result.output and "scores of parts" in result.output
    return json.loads(out.read_text())


def test_scores_are_those_of_the_metrics(scores, model, table):
    frame = pd.read_csv(table).dropna(subset=["minutes"])
    loaded = LocalRegressor.load(model / "model")
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
    assert result.exit_code == 0, result.output
    parts = json.loads(out.read_text())["parts"]
    assert len(parts) == 10 and {part["rows"] for part in parts.values()} == {25, 26}
    assert list(parts) == sorted(parts)


def test_mistakes_are_told_in_a_sentence(model, table, tmp_path):
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
        assert refused(run("evaluate", model, *arguments), *words), arguments
