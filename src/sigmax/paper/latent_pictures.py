"""Pictures of generative models: pairs of features, and the decoder variance over codes."""

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.paper.generative import GENERATIVE_METHODS, GRID, groups_of
from sigmax.paper.moons import N_SAMPLES, PROBLEM
from sigmax.paper.records import Record
from sigmax.plots import INK, MODEL, tidy

__all__ = ["moons_figures", "shown_seeds", "variance_figure"]

CODES = "#2f8fe0"
MOST = 1.5
"""The variance at which the colours of a map end, over that of the data."""


def moons_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """The first seed's pictures by their names, of the settings with the most records.

    Pairs of features are shown for the paper's two models, where they are there.
    """
    shown = shown_seeds(records).get("moons")
    if not shown:
        return {}
    papers = {method: shown[method] for method in ("vae", "comb-vae") if method in shown}
    return {
        "moons_pairs": pairs_figure(papers or shown),
        "moons_variance": variance_figure(shown, title="two moons: variance over the latent plane"),
    }


def shown_seeds(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """Data set -> method -> the record with pictures, of the settings with the most records."""
    shown: dict[str, dict[str, Record]] = {}
    sizes: dict[str, int] = {}
    for (dataset, _), methods in groups_of(records).items():
        n_records = sum(map(len, methods.values()))
        found = {
            method: record
            for method, seeds in methods.items()
            for record in seeds
            if record.task.split == 0 and (record.curves or "sheet" in record.data)
        }
        if found and n_records > sizes.get(dataset, 0):
            shown[dataset], sizes[dataset] = found, n_records
    return shown


def pairs_figure(shown: dict[str, Record]) -> Figure:
    """Every pair of the four features: data, then each model's reconstructions and samples."""
    some = next(iter(shown.values()))
    n_rows = min(some.data["n_train"], N_SAMPLES)  # whatever a stranger's record says
    rows = {
        "data": PROBLEM.sample(n_rows, random_state=some.task.seed)[0],
        "fresh data": PROBLEM.sample(N_SAMPLES, random_state=[some.task.seed, 2])[0],
    }
    for method, record in shown.items():
        title = GENERATIVE_METHODS[method].title
        for name in ("reconstructions", "samples"):
            rows[f"{title}, {name}"] = np.reshape(record.curves[name], (-1, 4))
    pairs = list(itertools.combinations(range(4), 2))
    figure = Figure(figsize=(2.1 * len(pairs), 2.0 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(pairs), squeeze=False, sharex="col", sharey="col")
    lower, upper = rows["fresh data"].min(axis=0) - 0.5, rows["fresh data"].max(axis=0) + 0.5
    for line, (title, X) in zip(panels, rows.items(), strict=True):
        color = INK if "data" in title else MODEL
        for axes, (i, j) in zip(line, pairs, strict=True):
            axes.scatter(X[:, i], X[:, j], s=1.5 if len(X) > 1000 else 3, color=color, lw=0)
            axes.set(xlim=(lower[i], upper[i]), ylim=(lower[j], upper[j]))
            tidy(axes)
        line[0].set_ylabel(title, fontsize=10)
    for axes, (i, j) in zip(panels[0], pairs, strict=True):
        axes.set_title(f"v{j + 1} against v{i + 1}", fontsize=10)
    return figure


def variance_figure(shown: dict[str, Record], *, title: str) -> Figure:
    """Each model's map of the decoder variance, with codes on it, in colours of one scale."""
    figure = Figure(figsize=(1.2 + 3.6 * len(shown), 4.2), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    colors = []
    for axes, (method, record) in zip(panels, shown.items(), strict=True):
        colors.append(draw_map(axes, np.asarray(record.curves["variance"])))
        codes = np.reshape(record.curves["codes"], (-1, 2))
        labels = record.curves.get("labels")
        ink = {"color": CODES} if labels is None else {"c": labels, "cmap": "tab10"}
        axes.scatter(codes[:, 0], codes[:, 1], s=5, lw=0, **ink)
        axes.set(xlim=(GRID[0], GRID[-1]), ylim=(GRID[0], GRID[-1]), aspect="equal")
        axes.set_title(GENERATIVE_METHODS[method].title, fontsize=11)
    label = "summed variance, over that of the data"
    figure.colorbar(colors[0], ax=list(panels), label=label, extend="max")
    figure.suptitle(title, fontsize=12)
    return figure


def draw_map(axes: Axes, values: NDArray) -> QuadMesh:
    """A square of values over the latent plane."""
    square = values.reshape(len(GRID), len(GRID))
    scale = PowerNorm(0.5, vmin=0, vmax=MOST)  # so that small variances differ in colour, too
    return axes.pcolormesh(GRID, GRID, square, cmap="magma", norm=scale, shading="gouraud")
