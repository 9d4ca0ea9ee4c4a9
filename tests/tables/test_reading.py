"""Reading tables from every kind of file, and errors for files that are not tables."""

import bz2
import gzip
import io
import lzma
import os
import sys
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sigmax.errors import MissingExtraError, TableFileError, TableFileWarning
from sigmax.tables import sources
from sigmax.tables.reading import read_chunks, read_table

TABLES = ["ames", "diamonds", "employee_salaries", "hotel_rates", "kc_housing", "taxis"]


@pytest.fixture
def write(tmp_path):
    """Write a file, of text or bytes, and give its path."""

    def write(content: str | bytes, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def plain(frame: Any) -> dict[str, list]:
    """Cells as Python has them, None if missing."""
    cells = frame.astype(object)
    return cells.where(cells.notna(), None).to_dict(orient="list")


@pytest.mark.parametrize("name", TABLES)
def test_real_tables_are_what_pandas_reads(name, data_folder):
    path = data_folder / "tables" / f"{name}.csv.gz"
    found, expected = read_table(path), pd.read_csv(path)
    assert list(found.columns) == list(expected.columns)
    for column in expected:
        left, right = found[column], expected[column]
        np.testing.assert_array_equal(left.isna(), right.isna())
        if right.dtype.kind in "fi":
            np.testing.assert_allclose(left.dropna().to_numpy(float), right.dropna(), rtol=1e-12)
        else:
            assert left.dropna().astype(str).tolist() == right.dropna().astype(str).tolist()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found_with_quoted_cells_and_names_with_blanks(delimiter, write):
    rows = [["the size", '"a, b; c|d\te"'], ["1", '"say ""hi"""'], ["2", '"two\nlines"']]
    path = write("\n".join(delimiter.join(row) for row in rows))
    expected = {"the size": [1, 2], "a, b; c|d\te": ['say "hi"', "two\nlines"]}
    assert plain(read_table(path)) == expected
    assert plain(read_table(path, delimiter=delimiter)) == expected


def test_words_for_delimiters_and_one_column(write):
    assert plain(read_table(write("a,b\t c\nx,y\t3\n"), delimiter="tab")) == {
        "a,b": ["x,y"],
        "c": [3],
    }
    assert plain(read_table(write("x\n1\n\n3\n\n\n"))) == {"x": [1, None, 3]}
    assert plain(read_table(write("\n\nx,y\n\n1,2\n  \n3,4\n"))) == {"x": [1, 3], "y": [2, 4]}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_encodings_and_line_ends_are_found(encoding, end, write):
    path = write(f"größe,wort{end}1.5,naïve €{end}".encode(encoding))
    assert plain(read_table(path)) == {"größe": [1.5], "wort": ["naïve €"]}


def test_western_text_is_read_with_a_notice(write):
    path = write("größe,preis\n1,5 €\n2,6 €\n".encode("cp1252"))
    with pytest.warns(TableFileWarning, match="cp1252"):
        assert plain(read_table(path)) == {"größe": [1, 2], "preis": [5, 6]}
    assert plain(read_table(path, encoding="cp1252")) == {"größe": [1, 2], "preis": [5, 6]}
    late = "a\n" + f"{'x' * 999}\n" * 1200 + "é\n"  # the first megabyte is plain
    with pytest.warns(TableFileWarning):
        assert read_table(write(late.encode("latin-1")))["a"].iloc[-1] == "é"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,234", "1,234,567"], [1234, 1234567]),
        (["$1,200.50", "-$3"], [1200.5, -3.0]),
        (["12 %", "3.5%", ""], [12.0, 3.5, None]),
        (["1 200", "7"], None),
        (["+5", "-.5", "1e3"], [5.0, -0.5, 1000.0]),
        ([" 5", "6 "], [5, 6]),
        (["$5", "€5"], None),
        (["5 %", "5"], None),
        (["02134", "98101"], None),
        (["0x1F", "12"], None),
        (["99999999999999999999", "1"], None),
        (["1_000", "2"], None),
        (["0,123", "1,5"], None),
        (["NA", "n/a", "3"], [None, None, 3]),
        (["1.0", "2"], [1.0, 2.0]),
        (["=1+1", "2"], None),
        (["True", "False"], None),
    ],
)
def test_text_is_a_number_where_every_cell_says_so(cells, expected, write):
    path = write("a,b\n" + "".join(f'"{cell}",x\n' for cell in cells))
    found = plain(read_table(path))["a"]
    assert found == (cells if expected is None else expected)
    assert [type(cell) for cell in found] == [type(cell) for cell in expected or cells]


