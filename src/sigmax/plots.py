"""Pictures, with matplotlib; functions draw on axes or return a figure, and save nothing."""

from matplotlib.axes import Axes
from numpy.typing import NDArray

__all__ = ["draw_prediction", "draw_spread", "shade_range"]

INK, MODEL, BAND, TRUTH, QUIET = "#222222", "#1f5fa8", "#9ec3ea", "#d1495b", "#888888"


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)


def shade_range(axes: Axes, lower: float, upper: float) -> None:
    """A grey ground where the data lie."""
    axes.axvspan(lower, upper, color="#f3f3f3", zorder=-2)


def draw_prediction(
    axes: Axes,
    grid: NDArray,
    mean: NDArray,
    std: NDArray,
    *,
    data: tuple[NDArray, NDArray] | None = None,
    true_mean: NDArray | None = None,
) -> None:
    """A mean with two standard deviations around it, over data and truth where given."""
    band = {"color": BAND, "alpha": 0.7, "lw": 0, "label": "mean ± 2 std"}
    axes.fill_between(grid, mean - 2 * std, mean + 2 * std, **band)
    if data is not None:
        axes.scatter(*data, s=5, color=INK, alpha=0.35, lw=0, label="data")
    if true_mean is not None:
        axes.plot(grid, true_mean, color=TRUTH, lw=1.2, ls="--", label="true mean")
    axes.plot(grid, mean, color=MODEL, lw=1.8, label="mean")
    axes.set_xlim(grid[0], grid[-1])
    tidy(axes)


def draw_spread(
    axes: Axes,
    grid: NDArray,
    std: NDArray,
    *,
    true_std: NDArray | None = None,
    prior_std: float | None = None,
) -> None:
    """A standard deviation, against the true one (nan where unknown) and that of y."""
    if true_std is not None:
        axes.plot(grid, true_std, color=TRUTH, lw=1.5, ls="--", label="true std")
    if prior_std is not None:
        axes.axhline(prior_std, color=QUIET, lw=1, ls=":", label="std of y")
    axes.plot(grid, std, color=MODEL, lw=1.8, label="predicted std")
    axes.set_xlim(grid[0], grid[-1])
    axes.set_ylim(0, None)
    tidy(axes)
