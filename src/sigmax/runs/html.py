"""One HTML page that stands alone: its style and pictures are in it, and it loads nothing."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import final

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from sigmax.runs.tables import ReportTable

__all__ = ["Section", "render_page"]


@final
@dataclass(frozen=True)
class Section:
    """A part of a page: tables, and pictures below them."""

    heading: str
    tables: list[ReportTable]
    pictures: dict[str, bytes] = field(default_factory=dict)
    """Name -> content of a PNG file."""


def bold(text: str) -> Markup:
    """Text in which nothing is a tag but what ``**`` makes bold."""
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text))))


@cache
def environment() -> Environment:
    """Templates in which all text is escaped."""
    made = Environment(autoescape=True, loader=PackageLoader("sigmax.runs"))
    made.filters |= {"bold": bold, "base64": lambda content: base64.b64encode(content).decode()}
    return made


def render_page(title: str, sections: Sequence[Section]) -> str:
    """The page of some sections; whatever a title or a table says is shown as text."""
    return environment().get_template("report.html").render(title=title, sections=sections)