def test_decimal_commas_are_found_between_semicolons(write):
    text = "ort;wert;menge\nA;1,5;1.234\nB;-2,25;7\nC;;12.000\n"
    expected = {"ort": ["A", "B", "C"], "wert": [1.5, -2.25, None], "menge": [1234, 7, 12000]}
    assert plain(read_table(write(text))) == expected
    assert plain(read_table(write("a;b\n1.5;2\n2.5;3\n"))) == {"a": [1.5, 2.5], "b": [2, 3]}
    found = read_table(write('a,b\n"1,5",2\n"3",4\n'), decimal=",")
    assert plain(found) == {"a": [1.5, 3.0], "b": [2, 4]}


def test_whole_numbers_with_missing_values_stay_whole(write):
    found = read_table(write("a,b\n1,\n,\n3,\n"))
    assert str(found["a"].dtype) == "Int64" and str(found["b"].dtype) == "float64"


def test_blank_and_repeated_names_are_replaced_with_a_notice(write):
    with pytest.warns(TableFileWarning, match="'column_1', 'a_3'"):
        found = read_table(write(",a,a_2,a\n1,2,3,4\n"))
    assert list(found.columns) == ["column_1", "a", "a_2", "a_3"]


@pytest.mark.parametrize(
    ("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]
)
def test_compressed_text_is_read_whatever_its_name(ending, pack, write):
    content = pack(b"a,b\n1,x\n2,y\n")
    for name in (f"table.csv.{ending}", "table.csv"):
        assert plain(read_table(write(content, name))) == {"a": [1, 2], "b": ["x", "y"]}


def test_parquet_keeps_its_types(tmp_path):
    days = pd.date_range("2020-01-01", periods=3)
    table = pa.table(
        {
            "whole": pa.array([1, None, 3]),
            "part": pa.array([0.5, None, 2.0]),
            "text": pa.array(["a", None, "02"]),
            "level": pa.array(["x", "y", "x"]).dictionary_encode(),
            "day": pa.array([day.date() for day in days]),
            "moment": pa.array(days.to_numpy()),
            "truth": pa.array([True, None, False]),
            "money": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
        }
    )
    pq.write_table(table, tmp_path / "table.parquet")
    found = read_table(tmp_path / "table.parquet")
    assert plain(found[["whole", "text", "level", "truth", "money"]]) == {
        "whole": [1, None, 3],
        "text": ["a", None, "02"],
        "level": ["x", "y", "x"],
        "truth": [True, None, False],
        "money": [1.0, 2.0, 3.0],
    }
    assert found["day"].tolist() == found["moment"].tolist() == list(days)
    assert len(read_table(tmp_path / "table.parquet", max_rows=2)) == 2


def make_book(path, rows, *, title="one", more=()):
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = title
    for row in rows:
        sheet.append(row)
    for name in more:
        book.create_sheet(name).append(["other"])
    book.save(path)
    return path


def test_excel_values_are_read_and_formulas_are_not_run(tmp_path):
    day = pd.Timestamp("2020-05-01")
    rows = [
        [None],
        ["n", "part", "word", "day", "mixed", "money"],
        [1, 0.5, "a", day.to_pydatetime(), 1, "$1,000"],
        [],
        [None, 2, '=WEBSERVICE("http://x")', None, "z", "$5"],
    ]
    path = make_book(tmp_path / "book.xlsx", rows, more=["two"])
    with pytest.warns(TableFileWarning, match="2 sheets"):
        found = read_table(path)
    assert plain(found) == {
        "n": [1, None],
        "part": [0.5, 2.0],
        "word": ["a", None],
        "day": [day, None],
        "mixed": ["1", "z"],
        "money": [1000, 5],
    }
    with pytest.raises(TableFileError, match="no sheet 'three': choose from 'one', 'two'"):
        read_table(path, sheet="three")
    with pytest.raises(TableFileError, match="no rows"):
        read_table(path, sheet="two")


def test_rows_that_no_sheet_can_have_are_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("sigmax.tables.excel.MAX_ROWS", 1000)
    path = make_book(tmp_path / "book.xlsx", [["a", "b"], [1, 2]])
    damaged = tmp_path / "damaged.xlsx"
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(damaged, "w") as copy:
        for name in whole.namelist():
            content = whole.read(name)
            copy.writestr(name, content.replace(b'<row r="2"', b'<row r="99999999999"'))
    with pytest.raises(TableFileError, match="no rows"):
        read_table(damaged)


def test_standard_input_and_pipes_are_read(monkeypatch, tmp_path):
    for content in (b"a,b\n1,2\n", gzip.compress(b"a,b\n1,2\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert plain(read_table("-")) == {"a": [1], "b": [2]}
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a,b\n1,2\n",))
    writer.start()
    assert plain(read_table(pipe)) == {"a": [1], "b": [2]}
    writer.join()


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "xlsx"])
def test_chunks_together_are_the_whole(kind, tmp_path):
    n = 25
    frame = pd.DataFrame({"a": range(n), "b": np.linspace(0.25, 1, n), "c": list("xyzuv") * 5})
    path = tmp_path / f"table.{kind}"
    match kind:
        case "parquet":
            frame.to_parquet(path, index=False)
        case "xlsx":
            make_book(path, [list(frame.columns), *frame.to_numpy(object).tolist()])
        case _:
            frame.to_csv(path, index=False)
    chunks = list(read_chunks(path, rows_per_chunk=10))
    assert [len(chunk) for chunk in chunks] == [10, 10, 5]
    pd.testing.assert_frame_equal(pd.concat(chunks), read_table(path))
    first = pd.concat(read_chunks(path, rows_per_chunk=10, max_rows=12))
    pd.testing.assert_frame_equal(first, read_table(path, max_rows=12))


def test_chunks_that_are_not_wanted_leave_nothing_open(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n" + b"1,2\n" * 100)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    chunks = read_chunks("-", rows_per_chunk=10)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n \n\n", "only blank lines"),
    "header.csv": (b"a,b\n", "has a header and no rows"),
    "long.csv": (b"a,b\n1,2\n\n1,2,3\n", "line 4: the header has 2 columns and this row has 3"),
    "short.csv": (b"a,b\n1,2\n1\n", "line 3: the header has 2 columns and this row has 1"),
    "binary.csv": (bytes(range(256)) * 4, "is not a text file"),
    "nul.csv": (b"a,b\n1,\x002\n", "line 2: a NUL"),
    "infinite.csv": (b"a,b\n1,2\n3,-inf\n", "line 3, column 'b': an infinite number"),
    "huge.csv": (b"a,b\n1,2\n3,1e999\n", "line 3, column 'b': an infinite number"),
    "open.csv": (b'a,b\n1,2\n3,"4\n5,6\n', "line 3: a quote is opened and not closed"),
    "after.csv": (b'a,b\n1,"2"3\n', "line 2: a quoted cell goes on after its closing quote"),
    "cell.csv": (b'a,b\n1,"' + b"x" * 200_000, "line 2: a cell has more than 131,072 characters"),
    "line.csv": (b"a,b\n1," + b"x" * 11_000_000, "line 2: longer than 10,000,000 characters"),
    "wide.csv": (b",".join([b"a"] * 10_000) + b"\n", "10,000 columns; at most 5,000"),
    "cut.csv.gz": (gzip.compress(b"a,b\n" + bytes(range(48, 58)) * 99)[:-9], "damaged gzip file"),
    "not.csv.gz": (b"a,b\n1,2\n", "is not a gzip file, as its name says"),
    "not.parquet": (b"a,b\n1,2\n", "is not a Parquet file, as its name says"),
    "cut.parquet": (b"PAR1" + b"x" * 50, "damaged Parquet file"),
    "not.xlsx": (b"a,b\n1,2\n", "is not a Excel"),
    "secret.xlsx": (b"\xd0\xcf\x11\xe0" + b"x" * 600, "protected by a password"),
    "zip.xlsx": (b"PK\x03\x04" + b"x" * 600, "damaged Excel"),
    "nothing.zip": (b"PK\x05\x06" + b"\0" * 18, "empty zip"),
    "inner.gz": (gzip.compress(b"PAR1" + b"x" * 40), "compressed Parquet"),
    "old.xls": (b"\xd0\xcf\x11\xe0" + b"x" * 600, "is an old Excel file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_an_error_names_the_file_and_the_line(name, write):
    content, message = DAMAGED[name]
    path = write(content, name)
    for read in (read_table, lambda path: list(read_chunks(path))):
        with warnings.catch_warnings(), pytest.raises(TableFileError) as caught:
            warnings.simplefilter("ignore", TableFileWarning)
            read(path)
        text = str(caught.value)
        assert str(path) in text and message in text and "\n" not in text, text


def test_wrong_options_raise_an_error(write):
    path = write("größe\n1\n".encode("cp1252"))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"encoding": "utf-8"}, "line 1: a byte that is not a character"),
        ({"encoding": "utf-16"}, "not a character"),
        ({"encoding": "klingon"}, "Unknown encoding 'klingon'"),
        ({"encoding": "base64"}, "Unknown encoding 'base64'"),
        ({"encoding": "cp1252", "delimiter": "ab"}, "one character"),
        ({"encoding": "cp1252", "delimiter": '"'}, "one character"),
        ({"encoding": "cp1252", "decimal": "x"}, "decimal sign"),
    ]
    for options, message in cases:
        with pytest.raises(TableFileError, match=message):
            read_table(path, **options)


