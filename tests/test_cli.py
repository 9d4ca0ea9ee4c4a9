"""The command line, as a person would use it."""

import matplotlib.image
import numpy as np
import pytest
from typer.testing import CliRunner

from sigmax import CombinedRegressor, MeanVarianceRegressor
from sigmax.cli import app
from sigmax.experiments.methods import METHODS, Method


@pytest.fixture
def quick_methods(monkeypatch):
    """Models that take no time in place of all methods."""
    small = {"hidden_sizes": (8,), "n_steps": 100}

    def plain(seed):
        return MeanVarianceRegressor(random_state=seed, **small)

    for name, method in METHODS.items():
        monkeypatch.setitem(METHODS, name, Method(method.title, plain))
    monkeypatch.setitem(
        METHODS,
        "combined",
        Method("Combined", lambda seed: CombinedRegressor(n_members=1, random_state=seed, **small)),
    )


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def is_picture(path):
    picture = matplotlib.image.imread(path)
    return picture.shape[0] > 400 and picture.std() > 0


def test_demo_compares_six_models_in_a_table_and_two_pictures(tmp_path, quick_methods):
    result = run("demo", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for word in ("below true", "GP", "NN", "BNN", "MC-Dropout", "Ens-NN", "Combined", "6/6"):
        assert word in result.output
    assert is_picture(tmp_path / "out" / "toy.png")
    assert is_picture(tmp_path / "out" / "toy_std.png")
    assert "| Combined |" in (tmp_path / "out" / "toy.md").read_text()


def test_demo_says_when_it_cannot_write(tmp_path, quick_methods):
    (tmp_path / "file").write_text("")
    result = run("demo", "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "--out" in result.output


def test_weather_runs_on_a_station_of_ones_own(tmp_path, quick_methods):
    rng = np.random.default_rng(0)
    days = np.arange("2000-01-01", "2012-01-01", dtype="datetime64[D]")
    rows = "".join(f"{day},{rng.normal():.1f}\n" for day in days)
    (tmp_path / "home.csv").write_text("date,tmax\n" + rows)
    out, station = tmp_path / "out", tmp_path / "home.csv"
    options = ("--methods", "nn,combined", "--splits", 2)
    result = run("reproduce", "weather", "--datasets", station, "--out", out, *options)
    assert result.exit_code == 0, result.output
    assert "home: Combined" in result.output and "4/4" in result.output
    assert "| home: NN |" in (out / "weather.md").read_text()
    assert is_picture(out / "home.png") and is_picture(out / "home_std.png")


def test_mistakes_are_told_in_a_line(tmp_path):
    result = run("reproduce", "weather", "--datasets", "atlantis", "--out", tmp_path)
    assert result.exit_code == 1
    assert "No station 'atlantis'" in result.output and "Traceback" not in result.output
    result = run("reproduce", "toy", "--methods", "magic", "--out", tmp_path)
    assert result.exit_code == 1
    assert "No method 'magic'" in result.output


def test_help_names_the_commands():
    assert "demo" in run("--help").output
    assert "weather" in run("reproduce", "--help").output
