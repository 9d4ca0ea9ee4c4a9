"""Excel files: the values of one sheet. Formulas, macros and links are not followed."""

import datetime
import warnings
import zipfile
from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import pandas as pd
import pyarrow as pa
from rich import filesize

from sigmax.errors import MissingExtraError, TableFileError, TableFileWarning
from sigmax.tables.sources import Source, check_memory, translate_errors
from sigmax.tables.table import clean_names
from sigmax.tables.text import parse_text

MAX_UNPACKED = 1 << 30
"""Bytes of an unpacked Excel file, which is read at once."""
MAX_RATIO, SMALL_UNPACKED = 50, 1 << 25
"""Largest ratio of unpacked to packed bytes, about 10 in files of Excel, and the unpacked bytes up
to which it may be larger."""
MAX_CELLS = 1 << 25
"""Cells of a sheet, empty ones included: one cell far to the right makes a row as long."""
MAX_ROWS = 1 << 20
"""Rows of a sheet of Excel; a damaged file may claim more."""

Row = Sequence[Any]


def read_excel(source: Source, sheet: str | None, max_rows: int | None) -> pd.DataFrame:
    """Values of one sheet, by default the first; the first row with a value is the header."""
    names, width, n_cells = None, 0, 0
    body: list[list[Any]] = []
    with (
        translate_errors(source.name, source.format),
        warnings.catch_warnings(),
        closing(sheet_rows(source, sheet)) as rows,
    ):
        warnings.filterwarnings("ignore", module="openpyxl")  # about styles and the like
        for row in islice(rows, MAX_ROWS):
            n_cells += len(row)
            if n_cells > MAX_CELLS:
                raise TableFileError(
                    f"{source.name} has more than {MAX_CELLS:,} cells, empty ones included: delete"
                    " the cells far to the right of the table, or save it as CSV or Parquet."
                )
            if row.count(None) == len(row):  # quick for long empty rows
                continue
            cells = [None if cell == "" else cell for cell in row]
            filled = [i for i, cell in enumerate(cells) if cell is not None]
            if not filled:
                continue
            if names is None:
                width = filled[-1] + 1
                names = clean_names(source.name, cells[:width])
                continue
            if filled[-1] >= width:
                cell = next(cells[i] for i in filled if i >= width)
                raise TableFileError(
                    f"{source.name}: the cell {cell!r} is in a column without a name."
                )
            body.append([*cells, *[None] * width][:width])
            if len(body) == max_rows:
                break
        if names is None:
            raise TableFileError(f"{source.name}: the sheet is empty.")
        if not body:
            raise TableFileError(f"{source.name} has a header and no rows.")
        columns = zip(*body, strict=True)
        return pd.DataFrame({n: as_column(c) for n, c in zip(names, columns, strict=True)})


def sheet_rows(source: Source, sheet: str | None) -> Generator[Row]:
    text = f"Save {source.name} as CSV, or install openpyxl to read it"
    with MissingExtraError.unless_imported(text, "excel"):
        import openpyxl
    with zipfile.ZipFile(source.path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    limit = min(MAX_UNPACKED, max(SMALL_UNPACKED, MAX_RATIO * source.path.stat().st_size))
    if size > limit:
        unpacked, most = map(filesize.decimal, (size, limit))
        raise TableFileError(
            f"{source.name} has {unpacked} when it is unpacked; the limit for an Excel file of its"
            f" size is {most}. Save it as CSV or Parquet."
        )
    check_memory(source.name, 4 * size)
    book = openpyxl.load_workbook(source.path, read_only=True, data_only=True, keep_links=False)
    with closing(book):
        page = book[choose_sheet(source, [page.title for page in book.worksheets], sheet)]
        page.reset_dimensions()  # the size in the file may be wrong
        yield from page.iter_rows(values_only=True)


def choose_sheet(source: Source, sheets: list[str], wanted: str | None) -> str:
    """Name of the wanted sheet, or of the first with a warning if there are others."""
    if not sheets:
        raise TableFileError(f"{source.name} has no sheet with cells.")
    if wanted is not None and wanted not in sheets:
        known = ", ".join(map(repr, sheets))
        raise TableFileError(f"{source.name} has no sheet {wanted!r}: choose from {known}.")
    if wanted is None and len(sheets) > 1:
        text = f"{source.name} has {len(sheets)} sheets; the first, {sheets[0]!r}, was read."
        warnings.warn(text, TableFileWarning, stacklevel=2)
    return wanted or sheets[0]


def as_column(cells: Sequence[Any]) -> pd.Series:
    """Numbers, times or booleans if all cells are, or else parsed as text."""
    present = [cell for cell in cells if cell is not None]
    is_complete = len(present) == len(cells)
    if not present:
        return pd.Series([float("nan")] * len(cells))
    if all(isinstance(cell, bool) for cell in present):
        return pd.Series(cells, dtype="bool" if is_complete else "boolean")
    if all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in present):
        numbers = pd.Series(cells, dtype="float64")
        if any(cell % 1 != 0 or abs(cell) >= 2**53 for cell in present):
            return numbers
        return numbers.astype("int64" if is_complete else "Int64")
    if all(isinstance(cell, datetime.date) for cell in present):
        return pd.Series(pd.to_datetime(pd.Series(cells, dtype="object")))
    texts = [None if cell is None else str(cell) for cell in cells]
    return parse_text(pa.chunked_array([pa.array(texts, pa.string())]))
