"""Tables of results, for the terminal, Markdown and pages, and the text of their numbers."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, SupportsFloat, final

import numpy as np
from numpy.typing import ArrayLike

LONGEST = 60


@final
class TableCell(str):
    """Text of a table cell, and the number that it shows: pages sort by it."""

    value: float | None

    def __new__(cls, text: str, value: SupportsFloat | None = None) -> "TableCell":
        cell = super().__new__(cls, text)
        number = math.nan if value is None else float(value)
        cell.value = number if math.isfinite(number) else None
        return cell

    @classmethod
    def number(cls, value: SupportsFloat, digits: int = 4) -> "TableCell":
        return cls(number_text(value, digits), value)

    @classmethod
    def share(cls, share: SupportsFloat) -> "TableCell":
        return cls(share_text(share), share)

    @classmethod
    def feature(cls, value: Any) -> "TableCell":
        """Value of a feature; numbers are sorted as numbers."""
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not is_number or not np.isfinite(value):
            return cls(cell_text(value))
        return cls(f"{float(value):.8g}".replace("-", "−"), value)


@final
@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows of text under a header; a `TableCell` also has the number that its text shows.

    The first column holds names. ``**text**`` is bold; tags are shown as text everywhere.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    in_words: bool = False
    """True if the other columns hold words, too."""
    details: Sequence["ReportTable | None"] = ()
    """A table for each row, which a page shows when the row is opened."""
    details_label: str = ""
    is_folded: bool = False
    """True if a page shows the table only on request."""
    has_filter: bool = False
    """True if a page lets readers filter the rows, when there are many."""

    @property
    def cells(self) -> list[list[TableCell]]:
        """The rows as a page shows them: without asterisks, with minus signs before numbers."""
        return [[page_cell(text) for text in row] for row in self.rows]

    @property
    def is_number(self) -> list[bool]:
        """True for each column that holds numbers."""
        columns = zip(*self.cells, strict=True)
        found = [any(cell.value is not None for cell in column) for column in columns]
        return found or [False] * len(self.header)

    def to_markdown(self) -> str:
        """Title, table and notes in GitHub's Markdown."""
        rule = ["---"] + ["---" if self.in_words else "---:"] * (len(self.header) - 1)
        header, *rows = [[markdown_text(text) for text in row] for row in (self.header, *self.rows)]
        lines = ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]
        paragraphs = [f"### {markdown_text(self.title)}", "\n".join(lines)]
        return "\n\n".join([*paragraphs, *map(markdown_text, self.notes)]) + "\n"


def page_cell(text: str) -> TableCell:
    value = getattr(text, "value", None)
    shown = text.replace("**", "")
    if value is not None and shown.startswith("-"):
        shown = f"−{shown[1:]}"
    return TableCell(shown, value)


def markdown_text(text: str) -> str:
    """Text on one line, with tags and cell separators escaped."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def number_text(value: SupportsFloat, digits: int = 4) -> str:
    """Format a number, without an exponent where none is needed: 79,873, 0.01235, 3e+12."""
    value = float(value)
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    is_plain = 10 ** (digits - 1) <= abs(value) < 1e10
    text = f"{value:,.0f}" if is_plain else f"{value:.{digits}g}"
    return text if "e" in text else text.replace("-", "−")


def share_text(share: SupportsFloat) -> str:
    """Format a share as a percentage, with a decimal near 0 and 100 %: 89 %, 0.4 %, > 99.9 %."""
    share = float(share)
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 < share < 1:
        return "> 99.9 %"
    is_near_end = 0 < share < 0.02 or 0.98 < share < 1
    return f"{100 * share:.1f} %" if is_near_end else f"{100 * share:.0f} %"


def mean_and_error(values: ArrayLike, *, digits: int = 2) -> str:
    """Mean and, for more than one value, its standard error: 2.00 ± 0.58; empty without values."""
    values = np.asarray(values, dtype=float)
    if not len(values):
        return ""
    mean = f"{values.mean():.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}"


def three_decimals(values: ArrayLike) -> int:
    """Number of decimals that show three digits of the mean absolute value."""
    size = float(np.mean(np.abs(np.asarray(values, dtype=float))))
    return max(0, 2 - int(np.floor(np.log10(size)))) if size > 0 else 2


def count_text(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def cell_text(value: object) -> str:
    """Format a value of the data, shortened."""
    if value is None or str(value) in ("NaT", "<NA>") or value != value:  # NA cannot be compared
        return "(missing)"
    if isinstance(value, float):
        return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else number_text(value)
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def time_text(seconds: float) -> str:
    """Format seconds since 1970 as a date, with hours and minutes unless it is midnight."""
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    return text.removesuffix(" 00:00")
