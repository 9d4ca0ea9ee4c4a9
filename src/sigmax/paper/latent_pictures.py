"""Maps of the decoder variance over the latent plane, and the records that they are drawn from."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sigmax.paper.generative import GENERATIVE_METHODS, LATENT_GRID, groups_of
from sigmax.runs.records import Record

__all__ = ["shown_seeds", "variance_figure"]

CODES = "#2f8fe0"
MOST = 1.5
"""The variance at which the colours of a map end, over that of the data."""


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
        axes.set(
            xlim=(LATENT_GRID[0], LATENT_GRID[-1]),
            ylim=(LATENT_GRID[0], LATENT_GRID[-1]),
            aspect="equal",
        )
        axes.set_title(GENERATIVE_METHODS[method].title, fontsize=11)
    label = "summed variance, over that of the data"
    figure.colorbar(colors[0], ax=list(panels), label=label, extend="max")
    figure.suptitle(title, fontsize=12)
    return figure


def draw_map(axes: Axes, values: NDArray) -> QuadMesh:
    """A square of values over the latent plane."""
    square = values.reshape(len(LATENT_GRID), len(LATENT_GRID))
    scale = PowerNorm(0.5, vmin=0, vmax=MOST)  # so that small variances differ in colour, too
    return axes.pcolormesh(
        LATENT_GRID, LATENT_GRID, square, cmap="magma", norm=scale, shading="gouraud"
    )
