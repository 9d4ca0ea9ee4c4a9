"""The command line, as a person would use it."""

import matplotlib.image
import pytest
from typer.testing import CliRunner

from sigmax import CombinedRegressor, MeanVarianceRegressor
from sigmax.cli import app
from sigmax.experiments import toy


@pytest.fixture
def quick_models(monkeypatch):
    """The demonstration with models that take no time."""
    small = {"hidden_sizes": (8,), "n_steps": 100}

    def models(random_state):
        return {
            "NN": MeanVarianceRegressor(random_state=random_state, **small),
            "Combined": CombinedRegressor(n_members=1, random_state=random_state, **small),
        }

    monkeypatch.setattr(toy, "demo_models", models)


def test_demo_prints_a_table_and_writes_a_picture(tmp_path, quick_models):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "below true" in result.output and "Combined" in result.output
    picture = matplotlib.image.imread(tmp_path / "out" / "toy.png")
    assert picture.shape[0] > 400 and picture.std() > 0


def test_demo_says_when_it_cannot_write(tmp_path, quick_models):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "out")])
    assert result.exit_code == 2
    assert "--out" in result.output


def test_help_names_the_commands():
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "demo" in result.output
