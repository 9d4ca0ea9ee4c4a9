"""Test rows moved 10 standard deviations along every axis: what contributes, and how wide it gets.

    python benchmarks/off_data.py [--datasets yacht,boston] [--method local-fast] [--rows 50]

Prints, per data set, the range of the standard deviations of the moved rows over that of y and the
least value of their gates; for `LocalRegressor` also the largest evidence S0 of any of them, and
the standard deviation over that of the prior alone. A feature that never varies is moved by 10
units. Methods are those of `suite.py`.
"""

import argparse
import copy
from dataclasses import replace

import equinox as eqx
import numpy as np
from rich.console import Console
from suite import create

from sigmax import LocalRegressor
from sigmax.data import UCI_SETS, load_uci

FAR = 10.0


def without_rows(model: LocalRegressor) -> LocalRegressor:
    """The same model, in which no training row contributes."""
    silent = copy.copy(model)
    weight = np.zeros_like(model.fitted.rows.weight)
    fitted = eqx.tree_at(lambda own: own.rows.weight, model.fitted, weight)
    silent.model_ = replace(model.model_, fitted=fitted)
    return silent


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--datasets", default=",".join(name for name in UCI_SETS if name != "year"))
    parser.add_argument("--method", default="local")
    parser.add_argument("--rows", type=int, default=50)
    given = parser.parse_args()
    console = Console(width=120)
    titles = ["data set"]
    titles += ["largest S0", "std over the prior's"] if given.method.startswith("local") else []
    titles += ["std over that of y", "least gate"]
    console.print(f"| {' | '.join(titles)} |\n|---|{'---:|' * (len(titles) - 1)}")
    for name in given.datasets.split(","):
        data = load_uci(name)
        train, test = data.splits[0]
        model = create(given.method).fit(data.X[train], data.y[train])
        scale, rows = model.model_.features.scaling.scale, data.X[test][: given.rows]
        steps = [sign * FAR * np.diag(scale) for sign in (-1, 1)]
        moved = np.concatenate([rows + step for step in np.concatenate(steps)])
        parts = model.predict_uncertainty(moved)
        unit = parts["total"] / model.model_.target.scaling.scale[0]
        cells = [name]
        if isinstance(model, LocalRegressor):
            ratio = parts["total"] / without_rows(model).predict_dist(moved).std
            cells += [f"{parts['evidence'].max():.1e}", f"{ratio.min():.2f} to {ratio.max():.2f}"]
        cells += [f"{unit.min():.2f} to {unit.max():.2f}", f"{parts['gate'].min():.2f}"]
        console.print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
