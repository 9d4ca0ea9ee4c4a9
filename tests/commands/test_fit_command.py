"""`sigmax fit`: what it writes and says, and what it refuses."""

import html
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_cases import SMALL, fails_with, run

from sigmax import SigmaxRegressor
from sigmax.cli.evaluate import EvaluateOptions, evaluate_chunks
from sigmax.cli.fit import FitOptions, fit_table
from sigmax.cli.predict import predict_parts
from sigmax.cli.rows import ColumnOptions, UsableRows
from sigmax.data.synthetic import make_deliveries
from sigmax.errors import InvalidArgumentError, InvalidDataError, TrainingError
from sigmax.estimators import load_estimator
from sigmax.experts.local import LOCAL_PRESETS
from sigmax.report.tables import ReportTable
from sigmax.table_model import PredictOptions, predict_chunks, write_folder


def test_a_fit_says_what_it_understood_before_it_says_how_good_it_is(fitted):
    output = " ".join(fitted[0].split())
    words = ("weather", "missing in 5 rows, which are left out", "to 255 rows", "Scored on 255 of")
    words = (*words, "than a linear model", "Scores of minutes")
    places = [output.index(word) for word in words]
    assert places == sorted(places)
    assert "time column with a random split" in output
    assert "Refitting" not in output


def test_every_phase_has_its_name_and_ends_before_its_result_is_shown():
    events = []

    @contextmanager
    def bar(name):
        yield lambda what, share: None
        events.append(name)

    columns = ColumnOptions(target="minutes")
    options = FitOptions(method="nn", settings={"n_steps": 5, "n_members": 1})
    fit_table(make_deliveries(60), columns, options, show=lambda item: events.append(item), bar=bar)
    phases = [event for event in events if isinstance(event, str)]
    assert phases == [
        "checking columns",
        "Held out 12 of 60 rows chosen at random; duplicate rows stay together",
        "Fitting MeanVarianceRegressor to 48 rows",
        "scoring 12 held-out rows",
        "report",
        "Refitting on all 60 rows.",
    ]
    scored = events.index("scoring 12 held-out rows")
    assert "linear model" in str(events[scored + 1])
    assert any(isinstance(event, ReportTable) for event in events[scored + 1 : scored + 4])


def test_scores_have_errors_and_are_shown_with_those_of_plain_predictors(model):
    scores = json.loads((model / "scores.json").read_text())
    for name in ("model", "marginal", "linear"):
        for score in ("log_likelihood", "crps", "rmse", "coverage_50", "width_95"):
            assert set(scores[name][score]) == {"value", "error"}
    assert scores["linear"]["crps"]["value"] < scores["marginal"]["crps"]["value"]
    gap = scores["model"]["crps"]["value"] - scores["marginal"]["crps"]["value"]
    assert scores["crps_difference"]["marginal"]["value"] == pytest.approx(gap)
    assert scores["rows"] == {"with_target": 255, "train": 255, "test": 255}


@pytest.mark.parametrize(
    ("options", "n_fits"),
    [
        ({}, 1),
        ({"conformal": True}, 1),
        ({"holdout": 0.3}, 2),
        ({"no_refit": True}, 1),
        ({"time_column": "ordered"}, 2),
    ],
)
def test_a_model_is_fitted_twice_only_if_rows_are_held_out_by_choice(options, n_fits, monkeypatch):
    fits, fit = [], SigmaxRegressor.fit
    monkeypatch.setattr(
        SigmaxRegressor, "fit", lambda it, X, *rest: (fits.append(len(X)), fit(it, X, *rest))[1]
    )
    time_column = options.pop("time_column", None)
    settings = {"experts": ("linear",)}
    saved, texts = fit_table(
        make_deliveries(100),
        ColumnOptions(target="minutes", time_column=time_column),
        FitOptions(settings=settings, **options),
    )
    assert len(fits) == n_fits
    assert saved.metadata["fitted_to"] == "all rows" or options.get("no_refit")
    scores = json.loads(texts["scores.json"])
    assert scores["rows"]["test"] == (100 if sum(fits) == 100 else 100 - fits[0])
    assert 0.7 < scores["model"]["coverage_90"]["value"] <= 1