def test_paths_without_a_table_raise_an_error(tmp_path, write):
    for source, message in [
        (tmp_path, "is a folder"),
        (tmp_path / "none.csv", "does not exist"),
        ("https://example.org/a.csv", "is an address"),
        ("/dev/zero", "is a device"),
        ("a\0b.csv", "cannot be read"),
        (write("x") / "below.csv", "cannot be read"),
    ]:
        with pytest.raises(TableFileError, match=message):
            read_table(source)
    locked = write("a,b\n1,2\n", "locked.csv")
    locked.chmod(0)
    if not os.access(locked, os.R_OK):  # the superuser may read anything
        with pytest.raises(TableFileError, match="Permission denied"):
            read_table(locked)


def test_files_that_expand_too_much_raise_an_error(write, monkeypatch):
    monkeypatch.setattr(sources, "ALWAYS_ALLOWED", 1 << 20)
    with pytest.raises(TableFileError, match="200 times as long"):
        read_table(write(gzip.compress(b"a\n" + b"1\n" * 2_000_000), "bomb.csv.gz"))
    monkeypatch.setattr("sigmax.tables.excel.MAX_UNPACKED", 1 << 20)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * (1 << 21))
    with pytest.raises(TableFileError, match=r"2\.1 MB when it is unpacked"):
        read_table(write(packed.getvalue(), "bomb.xlsx"))
    monkeypatch.setattr("sigmax.tables.excel.MAX_UNPACKED", 1 << 30)
    monkeypatch.setattr("sigmax.tables.excel.SMALL_UNPACKED", 1 << 20)
    with pytest.raises(TableFileError, match=r"2\.1 MB when .* its size is 1\.0 MB"):
        read_table(write(packed.getvalue(), "bomb.xlsx"))


