"""Charts as plain data: axes and layers of marks, which the page's script draws."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Axis", "Chart", "Color", "Layer", "log_axis_suits", "plain_numbers"]

DIGITS = 6
"""Of a number in a chart."""
WIDE = 10.0
"""The ratio between large and small values from which a logarithmic axis shows them better."""

Scale = Literal["linear", "log", "time", "category"]
Mark = Literal["points", "line", "band", "intervals", "bars", "columns", "rule"]
Color = Literal["model", "miss", "quiet", "chance", "1", "2", "3", "4", "5", "6", "7", "8"]


@final
@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a chart; its range follows from the marks unless it is given."""

    label: str
    scale: Scale = "linear"
    """Times are seconds since 1970; categories are counted from 0, the first one at the top."""
    low: float | None = None
    high: float | None = None
    percent: bool = False
    """Whether numbers are shares, shown as per cent."""
    levels: tuple[str, ...] = ()
    """Names of categories."""

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "scale": self.scale,
            "low": self.low,
            "high": self.high,
            "percent": self.percent,
            "levels": list(self.levels),
        }


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """Marks of one kind.

    ``points`` and ``line`` have x and y; ``band`` is filled between lower and upper over x;
    ``intervals`` go from lower to upper, up at x or across at y if the y axis has categories;
    ``bars`` go from 0 to x at the category y; ``columns`` stand on 0, as high as y, from lower to
    upper; ``rule`` is a line across the chart at x or at y, or from corner to corner.
    """

    mark: Mark
    label: str = ""
    """Shown in the legend and by the pointer; an empty one is shown in neither."""
    color: Color = "model"
    x: ArrayLike | None = None
    y: ArrayLike | None = None
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None
    texts: Sequence[str] | None = None
    """What the pointer shows of every mark besides its numbers."""
    dashed: bool = False

    def to_json(self) -> dict[str, Any]:
        arrays = {
            name: plain_numbers(values)
            for name in ("x", "y", "lower", "upper")
            if (values := getattr(self, name)) is not None
        }
        texts = {} if self.texts is None else {"texts": list(self.texts)}
        facts = {"mark": self.mark, "label": self.label, "color": self.color}
        return facts | ({"dashed": True} if self.dashed else {}) | arrays | texts


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """A chart with what it says in words, for those who do not see it."""

    name: str
    """An identifier of the page: letters, digits and dashes."""
    title: str
    description: str
    x: Axis
    y: Axis
    layers: Sequence[Layer]
    note: str = ""
    height: int = 340
    """In pixels."""

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "description": self.description,
            "x": self.x.to_json(),
            "y": self.y.to_json(),
            "layers": [layer.to_json() for layer in self.layers],
            "height": self.height,
        }


def plain_numbers(values: ArrayLike) -> list[float | int | None]:
    """Numbers in as many digits as a chart shows, None for what is not finite.

    Examples
    --------
    >>> plain_numbers([1.0, 2 / 3, np.inf])
    [1, 0.666667, None]
    """
    return list(map(plain_number, np.asarray(values, dtype=np.float64).ravel().tolist()))


def plain_number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    if value == round(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def log_axis_suits(*arrays: Iterable[float]) -> bool:
    """Whether numbers are all positive and differ by large factors.

    Examples
    --------
    >>> log_axis_suits([1.0, 10.0, 100.0]), log_axis_suits([1.0, 2.0]), log_axis_suits([0.0, 9.0])
    (True, False, False)
    """
    values = np.concatenate([np.asarray(list(array), dtype=np.float64) for array in arrays])
    values = values[np.isfinite(values)]
    if not len(values) or values.min() <= 0:
        return False
    low, high = np.quantile(values, [0.01, 0.99])
    return bool(high / low > WIDE)
