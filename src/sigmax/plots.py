"""Plots with matplotlib; functions draw on axes or return a figure, and save nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.errors import MissingExtraError

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError("Plots need Matplotlib: pip install 'sigmax[plots]'.") from error

__all__ = [
    "Curve",
    "draw_monitor",
    "draw_prediction",
    "draw_spread",
    "model_panels",
    "shade_range",
    "tidy",
]

INK, MODEL, BAND, TRUTH, QUIET = "#222222", "#1f5fa8", "#9ec3ea", "#d1495b", "#888888"


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """Mean and standard deviation of one model along a range."""

    mean: NDArray
    std: NDArray

    @classmethod
    def read(cls, curves: Mapping[str, Sequence[float]]) -> "Curve":
        """Create from the lists ``mean`` and ``std``."""
        return cls(np.asarray(curves["mean"]), np.asarray(curves["std"]))


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)


def shade_range(axes: Axes, lower: float, upper: float) -> None:
    """Shade the range of the training data."""
    axes.axvspan(lower, upper, color="#f3f3f3", zorder=-2)


def draw_prediction(
    axes: Axes,
    grid: NDArray,
    curve: Curve,
    *,
    data: tuple[NDArray, NDArray] | None = None,
    true_mean: NDArray | None = None,
    true_std: NDArray | None = None,
) -> None:
    """Draw a mean with a band of two standard deviations, and data and truth if given."""
    mean, std = curve.mean, curve.std
    band: dict[str, Any] = {"color": BAND, "alpha": 0.7, "lw": 0, "label": "mean ± 2 std"}
    axes.fill_between(grid, mean - 2 * std, mean + 2 * std, **band)
    if data is not None:
        axes.scatter(*data, s=5, color=INK, alpha=0.35, lw=0, label="data")
    if true_mean is not None:
        axes.plot(grid, true_mean, color=TRUTH, lw=1.2, ls="--", label="true mean")
    if true_mean is not None and true_std is not None:
        for sign, label in ((-2, "true mean ± 2 std"), (2, None)):
            edge = true_mean + sign * true_std
            axes.plot(grid, edge, color=TRUTH, lw=0.8, label=label)
    axes.plot(grid, mean, color=MODEL, lw=1.8, label="mean")
    axes.set_xlim(grid[0], grid[-1])
    tidy(axes)


def draw_spread(
    axes: Axes,
    grid: NDArray,
    curve: Curve,
    *,
    true_std: NDArray | None = None,
    prior_std: float | None = None,
) -> None:
    """Draw a standard deviation, the true one (nan where unknown) and that of y."""
    if true_std is not None:
        axes.plot(grid, true_std, color=TRUTH, lw=1.5, ls="--", label="true std")
    if prior_std is not None:
        axes.axhline(prior_std, color=QUIET, lw=1, ls=":", label="std of y")
    axes.plot(grid, curve.std, color=MODEL, lw=1.8, label="predicted std")
    axes.set_xlim(grid[0], grid[-1])
    axes.set_ylim(0, None, auto=True)  # grows with the panels that follow
    tidy(axes)


def draw_monitor(axes: Axes, monitor: Any) -> None:
    """Draw the e-values of a `Monitor` after every row, and the threshold of an alarm."""
    drift = monitor.drift
    path = np.concatenate(drift.path) / np.log(10)
    rows = np.arange(drift.n_rows - len(path), drift.n_rows) + 1
    for test, column in zip(drift.tests, path.T, strict=True):
        axes.plot(rows, column, lw=1.8 if test.is_alarm else 1.0, label=test.name)
    axes.axhline(np.log10(drift.threshold), color=QUIET, lw=1, ls=":", label="alarm")
    axes.set_xlabel("row")
    axes.set_ylabel("log₁₀ of the e-value")
    axes.legend(fontsize=8, frameon=False)
    tidy(axes)


def model_panels(
    curves: Mapping[str, Curve],
    draw: Callable[[Axes, Curve], None],
    *,
    xlabel: str,
    ylabel: str,
    ylim: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure:
    """One panel per model, titled with its name and drawn by ``draw``."""
    n_columns = min(4 if len(curves) > 6 else 3, len(curves))
    n_rows = -(-len(curves) // n_columns)
    figure = Figure(figsize=(1 + 3.6 * n_columns, 0.8 + 2.9 * n_rows), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(curves) :]:
        axes.remove()
    for axes, (name, curve) in zip(grid.flat, curves.items(), strict=False):
        draw(axes, curve)
        axes.set_title(name, fontsize=11)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel)
    for axes in list(grid.flat[: len(curves)])[-n_columns:]:  # the lowest panel of each column
        axes.set_xlabel(xlabel)
        axes.tick_params(labelbottom=True)
    if ylim is not None:
        grid[0, 0].set_ylim(*ylim)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": len(labels)}
    figure.legend(handles, labels, fontsize=9, frameon=False, **below)
    if title is not None:
        figure.suptitle(title, fontsize=12)
    return figure
