"""Malformed files are read, or raise one class of errors with one sentence."""

import gzip
import io
import random
import warnings
from typing import Any

import openpyxl
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sigmax.errors import TableFileError
from sigmax.tables.reading import read_chunks, read_table

N_MUTATIONS = 300
"""Of each of four kinds of files; hypothesis makes the rest of two thousand."""

FRAME = pd.DataFrame(
    {
        "size": [1.5, 2.5, None, 4.0] * 5,
        "colour": ["red", "green", None, "blue, dark"] * 5,
        "day": pd.date_range("2020-01-01", periods=20).strftime("%Y-%m-%d"),
        "price": range(20),
    }
)


def whole_files() -> dict[str, bytes]:
    """One file of every kind that can be read."""
    text = FRAME.to_csv(index=False).encode()
    parquet, excel = io.BytesIO(), io.BytesIO()
    FRAME.to_parquet(parquet, index=False)
    book = openpyxl.Workbook()
    sheet: Any = book.active
    for row in [list(FRAME.columns), *FRAME.astype(object).where(FRAME.notna(), None).to_numpy()]:
        sheet.append(list(row))
    book.save(excel)
    contents = {"parquet": parquet.getvalue(), "xlsx": excel.getvalue()}
    return {"csv": text, "csv.gz": gzip.compress(text), **contents}


WHOLE = whole_files()


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, taken away, put in or doubled."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(damaged) + 1)
        match rng.randrange(5):
            case 0:
                damaged[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                del damaged[place : place + rng.randint(1, 40)]
            case 2:
                damaged[place:place] = rng.randbytes(rng.randint(1, 20))
            case 3:
                damaged[place:place] = rng.choice([b'"', b",", b"\n", b"\0", b"\r", b";", b"inf"])
            case _:
                del damaged[place:]
    return bytes(damaged)


def read_or_fail(path) -> bool:
    """True if a file is read, False if it raises TableFileError with one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            whole = read_table(path)
            parts = sum(len(part) for part in read_chunks(path, rows_per_chunk=7))
        except TableFileError as error:
            text = str(error)
            assert path.name in text or "delimiter" in text, text
            assert "\n" not in text and len(text) < 500 and text.endswith("."), text
            return False
    assert len(whole) == parts > 0 and whole.shape[1] > 0
    return True


@pytest.mark.parametrize("kind", WHOLE)
def test_files_with_changed_bytes_are_read_or_raise_one_error(kind, tmp_path):
    rng = random.Random(kind)
    path = tmp_path / f"table.{kind}"
    n_read = 0
    for _ in range(N_MUTATIONS):
        path.write_bytes(mutate(WHOLE[kind], rng))
        n_read += read_or_fail(path)
    assert n_read < N_MUTATIONS
    path.write_bytes(WHOLE[kind])
    assert read_or_fail(path)


CELL = st.text(st.sampled_from("ab01,;|\t\n\r\" .%$€é=-+eE'\x00\ufeff"), max_size=6)
ROWS = st.lists(st.lists(CELL, max_size=4), max_size=5)
TEXTS = st.one_of(
    st.binary(max_size=60),
    CELL.map(str.encode),
    st.tuples(
        ROWS, st.sampled_from(",;\t|"), st.sampled_from(["utf-8", "utf-16", "utf-8-sig"])
    ).map(lambda what: "\n".join(what[1].join(row) for row in what[0]).encode(what[2])),
)


@settings(
    max_examples=800,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
    derandomize=True,
)
@given(content=TEXTS, ending=st.sampled_from(["csv", "csv", "csv", "tsv", "gz", "xlsx", "parquet"]))
def test_made_up_files_are_read_or_raise_one_error(content, ending, tmp_path):
    path = tmp_path / f"table.{ending}"
    path.write_bytes(content)
    read_or_fail(path)