def test_a_sheet_of_few_cells_that_are_far_apart_is_not_read_for_ever(tmp_path):
    """Two cells a row, of which one is in the last column, are 3 MB for 300,000 rows."""
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(["a", "b"])
    book.save(tmp_path / "narrow.xlsx")
    row = '<row r="{0}"><c r="A{0}"><v>1</v></c><c r="XFD{0}"/></row>'
    rows = "".join(row.format(i) for i in range(2, 4000))
    with (
        zipfile.ZipFile(tmp_path / "narrow.xlsx") as narrow,
        zipfile.ZipFile(tmp_path / "wide.xlsx", "w", zipfile.ZIP_DEFLATED) as wide,
    ):
        for name in narrow.namelist():
            text = narrow.read(name).decode()
            wide.writestr(name, text.replace("</sheetData>", rows + "</sheetData>"))
    with pytest.raises(TableFileError, match=r"more than 33,554,432 cells"):
        read_table(tmp_path / "wide.xlsx")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_larger_than_memory_raises_an_error_before_it_is_read(kind, tmp_path, monkeypatch):
    path = tmp_path / f"table.{kind}"
    frame = pd.DataFrame({"a": np.arange(10_000.0)})
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    monkeypatch.setattr(sources, "available_memory", lambda: 100_000)
    message = r"needs about [\d.]+ kB of memory and 100\.0 kB are free"
    with pytest.raises(TableFileError, match=message):
        read_table(path)
    assert sum(map(len, read_chunks(path, rows_per_chunk=1000))) == 10_000


def test_columns_of_lists_or_bytes_raise_an_error_with_their_name(tmp_path):
    for cells in ([[1], [2]], [b"a", b"b"]):
        pq.write_table(pa.table({"x": cells}), tmp_path / "table.parquet")
        with pytest.raises(TableFileError, match="column 'x': cells of type"):
            read_table(tmp_path / "table.parquet")
    pq.write_table(pa.table({"x": [1.0, np.inf]}), tmp_path / "table.parquet")
    with pytest.raises(TableFileError, match="row 2, column 'x': an infinite number"):
        read_table(tmp_path / "table.parquet")


def test_excel_files_need_an_extra(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    path = write(b"PK\x03\x04" + b"x" * 600, "new.xlsx")
    message = r'new.xlsx as CSV, or install openpyxl to read it: pip install "sigmax\[excel\]"'
    with pytest.raises(MissingExtraError, match=message):
        read_table(path)


def test_chunks_are_read_in_bounded_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "table.csv"
    with path.open("w") as stream:
        stream.write("a,b,c\n")
        stream.writelines(f"{i},{i / 7:.4f},word{i % 9}\n" for i in range(20_000))
    tracemalloc.start()
    n_rows = sum(len(chunk) for chunk in read_chunks(path, rows_per_chunk=100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_rows == 20_000 and peak < 4 * 2**20
