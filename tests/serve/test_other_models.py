"""Baselines, and models without neighbours."""

import numpy as np
import pandas as pd
import pytest
from serve_cases import get, post
from typer.testing import CliRunner

from sigmax import GPRegressor
from sigmax.cli import app as command_line
from sigmax.serve.app import create_app
from sigmax.serve.limits import ServeOptions
from sigmax.table_model import load_folder


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Folder of a Gaussian process trained on 60 rows of numbers."""
    place = tmp_path_factory.mktemp("process")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["b", "a"])
    frame["y"] = frame["a"] + 0.1 * rng.normal(size=60)
    frame.to_csv(place / "table.csv", index=False)
    command = ["fit", str(place / "table.csv"), "--target", "y", "--method", "gp", "--no-refit"]
    command += ["--set", "average=false", "--out", str(place / "model")]
    result = CliRunner().invoke(command_line, command)
    assert result.exit_code == 0, result.output
    return place / "model"


@pytest.mark.parametrize("method", ["linear", "marginal"])
def test_baselines_are_served(tmp_path, method):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "kind": rng.choice(["u", "v"], 60)})
    frame["y"] = frame["a"] + 0.1 * rng.normal(size=60)
    frame.to_csv(tmp_path / "table.csv", index=False)
    command = ["fit", str(tmp_path / "table.csv"), "--target", "y", "--method", method]
    result = CliRunner().invoke(command_line, [*command, "--out", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    saved = load_folder(tmp_path / "model")
    app = create_app(saved, ServeOptions(request_seconds=60.0), warm_up=False)
    answer = post(app, "/predict", {"rows": [{"a": 0.5, "kind": "u"}, {"a": None, "kind": "w"}]})
    assert answer.status_code == 200, answer.text
    means = [one["mean"] for one in answer.json()["predictions"]]
    expected = saved.model.predict(pd.DataFrame({"a": [0.5, np.nan], "kind": ["u", "w"]}))
    np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-5)


def test_a_gaussian_process_is_served(process):
    app = create_app(load_folder(process), ServeOptions(request_seconds=60.0), warm_up=False)
    answer = post(app, "/predict", {"rows": [{"a": 0.5, "b": 1}, {"b": -2.0, "a": 0.0}]})
    assert answer.status_code == 200, answer.text
    means = [one["mean"] for one in answer.json()["predictions"]]
    X = pd.DataFrame({"b": [1.0, -2.0], "a": [0.5, 0.0]})
    expected = GPRegressor.load(process / "model").predict(X)
    np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-5)
    found = post(app, "/density", {"row": {"a": 0.5, "b": 1}}).json()
    assert found["neighbors"] is None
    missing, known = (
        post(app, "/predict", {"rows": [{"a": a, "b": 1}]}).json() for a in (None, 0.5)
    )
    assert missing["predictions"][0]["std"] > known["predictions"][0]["std"]
    page = get(app, "/").text
    assert "Nearest training rows" not in page
    assert page.index('data-column="a"') < page.index('data-column="b"')  # the important one first


def test_the_probability_of_an_atom_is_shown(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80)})
    frame["y"] = np.where(rng.uniform(size=80) < 0.4, 0, rng.gamma(3, 1, 80))
    frame.to_csv(tmp_path / "table.csv", index=False)
    command = ["fit", str(tmp_path / "table.csv"), "--target", "y", "--effort", "quick"]
    result = CliRunner().invoke(command_line, [*command, "--out", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    saved = load_folder(tmp_path / "model")
    app = create_app(saved, ServeOptions(request_seconds=60.0), warm_up=False)
    (atom,) = post(app, "/density", {"row": {"a": 0.5}}).json()["atoms"]
    expected = saved.model.predict_dist(pd.DataFrame({"a": [0.5]})).probability_of(0)[0]
    assert atom["value"] == 0 and atom["probability"] == pytest.approx(expected)
    assert "p=0 and notes" in get(app, "/").text
