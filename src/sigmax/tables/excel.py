"""Excel files: the values of one sheet. Formulas, macros and links are not followed."""

import datetime
import io
import warnings
import zipfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import pandas as pd
import pyarrow as pa

from sigmax.errors import MissingExtraError, TableFileError, TableFileWarning
from sigmax.tables.memory import check_memory, in_words
from sigmax.tables.names import clean_names
from sigmax.tables.numerals import parse_text
from sigmax.tables.parquet import told
from sigmax.tables.sources import Format, Source

__all__ = ["MAX_UNPACKED", "read_excel"]

MAX_UNPACKED = 1 << 30
"""Bytes of an Excel file when it is unpacked: it is read whole, so that larger ones are refused."""
MAX_RATIO, SMALL_UNPACKED = 50, 1 << 25
"""Bytes when unpacked over bytes of the file, about 10 in files of Excel; smaller ones may have
more."""
MAX_CELLS = 1 << 25
"""Cells of a sheet, empty ones included: one cell far to the right makes a row as long."""
MAX_ROWS = 1 << 20
"""Rows of a sheet, as Excel has them: what a file says beyond is not true."""

Row = Sequence[Any]


def read_excel(source: Source, sheet: str | None, max_rows: int | None) -> pd.DataFrame:
    """The values of one sheet, or of the first; its first row that has any is the header.

    Raises
    ------
    TableFileError
        If the file is damaged, protected or too large, or if it has no such sheet or no rows.
    """
    rows_of = rows_of_xlsx if source.format == Format.XLSX else rows_of_xls
    with told(source), warnings.catch_warnings(), closing(rows_of(source, sheet)) as all_rows:
        warnings.filterwarnings("ignore", module="openpyxl")  # of styles and the like
        rows = filter(any_cell, limited(source, islice(all_rows, MAX_ROWS)))
        header = next(rows, None)
        if header is None:
            raise TableFileError(f"{source.name}: the sheet is empty.")
        width = max(i for i, cell in enumerate(header, start=1) if has_value(cell))
        names = clean_names(source.name, header[:width])
        body = [fit_row(source, row, width) for row in islice(rows, max_rows)]
        if not body:
            raise TableFileError(f"{source.name} has a header and no rows.")
        columns = zip(*body, strict=True)
        return pd.DataFrame({n: as_column(c) for n, c in zip(names, columns, strict=True)})


def limited(source: Source, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows, refused once they have too many cells."""
    n_cells = 0
    for row in rows:
        n_cells += len(row)
        if n_cells > MAX_CELLS:
            raise TableFileError(
                f"{source.name} has more than {MAX_CELLS:,} cells, empty ones included: delete what"
                " stands far to the right of the table, or save it as CSV or Parquet."
            )
        yield row


def rows_of_xlsx(source: Source, sheet: str | None) -> Generator[Row]:
    """The rows of a sheet of an ``.xlsx`` file."""
    import openpyxl

    with zipfile.ZipFile(source.path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_UNPACKED:
        raise TableFileError(
            f"{source.name} has {in_words(size)} when it is unpacked, and Excel files are read up"
            f" to {in_words(MAX_UNPACKED)}: save it as CSV or Parquet."
        )
    if size > max(SMALL_UNPACKED, MAX_RATIO * source.path.stat().st_size):
        raise TableFileError(
            f"{source.name} has {in_words(size)} when it is unpacked, more than {MAX_RATIO} times"
            " its own size: save it as CSV or Parquet."
        )
    check_memory(source.name, 4 * size)
    book = openpyxl.load_workbook(source.path, read_only=True, data_only=True, keep_links=False)
    with closing(book):
        page = book[choose_sheet(source, [page.title for page in book.worksheets], sheet)]
        page.reset_dimensions()  # what the file says about its size may be wrong
        yield from page.iter_rows(values_only=True)


def rows_of_xls(source: Source, sheet: str | None) -> Generator[Row]:
    """The rows of a sheet of an ``.xls`` file."""
    try:
        import xlrd
    except ImportError as error:
        raise MissingExtraError(
            f"Reading {source.name} needs xlrd: pip install 'sigmax[table]', or save it as .xlsx."
        ) from error
    check_memory(source.name, 10 * source.path.stat().st_size)
    with xlrd.open_workbook(str(source.path), logfile=io.StringIO(), on_demand=True) as book:
        page = book.sheet_by_name(choose_sheet(source, book.sheet_names(), sheet))
        for i in range(page.nrows):
            yield [value_of(cell, book.datemode) for cell in page.row(i)]


def value_of(cell: Any, datemode: Any) -> Any:
    """The value of a cell of an ``.xls`` file: times are numbers there, and so are truth values."""
    import xlrd

    if cell.ctype == xlrd.XL_CELL_DATE:
        return xlrd.xldate.xldate_as_datetime(cell.value, datemode)
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return bool(cell.value)
    return None if cell.ctype == xlrd.XL_CELL_ERROR else cell.value


def choose_sheet(source: Source, sheets: list[str], wanted: str | None) -> str:
    """The wanted sheet, or the first; the others are mentioned."""
    if not sheets:
        raise TableFileError(f"{source.name} has no sheet with cells.")
    if wanted is not None and wanted not in sheets:
        known = ", ".join(map(repr, sheets))
        raise TableFileError(f"{source.name} has no sheet {wanted!r}: choose from {known}.")
    if wanted is None and len(sheets) > 1:
        text = f"{source.name} has {len(sheets)} sheets; the first, {sheets[0]!r}, was read."
        warnings.warn(text, TableFileWarning, stacklevel=2)
    return wanted or sheets[0]


def fit_row(source: Source, row: Row, width: int) -> list[Any]:
    """A row as long as the header; a cell beyond the header has no name."""
    if any_cell(row[width:]):
        cell = next(cell for cell in row[width:] if has_value(cell))
        raise TableFileError(f"{source.name}: the cell {cell!r} stands in a column without a name.")
    return [cell if has_value(cell) else None for cell in (*row, *[None] * width)[:width]]


def any_cell(row: Row) -> bool:
    return row.count(None) < len(row) and any(map(has_value, row))  # quick for long empty rows


def has_value(cell: Any) -> bool:
    return cell is not None and cell != ""


def as_column(cells: Sequence[Any]) -> pd.Series:
    """Numbers, times or truth values if all cells are, or else what the cells are as text."""
    present = [cell for cell in cells if cell is not None]
    if not present:
        return pd.Series([float("nan")] * len(cells))
    if all(isinstance(cell, bool) for cell in present):
        return pd.Series(cells, dtype="bool" if len(present) == len(cells) else "boolean")
    if all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in present):
        numbers = pd.Series(cells, dtype="float64")
        if any(cell % 1 != 0 or abs(cell) >= 2**53 for cell in present):
            return numbers
        return numbers.astype("int64" if len(present) == len(cells) else "Int64")
    if all(isinstance(cell, datetime.date) for cell in present):
        return pd.Series(pd.to_datetime(pd.Series(cells, dtype="object")))
    texts = [None if cell is None else str(cell) for cell in cells]
    return parse_text(pa.chunked_array([pa.array(texts, pa.string())]))
