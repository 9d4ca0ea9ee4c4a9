"""Draw a picture of each of the paper's four ideas.

python examples/ideas.py [folder]
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from scipy import stats

from sigmax import CombinedRegressor, LocalitySampler
from sigmax.data import ToyProblem
from sigmax.experts.combined import Combined
from sigmax.plots import tidy

BLUE, LIGHT, RED, GREY = "#1f5fa8", "#9ec3ea", "#d1495b", "#bbbbbb"
X, y = ToyProblem().sample(500, random_state=0)
GRID = np.linspace(-4, 14, 181)


def spread(**switches):
    """Standard deviation along the grid of a model with some of the ideas."""
    expert = Combined(n_members=1, hidden_sizes=(64, 64), n_steps=1500, **switches)
    model = CombinedRegressor(preset=expert, random_state=0).fit(X, y)
    return model.predict(GRID[:, None], return_std=True)[1]


def locality(axes):
    sampler = LocalitySampler(n_primary=3, n_secondary=20, n_neighbors=30, random_state=0)
    batch, _ = next(iter(sampler.fit(X)))
    axes.plot(X, y, ".", color=GREY, ms=4, label="500 rows")
    axes.plot(X[batch], y[batch], ".", color=BLUE, label="a batch: neighbours of 3 rows")
    axes.set(xlabel="x", ylabel="y")


def split(axes):
    inside = (GRID >= 0) & (GRID <= 10)
    axes.plot(GRID[inside], ToyProblem().std(GRID[inside]), "--", color=RED, label="true std")
    for on, color, label in ((False, GREY, "one step for both"), (True, BLUE, "in turns")):
        found = spread(locality=False, inverse_gamma=False, extrapolate=False, split=on)
        axes.plot(GRID[inside], found[inside], color=color, label=label)
    axes.set(xlabel="x", ylabel="std")


def inverse_gamma(axes):
    alpha, beta = 2.0, 1.0  # the mean of the variance is 1
    grid = np.linspace(-7, 7, 281)
    for variance in stats.invgamma(alpha, scale=beta).ppf([0.1, 0.3, 0.5, 0.7, 0.9]):
        axes.plot(grid, stats.norm.pdf(grid, scale=variance**0.5), color=GREY, lw=0.8)
    density = stats.t.pdf(grid, 2 * alpha, scale=(beta / alpha) ** 0.5)
    axes.plot(grid, density, color=BLUE, lw=2, label="Student-t, the mixture over all variances")
    axes.plot([], [], color=GREY, label="Normal with one variance")
    axes.set(xlabel="error of the mean", ylabel="density", yscale="log", ylim=(1e-4, 30))


def extrapolation(axes):
    axes.axvspan(0, 10, color="#f3f3f3")
    axes.axhline(y.std(), color="black", lw=0.8, ls=":", label="std of y")
    for on, color, label in ((False, GREY, "without"), (True, BLUE, "with extrapolation")):
        axes.plot(GRID, spread(extrapolate=on), color=color, label=label)
    axes.set(xlabel="x; training rows are in the grey range", ylabel="std", ylim=(0, 10))


def main(folder="docs/ideas"):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for draw in (locality, split, inverse_gamma, extrapolation):
        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        draw(axes)
        tidy(axes)
        axes.legend(frameon=False, fontsize=9)
        figure.savefig(Path(folder) / f"{draw.__name__}.png", dpi=90)
        plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
