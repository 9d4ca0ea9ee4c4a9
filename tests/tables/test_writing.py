"""Writing tables: formats, formulas and types."""

import gzip
import io
import os
import re
import sys
import time

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmax.errors import TableFileError
from sigmax.tables.reading import read_table
from sigmax.tables.writing import harmless, write_table

FRAME = pd.DataFrame(
    {
        "name": ["plain", "with, comma", "two\nlines", None],
        "whole": pd.array([1, -2, None, 4], dtype="Int64"),
        "part": [0.5, -1.25, np.nan, 1e-9],
    }
)


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
def test_what_is_written_in_chunks_is_read_back(ending, tmp_path):
    path = tmp_path / f"out.{ending}"
    write_table(iter([FRAME.iloc[:2], FRAME.iloc[2:]]), path)
    found = read_table(path)
    pd.testing.assert_frame_equal(found, FRAME, check_dtype=False)
    assert os.listdir(tmp_path) == [path.name]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_formulas_are_written_harmless_and_numbers_as_they_are(tmp_path):
    cells = ["=1+1", "+cmd", "-x", "@sum", "\tx", "\rx", "-3.5", "+1e5", "a=b", "-12 %", "-"]
    frame = pd.DataFrame({"=name": cells, "n": range(-5, 6), "c": pd.Categorical(cells)})
    write_table([frame], tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    expected = [f"'{cell}" for cell in cells[:5]] + ["'\nx"] + cells[6:10] + ["'-"]
    assert list(found.columns) == ["'=name", "n", "c"]
    assert found["'=name"].tolist() == found["c"].tolist() == expected
    assert found["n"].tolist() == [str(n) for n in range(-5, 6)]


@given(st.text(max_size=8) | st.text(';|\t\n\r,=-"1a', max_size=8))
@settings(max_examples=300, deadline=None)
def test_no_cell_begins_like_a_formula_unless_it_is_a_number(cell):
    written = harmless(cell)
    assert written.replace("'", "").splitlines() == cell.replace("'", "").splitlines()
    if written[:1] in ("\t", "\r"):
        pytest.fail(written)
    is_number = re.fullmatch(r"[+-]?[\d,.]+([eE][+-]?\d+)?\s?%?", written)
    for part in [written] if is_number else re.split('[;|\t\n]"*', written):
        if part[:1] in ("=", "@"):
            pytest.fail(written)
        if part[:1] in ("+", "-"):
            assert part[1:2].isdigit() or part[1:2] == "."


def test_only_cells_that_begin_as_a_formula_change():
    assert [harmless(cell) for cell in ("-3.5", "plain")] == ["-3.5", "plain"]
    assert harmless("a;=2+2;-1") == "a;'=2+2;-1"


def test_formulas_behind_another_separator_are_written_harmless(tmp_path):
    frame = pd.DataFrame(
        {"a;=b": ["a;=2+2", "a,=2+2", 'a;"=2+2"', "a\n=2+2", "a|@x", "1;-5", "a;b"]}
    )
    write_table([frame], tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv", dtype=str)
    cells = ["a;'=2+2", "a,=2+2", 'a;"\'=2+2"', "a\n'=2+2", "a|'@x", "1;-5", "a;b"]
    assert list(found) == ["a;'=b"] and found.iloc[:, 0].tolist() == cells
    write_table([frame.iloc[:2]], tmp_path / "out.tsv")
    found = pd.read_csv(tmp_path / "out.tsv", sep="\t", dtype=str)
    assert found.iloc[:, 0].tolist() == ["a;'=2+2", "a,'=2+2"]


def test_standard_output_gets_text(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stream)
    write_table([FRAME.iloc[:1]], "-")
    assert stream.buffer.getvalue() == b"name,whole,part\nplain,1,0.5\n"  # type: ignore[attr-defined]


def test_types_of_parquet_are_widened_when_chunks_differ(tmp_path):
    chunks = [
        pd.DataFrame({"a": [1, 2], "b": [np.nan, np.nan], "c": [1, 2]}),
        pd.DataFrame({"a": [0.5, 1.5], "b": ["x", None], "c": [3, 4]}),
        pd.DataFrame({"a": [3, 4], "b": ["y", "z"], "c": ["five", "6"]}),
    ]
    write_table(iter(chunks), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found == {
        "a": [1.0, 2.0, 0.5, 1.5, 3.0, 4.0],
        "b": [None, None, "x", None, "y", "z"],
        "c": ["1", "2", "3", "4", "five", "6"],
    }


def test_a_failure_leaves_the_older_file_and_nothing_else(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def broken():
        yield FRAME
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_table(broken(), path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.csv"]
    (tmp_path / "link.csv").symlink_to(path)
    write_table([FRAME], tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink() and path.read_text().startswith("name,")


def test_paths_that_cannot_be_written_raise_an_error(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("")
    for path, message in [
        (tmp_path / "out.xlsx", r"must end in \.csv, .* or \.pq"),
        (tmp_path / "folder.csv", "is a folder"),
        (tmp_path / "file" / "out.csv", "cannot be written"),
    ]:
        with pytest.raises(TableFileError, match=message):
            write_table([FRAME], path)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.csv"]


def test_the_same_rows_give_the_same_compressed_bytes(tmp_path):
    for name in ("one.csv.gz", "two.csv.gz"):
        write_table([FRAME], tmp_path / name)
        time.sleep(0.01)
    contents = [(tmp_path / name).read_bytes() for name in ("one.csv.gz", "two.csv.gz")]
    assert contents[0] == contents[1] and gzip.decompress(contents[0]).startswith(b"name,")
