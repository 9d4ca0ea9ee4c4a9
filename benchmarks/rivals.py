"""Every method against its own literature, on standard splits; and how long each takes.

    python benchmarks/rivals.py scores [--splits 5]   needs SIGMAX_DATA
    python benchmarks/rivals.py seconds [--rows 1000] [--features 8]

`scores` prints mean test log-likelihoods with standard errors beside what the methods' own papers
lead one to expect. `seconds` prints a fit and 1,000 predictions in a fresh process, compilation
included, and again in the same process, where nothing is compiled.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from sigmax.metrics import log_likelihood, rmse
from sigmax.report.tables import mean_and_error
from sigmax.runs.methods import METHODS

EXPECTED = {
    "mc-dropout": {"boston": -2.46, "concrete": -3.04, "power": -2.83},
    "ens-nn": {"boston": -2.45, "concrete": -3.06, "kin8nm": 1.15, "power": -2.80},
    "gp": {"boston": -2.50, "concrete": -3.10, "yacht": -0.6},
    "bnn": {"boston": -2.60, "power": -2.86},
}

ONE = """
import sys, time
import numpy as np
from sigmax.runs.methods import METHODS
method, rows, features = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
X = rng.normal(size=(rows, features))
y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + np.exp(0.5 * X[:, 3] - 1) * rng.normal(size=rows)
for _ in range(2):
    begin = time.perf_counter()
    METHODS[method].create(0).fit(X, y).predict(X[:1000], return_std=True)
    print(time.perf_counter() - begin)
"""


def print_scores(n_splits: int) -> None:
    console = Console()
    console.print(f"{'method':12} {'data':9} {'log-likelihood':>17} {'expected':>9} {'rmse':>15}")
    for method, aims in EXPECTED.items():
        for name, aim in aims.items():
            data = np.load(Path(os.environ["SIGMAX_DATA"]) / f"{name}.npz")
            X, y, scores, errors = data["X"], data["y"], [], []
            for split in range(n_splits):
                train, test = data["splits_train"][split], data["splits_test"][split]
                dist = METHODS[method].create(split).fit(X[train], y[train]).predict_dist(X[test])
                scores.append(log_likelihood(y[test], dist))
                errors.append(rmse(y[test], dist))
            score, error = mean_and_error(scores, digits=3), mean_and_error(errors, digits=3)
            console.print(f"{method:12} {name:9} {score:>17} {aim:9.2f} {error:>15}")


def print_seconds(rows: int, features: int) -> None:
    console = Console()
    console.print(f"{rows} x {features}   first (s)   steady (s)")
    for method in METHODS:
        command = [sys.executable, "-c", ONE, method, str(rows), str(features)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        first, steady = map(float, done.stdout.split())
        console.print(f"{method:14} {first:7.1f} {steady:10.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("what", choices=["scores", "seconds"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--features", type=int, default=8)
    given = parser.parse_args()
    begin = time.perf_counter()
    if given.what == "scores":
        print_scores(given.splits)
    else:
        print_seconds(given.rows, given.features)
    Console().print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
