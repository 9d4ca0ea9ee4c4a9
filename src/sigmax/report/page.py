"""Pages of charts and tables as single HTML files that load nothing.

Values from the data are shown as text: the template escapes them, the script inserts them as text,
and the charts' JSON contains no tags. As a second defence, the content security policy allows only
the page's own script and style, by their hashes.
"""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, final

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from sigmax.report.tables import ReportTable

SCRIPTS = ("scales.js", "charts.js", "page.js")
STYLE = "page.css"
DIGITS = 6
LOG_RATIO = 10.0
"""Ratio of large to small values above which an axis is logarithmic."""

Scale = Literal["linear", "log", "time", "category"]
Mark = Literal["points", "line", "band", "intervals", "bars", "columns", "rule"]
Color = Literal["model", "miss", "quiet", "chance", "1", "2", "3", "4", "5", "6", "7", "8"]


@final
@dataclass(frozen=True)
class Axis:
    """Axis of a chart; its range follows from the marks unless it is given."""

    label: str
    scale: Scale = "linear"
    """Times are seconds since 1970; categories are counted from 0, the first one at the top."""
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    percent: bool = False
    """True if numbers are shares, shown as percentages."""
    levels: tuple[str, ...] = ()


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """Marks of one kind.

    ``points`` and ``line`` have x and y; ``band`` is filled between lower and upper over x;
    ``intervals`` go from lower to upper, up at x or across at y if the y axis has categories;
    ``bars`` go from 0 to x at the category y; ``columns`` go from 0 up to y, between lower and
    upper; ``rule`` is a line across the chart at x or at y, or from corner to corner.
    """

    mark: Mark
    label: str = ""
    """Text of the legend and the tooltip; an empty one is shown in neither."""
    color: Color = "model"
    _: KW_ONLY
    x: ArrayLike | None = None
    y: ArrayLike | None = None
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None
    texts: Sequence[str] | None = None
    """Text of each mark in the tooltip."""
    dashed: bool = False

    def to_json(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name) for name in ("x", "y", "lower", "upper")}
        numbers = {name: plain_numbers(a) for name, a in arrays.items() if a is not None}
        texts = {} if self.texts is None else {"texts": list(self.texts)}
        head = {name: getattr(self, name) for name in ("mark", "label", "color", "dashed")}
        return head | numbers | texts


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """Chart as data, which the page's script draws, with a description for screen readers."""

    name: str
    """Identifier on the page: letters, digits and dashes."""
    title: str
    x: Axis
    y: Axis
    layers: Sequence[Layer]
    description: str = ""
    """Finding, for screen readers; by default the axes and the marks."""
    note: str = ""
    height: int = 340

    def to_json(self) -> dict[str, Any]:
        x, y = (axis.label or ", ".join(axis.levels[:5]) for axis in (self.x, self.y))
        marks = ", ".join(layer.label for layer in self.layers if layer.label)
        return {
            "title": self.title,
            "description": self.description or f"{y} against {x}. The chart shows {marks}.",
            "height": self.height,
            "x": vars(self.x),
            "y": vars(self.y),
            "layers": [layer.to_json() for layer in self.layers],
        }


@final
@dataclass(frozen=True)
class Caution:
    """Warning at the top of a page."""

    code: str
    text: str
    is_grave: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class PagePart:
    name: str
    """Identifier on the page: letters, digits and dashes."""
    heading: str
    lead: str = ""
    charts: Sequence[Chart] = ()
    choices: Sequence[tuple[str, Chart]] = ()
    """Charts of which one is shown at a time, selected by the reader."""
    choice_label: str = ""
    tables: Sequence[ReportTable] = ()
    notes: Sequence[str] = ()

    @property
    def all_charts(self) -> list[Chart]:
        return [*self.charts, *(chart for _, chart in self.choices)]


@final
@dataclass(frozen=True, kw_only=True)
class Page:
    title: str
    subtitle: str
    headline: str
    basis: str = ""
    """Rows that the headline is computed from, and its uncertainty."""
    figures: Sequence[tuple[str, str]] = ()
    """Names and values of the most important scores."""
    warnings: Sequence[Caution] = ()
    no_warnings: str = ""
    parts: Sequence[PagePart] = ()
    command: str = ""
    metadata: Sequence[tuple[str, str]] = ()

    def to_html(self) -> str:
        charts = {chart.name: chart.to_json() for part in self.parts for chart in part.all_charts}
        script, style = static_text(SCRIPTS), static_text((STYLE,))
        policy = dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
        policy |= {"script-src": content_hash(script), "style-src": content_hash(style)}
        return template().render(
            page=self,
            charts=embed_json(charts),
            script=Markup(script),
            style=Markup(style),
            policy="; ".join(f"{name} {sources}" for name, sources in policy.items()),
        )


def plain_numbers(values: ArrayLike) -> list[float | int | None]:
    """Numbers rounded to the digits of a chart, None where they are not finite."""

    def plain(value: float) -> float | int | None:
        if not math.isfinite(value):
            return None
        is_whole = value == round(value) and abs(value) < 1e15
        return int(value) if is_whole else float(f"{value:.{DIGITS}g}")

    return [plain(value) for value in np.asarray(values, dtype=np.float64).ravel().tolist()]


def log_axis_suits(*arrays: Iterable[float]) -> bool:
    """True if all numbers are positive and differ by large factors."""
    values = np.concatenate([np.asarray(list(array), dtype=np.float64) for array in arrays])
    values = values[np.isfinite(values)]
    if not len(values) or values.min() <= 0:
        return False
    low, high = np.quantile(values, [0.01, 0.99])
    return bool(high / low > LOG_RATIO)


def embed_json(values: Any) -> Markup:
    """JSON for a script element, with no character that could start a tag."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))  # which is ASCII
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def unbroken(text: str) -> str:
    """Text with no-break spaces between numbers and their signs."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace("± ", "±\N{NO-BREAK SPACE}")


def content_hash(text: str) -> str:
    """Source expression of a content security policy for one script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def static_text(names: tuple[str, ...]) -> str:
    folder = files("sigmax.report") / "static"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # not imported for predictions

    environment = Environment(
        autoescape=True,
        loader=PackageLoader("sigmax.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    return environment.get_template("page.html")
