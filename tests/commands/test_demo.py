"""`sigmax demo` and its made-up table."""

import os
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
from command_cases import SMALL, run

from sigmax.cli import reproduce
from sigmax.data.synthetic import make_deliveries


def test_deliveries_are_the_same_each_time_and_their_spread_depends_on_the_row():
    frame = make_deliveries(4000)
    pd.testing.assert_frame_equal(frame, make_deliveries(4000))
    assert frame["weather"].isna().mean() > 0.05 and frame["weight_kg"].isna().mean() > 0.05
    logs = np.log(frame["minutes"])
    calm = (frame["vehicle"] == "scooter") & (frame["weather"] == "dry")
    wild = (frame["vehicle"] == "bike") & (frame["weather"] == "snow")
    assert logs[wild].std() > logs[calm].std()


def test_the_demo_goes_from_a_file_to_intervals_and_the_toy_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "FIT_OPTIONS", SMALL)
    monkeypatch.setattr(reproduce, "TOY_OPTIONS", ("--methods", "nn", *SMALL[2:]))
    out = tmp_path / "demo"
    result = run("demo", "--out", out)
    assert result.exit_code == 0, result.output
    for word in ("$ sigmax fit", "$ sigmax predict", "actual", "toy.png"):
        assert word in result.output
    assert {"deliveries.csv", "new.csv", "new_predicted.csv", "model", "toy"} == {*os.listdir(out)}
    assert (out / "toy" / "toy.png").exists()


def test_the_demo_without_matplotlib_ends_with_the_predictions(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "FIT_OPTIONS", SMALL)
    monkeypatch.setattr(reproduce, "find_spec", lambda name: None)
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "actual" in result.output and "pip install 'sigmax[plots]'" in result.output
    assert not (tmp_path / "demo" / "toy").exists()


ROOT = Path(__file__).parents[2]


def readme_commands():
    """What the README's shell blocks show, without comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


def test_every_command_of_the_readme_runs_after_the_demo(table, tmp_path, monkeypatch):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = readme_commands()
    targets = [words[1] for words in commands if words[0] == "make"]
    assert targets == ["demo", "test"]
    assert all(re.search(f"^{target}:", makefile, re.MULTILINE) for target in targets)
    (tmp_path / "demo").mkdir()
    shutil.copy(table, tmp_path / "demo" / "deliveries.csv")
    shutil.copy(table, tmp_path / "demo" / "new.csv")
    monkeypatch.chdir(tmp_path)
    told = [words[1:] for words in commands if words[0] == "sigmax"]
    assert [words[0] for words in told] == ["describe", "fit", "predict", "serve"]
    for words in told[:-1]:
        result = run(*words, *(SMALL if words[0] == "fit" else ()))
        assert result.exit_code == 0, result.output
    assert Path(told[-1][1], "schema.json").exists()  # what `serve` is given


def test_the_extra_serve_has_what_serving_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    installed = {re.split(r"[\[<>=; ]", one)[0] for one in needed}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "src" / "sigmax" / "serve").glob("*.py")
        for name in re.findall(r"^(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE)
    }
    others = imported - {"sigmax"} - set(sys.stdlib_module_names)
    assert others >= {"fastapi", "uvicorn"}
    assert others <= installed | {"starlette", "pydantic", "pydantic_core"}  # parts of FastAPI
