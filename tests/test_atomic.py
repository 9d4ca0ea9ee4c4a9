"""Atomic writes: files and folders appear complete or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import sigmax
from sigmax.atomic import new_file, new_folder
from sigmax.errors import ModelFileError, TableFileError
from sigmax.tables.writing import write_table

FRAME = pd.DataFrame({"name": ["a", "b"], "part": [0.5, -1.25]})


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(RuntimeError), new_folder(path) as folder:
        (folder / "a").write_text("1")
        raise RuntimeError
    assert not os.listdir(tmp_path)
    with new_folder(path) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "a").write_text("1")
        assert not path.exists()
    assert (path / "inner" / "a").read_text() == "1" and os.listdir(tmp_path) == ["model"]


def test_an_older_folder_is_replaced_by_force_only_and_if_it_holds_nothing_else(tmp_path):
    path = tmp_path / "model"
    with new_folder(path) as folder:
        (folder / "a").write_text("old")
    with pytest.raises(TableFileError, match="--force"), new_folder(path):
        pass
    with new_folder(path, force=True) as folder:
        (folder / "a").write_text("new")
    assert (path / "a").read_text() == "new"
    (path / "diary.txt").write_text("mine")
    with pytest.raises(TableFileError, match=r"also holds diary\.txt"):
        with new_folder(path, force=True) as folder:
            (folder / "a").write_text("newer")
    with pytest.raises(TableFileError, match=r"also holds diary\.txt"):
        with new_folder(path, force=True, names=("a",)):
            pytest.fail("refused before the work")
    assert (path / "a").read_text() == "new" and os.listdir(tmp_path) == ["model"]
    with pytest.raises(TableFileError, match="is a file"), new_folder(path / "a"):
        pass


SLOW = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background
from sigmax.atomic import new_folder
from sigmax.tables.writing import write_table
import pandas as pd
def rows():
    yield pd.DataFrame({"a": [1]})
    print("begun", flush=True)
    time.sleep(3600)
with new_folder("model") as folder:
    (folder / "a").write_text("1")
    write_table(rows(), "out.csv")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_process_leaves_nothing_that_stays(number, tmp_path):
    source = Path(sigmax.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        assert process.wait(timeout=600) != 0
    if number == signal.SIGKILL:  # nobody can clean up then, but the next run does
        assert all(name.endswith(".partial") for name in os.listdir(tmp_path))
        with new_folder(tmp_path / "model"):
            pass
        write_table([FRAME], tmp_path / "out.csv")
        assert sorted(os.listdir(tmp_path)) == ["model", "out.csv"]
    else:
        assert not os.listdir(tmp_path)


def test_a_file_of_another_process_that_lives_is_left_alone(tmp_path):
    with new_folder(tmp_path / "model"):
        write_table([FRAME], tmp_path / "model.csv")
        before = set(os.listdir(tmp_path))
        with new_folder(tmp_path / "model") as second:
            assert before < set(os.listdir(tmp_path))
            (second / "a").write_text("second")
        assert (tmp_path / "model" / "a").exists()
        (tmp_path / "model" / "a").unlink()


def test_the_class_of_errors_can_be_chosen(tmp_path):
    (tmp_path / "file").write_text("")
    for new in (new_file, new_folder):
        for failure in (ModelFileError, TableFileError):
            with pytest.raises(failure), new(tmp_path / "file" / "below", failure=failure):
                pass
    assert os.listdir(tmp_path) == ["file"]
