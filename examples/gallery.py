"""Draw the pictures of the gallery, on tables of scikit-learn and on made-up ones.

python examples/gallery.py [folder]
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from sklearn.datasets import load_diabetes, load_iris, load_linnerud, load_wine
from sklearn.model_selection import KFold

from sigmax import SigmaxRegressor
from sigmax.plots import draw_monitor, tidy

BLUE, LIGHT, RED = "#1f5fa8", "#9ec3ea", "#d1495b"
PICTURES = {}


def read(load: Any, target: str = "target", **options: Any) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of a table of scikit-learn, and the one to predict."""
    table = load(as_frame=True, **options)
    return table.data.drop(columns=target, errors="ignore"), table.frame[target]


def picture(draw):
    """Add a function to the pictures."""
    PICTURES[draw.__name__] = draw
    return draw


# --8<-- [start:bands]
@picture
def bands(axes):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (300, 1))
    y = np.sin(x[:, 0]) * x[:, 0] / 2 + rng.normal(0, 0.1 + 0.1 * x[:, 0])
    model = SigmaxRegressor("quick", random_state=0).fit(x, y)

    grid = np.linspace(-4, 14, 181)
    for coverage, alpha in ((0.95, 0.3), (0.8, 0.5), (0.5, 0.8)):
        lower, upper = model.predict_interval(grid[:, None], coverage=coverage).T
        axes.fill_between(grid, lower, upper, color=LIGHT, alpha=alpha, lw=0)
    axes.plot(grid, model.predict_quantiles(grid[:, None], 0.5), color=BLUE, label="median")
    axes.scatter(x, y, s=5, color="black", alpha=0.4, label="300 training rows")
    axes.set(xlabel="x", ylabel="y", title="50, 80 and 95 % intervals")
    axes.legend(frameon=False)


# --8<-- [end:bands]
# --8<-- [start:densities]
@picture
def densities(axes):
    X, y = read(load_diabetes, scaled=False)
    model = SigmaxRegressor("quick", random_state=0).fit(X[4:], y[4:])

    grid = np.linspace(0, 360, 181)
    for i, color in enumerate(("C0", "C1", "C2", "C3")):
        patient = X.iloc[np.full(len(grid), i)]
        density = np.exp(model.predict_dist(patient).log_prob(grid))
        axes.plot(grid, density, color=color, label=f"patient {i + 1}")
        axes.plot(y[i], 0, "^", color=color, clip_on=False)
    axes.set(xlabel="disease progression", ylabel="density", title="Four new patients")
    axes.set_ylim(0)
    axes.legend(frameon=False, title="triangle: actual value")


# --8<-- [end:densities]
# --8<-- [start:sorted_intervals]
@picture
def sorted_intervals(axes):
    X, y = read(load_wine, "alcohol")
    X_new = X.sample(60, random_state=0)
    y_new = y.loc[X_new.index].to_numpy()
    model = SigmaxRegressor("quick", random_state=0).fit(X.drop(X_new.index), y.drop(X_new.index))

    lower, upper = model.predict_interval(X_new, coverage=0.9).T
    order, rank = np.argsort(model.predict(X_new)), np.arange(len(X_new))
    is_inside = ((lower <= y_new) & (y_new <= upper))[order]
    axes.vlines(rank, lower[order], upper[order], color=LIGHT, lw=4)
    axes.scatter(rank, y_new[order], s=14, c=np.where(is_inside, BLUE, RED), zorder=2)
    text = f"90 % intervals contain {is_inside.sum()} of {len(X_new)} wines"
    axes.set(xlabel="wines, by predicted alcohol", ylabel="alcohol, %", title=text)


# --8<-- [end:sorted_intervals]
# --8<-- [start:calibration]
@picture
def calibration(axes):
    X, y = read(load_diabetes, scaled=False)
    pit = np.empty(len(y))  # probability of a value below the actual one, for held-out rows
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        model = SigmaxRegressor("quick", random_state=0).fit(X.iloc[train], y.iloc[train])
        pit[test] = model.predict_dist(X.iloc[test]).cdf(y.iloc[test])

    nominal = np.linspace(0, 1, 101)
    observed = [np.mean(np.abs(pit - 0.5) <= level / 2) for level in nominal]
    error = 1.96 * np.sqrt(nominal * (1 - nominal) / len(y))  # by chance, in 95 % of the cases
    axes.fill_between(nominal, nominal - error, nominal + error, color="#dddddd", label="chance")
    axes.plot(nominal, observed, color=BLUE, label="5-fold cross-validation")
    axes.set(xlabel="nominal coverage", ylabel="observed coverage", title="Calibration")
    axes.legend(frameon=False)


