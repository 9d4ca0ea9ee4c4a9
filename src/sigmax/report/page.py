"""A page that stands alone: parts with charts and tables, put into HTML that loads nothing.

Whatever comes from data is shown as text: the template escapes it, the script sets it as text, and
the data of charts are JSON in which no tag can begin. Should some of it slip through, the page's
policy runs no script but the two that it knows by their hashes.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sigmax.report.charts import Chart

__all__ = [
    "Caution",
    "KeyFigure",
    "Page",
    "PagePart",
    "PageTable",
    "TableCell",
    "TableRow",
    "embed_json",
]

SCRIPTS = ("scales.js", "charts.js", "page.js")
STYLE = "page.css"
SHORT = 24
"""Characters of a cell that stays on one line."""


@final
@dataclass(frozen=True)
class TableCell:
    """Text of a table, and the number by which it is sorted if it is one."""

    text: str
    value: float | int | None = None

    @property
    def is_short(self) -> bool:
        """Whether it stays on one line."""
        return len(self.text) <= SHORT


@final
@dataclass(frozen=True)
class TableRow:
    """A row, which may be opened to show another table."""

    cells: Sequence[TableCell]
    details: "PageTable | None" = None


@final
@dataclass(frozen=True, kw_only=True)
class PageTable:
    """A table that can be sorted and filtered."""

    title: str
    header: Sequence[str]
    rows: Sequence[TableRow]
    notes: Sequence[str] = ()
    opens: str = ""
    """What a row shows when it is opened."""
    is_folded: bool = False
    """Whether it is shown only when asked for."""
    has_filter: bool = True
    """Whether it can be filtered, if it is long enough."""

    @property
    def is_number(self) -> list[bool]:
        """Which columns hold numbers."""
        columns = zip(*(row.cells for row in self.rows), strict=True) if self.rows else ()
        found = [any(cell.value is not None for cell in column) for column in columns]
        return found or [False] * len(self.header)

    @property
    def can_be_filtered(self) -> bool:
        return self.has_filter and len(self.rows) > 7


@final
@dataclass(frozen=True)
class KeyFigure:
    """A number at the top of the page."""

    label: str
    value: str
    detail: str = ""


@final
@dataclass(frozen=True)
class Caution:
    """Something to know before anything on the page is believed."""

    code: str
    text: str
    is_grave: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class PagePart:
    """A section of the page."""

    name: str
    """An identifier of the page: letters, digits and dashes."""
    heading: str
    lead: str = ""
    charts: Sequence[Chart] = ()
    choices: Sequence[tuple[str, Chart]] = ()
    """Charts of which one is shown at a time, by what a person chooses."""
    choice_label: str = ""
    tables: Sequence[PageTable] = ()
    notes: Sequence[str] = ()

    @property
    def all_charts(self) -> list[Chart]:
        return [*self.charts, *(chart for _, chart in self.choices)]


@final
@dataclass(frozen=True, kw_only=True)
class Page:
    """A report."""

    title: str
    subtitle: str
    headline: str
    basis: str = ""
    """What the headline rests on."""
    figures: Sequence[KeyFigure] = ()
    warnings: Sequence[Caution] = ()
    no_warnings: str = ""
    parts: Sequence[PagePart] = ()
    command: str = ""
    """That makes this page again."""
    facts: Sequence[tuple[str, str]] = field(default=())
    """How it was made."""

    def to_html(self) -> str:
        """The page as one file."""
        charts = {chart.name: chart.to_json() for part in self.parts for chart in part.all_charts}
        script, style = static_text(SCRIPTS), static_text((STYLE,))
        policy = {
            "default-src": "'none'",
            "script-src": content_hash(script),
            "style-src": content_hash(style),
            "base-uri": "'none'",
            "form-action": "'none'",
        }
        return (
            environment()
            .get_template("page.html")
            .render(
                page=self,
                charts=embed_json(charts),
                script=Markup(script),
                style=Markup(style),
                policy="; ".join(f"{name} {sources}" for name, sources in policy.items()),
            )
        )


def embed_json(values: Any) -> Markup:
    """JSON that can stand in a script element, whatever text is in it.

    Examples
    --------
    >>> print(embed_json({"name": "</script><!--"}))
    {"name":"\\u003c/script\\u003e\\u003c!--"}
    """
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))  # which is ASCII
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def unbroken(text: str) -> str:
    """Text in which no line ends between a number and its sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace("± ", "±\N{NO-BREAK SPACE}")


def content_hash(text: str) -> str:
    """By which a policy knows a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def static_text(names: tuple[str, ...]) -> str:
    """The content of some files of this package, one after another."""
    folder = files("sigmax.report") / "static"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def environment() -> Environment:
    """Templates in which all text is escaped."""
    made = Environment(
        autoescape=True,
        loader=PackageLoader("sigmax.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["unbroken"] = unbroken
    return made
