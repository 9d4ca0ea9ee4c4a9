"""Predictions beside what came, and whether wide predictions are those that err."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sigmax.report.charts import Axis, Chart, Color, Layer, log_axis_suits
from sigmax.report.held_out import COVERAGE, HeldOutRows
from sigmax.report.texts import count_text, number_text, share_text

__all__ = ["SpreadBins", "bin_spreads", "predicted_chart", "spread_chart"]

MOST_POINTS = 600
"""Rows that are drawn one by one."""
MOST_BINS = 12
ROWS_PER_BIN = 15


def predicted_chart(rows: HeldOutRows, target: str, name: str = "predicted") -> Chart:
    """What came over what was predicted, with intervals; a sample where there are many rows."""
    shown = rows.sample(MOST_POINTS)
    is_inside = rows.is_inside[shown]
    scale = "log" if log_axis_suits(rows.y) and log_axis_suits(rows.mean) else "linear"
    mean, y, lower, upper = (part[shown] for part in (rows.mean, rows.y, rows.lower, rows.upper))
    texts = np.array(
        [
            f"row {rows.numbers[i]:,}, interval from {number_text(rows.lower[i])} to"
            f" {number_text(rows.upper[i])}"
            for i in shown
        ],
        dtype=object,
    )
    layers = [
        Layer(
            mark="intervals",
            label="90 % interval",
            color="chance",
            x=mean,
            lower=lower,
            upper=upper,
        ),
        Layer(mark="rule", label="predicted = observed", color="quiet", dashed=True),
    ]
    kinds: dict[str, tuple[Color, Any]] = {
        "inside its interval": ("model", is_inside),
        "outside": ("miss", ~is_inside),
    }
    for label, (color, chosen) in kinds.items():
        layers.append(
            Layer(
                mark="points",
                label=label,
                color=color,
                x=mean[chosen],
                y=y[chosen],
                texts=texts[chosen].tolist(),
            )
        )
    part = f"a random sample of {len(shown):,} of " if len(shown) < len(rows) else ""
    correlation = correlation_of(rows.mean, rows.y)
    description = (
        f"Observed over predicted {target} of {count_text(len(rows), 'row')}."
        f" {share_text(float(rows.is_inside.mean()))} are inside their"
        f" {share_text(COVERAGE)} intervals; the correlation of predicted and observed is"
        f" {number_text(correlation, 2)}."
    )
    low = positive_low(rows) if scale == "log" else None
    return Chart(
        name=name,
        title="Predicted and observed",
        description=description,
        x=Axis(label=f"predicted {target}", scale=scale),
        y=Axis(label=f"observed {target}", scale=scale, low=low),
        layers=layers,
        note=f"Shown: {part}{count_text(len(rows), 'row')}. Points on the line were predicted"
        " exactly; a vertical bar is the interval that was predicted.",
        height=400,
    )


def positive_low(rows: HeldOutRows) -> float:
    """Where a logarithmic axis begins: below most of what is positive."""
    positive = rows.lower[rows.lower > 0]
    low = float(np.min(rows.y))
    return min(low, float(np.quantile(positive, 0.02))) * 0.9 if len(positive) else low * 0.9


@final
@dataclass(frozen=True, eq=False)
class SpreadBins:
    """Rows of like predicted spread, the narrowest first."""

    n_rows: NDArray[np.int64]
    predicted: NDArray[np.float64]
    """The root mean square of the predicted standard deviations."""
    error: NDArray[np.float64]
    """The root mean square error."""
    lower: NDArray[np.float64]
    """95 % confidence of the error."""
    upper: NDArray[np.float64]


def bin_spreads(rows: HeldOutRows) -> SpreadBins:
    """Predicted spread and error of bins of as many rows each.

    The confidence interval is that of the mean of squared errors that are independent, on a
    logarithmic scale, where it is nearly symmetric.
    """
    known = np.flatnonzero(np.isfinite(rows.std))
    order = known[np.argsort(rows.std[known], kind="stable")]
    n_bins = int(np.clip(len(order) // ROWS_PER_BIN, 1, MOST_BINS))
    bins = [part for part in np.array_split(order, n_bins) if len(part)]
    squared = (rows.y - rows.mean) ** 2
    predicted = np.array([np.sqrt(np.mean(rows.std[part] ** 2)) for part in bins])
    means = np.array([squared[part].mean() for part in bins])
    errors = np.array([squared[part].std(ddof=1) if len(part) > 1 else np.nan for part in bins])
    n_rows = np.array([len(part) for part in bins])
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.exp(stats.norm.ppf(0.975) * errors / np.sqrt(n_rows) / means / 2)
    error = np.sqrt(means)
    return SpreadBins(n_rows, predicted, error, error / factor, error * factor)


def spread_chart(rows: HeldOutRows, target: str, name: str = "spread") -> Chart:
    """Errors over the spread that was predicted."""
    bins = bin_spreads(rows)
    scale = "log" if log_axis_suits(bins.predicted, bins.error) else "linear"
    rises = correlation_of(*map(stats.rankdata, (rows.std, np.abs(rows.y - rows.mean))))
    wide, narrow = bins.error[-1], bins.error[0]
    description = (
        f"{len(bins.error)} bins of like predicted spread. Where it is smallest the error is"
        f" {number_text(narrow, 3)}, where it is largest {number_text(wide, 3)}; the rank"
        f" correlation of spread and error of single rows is {number_text(rises, 2)}."
    )
    n_left = int(np.sum(~np.isfinite(rows.std)))
    left = f" Left out: {count_text(n_left, 'row')} of infinite variance." if n_left else ""
    texts = [f"{n:,} rows" for n in bins.n_rows]
    zero = None if scale == "log" else 0.0
    return Chart(
        name=name,
        title="Predicted spread and error",
        description=description,
        x=Axis(label=f"predicted standard deviation of {target}", scale=scale, low=zero),
        y=Axis(label="root mean square error", scale=scale, low=zero),
        layers=[
            Layer(mark="rule", label="as promised", color="quiet", dashed=True),
            Layer(
                mark="intervals",
                label="95 % confidence",
                color="chance",
                x=bins.predicted,
                lower=bins.lower,
                upper=bins.upper,
            ),
            Layer(
                mark="points",
                label=f"bins of about {int(np.median(bins.n_rows)):,} rows",
                x=bins.predicted,
                y=bins.error,
                texts=texts,
            ),
        ],
        note="A model that knows where it is unsure has its points along the line." + left,
        height=400,
    )


def correlation_of(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson's, nan where there is none."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
