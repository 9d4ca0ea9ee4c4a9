"""Test rows moved 10 standard deviations along every axis: what contributes, and how wide it gets.

    python benchmarks/off_data.py [--datasets yacht,boston] [--preset fast] [--rows 50]

Prints, per data set, the largest evidence S0 of any moved row, the range of its standard deviation
over that of the prior alone, and over that of y. A feature that never varies is moved by 10 units.
"""

import argparse
import copy
from dataclasses import replace

import equinox as eqx
import numpy as np
from rich.console import Console

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
    parser.add_argument("--preset", default=None)
    parser.add_argument("--rows", type=int, default=50)
    given = parser.parse_args()
    console = Console(width=120)
    console.print("| data set | largest S0 | std over the prior's | std over that of y |")
    console.print("|---|---:|---:|---:|")
    for name in given.datasets.split(","):
        data = load_uci(name)
        train, test = data.splits[0]
        model = LocalRegressor(given.preset, random_state=0)
        model.fit(data.X[train], data.y[train])
        scale, rows = model.model_.features.scaling.scale, data.X[test][: given.rows]
        steps = [sign * FAR * np.diag(scale) for sign in (-1, 1)]
        moved = np.concatenate([rows + step for step in np.concatenate(steps)])
        parts = model.predict_uncertainty(moved)
        ratio = parts["total"] / without_rows(model).predict_dist(moved).std
        unit = parts["total"] / model.model_.target.scaling.scale[0]
        console.print(
            f"| {name} | {parts['evidence'].max():.1e} | {ratio.min():.2f} to {ratio.max():.2f} | "
            f"{unit.min():.2f} to {unit.max():.2f} |"
        )


if __name__ == "__main__":
    main()