def test_scores_are_those_of_held_out_predictions(model, table):
    loaded, scores = (
        load_estimator(model / "model"),
        json.loads((model / "scores.json").read_text()),
    )
    held_out, y = loaded.model_.fitted.held_out, pd.read_csv(table)["minutes"].dropna().to_numpy()
    crps = loaded.model_.held_out().crps(y[held_out.row])
    assert scores["model"]["crps"]["value"] == pytest.approx(np.mean(crps), rel=1e-6)
    page = (model / "report.html").read_text()
    assert "tested on 255 of them, each predicted by a fit without it" in page


def test_too_few_held_out_predictions_need_a_fit_of_their_own():
    shown = []
    settings = {"experts": (LOCAL_PRESETS["fast"].override({"n_members": 1, "n_steps": 5}),)}
    options = FitOptions(settings=settings)
    columns = ColumnOptions(target="minutes")
    saved, _ = fit_table(make_deliveries(300), columns, options, show=shown.append)
    texts = [item for item in shown if isinstance(item, str)]
    assert texts == [
        "Fitting SigmaxRegressor to 300 rows",
        "Held out 60 of 300 rows chosen at random; duplicate rows stay together",
        "Fitting SigmaxRegressor to 240 rows",
        "Refitting on all 300 rows.",
    ]
    assert saved.metadata["rows"] == {"with_target": 300, "train": 240, "test": 60}


