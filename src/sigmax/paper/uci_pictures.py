"""Pictures of the UCI benchmark: who is how far from the best, and whose intervals hold."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sigmax.paper.benchmark import (
    COVERAGE_50,
    COVERAGE_90,
    LOG_LIKELIHOOD,
    Benchmark,
    arrange,
    standard_error,
)
from sigmax.plots import MODEL, QUIET, TRUTH, tidy
from sigmax.runs.methods import METHODS
from sigmax.runs.records import Record

__all__ = ["uci_figures"]

MARKERS = "osD^v<>Ph"
COLORS = ("#7f7f7f", "#bcbd22", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", TRUTH, MODEL)
"""In the order of ``METHODS``."""

Place = Callable[[str, str], tuple[float, float] | None]
"""From data set and method to a place on the axis and its error, if there is one."""


def uci_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """By name: log-likelihoods below the best, and coverages."""
    figures = {}
    for number, benchmark in enumerate(arrange(records), 1):
        if any(benchmark.means(dataset, LOG_LIKELIHOOD) for dataset in benchmark.cells):
            ending = f"_{number}" if number > 1 else ""
            figures[f"uci_log_likelihood{ending}"] = log_likelihood_figure(benchmark)
            figures[f"uci_coverage{ending}"] = coverage_figure(benchmark)
    return figures


def draw_dots(axes: Axes, benchmark: Benchmark, place: Place) -> None:
    """One row per data set, from the top; in it one dot per method, each a little lower."""
    n_methods = len(benchmark.methods)
    for row, dataset in enumerate(benchmark.cells):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color="#f3f3f3", zorder=-2)
        for i, method in enumerate(benchmark.methods):
            found = place(dataset, method)
            if found is not None:
                kind = list(METHODS).index(method)
                axes.errorbar(
                    found[0],
                    row + 0.7 * ((i + 0.5) / n_methods - 0.5),
                    xerr=found[1],
                    fmt=MARKERS[kind % len(MARKERS)],
                    color=COLORS[kind % len(COLORS)],
                    ms=4.5,
                    lw=0.9,
                    label=METHODS[method].title,
                )
    names = [name.replace("$", r"\$") for name in benchmark.cells]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    tidy(axes)


def finish(figure: Figure, benchmark: Benchmark, title: str) -> None:
    """Title, and a legend beside the axes."""
    settings = f"\n{benchmark.settings}".replace("$", r"\$") if benchmark.settings else ""
    figure.suptitle(title + settings, fontsize=11)
    kinds = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    known = [METHODS[method].title for method in benchmark.methods]
    shown = [title for title in known if title in kinds]
    figure.legend(
        [kinds[title] for title in shown],
        shown,
        loc="outside right upper",
        fontsize=9,
        frameon=False,
    )


def height(benchmark: Benchmark) -> float:
    """Room for every dot, in inches."""
    return 1.4 + len(benchmark.cells) * max(0.3, 0.085 * len(benchmark.methods))


def log_likelihood_figure(benchmark: Benchmark) -> Figure:
    """How many nats each method is below the best, ± the standard error of the difference."""

    def place(dataset: str, method: str) -> tuple[float, float] | None:
        means = benchmark.means(dataset, LOG_LIKELIHOOD)
        if method not in means:
            return None
        best = max(means, key=lambda name: means[name])
        error = standard_error(benchmark.gains(dataset, best, method, LOG_LIKELIHOOD))
        return means[best] - means[method], error

    figure = Figure(figsize=(9.5, height(benchmark)), layout="constrained")
    axes = figure.subplots()
    draw_dots(axes, benchmark, place)
    axes.set_xscale("symlog", linthresh=0.1)
    largest = max(0.12, axes.get_xlim()[1])
    ticks = [0, 0.1, *(10.0**power for power in range(9))]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(-0.02, largest)
    axes.axvline(0, color=QUIET, lw=0.8, zorder=-1)
    axes.set_xlabel("nats below the best (even steps up to 0.1, then logarithmic)")
    finish(figure, benchmark, "Test log-likelihood: distance to the best of each data set")
    return figure


def coverage_figure(benchmark: Benchmark) -> Figure:
    """The share of test rows in their 90 % and 50 % intervals, ± its standard error."""
    figure = Figure(figsize=(10.5, height(benchmark)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, score, level in zip(panels, (COVERAGE_90, COVERAGE_50), (90, 50), strict=True):

        def place(dataset: str, method: str, score=score) -> tuple[float, float] | None:
            values = benchmark.cell(dataset, method).values(score)
            return (float(values.mean()), standard_error(values)) if len(values) else None

        draw_dots(axes, benchmark, place)
        axes.axvline(level, color=QUIET, lw=1, ls="--", zorder=-1)
        axes.set_xlabel(f"test rows in their {level} % intervals, in %")
    finish(figure, benchmark, "Coverage: dots on the dashed line are right, left of it too sure")
    return figure
