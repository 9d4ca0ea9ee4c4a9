"""Whether intervals hold as many rows as they promise: the curve, the histogram, the chance."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sigmax.report.chance import chance_band
from sigmax.report.charts import Axis, Chart, Layer
from sigmax.report.held_out import CURVE_LEVELS, HeldOutRows
from sigmax.report.texts import listed, share_text

__all__ = ["CURVE_LEVELS", "calibration_chart", "coverage_curve", "curves_chart", "pit_chart"]

ROWS_PER_BIN = 20
"""Fewer bins are drawn where there would be fewer rows."""
BAND = "The band is that of chance alone for so many independent rows, at every point by itself."

coverage_chart = partial(
    Chart,
    title="Coverage of central intervals",
    x=Axis(label="coverage promised", low=0.0, high=1.0, percent=True),
    y=Axis(label="coverage observed", low=0.0, high=1.0, percent=True),
)


def coverage_curve(
    found: NDArray[np.float64], levels: NDArray[np.float64] = CURVE_LEVELS
) -> NDArray[np.float64]:
    """Share of rows in the central interval of every level, from the `covering_levels` of rows.

    Examples
    --------
    >>> coverage_curve(np.array([0.1, 0.4, 0.95]), np.array([0.2, 0.9, 0.96])).round(2).tolist()
    [0.33, 0.67, 1.0]
    """
    return np.searchsorted(np.sort(found), levels, side="right") / len(found)


def calibration_chart(
    rows: HeldOutRows, conformal: Mapping[float, float] | None = None, name: str = "calibration"
) -> Chart:
    """Observed over promised coverage, with the band in which a true forecast lies.

    Parameters
    ----------
    conformal
        Level -> observed coverage of conformal intervals, which are not those of the curve.
    """
    observed = coverage_curve(rows.level)
    low, high = chance_band(len(rows), CURVE_LEVELS)
    n_outside = int(np.sum((observed < low) | (observed > high)))
    worst = int(np.argmax(np.abs(observed - CURVE_LEVELS)))
    layers = [
        Layer(
            mark="band",
            label="95 % by chance",
            color="chance",
            x=CURVE_LEVELS,
            lower=low,
            upper=high,
        ),
        Layer(mark="rule", label="as promised", color="quiet", dashed=True),
        Layer(mark="line", label="observed", x=CURVE_LEVELS, y=observed),
    ]
    if conformal:
        levels = list(conformal)
        layers.append(
            Layer(
                mark="points",
                label="conformal intervals",
                color="miss",
                x=levels,
                y=[conformal[level] for level in levels],
            )
        )
    description = (
        f"{n_outside} of {len(CURVE_LEVELS)} points of the curve are outside the band of chance."
        f" The largest gap is at a promise of {share_text(CURVE_LEVELS[worst])}, where"
        f" {share_text(observed[worst])} of the rows are inside."
    )
    return coverage_chart(
        name=name,
        description=description,
        layers=layers,
        note=f"Above the diagonal intervals are wider than needed, below it too narrow. {BAND}",
    )


def pit_chart(rows: HeldOutRows, name: str = "pit") -> Chart:
    """Where targets fall in their predicted distributions; all columns are equal if these hold."""
    n_bins = int(np.clip(len(rows) // ROWS_PER_BIN, 2, 20))
    counts, edges = np.histogram(rows.pit, n_bins, range=(0, 1))
    share = counts / len(rows)
    (low,), (high,) = chance_band(len(rows), [1 / n_bins])
    n_outside = int(np.sum((share < low) | (share > high)))
    description = (
        f"{n_outside} of {n_bins} columns are outside the band of chance, from {share_text(low)} to"
        f" {share_text(high)} of the rows. The lowest column has {share_text(share[0])}, the"
        f" highest {share_text(share[-1])}."
    )
    return Chart(
        name=name,
        title="Where targets fall in their distributions",
        description=description,
        x=Axis(label="predicted probability of less (PIT)", low=0.0, high=1.0),
        y=Axis(label="share of rows", low=0.0, percent=True),
        layers=[
            Layer(mark="columns", label="rows", lower=edges[:-1], upper=edges[1:], y=share),
            Layer(
                mark="band",
                label="95 % by chance",
                color="chance",
                x=[0.0, 1.0],
                lower=[low, low],
                upper=[high, high],
            ),
            Layer(mark="rule", label="as promised", color="quiet", y=[1 / n_bins], dashed=True),
        ],
        note="High columns at both ends mean distributions that are too narrow, in the middle too"
        " wide ones, and a slope that predictions are too low or too high.",
    )


def curves_chart(
    curves: Mapping[str, NDArray[np.float64]],
    levels: Sequence[float],
    n_rows: int,
    name: str = "calibration",
) -> Chart:
    """The calibration curves of several methods."""
    low, high = chance_band(n_rows, levels)
    layers = [
        Layer(mark="band", label="95 % by chance", color="chance", x=levels, lower=low, upper=high),
        Layer(mark="rule", label="as promised", color="quiet", dashed=True),
    ]
    gaps = {}
    for i, (method, observed) in enumerate(curves.items()):
        number: Sequence = ("1", "2", "3", "4", "5", "6", "7", "8")
        layers.append(
            Layer(
                mark="line",
                label=method,
                color=number[i % len(number)],
                x=levels,
                y=observed,
                dashed=i >= len(number),
            )
        )
        gaps[method] = float(np.mean(np.abs(observed - np.asarray(levels))))
    best = sorted(gaps, key=lambda method: gaps[method])
    description = (
        f"Curves of {len(curves)} methods. Nearest to the diagonal on average:"
        f" {listed(best[:3])}, with a mean gap of"
        f" {', '.join(share_text(gaps[method]) for method in best[:3])}."
    )
    return coverage_chart(
        name=name,
        description=description,
        layers=layers,
        note=BAND,
        height=420,
    )
