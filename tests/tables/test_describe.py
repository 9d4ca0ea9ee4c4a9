"""`sigmax describe`, as a person would use it; and bad files through the command line."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sigmax
from sigmax.cli import app


@pytest.fixture
def run(monkeypatch):
    """The command in this process, on a screen of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments, stdin=None):
        return CliRunner().invoke(app, ["describe", *map(str, arguments)], input=stdin)

    return run


def test_a_screen_names_columns_target_and_leaks(run, data_folder):
    path = data_folder / "tables" / "taxis.csv.gz"
    result = run(path, "--target", "fare", "--category", "passengers", "--drop", "tip,tolls")
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    for words in (
        "taxis.csv.gz: 6,433 rows, 2 numbers, 7 categories and 2 times",
        "passengers category 7 categories",
        "distance number 0 to 36.7 1.6",
        "pickup time 2019-02-28 to 2019-03-31",
        "target fare: 1 to 150, median 9.5",
        "leak: 'total'",
    ):
        assert words in text
    assert "tolls" not in text


def test_a_wide_table_stays_on_one_screen(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{i}": rng.normal(size=50) for i in range(300)})
    frame.assign(y=rng.normal(size=50), word="a").to_csv(tmp_path / "wide.csv", index=False)
    result = run(tmp_path / "wide.csv", "--target", "y")
    assert result.exit_code == 0, result.output
    assert "… 277 more" in result.output and len(result.output.splitlines()) < 40
    assert "--all" in result.output
    result = run(tmp_path / "wide.csv", "--target", "y", "--all")
    assert result.exit_code == 0 and "more" not in result.output
    names = {line.split()[0] for line in result.output.splitlines() if line.strip()}
    assert names >= {f"x{i}" for i in range(300)}


def test_standard_input_is_described_and_warnings_are_printed(run):
    result = run("-", "--target", "y", stdin="a,a,y\n1,x,2\n3,z,4\n")
    assert result.exit_code == 0, result.output
    assert "standard input: 2 rows" in result.output and "note:" in result.output


def test_text_of_the_file_is_neither_markup_nor_a_command_to_the_terminal(run, tmp_path):
    path = tmp_path / "[red]table.csv"
    path.write_text("[bold]x[/bold],[/],y\n\x1b[31mred,[link=a]b,1\n[/],[/red],2\n")
    result = run(path, "--target", "y")
    assert result.exit_code == 0, result.output
    for text in ("[bold]x[/bold]", "[/]", "�[31mred", "[link=a]b", "[red]table.csv"):
        assert text in result.output
    assert "\x1b" not in result.output


BAD = {
    "empty.csv": b"",
    "binary.csv": bytes(range(256)) * 3,
    "ragged.csv": b"a,y\n1,2\n3\n",
    "header.csv": b"a,y\n",
    "one_row.csv": b"a,y\n1,2\n",
    "infinite.csv": b"a,y\n1,2\n3,inf\n",
    "text.csv": b"a,y\n1,red\n2,blue\n",
    "no_target.csv": b"a,b\n1,2\n3,4\n",
    "wide.csv": b",".join([b"y%d" % i for i in range(10_000)]) + b"\n",
    "cut.csv.gz": gzip.compress(os.urandom(500))[:-20],
    "not.parquet": b"a,y\n1,2\n",
    "not.xlsx": b"PK\x03\x04 not really",
    "open.csv": b'a,y\n1,2\n"3,4\n',
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_sentence_and_exit_code_2(name, run, tmp_path):
    path = tmp_path / name
    path.write_bytes(BAD[name])
    result = run(path, "--target", "y")
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    lines = result.output.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and lines[0].endswith((".", "?"))


def test_bad_paths_and_options_are_one_sentence_and_exit_code_2(run, tmp_path):
    (tmp_path / "good.csv").write_text("a,y\n1,2\n3,4\n")
    for arguments in (
        (tmp_path,),
        (tmp_path / "none.csv",),
        ("https://example.org/table.csv",),
        (tmp_path / "good.csv", "--drop", "b"),
        (tmp_path / "good.csv", "--category", "b"),
        (tmp_path / "good.csv", "--encoding", "utf-16"),
        (tmp_path / "good.csv", "--delimiter", "ab"),
        (tmp_path / "good.csv", "--time-column", "b"),
    ):
        result = run(*arguments, "--target", "y")
        assert result.exit_code == 2 and result.output.startswith("error: "), result.output


def test_the_program_itself_ends_with_a_sentence_and_no_traceback(tmp_path):
    (tmp_path / "ragged.csv").write_text("a,y\n1,2\n3\n")
    source = str(Path(sigmax.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-m", "sigmax", "describe", "ragged.csv", "--target", "y"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr == (
        "error: ragged.csv, line 3: the header has 2 columns and this row has 1.\n"
    )