# --8<-- [end:calibration]
# --8<-- [start:weights]
@picture
def weights(axes):
    tables = {
        "diabetes": read(load_diabetes, scaled=False),
        "iris: petal width": read(load_iris, "petal width (cm)"),
        "wine: proline": read(load_wine, "proline"),
    }
    shares = {}
    for name, (X, y) in tables.items():
        board = SigmaxRegressor("quick", random_state=0).fit(X, y).leaderboard_
        family = board["expert"].str.split(" ").str[0]  # gp, or gp on the transformed target
        shares[name] = board["weight"].groupby(family).sum()

    pd.DataFrame(shares).T.fillna(0).plot.barh(stacked=True, ax=axes, colormap="viridis")
    axes.set(xlabel="weight", title="Which experts the data choose")
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.4, -0.18))


# --8<-- [end:weights]
# --8<-- [start:counts]
@picture
def counts(axes):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, (500, 1))
    y = rng.poisson(np.exp(x[:, 0] - 0.5)).astype(float)
    model = SigmaxRegressor("quick", random_state=0).fit(x, y)

    k, ends = np.arange(15), np.arange(16) - 0.5
    for i, (value, color) in enumerate({0.5: BLUE, 1.5: "#e8a33d", 2.5: RED}.items()):
        below = model.predict_dist(np.full((16, 1), value)).cdf(ends)
        axes.bar(k + 0.27 * (i - 1), np.diff(below), 0.27, color=color, label=f"x = {value}")
    axes.set(xlabel="number of events", ylabel="probability", title="Predicted counts")
    axes.legend(frameon=False)


# --8<-- [end:counts]
# --8<-- [start:gate]
@picture
def gate(axes):
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 300)
    y = np.sin(X[:, 0]) + X[:, 1] ** 2 + rng.normal(0, 0.2, 300)
    model = SigmaxRegressor("quick", random_state=0).fit(X, y)

    side = np.linspace(-6, 6, 73)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    found = model.predict_uncertainty(grid)["gate"].reshape(73, 73)
    shown = axes.contourf(side, side, found, np.linspace(0, 1, 11), cmap="Blues")
    axes.figure.colorbar(shown, label="gate")
    axes.scatter(*X.T, s=4, color="black", alpha=0.5)
    axes.set(aspect="equal", xlabel="first column", ylabel="second column")
    axes.set_title("0: near training rows, 1: out of distribution")


# --8<-- [end:gate]
# --8<-- [start:few_rows]
@picture
def few_rows(axes):
    X, y = read(load_linnerud, "Waist")
    ends = np.empty((len(y), 2))
    for train, test in KFold(10).split(X):
        model = SigmaxRegressor("quick", random_state=0).fit(X.iloc[train], y.iloc[train])
        ends[test] = model.predict_interval(X.iloc[test], coverage=0.9)

    n_inside = int(np.sum((ends[:, 0] <= y) & (y <= ends[:, 1])))
    axes.vlines(np.arange(20), *ends.T, color=LIGHT, lw=6)
    axes.scatter(np.arange(20), y, s=16, color=BLUE, zorder=2)
    axes.set_title(f"20 men, each predicted from 18 others: {n_inside} inside")
    axes.set(xlabel="man", ylabel="waist, inches", xticks=[])


# --8<-- [end:few_rows]
# --8<-- [start:drift]
@picture
def drift(axes):
    rng = np.random.default_rng(0)
    X = rng.normal(0, 1, (700, 3))
    y = X[:, 0] - X[:, 1] + rng.normal(0, 0.3, 700)
    y[500:] += 0.3  # after 200 of the monitored rows the instrument reads too high
    model = SigmaxRegressor("quick", random_state=0).fit(X[:300], y[:300])

    monitor = model.monitor(alpha=0.05)
    monitor.update(X[300:], y[300:])
    draw_monitor(axes, monitor)
    axes.axvline(200, color="black", lw=0.8, ls=":")
    axes.set_title("Drift from row 200 on")


# --8<-- [end:drift]
# --8<-- [start:dependence]
@picture
def dependence(axes):
    X, y = read(load_diabetes, scaled=False)
    model = SigmaxRegressor("quick", random_state=0).fit(X, y)

    patients, values = X.iloc[:40], np.linspace(18, 42, 25)
    rows = pd.concat([patients.assign(bmi=value) for value in values])
    found = model.predict_quantiles(rows, [0.05, 0.5, 0.95]).reshape(len(values), 40, 3)
    lower, median, upper = found.mean(axis=1).T
    axes.fill_between(values, lower, upper, color=LIGHT, label="90 % interval")
    axes.plot(values, median, color=BLUE, label="median")
    axes.set(xlabel="body mass index", ylabel="disease progression")
    axes.set_title("Average over 40 patients with another BMI")
    axes.legend(frameon=False)


# --8<-- [end:dependence]
def main(folder="docs/gallery", pictures=PICTURES):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
        draw(axes)
        tidy(axes)
        figure.savefig(Path(folder) / f"{name}.png", dpi=90, pil_kwargs={"optimize": True})
        plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
