"""The command line, as a person would use it."""

import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest
from engine_cases import InProcessEngine
from typer.testing import CliRunner

import sigmax
from sigmax.cli import app
from sigmax.cli.app import COMMANDS, load_command

SMALL = ("--set", "n_steps=60", "--set", "hidden_sizes=[8]", "--set", "n_members=1")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Worker processes import and compile everything anew; tests of the runner have them."""
    monkeypatch.setattr("sigmax.runs.engines.LocalEngine", InProcessEngine)


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def is_picture(path):
    picture = matplotlib.image.imread(path)
    return picture.shape[0] > 400 and picture.std() > 0


def test_toy_compares_models_in_a_table_and_two_pictures(tmp_path):
    out = tmp_path / "out"
    result = run("reproduce", "toy", "--out", out, "--methods", "nn,combined", *SMALL)
    assert result.exit_code == 0, result.output
    for word in ("below true", "NN", "Combined", "2/2"):
        assert word in result.output
    assert is_picture(out / "toy.png") and is_picture(out / "toy_std.png")
    assert "| Combined |" in (out / "tables.md").read_text()
    assert "| NN |" in (out / "tables.md").read_text()
    result = run("reproduce", "toy", "--out", out, "--methods", "combined", *SMALL)
    assert "1/1" in result.output  # nothing is fitted again, and the pictures keep all models
    assert matplotlib.image.imread(out / "toy.png").shape[1] > 900
    (out / "report.html").unlink()
    result = run("report", out)
    assert result.exit_code == 0 and (out / "report.html").exists()


def test_weather_runs_on_a_station_of_ones_own(tmp_path):
    rng = np.random.default_rng(0)
    days = np.arange("2000-01-01", "2012-01-01", dtype="datetime64[D]")
    rows = "".join(f"{day},{rng.normal():.1f}\n" for day in days)
    (tmp_path / "home.csv").write_text("date,tmax\n" + rows)
    out, station = tmp_path / "out", tmp_path / "home.csv"
    options = ("--methods", "nn,combined", "--splits", 2, *SMALL)
    result = run("reproduce", "weather", "--datasets", station, "--out", out, *options)
    assert result.exit_code == 0, result.output
    assert "Combined" in result.output and "4/4" in result.output
    assert is_picture(out / "home.png") and is_picture(out / "home_std.png")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("demo", "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "--out" in result.output


def test_mistakes_are_reported_in_a_line(tmp_path):
    for arguments, message in {
        ("weather", "--datasets", "atlantis"): "No station 'atlantis'",
        ("toy", "--methods", "magic"): "No method 'magic'",
        ("uci", "--datasets", "titanic"): "No data set 'titanic'",
        ("alchemy",): "No experiment 'alchemy'",
        ("toy", "--set", "n_steps"): "name=value",
        ("toy", "--engine", "steam"): "`engine`",
        ("toy", "--device", "abacus"): "`device`",
        ("moons", "--methods", "nn"): "No method 'nn': choose from vae",
        ("images", "--datasets", "boston"): "No data set 'boston': choose from mnist",
        ("uci", "--methods", "vae"): "No method 'vae'",
        ("uci", "--quick"): "`quick`",
    }.items():
        result = run("reproduce", *arguments, "--out", tmp_path)
        assert result.exit_code == 2, arguments
        assert message in result.output and "Traceback" not in result.output
    result = run("report", tmp_path / "nowhere")
    assert result.exit_code == 2 and "no records" in result.output


def test_a_setting_that_no_method_has_is_a_failure_that_is_reported(tmp_path):
    options = ("--methods", "nn", "--set", "nonsense=1", "--out", tmp_path)
    result = run("reproduce", "toy", *options)
    assert "no setting nonsense" in result.output


def test_the_version_is_shown():
    result = run("--version")
    assert result.exit_code == 0 and result.output == f"sigmax {sigmax.__version__}\n"


def test_help_names_the_commands():
    for word in ("demo", "reproduce", "report"):
        assert word in run("--help").output
    for word in ("gradients", "moons or images"):
        assert word in run("reproduce", "--help").output


def test_the_overview_shows_the_first_line_of_every_command():
    for name, summary in COMMANDS.items():
        assert load_command(name).help.splitlines()[0] == summary


@pytest.mark.parametrize("module", ["sigmax.cli", "sigmax.cli.fit", "sigmax.cli.predict"])
def test_fit_and_predict_import_neither_matplotlib_nor_ray_nor_the_runner(module):
    names = ("matplotlib", "ray", "sigmax.runs.runner", "sigmax.runs.registry")
    code = f"import sys, {module}; sys.exit([n for n in {names} if n in sys.modules] or 0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