def test_the_verdict_is_the_first_sentence_of_the_report(model):
    sentence = json.loads((model / "scores.json").read_text())["verdict"]
    page = (model / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    headline = page.split('class="sentence">')[1].split("</p>")[0]
    assert html.unescape(headline).strip().startswith(sentence)


@pytest.mark.parametrize("method", ["linear", "marginal"])
def test_plain_methods_are_fitted_saved_and_predicted(table, tmp_path, method):
    out, written = tmp_path / "out", tmp_path / "out.csv"
    result = run("fit", table, "--target", "minutes", "--out", out, "--method", method)
    assert result.exit_code == 0, result.output
    than = {"linear": "overall distribution of the target", "marginal": "Worse than a linear model"}
    assert than[method] in " ".join(result.output.split())
    result = run("predict", out, table, "--out", written)
    assert result.exit_code == 0, result.output
    found, frame = pd.read_csv(written), pd.read_csv(table)
    expected = load_estimator(out / "model").predict(frame.drop(columns="minutes"))
    np.testing.assert_allclose(found.filter(like="mean").iloc[:, 0], expected, rtol=1e-4)
    assert (out / "linear").exists() == (method != "linear")


def test_coverage_that_is_off_is_a_warning_in_the_terminal(tmp_path):
    """Noise that grows tenfold after the training rows, which are the first 400 by time."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"day": np.arange(500), "x": rng.normal(size=500)})
    frame["y"] = frame["x"] + np.where(frame["day"] < 400, 0.1, 1.0) * rng.normal(size=500)
    frame.to_csv(tmp_path / "table.csv", index=False)
    options = ("--target", "y", "--method", "linear", "--time-column", "day")
    result = run("fit", tmp_path / "table.csv", "--out", tmp_path / "out", *options)
    text = " ".join(result.output.split())
    assert "WARNING: intervals too narrow: The 90 % intervals contained" in text
    assert text.index("than the overall") < text.index("WARNING") < text.index("Scores of y")
    steady = frame[frame["day"] < 400]
    steady.to_csv(tmp_path / "table.csv", index=False)
    result = run("fit", tmp_path / "table.csv", "--out", tmp_path / "other", *options)
    assert result.exit_code == 0 and "intervals too" not in result.output


def test_a_column_that_carries_everything_is_asked_about(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"nearly": rng.normal(size=300), "other": rng.normal(size=300)})
    frame["y"] = frame["nearly"] ** 2 + 0.1 * rng.normal(size=300) + 9 * frame["nearly"]
    frame.to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "out"
    options = ("--target", "y", "--method", "linear", "--out", out)
    result = run("fit", tmp_path / "table.csv", *options)
    text = " ".join(result.output.split())
    assert "too good to be true?" in text and "Do you know 'nearly' before 'y'?" in text
    assert "too good to be true?" in (out / "report.html").read_text()


def test_the_folder_holds_a_model_of_all_rows_that_python_can_load(model):
    loaded = load_estimator(model / "model")
    assert isinstance(loaded, SigmaxRegressor)
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


def test_the_report_is_of_the_held_out_rows_and_can_be_made_again(model, table):
    page = (model / "report.html").read_text()
    facts = json.loads((model / "schema.json").read_text())
    scores = json.loads((model / "scores.json").read_text())
    n_test = facts["rows"]["test"]
    n_inside = round(scores["model"]["coverage_90"]["value"] * n_test)
    assert f"{n_inside} of {n_test} held-out rows were inside" in page
    command = f"sigmax fit {table} --target minutes --out {model} --effort quick"
    assert command in page and "setting effort" in page and "version of jax" in page
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
    assert "rows with the latest 'ordered', from 2025-" in result.output
    assert "is also a feature" in result.output and "Refitting" not in result.output
    facts = json.loads((out / "schema.json").read_text())
    assert facts["fitted_to"] == "the training rows"
    assert {"district", "weight_kg"}.isdisjoint(column["name"] for column in facts["features"])


@pytest.mark.parametrize("holdout", [None, 0.3])
def test_a_column_of_errors_is_no_feature_and_explains_the_scatter(holdout, tmp_path):
    rng = np.random.default_rng(0)
    error = np.where(rng.random(120) < 0.5, 0.05, 1.0)
    frame = pd.DataFrame({"x": rng.uniform(-2, 2, 120), "sd": error})
    frame["y"] = frame["x"] + 0.1 * rng.normal(size=120) + error * rng.normal(size=120)
    options = FitOptions(effort="quick", error_column="sd", holdout=holdout)
    saved, texts = fit_table(frame, ColumnOptions(target="y"), options)
    assert saved.features == ["x"] and saved.metadata["options"]["error_column"] == "sd"
    assert np.median(saved.model.predict_dist(frame[["x"]]).std) < 0.3
    scores = json.loads(texts["scores.json"])
    assert scores["model"]["log_likelihood"]["value"] > scores["linear"]["log_likelihood"]["value"]
    found = evaluate_chunks(saved, [frame], EvaluateOptions())
    model: Any = saved.model
    measured = model.predict_dist(frame[["x"]], y_error=error)
    assert found.scores["crps"].value == pytest.approx(measured.crps(frame["y"]).mean())
    asked = PredictOptions(error_column="sd")
    (predicted,) = predict_chunks(saved, iter([frame]), asked)
    np.testing.assert_allclose(predicted["std"], measured.std)
    for folder in (tmp_path / "model", tmp_path / "in"):
        folder.mkdir()
    write_folder(tmp_path / "model", saved, texts)
    for i in range(2):
        frame[60 * i : 60 * i + 60].to_parquet(tmp_path / "in" / f"{i}.parquet")
    predict_parts(tmp_path / "model", [str(tmp_path / "in")], str(tmp_path / "out"), asked, {})
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "out")["std"], measured.std)
    with pytest.raises(InvalidDataError, match="no column 'kg'"):
        next(predict_chunks(saved, iter([frame]), PredictOptions(error_column="kg")))
    conformal = replace(asked, method="conformal")
    with pytest.raises(InvalidArgumentError, match="excludes conformal"):
        next(predict_chunks(saved, iter([frame]), conformal))
    with pytest.raises(InvalidArgumentError, match="--method sigmax"):
        next(predict_chunks(replace(saved, model=saved.linear), iter([frame]), asked))
    exact = evaluate_chunks(saved, [frame.drop(columns="sd")], EvaluateOptions())
    assert exact.scores["coverage_90"].value < 0.8 < found.scores["coverage_90"].value
    with pytest.raises(InvalidDataError, match="at least 0, got '-1' in row 1"):
        evaluate_chunks(saved, [frame.assign(sd=-1)], EvaluateOptions())


@pytest.mark.parametrize(
    ("change", "words"),
    {
        "unknown target": ({"target": "minute"}, ["no column 'minute'", "did you mean 'minutes'"]),
        "unknown column": ({"drop": "id"}, ["--drop", "no column 'id'"]),
        "dropped target": ({"drop": "minutes"}, ["--drop", "is the target"]),
        "text target": ({"target": "vehicle"}, ["'vehicle' must be numbers", "row 1"]),
        "two kinds": ({"category": "weight_kg", "number": "weight_kg"}, ["both"]),
        "unknown method": ({"method": "magic"}, ["--method", "local"]),
        "unknown effort": ({"effort": "slow"}, ["`--effort`", "best"]),
        "effort of another": ({"method": "gp", "effort": "quick"}, ["--effort quick", "'gp'"]),
        "no best": ({"method": "local", "effort": "best"}, ["--effort best", "--method sigmax"]),
        "time of another": ({"method": "local", "time-limit": "9"}, ["--time-limit", "'local'"]),
        "no time": ({"time-limit": "0"}, ["`time_limit`"]),
        "unknown setting": ({"set": "n_stepz=3"}, ["no setting n_stepz"]),
        "not ours": ({"method": "catboost"}, ["catboost", "not saved", "package"]),
        "no share": ({"holdout": "1.5"}, ["--holdout", "1.5"]),
        "unknown engine": ({"engine": "steam"}, ["`--engine`", "ray"]),
        "address of nothing": ({"address": "auto"}, ["--address", "--engine ray"]),
        "workers of nothing": ({"workers": "2"}, ["--workers", "--engine ray"]),
        "device of nothing": ({"device": "cpu"}, ["--device", "JAX_PLATFORMS"]),
        "no networks on Ray": ({"engine": "ray"}, ["'sigmax'", "--method local"]),
        "no support": ({"min": "5", "max": "3"}, ["`support` must be", "(5.0, 3.0)"]),
        "values beyond": ({"max": "1"}, ["must lie within `support`"]),
        "errors of another": ({"error-column": "weight_kg", "method": "gp"}, ["--method sigmax"]),
        "no errors": ({"error-column": "kg"}, ["`--error-column`", "no column 'kg'"]),
        "errors of text": (
            {"error-column": "vehicle"},
            ["'vehicle' must have numbers", "in row"],
        ),
        "errors are the target": ({"error-column": "minutes"}, ["must not be the target"]),
        "two splits": ({"time-column": "ordered", "group-column": "district"}, ["choose one"]),
    }.values(),
)
def test_what_a_person_may_get_wrong_is_reported_in_a_sentence(table, tmp_path, change, words):
    options = {"target": "minutes", "out": tmp_path / "out", **change}
    flat = [text for name, value in options.items() for text in (f"--{name}", value)]
    flat = [text for text in flat if text is not None]
    assert fails_with(run("fit", table, *flat), *words)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--effort", "slow"), ["`--effort`", "best"]),
        (("--set", "n_stepz=3"), ["no setting n_stepz"]),
        (("--method", "local", "--set", "n_members=0"), ["`n_members`"]),
        (("--method", "gp", "--set", "max_iter=-1"), ["`max_iter`"]),
        (("--holdout", 1.5), ["--holdout"]),
    ],
)
def test_options_are_checked_before_the_table_is_read(tmp_path, options, words):
    """No table is there: a fit that read it first would say so."""
    assert fails_with(run("fit", tmp_path / "nowhere.csv", "--target", "y", *options), *words)


def test_rows_are_counted_as_in_the_file(tmp_path):
    """From 1, and with the rows that have no target."""
    frame = make_deliveries(40).assign(code=7)
    frame.loc[:9, "minutes"] = None
    frame["code"] = frame["code"].astype(str)
    frame.loc[19, "code"] = "n/k"
    frame.loc[29, "ordered"] = "later"
    frame.to_csv(tmp_path / "odd.csv", index=False)
    command = ("fit", tmp_path / "odd.csv", "--target", "minutes", "--out", tmp_path / "out")
    assert fails_with(run(*command, "--number", "code", "--drop", "ordered"), "'code'", "row 20 ")
    assert fails_with(run(*command, "--time-column", "ordered"), "'later' in row 30")


def test_a_cluster_that_is_not_there_is_reported_in_a_sentence(table, tmp_path):
    place = ("--method", "local", "--engine", "ray", "--address", "127.0.0.1:1")
    result = run("fit", table, "--target", "minutes", "--out", tmp_path / "out", *place)
    assert fails_with(result, "no Ray cluster", "no server answers", code=1)


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
def test_a_table_that_cannot_be_learned_from_raises_an_error(tmp_path, text, words):
    (tmp_path / "bad.csv").write_text(text)
    out = tmp_path / "out"
    assert fails_with(run("fit", tmp_path / "bad.csv", "--target", "y", "--out", out), *words)
    assert os.listdir(tmp_path) == ["bad.csv"]


def test_a_folder_is_not_overwritten_without_force(table, model, tmp_path):
    before = (model / "schema.json").read_bytes()
    result = run("fit", table, "--target", "minutes", "--out", model, *SMALL)
    assert fails_with(result, "exists", "--force")
    (tmp_path / "notes.txt").write_text("mine")
    result = run("fit", table, "--target", "minutes", "--out", tmp_path, "--force", *SMALL)
    assert fails_with(result, "notes.txt")
    assert (model / "schema.json").read_bytes() == before


def test_a_training_that_fails_has_exit_code_1_and_leaves_nothing(table, tmp_path, monkeypatch):
    def fail(*arguments):
        raise TrainingError("The training broke down.")

    monkeypatch.setattr("sigmax.SigmaxRegressor.fit", fail)
    result = run("fit", table, "--target", "minutes", "--out", tmp_path / "out", *SMALL)
    assert fails_with(result, "broke down", code=1)
    assert not os.listdir(tmp_path)


def test_a_killed_fit_leaves_nothing_behind(table, tmp_path):
    code = "import sys; from sigmax.cli import app; sys.argv[0] = 'sigmax'; app()"
    arguments = ["fit", str(table), "--target", "minutes", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Fitting"):
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL and not os.listdir(tmp_path)


def test_a_group_column_is_learned_from_only_if_it_is_named():
    frame = make_deliveries(40)
    options = ColumnOptions(target="minutes", group_column="district")
    assert "district" not in UsableRows.read(frame, options).features
    named = ColumnOptions(target="minutes", group_column="district", categories=("district",))
    assert "district" in UsableRows.read(frame, named).features
    timed = ColumnOptions(target="minutes", time_column="ordered")
    assert "ordered" in UsableRows.read(frame, timed).features


def test_infinite_and_true_targets_raise_errors():
    frame = make_deliveries(40)
    for column, word in ((np.where(frame.index == 3, np.inf, 1.0), "row 4"), (True, "classes")):
        with pytest.raises(InvalidDataError, match=word):
            UsableRows.read(frame.assign(minutes=column), ColumnOptions(target="minutes"))


def test_options_that_no_table_could_have_raise_errors():
    with pytest.raises(InvalidArgumentError, match="not a feature"):
        ColumnOptions(target="y", categories=("y",)).check()


def test_the_experts_of_a_stack_are_shown_with_their_weights(fitted):
    output, folder = fitted
    for text in (output, (folder / "report.html").read_text()):
        assert "Experts and their weights" in text and "forest" in text and "log-likelihood" in text


def test_a_time_that_is_over_leaves_experts_out_and_conformal_intervals_need_no_network(tmp_path):
    make_deliveries(120).to_csv(tmp_path / "rows.csv", index=False)
    options = ("--effort", "quick", "--time-limit", "0.001", "--conformal", "--no-refit")
    command = ("fit", tmp_path / "rows.csv", "--target", "minutes", *options)
    result = run(*command, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "left out" in result.stderr and "marginal" in result.output
    assert "forest" not in result.stdout
    new = make_deliveries(20).drop(columns="minutes")
    new.to_csv(tmp_path / "new.csv", index=False)
    found = run("predict", tmp_path / "model", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert found.exit_code == 0, found.output
    predictions = pd.read_csv(tmp_path / "p.csv")
    loaded = load_estimator(tmp_path / "model" / "model")
    expected = loaded.predict_interval(new, method="conformal")
    np.testing.assert_allclose(predictions[["lower", "upper"]], expected, rtol=1e-4)
