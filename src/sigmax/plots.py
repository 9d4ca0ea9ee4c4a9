"""Plots with Matplotlib: displays of a fitted model in the style of scikit-learn, and functions.

A display takes a fitted model and rows that were not used for training (``from_estimator``), or
targets and their predictive distributions (``from_predictions``). It draws on ``ax``, by default on
a new figure, and keeps them as ``ax_`` and ``figure_``.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.errors import InvalidDataError, MissingExtraError
from sigmax.metrics import LEVELS, covering_levels, pit_histogram
from sigmax.report.importance import find_dependence
from sigmax.report.validation import chance_band
from sigmax.tables import Kind

with MissingExtraError.unless_imported("Plots need Matplotlib", "plots"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "CalibrationDisplay",
    "Curve",
    "DependenceDisplay",
    "IntervalDisplay",
    "PITDisplay",
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
    """Remove the upper and the right spine, and use small tick labels."""
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
    """Draw the e-values of a `Monitor` after every row, and the threshold of an alarm.

    Parameters
    ----------
    axes : matplotlib axes
    monitor : Monitor

    Returns
    -------
    None
    """
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


D = TypeVar("D", bound="AbstractDisplay")
T = TypeVar("T", bound="AbstractTargetDisplay")
CHANCE: dict[str, Any] = {"color": "#e8e8e8", "lw": 0, "label": "95 % range if calibrated"}


class AbstractDisplay(ABC):
    """Computed values of one picture, drawn by `plot`."""

    ax_: Axes
    """Axes of the last `plot`."""
    figure_: Figure
    """Figure of these axes."""

    def plot(self: D, ax: Axes | None = None) -> D:
        """Draw on the axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
            By default, those of a new figure.

        Returns
        -------
        self
            With the axes ``ax_`` and the figure ``figure_``.
        """
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots(layout="constrained")[1]
        self.ax_, self.figure_ = ax, cast(Figure, ax.get_figure(root=True))
        self.draw(ax)
        ax.legend(fontsize=8, edgecolor="none")
        tidy(ax)
        return self

    @abstractmethod
    def draw(self, ax: Axes) -> None:
        """Draw on the axes, with labels for the legend."""


class AbstractTargetDisplay(AbstractDisplay):
    """Display of targets and their predictive distributions."""

    @classmethod
    @abstractmethod
    def from_predictions(cls: type[T], y, dist, *, ax: Axes | None = None) -> T:
        """Draw targets ``y`` and their predictive distributions."""

    @classmethod
    def from_estimator(cls: type[T], estimator, X, y, *, ax: Axes | None = None, **settings) -> T:
        """Draw targets and the predictions of a fitted estimator.

        Parameters
        ----------
        estimator
            Fitted estimator with `predict_dist`.
        X, y
            Rows and their targets. Training rows would look too good.
        ax : matplotlib axes, optional
        **settings
            Further arguments of `from_predictions`.

        Returns
        -------
        display

        Examples
        --------
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> from sigmax.plots import PITDisplay
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(200, 1)), rng.normal(size=200)
        >>> model = LinearRegressor().fit(X[:100], y[:100])
        >>> PITDisplay.from_estimator(model, X[100:], y[100:], bins=5).density.shape
        (5,)
        """
        return cls.from_predictions(y, estimator.predict_dist(X), ax=ax, **settings)


@final
@dataclass(eq=False)
class CalibrationDisplay(AbstractTargetDisplay):
    """Observed coverage of central intervals against their nominal coverage.

    Calibrated predictions are on the diagonal. Above it, intervals are wider than needed; below it,
    they are too narrow. The grey range contains 95 % of calibrated models with the same number of
    independent targets, at each level separately. Several outputs per row are pooled.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax.distributions import Normal, Predictive
    >>> from sigmax.plots import CalibrationDisplay
    >>> y, too_narrow = np.random.default_rng(0).normal(size=1000), np.full(1000, 0.5)
    >>> dist = Predictive(Normal(np.zeros(1000), too_narrow))
    >>> CalibrationDisplay.from_predictions(y, dist, levels=[0.5, 0.9]).observed.round(1)
    array([0.3, 0.6])
    """

    nominal: NDArray[np.float64]
    """Nominal coverages, increasing."""
    observed: NDArray[np.float64]
    """Share of targets in the intervals of each."""
    n_targets: int

    @classmethod
    def from_predictions(
        cls, y, dist, *, ax: Axes | None = None, levels: Any = LEVELS
    ) -> "CalibrationDisplay":
        """Draw the observed coverage for each nominal coverage.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, p)
        dist : Predictive
            Predictions of the same shape.
        ax : matplotlib axes, optional
        levels : sequence of float
            Nominal coverages.

        Returns
        -------
        CalibrationDisplay
        """
        nominal = np.sort(np.asarray(levels, np.float64))
        found = covering_levels(y, dist, nominal)
        observed = np.array([np.mean(found <= level) for level in nominal])
        return cls(nominal, observed, found.size).plot(ax)

    def draw(self, ax: Axes) -> None:
        ax.fill_between(self.nominal, *chance_band(self.n_targets, self.nominal), **CHANCE)
        ax.plot([0, 1], [0, 1], color=QUIET, lw=1, ls=":", label="calibrated")
        ax.plot(self.nominal, self.observed, color=MODEL, lw=1.8, marker=".", label="observed")
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="nominal coverage", ylabel="observed coverage")
        ax.set_aspect("equal")


@final
@dataclass(eq=False)
class PITDisplay(AbstractTargetDisplay):
    """Histogram of the probability integral transform (PIT), the predicted cdf at each target.

    All bars of calibrated predictions are near 1. Tall bars at both ends: distributions are too
    narrow. Tall in the middle: too wide. A slope: biased. Several outputs per row are pooled.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax.distributions import Normal, Predictive
    >>> from sigmax.plots import PITDisplay
    >>> dist = Predictive(Normal(np.zeros(4), np.ones(4)))
    >>> PITDisplay.from_predictions([-3.0, -0.1, 0.1, 3.0], dist, bins=4).density
    array([1., 1., 1., 1.])
    """

    density: NDArray[np.float64]
    """Heights of the bars, 1 on average."""
    n_targets: int

    @classmethod
    def from_predictions(cls, y, dist, *, ax: Axes | None = None, bins: int = 10) -> "PITDisplay":
        """Draw the histogram of the PIT.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, p)
        dist : Predictive
            Predictions of the same shape.
        ax : matplotlib axes, optional
        bins : int
            Number of bars.

        Returns
        -------
        PITDisplay
        """
        return cls(pit_histogram(y, dist, bins), np.size(y)).plot(ax)

    def draw(self, ax: Axes) -> None:
        n_bins = len(self.density)
        ends = n_bins * np.ravel(chance_band(self.n_targets, [1 / n_bins]))
        left, width = np.arange(n_bins) / n_bins, 1 / n_bins
        ax.bar(left, self.density, width, align="edge", color=BAND, edgecolor=MODEL, alpha=0.7)
        ax.axhline(1, color=QUIET, lw=1, ls=":", label="calibrated")
        ax.hlines(ends, 0, 1, color=QUIET, lw=1, ls="--", label=CHANCE["label"])
        ax.set(xlim=(0, 1), ylim=(0, 1.3 * max(ends[1], self.density.max())), ylabel="density")
        ax.set_xlabel("predicted probability of a smaller value (PIT)")


@final
@dataclass(eq=False)
class IntervalDisplay(AbstractTargetDisplay):
    """Targets and their prediction intervals, by the predicted mean or along a quantity ``x``.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax.distributions import Normal, Predictive
    >>> from sigmax.plots import IntervalDisplay
    >>> dist = Predictive(Normal(np.zeros(4), np.ones(4)))
    >>> display = IntervalDisplay.from_predictions([-3.0, -0.1, 0.1, 3.0], dist, coverage=0.8)
    >>> display.is_inside
    array([False,  True,  True, False])
    """

    y: NDArray[np.float64]
    mean: NDArray[np.float64]
    interval: NDArray[np.float64]
    """Lower and upper ends (n, 2)."""
    x: NDArray[Any]
    xlabel: str
    coverage: float
    """Nominal coverage."""

    @classmethod
    def from_predictions(
        cls, y, dist, *, ax: Axes | None = None, coverage=0.9, x=None, xlabel=""
    ) -> "IntervalDisplay":
        """Draw targets and intervals.

        Parameters
        ----------
        y : array-like of shape (n,)
        dist : Predictive
            Predictions of the same shape.
        ax : matplotlib axes, optional
        coverage : float
            Nominal coverage of the intervals.
        x : array-like of shape (n,), optional
            Horizontal positions; by default the predicted means.
        xlabel : str
            Label of ``x``.

        Returns
        -------
        IntervalDisplay
        """
        y, mean = np.asarray(y, np.float64), dist.mean
        if mean.ndim != 1 or y.shape != mean.shape:
            shapes = f"got shapes {y.shape} and {mean.shape}"
            raise InvalidDataError(f"`y` and `dist` must have one output per row, {shapes}.")
        x, xlabel = (mean, "predicted mean") if x is None else (np.asarray(x), xlabel)
        return cls(y, mean, dist.interval(coverage), x, xlabel, coverage).plot(ax)

    @property
    def is_inside(self) -> NDArray[np.bool_]:
        """True for targets in their intervals, including the ends."""
        return (self.interval[:, 0] <= self.y) & (self.y <= self.interval[:, 1])

    def draw(self, ax: Axes) -> None:
        inside = self.is_inside
        label = f"{100 * self.coverage:.3g} % interval"
        ax.vlines(self.x, *self.interval.T, color=BAND, lw=1, label=label)
        ax.scatter(self.x, self.mean, s=6, color=MODEL, lw=0, label="mean")
        for rows, color, name in ((inside, INK, "inside"), (~inside, TRUTH, "outside")):
            label = f"{name}: {rows.sum():,} of {len(rows):,} targets"
            ax.scatter(self.x[rows], self.y[rows], s=9, color=color, lw=0, label=label, zorder=3)
        low, high = ax.get_ylim()
        ax.set(xlabel=self.xlabel, ylabel="target", ylim=(low, high + 0.3 * (high - low)))


@final
@dataclass(eq=False)
class DependenceDisplay(AbstractDisplay):
    """Partial dependence of the predicted mean and the 90 % interval on one column.

    Each of at most twelve values of the column replaces the cell in the same 64 random rows; the
    means and the ends of the intervals of these rows are averaged. For a column of categories, the
    most frequent ones are shown. If the column is a time, other times of a row are shifted with it.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sigmax import LinearRegressor
    >>> from sigmax.plots import DependenceDisplay
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=["a", "b"])
    >>> model = LinearRegressor().fit(X, 3 * X["b"])
    >>> display = DependenceDisplay.from_estimator(model, X, "b")
    >>> np.unique((np.diff(display.mean) / np.diff(display.values)).round(2))
    array([3.])
    """

    values: NDArray[Any]
    """Numbers, times, or names of categories, highest mean first."""
    mean: NDArray[np.float64]
    interval: NDArray[np.float64]
    """Average lower and upper ends (values, 2)."""
    xlabel: str

    @classmethod
    def from_estimator(
        cls, estimator, X, feature: str | int, *, ax: Axes | None = None
    ) -> "DependenceDisplay":
        """Draw the dependence of a model of one target on a column.

        Parameters
        ----------
        estimator
            Fitted estimator.
        X : array or pandas frame
            Rows whose other columns are kept.
        feature : str or int
            Name or position of the column.
        ax : matplotlib axes, optional

        Returns
        -------
        DependenceDisplay
        """
        rows, schema = pd.DataFrame(X), estimator.model_.features.schema
        if not hasattr(X, "columns"):
            rows.columns = [f"x{i}" for i in range(rows.shape[1])]
        name = str(rows.columns[feature]) if isinstance(feature, int) else feature
        rows = rows.sample(frac=1.0, random_state=0)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of names of columns
            found = find_dependence(estimator, rows, schema, [name])[-1]
        values = found.values
        if found.kind is not Kind.NUMBER:
            is_time = found.kind is Kind.TIME
            values = (
                pd.to_datetime(values, unit="s").to_numpy() if is_time else np.array(found.names)
            )
        return cls(values, found.averages[0], found.averages[1:].T, name).plot(ax)

    def draw(self, ax: Axes) -> None:
        band: dict[str, Any] = {"color": BAND, "alpha": 0.7, "label": "90 % interval"}
        is_category = self.values.dtype.kind == "U"
        if is_category:
            ax.vlines(self.values, *self.interval.T, lw=8, **band)
        else:
            ax.fill_between(self.values, *self.interval.T, lw=0, **band)
        ax.plot(self.values, self.mean, "o" if is_category else ".-", color=MODEL, label="mean")
        ax.set(xlabel=self.xlabel, ylabel="average prediction")
