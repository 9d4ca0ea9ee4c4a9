"""A ring of data with a hole: mean and standard deviation inside, on and around it.

    python benchmarks/ring.py [--preset fast] [--out docs/ring.png]

Draws the picture, and prints the standard deviation over that of y in the hole, on the ring and far
away.
"""

import argparse

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sigmax import LocalRegressor
from sigmax.plots import INK, tidy

INNER, OUTER, SHOWN = 2.0, 3.0, 5.0


def sample_ring(n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows spread evenly over the ring; the mean follows the angle, the noise grows to the right.

    The standard deviation is 0.05 at the left end and 0.55 at the right.
    """
    radius = np.sqrt(rng.uniform(INNER**2, OUTER**2, n_rows))
    angle = rng.uniform(-np.pi, np.pi, n_rows)
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    std = 0.3 + 0.25 * X[:, 0] / OUTER
    return X, np.sin(2 * angle) + std * rng.standard_normal(n_rows)


def draw_map(axes: Axes, grid: np.ndarray, values: np.ndarray, points: np.ndarray, **scale) -> None:
    """Draw values (grid, grid) over a square, the second coordinate first, with training rows."""
    image = axes.pcolormesh(grid, grid, values, rasterized=True, **scale)
    axes.scatter(*points.T, s=3, color="white", edgecolors=INK, lw=0.3, alpha=0.7)
    axes.set_aspect("equal")
    if (figure := axes.get_figure()) is not None:
        figure.colorbar(image, ax=axes, shrink=0.9)
    tidy(axes)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--preset", default=None)
    parser.add_argument("--out", default="docs/ring.png")
    given = parser.parse_args()
    X, y = sample_ring(1000, np.random.default_rng(0))
    model = LocalRegressor(given.preset, random_state=0).fit(X, y)
    axis = np.linspace(-SHOWN, SHOWN, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    mean, std = model.predict(grid, return_std=True)
    radius = np.linalg.norm(grid, axis=1)
    places = {
        "in the middle of the hole": radius < 0.5,
        "on the ring": (radius > INNER) & (radius < OUTER),
        "far away": radius > 4.5,
    }
    for name, inside in places.items():
        ratio = std[inside] / y.std()
        print(f"{name}: {ratio.min():.2f} to {ratio.max():.2f} of std(y)")
    figure = Figure(figsize=(9.4, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    shape = (len(axis), len(axis))
    reach = float(np.abs(mean - y.mean()).max())
    limits = {"vmin": y.mean() - reach, "vmax": y.mean() + reach}
    draw_map(left, axis, mean.reshape(shape), X, cmap="RdBu_r", **limits)
    draw_map(right, axis, std.reshape(shape), X, cmap="viridis", vmin=0.0)
    left.set_title("mean", fontsize=11)
    right.set_title("standard deviation", fontsize=11)
    figure.savefig(given.out, dpi=110)


if __name__ == "__main__":
    main()
