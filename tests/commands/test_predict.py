"""`sigmax predict`: columns, chunks, names, and models that cannot be loaded."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
from command_cases import fails_with, run

from sigmax.cli.evaluate import EvaluateOptions, evaluate_chunks
from sigmax.errors import InvalidDataError
from sigmax.estimators import load_estimator
from sigmax.table_model import PredictOptions, load_folder, new_names, predict_chunks

ADDED = ["mean", "std", "lower", "upper", "aleatoric", "epistemic", "off_data"]


@pytest.fixture(scope="module")
def predicted(model, table, tmp_path_factory):
    out = tmp_path_factory.mktemp("predicted") / "out.csv"
    options = ("--coverage", 0.8, "--quantiles", "0.05,0.5")
    result = run("predict", model, table, "--out", out, *options)
    assert result.exit_code == 0, result.output
    return pd.read_csv(out)


def test_predictions_are_those_of_the_estimator_next_to_the_columns_of_the_file(
    predicted, model, table
):
    given, loaded = pd.read_csv(table), load_estimator(model / "model")
    assert list(predicted.columns) == [*given.columns, *ADDED, "q0.05", "q0.5", "notes"]
    pd.testing.assert_frame_equal(predicted[given.columns], given)
    X = given[loaded.feature_names_in_]
    dist, parts = loaded.predict_dist(X), loaded.predict_uncertainty(X)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    close(predicted["mean"], dist.mean)
    close(predicted["std"], dist.std)
    close(predicted[["lower", "upper"]], dist.interval(0.8))
    close(predicted["q0.05"], dist.quantile(0.05))
    close(predicted["off_data"], parts["gate"])
    close(predicted["off_data"], np.asarray(loaded.predict_gate(X)))
    total = predicted["aleatoric"] ** 2 + predicted["epistemic"] ** 2
    np.testing.assert_allclose(total, predicted["std"] ** 2, rtol=1e-5)
    assert predicted["off_data"].between(0, 1).all()


def test_rows_that_differ_from_the_training_rows_are_counted_and_noted(model, table, tmp_path):
    given, saved = pd.read_csv(table), load_folder(model)
    schema = saved.model.model_.features.schema
    number = next(c for c in schema if c.kind == "number" and not c.has_missing)
    category = next(c for c in schema if c.kind == "category" and not c.has_missing)
    time = next(c for c in schema if c.kind == "time")
    changed = given.iloc[:20].astype({category.name: object, number.name: float})
    changed.loc[:4, number.name] = np.nan
    changed.loc[3:5, category.name] = "of no training row"
    changed.loc[6, number.name] = 1e6
    changed.loc[7, time.name] = "2031-01-01 12:00"
    changed.to_csv(tmp_path / "changed.csv", index=False)
    result = run("predict", model, tmp_path / "changed.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert f"5 missing values in columns that had none in training: {number.name} (5)." in said
    unseen = f"{category.name} 'of no training row' (3)"
    assert f"3 cells with an unseen category: {unseen}." in said
    assert "values beyond the range of the training data" in said and "above 2025" in said
    notes = pd.read_csv(tmp_path / "out.csv")["notes"].fillna("").tolist()
    assert notes[0].startswith(f"{number.name} missing")
    assert f"{category.name} 'of no training row' unseen" in notes[4].split("; ")
    assert notes[6].startswith(f"{number.name} above ")
    assert f"{time.name} above" in notes[7]
    assert "" in notes[8:]


def test_probabilities_of_thresholds_are_those_of_the_distribution(model, table, tmp_path):
    out = tmp_path / "out.csv"
    assert run("predict", model, table, "--threshold", "20,35.5", "--out", out).exit_code == 0
    found, frame = pd.read_csv(out), pd.read_csv(table)
    saved = load_folder(model)
    dist = saved.model.predict_dist(frame[list(saved.features)])
    for value in (20, 35.5):
        np.testing.assert_allclose(found[f"p>{value:g}"], 1 - dist.cdf(value), atol=1e-9)
        np.testing.assert_allclose(dist.sf(value), 1 - dist.cdf(value))


def test_chunks_of_any_size_give_the_same_predictions(predicted, model, table):
    frame, saved = pd.read_csv(table), load_folder(model)
    chunks = iter([frame.iloc[:100], frame.iloc[100:101], frame.iloc[101:]])
    found = pd.concat(predict_chunks(saved, chunks, PredictOptions(coverage=0.8)))
    np.testing.assert_allclose(found[ADDED], predicted[ADDED], rtol=1e-4, atol=1e-5)


def test_unseen_categories_missing_values_and_another_order_of_columns_are_fine(
    model, table, tmp_path
):
    frame = pd.read_csv(table).drop(columns="minutes").iloc[:20, ::-1]
    frame["weather"] = "hail"
    frame["distance_km"] = np.nan
    frame["extra"] = "=1+1"
    frame.to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", model, tmp_path / "new.csv")
    assert result.exit_code == 0 and "new_predicted.csv" in result.stderr
    found = pd.read_csv(tmp_path / "new_predicted.csv")
    assert np.isfinite(found[ADDED]).all().all()
    assert found["extra"].iloc[0] == "'=1+1"  # which no spreadsheet runs


def test_parquet_by_its_name_and_conformal_intervals(model, table, tmp_path):
    out = tmp_path / "out.parquet"
    result = run("predict", model, table, "--out", out, "--method", "conformal")
    assert result.exit_code == 0, result.output
    found = pd.read_parquet(out)
    loaded = load_estimator(model / "model")
    bounds = loaded.predict_interval(found[loaded.feature_names_in_], 0.9, method="conformal")
    np.testing.assert_allclose(found[["lower", "upper"]], bounds, rtol=1e-5)


def test_standard_input_goes_to_standard_output(model, table):
    lines = table.read_text().splitlines()[:6]
    command = [sys.executable, "-m", "sigmax", "predict", str(model), "-"]
    text = "\n".join(lines) + "\n"
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    rows = result.stdout.splitlines()
    assert len(rows) == 6 and rows[0].endswith(",notes")


def test_names_that_are_taken_get_a_prefix_or_raise_errors():
    names = new_names(["x", "mean"], PredictOptions(quantiles=(0.1,)))
    assert names["mean"] == "predicted_mean" and names["q0.1"] == "predicted_q0.1"
    with pytest.raises(InvalidDataError, match="predicted_std"):
        new_names(["mean", "predicted_std"], PredictOptions())


def test_rows_of_a_file_are_counted_from_1_through_all_chunks(model, table, monkeypatch):
    frame, saved = pd.read_csv(table), load_folder(model)
    frame["distance_km"] = frame["distance_km"].astype(object)
    frame.loc[120, "distance_km"] = "far"
    chunks = iter([frame.iloc[:100], frame.iloc[100:]])
    with pytest.raises(InvalidDataError, match="'distance_km' holds numbers, but row 121 is 'far'"):
        list(predict_chunks(saved, chunks, PredictOptions()))
    with pytest.raises(InvalidDataError, match="row 121 is 'far'"):
        evaluate_chunks(saved, [frame.iloc[:100], frame.iloc[100:]], EvaluateOptions())


def test_an_output_is_replaced_only_on_request(model, table, tmp_path):
    frame = pd.read_csv(table).iloc[:20]
    frame.to_csv(tmp_path / "new.csv", index=False)
    for out, named in ((tmp_path / "mine.csv", True), (tmp_path / "new_predicted.csv", False)):
        out.write_text("mine")
        command = ("predict", model, tmp_path / "new.csv", *(("--out", out) if named else ()))
        assert fails_with(run(*command), out.name, "exists", "--overwrite")
        assert out.read_text() == "mine"
        assert run(*command, "--overwrite").exit_code == 0
        assert len(pd.read_csv(out)) == 20


def test_mistakes_are_reported_in_a_sentence(model, table, tmp_path):
    frame = pd.read_csv(table)
    frame.drop(columns=["weather", "vehicle"]).to_csv(tmp_path / "less.csv", index=False)
    for arguments, words in {
        (model, tmp_path / "less.csv"): ["no column 'vehicle', 'weather'"],
        (model, tmp_path / "nowhere.csv"): ["does not exist"],
        (model, table, "--coverage", 2): ["--coverage"],
        (model, table, "--quantiles", "0.1,x"): ["--quantiles", "'0.1,x'"],
        (model, table, "--quantiles", "0.1,0.1"): ["--quantiles", "differ"],
        (model, table, "--threshold", "high"): ["--threshold", "'high'"],
        (model, table, "--threshold", "1,1"): ["--threshold", "differ"],
        (model, table, "--method", "magic"): ["--method", "conformal"],
        (model, table, "--out", tmp_path / "out.doc"): ["must end in"],
        (model, table, "--out", table): ["itself"],
        (tmp_path, table): ["schema.json"],
        (tmp_path / "nowhere", table): ["schema.json"],
    }.items():
        assert fails_with(run("predict", *arguments), *words), arguments


@pytest.fixture
def copy(model, tmp_path):
    return shutil.copytree(model, tmp_path / "copy")


@pytest.mark.parametrize("name", ["schema.json", "scores.json", "report.html", "model/model.json"])
def test_a_changed_byte_or_a_missing_file_raises_an_error(copy, table, name):
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    assert fails_with(run("predict", copy, table), "damaged")
    (copy / name).unlink()
    assert fails_with(run("predict", copy, table), name.split("/")[-1])


def test_a_changed_byte_in_the_arrays_raises_an_error(copy, table):
    path = copy / "model" / "arrays.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert fails_with(run("predict", copy, table), "arrays.safetensors", "damaged")


def test_strangers_pickles_and_links_raise_errors_and_nothing_is_run(copy, table, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    for place in (copy / "model.pkl", copy / "model" / "model.pkl"):
        place.write_bytes(pickle.dumps(Evil()))
        assert fails_with(run("predict", copy, table), "model.pkl")
        place.unlink()
    outside = tmp_path / "scores.json"
    shutil.move(copy / "scores.json", outside)
    (copy / "scores.json").symlink_to(outside)
    assert fails_with(run("predict", copy, table), "link")
    assert not (tmp_path / "harm").exists()


def test_an_estimator_that_is_none_of_ours_raises_an_error(copy, table):
    from sigmax.files import header_checksum, render

    facts = json.loads((copy / "schema.json").read_text())
    del facts["sha256"]
    for name in ("AbstractRegressor", "fit_together", "os.system"):
        facts["estimator"] = name
        (copy / "schema.json").write_bytes(render({**facts, "sha256": header_checksum(facts)}))
        assert fails_with(run("predict", copy, table), "no estimator")
