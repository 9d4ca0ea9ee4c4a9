"""`sigmax fit`: what it writes and says, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from command_cases import SMALL, refused, run

from sigmax import LocalRegressor
from sigmax.commands.fit_options import FitOptions
from sigmax.commands.usable_rows import UsableRows
from sigmax.data.deliveries import make_deliveries
from sigmax.errors import InvalidArgumentError, InvalidDataError, TrainingError


def test_a_fit_says_what_it_understood_before_it_says_how_good_it_is(fitted):
    output = " ".join(fitted[0].split())
    words = ("weather", "5 rows without it are left out", "held out: 51 of 255 rows", "CRPS")
    places = [output.index(word) for word in words]
    assert places == sorted(places)
    assert "time column with a random split" in output
    assert "fitting again, to all 255 rows" in output


def test_scores_have_errors_and_stand_beside_those_of_plain_predictors(model):
    scores = json.loads((model / "scores.json").read_text())
    for name in ("model", "marginal", "linear"):
        for score in ("log_likelihood", "crps", "rmse", "coverage_50", "width_95"):
            assert set(scores[name][score]) == {"value", "error"}
    assert scores["linear"]["crps"]["value"] < scores["marginal"]["crps"]["value"]
    gap = scores["model"]["crps"]["value"] - scores["marginal"]["crps"]["value"]
    assert scores["crps_difference"]["marginal"]["value"] == pytest.approx(gap)
    assert scores["rows"] == {"with_target": 255, "train": 204, "test": 51}


def test_the_folder_holds_a_model_of_all_rows_that_python_can_load(model):
    loaded = LocalRegressor.load(model / "model")
    assert loaded.n_rows_ == 255
    facts = json.loads((model / "schema.json").read_text())
    kinds = {column["name"]: column["kind"] for column in facts["features"]}
    assert kinds["ordered"] == "time" and kinds["weather"] == "category"
    assert facts["fitted_to"] == "all rows" and facts["versions"]["sigmax"]


def test_the_report_shows_text_of_the_file_as_text(table, tmp_path):
    evil = "<script>alert(1)</script>[bold]"
    frame = pd.read_csv(table).rename(columns={"weight_kg": evil})
    frame[evil] = frame[evil].astype(object)
    frame.loc[3, "district"] = "[red]<b>here</b>"
    frame.to_csv(tmp_path / "evil.csv", index=False)
    out = tmp_path / "out"
    result = run("fit", tmp_path / "evil.csv", "--target", "minutes", "--out", out, *SMALL)
    assert result.exit_code == 0, result.output
    assert "<script>alert" in result.output  # a name, shown as it is
    page = (out / "report.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "\\u003cscript\\u003ealert(1)" in page  # in the data of charts, where no tag begins


def test_the_report_is_of_the_held_out_rows_and_can_be_made_again(model):
    page = (model / "report.html").read_text()
    facts = json.loads((model / "schema.json").read_text())
    scores = json.loads((model / "scores.json").read_text())
    n_test = facts["rows"]["test"]
    n_inside = round(scores["model"]["coverage_90"]["value"] * n_test)
    assert f"rests on {n_test} rows that the model had not seen: {n_inside} of them" in page
    command = "sigmax fit deliveries.csv --target minutes --preset fast --set n_steps=20"
    assert command in page and "setting hidden_sizes" in page and "version of jax" in page
    for part in ("accuracy", "calibration", "importance", "dependence", "parts", "rows"):
        assert f'<section id="{part}"' in page


def test_a_leak_that_is_left_in_is_the_first_warning_of_the_report(table, tmp_path):
    frame = pd.read_csv(table)
    frame["seconds"] = 60 * frame["minutes"]
    frame.to_csv(tmp_path / "leak.csv", index=False)
    out = tmp_path / "out"
    result = run("fit", tmp_path / "leak.csv", "--target", "minutes", "--out", out, *SMALL)
    assert result.exit_code == 0, result.output
    page = (out / "report.html").read_text()
    first = page.split('<ol class="warnings">')[1].split("</li>")[0]
    assert "<strong>leak</strong>" in first and "seconds" in first and 'class="grave"' in first


def test_no_refit_keeps_the_model_of_the_training_rows_and_time_holds_out_the_last(table, tmp_path):
    out = tmp_path / "out"
    options = ("--time-column", "ordered", "--no-refit", "--drop", "district,weight_kg")
    result = run("fit", table, "--target", "minutes", "--out", out, *options, *SMALL)
    assert result.exit_code == 0, result.output
    assert "the last rows by 'ordered', from 2025-" in result.output
    assert "is also learned from" in result.output and "fitting again" not in result.output
    facts = json.loads((out / "schema.json").read_text())
    assert LocalRegressor.load(out / "model").n_rows_ == facts["rows"]["train"]
    assert {"district", "weight_kg"}.isdisjoint(column["name"] for column in facts["features"])


@pytest.mark.parametrize(
    ("change", "words"),
    {
        "unknown target": ({"target": "minute"}, ["no column 'minute'", "did you mean 'minutes'"]),
        "unknown column": ({"drop": "id"}, ["--drop", "no column 'id'"]),
        "dropped target": ({"drop": "minutes"}, ["--drop", "is the target"]),
        "text target": ({"target": "vehicle"}, ["'vehicle' must be numbers", "row 1"]),
        "two kinds": ({"category": "weight_kg", "number": "weight_kg"}, ["both"]),
        "unknown method": ({"method": "magic"}, ["--method", "local"]),
        "unknown preset": ({"preset": "slow"}, ["`preset`", "fast"]),
        "unknown setting": ({"set": "n_stepz=3"}, ["no setting n_stepz"]),
        "no members": ({"method": "gp", "conformal": None}, ["--conformal", "'gp'"]),
        "no share": ({"holdout": "1.5"}, ["--holdout", "1.5"]),
        "unknown engine": ({"engine": "steam"}, ["`engine`", "ray"]),
        "address of nothing": ({"address": "auto"}, ["--address", "--engine ray"]),
        "workers of nothing": ({"workers": "2"}, ["--workers", "--engine ray"]),
        "device of nothing": ({"device": "cpu"}, ["--device", "JAX_PLATFORMS"]),
        "no members on Ray": ({"method": "gp", "engine": "ray"}, ["trains members", "'gp'"]),
        "no support": ({"min": "5", "max": "3"}, ["`support` must be", "(5.0, 3.0)"]),
        "values beyond": ({"max": "1"}, ["must lie within `support`"]),
        "two splits": ({"time-column": "ordered", "group-column": "district"}, ["choose one"]),
    }.values(),
)
def test_what_a_person_may_get_wrong_is_told_in_a_sentence(table, tmp_path, change, words):
    options = {"target": "minutes", "out": tmp_path / "out", **change}
    flat = [text for name, value in options.items() for text in (f"--{name}", value)]
    flat = [text for text in flat if text is not None]
    assert refused(run("fit", table, *flat), *words)
    assert not os.listdir(tmp_path)


def test_a_cluster_that_is_not_there_is_told_in_a_sentence(table, tmp_path):
    place = ("--engine", "ray", "--address", "127.0.0.1:1")
    result = run("fit", table, "--target", "minutes", "--out", tmp_path / "out", *place)
    assert refused(result, "no Ray cluster", "nobody answers", code=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n1,2\n", ["10 rows with a target"]),
        ("x,y\n" + "1,\n" * 20, ["'y' is missing in all 20 rows"]),
        ("y\n" + "1\n" * 20, ["no column left to learn from"]),
        ("x,y\n" + "1,yes\n" * 20, ["must be numbers", "'yes'"]),
        ("x,y\n1,2,3\n", ["line 2"]),
        ("", ["empty"]),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_refused(tmp_path, text, words):
    (tmp_path / "bad.csv").write_text(text)
    out = tmp_path / "out"
    assert refused(run("fit", tmp_path / "bad.csv", "--target", "y", "--out", out), *words)
    assert os.listdir(tmp_path) == ["bad.csv"]


def test_a_folder_is_not_overwritten_without_force(table, model, tmp_path):
    before = (model / "schema.json").read_bytes()
    result = run("fit", table, "--target", "minutes", "--out", model, *SMALL)
    assert refused(result, "exists", "--force")
    (tmp_path / "notes.txt").write_text("mine")
    result = run("fit", table, "--target", "minutes", "--out", tmp_path, "--force", *SMALL)
    assert refused(result, "notes.txt")
    assert (model / "schema.json").read_bytes() == before


def test_a_training_that_fails_has_exit_code_1_and_leaves_nothing(table, tmp_path, monkeypatch):
    def fail(*arguments):
        raise TrainingError("The training broke down.")

    monkeypatch.setattr("sigmax.LocalRegressor.fit", fail)
    result = run("fit", table, "--target", "minutes", "--out", tmp_path / "out", *SMALL)
    assert refused(result, "broke down", code=1)
    assert not os.listdir(tmp_path)


def test_a_killed_fit_leaves_nothing_behind(table, tmp_path):
    code = "import sys; from sigmax.cli import app; sys.argv[0] = 'sigmax'; app()"
    arguments = ["fit", str(table), "--target", "minutes", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("fitting"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL and not os.listdir(tmp_path)


def test_a_group_column_is_learned_from_only_if_it_is_named():
    frame = make_deliveries(40)
    options = FitOptions(target="minutes", group_column="district")
    assert "district" not in UsableRows.read(frame, options).features
    named = FitOptions(target="minutes", group_column="district", categories=("district",))
    assert "district" in UsableRows.read(frame, named).features
    timed = FitOptions(target="minutes", time_column="ordered")
    assert "ordered" in UsableRows.read(frame, timed).features


def test_infinite_and_true_targets_are_refused():
    frame = make_deliveries(40)
    for column, word in ((np.where(frame.index == 3, np.inf, 1.0), "row 4"), (True, "classes")):
        with pytest.raises(InvalidDataError, match=word):
            UsableRows.read(frame.assign(minutes=column), FitOptions(target="minutes"))


def test_options_that_no_table_could_have_are_refused():
    with pytest.raises(InvalidArgumentError, match="no feature"):
        FitOptions(target="y", categories=("y",)).check()
