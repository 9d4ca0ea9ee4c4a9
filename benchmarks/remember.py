"""Rows that join a fitted model: coverage where they lie, what changes elsewhere, and seconds.

    python benchmarks/remember.py [--seeds 5]

`LocalRegressor(preset="fast")` learns 400 rows with x in [-3, 3]², then remembers rows with the
first feature in [4, 7]. Scores are of 1,000 fresh rows there, the shut ones being those within
reach of remembered rows (gate below 0.1), and of 500 fresh rows of the fit's own square.
"""

import argparse
import copy
import time
from typing import Any

import numpy as np

from sigmax import LocalRegressor

FUNCTIONS = {
    "wave": lambda X: np.sin(2 * X[:, 0]) + 0.5 * X[:, 1],
    "jump": lambda X: np.where(X[:, 0] > 3, 3 + X[:, 1], np.sin(X[:, 0]) + 0.5 * X[:, 1]),
    "square": lambda X: 0.4 * X[:, 0] ** 2 + X[:, 1],
}


def draw(rng, function, low, n):
    X = rng.uniform([low, -3], [low + (3 if low > 0 else 6), 3], (n, 2))
    return X, function(X) + 0.2 * rng.normal(size=n)


def scores(model, X, y, mask=None):
    """Coverage of 90 % intervals, RMSE and median standard deviation."""
    if mask is not None:
        if not mask.any():
            return [np.nan] * 3
        X, y = X[mask], y[mask]
    dist = model.predict_dist(X)
    lower, upper = dist.interval(0.9).T
    inside = np.mean((lower <= y) & (y <= upper))
    return [inside, np.sqrt(np.mean((dist.mean - y) ** 2)), np.median(dist.std)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    n_seeds = parser.parse_args().seeds
    print("function | remembered | shut | coverage, RMSE, std where shut | factor | of the fit")
    for name, function in FUNCTIONS.items():
        found: dict[int, list] = {}
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            model: Any = LocalRegressor("fast", random_state=seed)
            model.fit(*draw(rng, function, -3, 400))
            own, fresh = draw(rng, function, -3, 500), draw(rng, function, 4, 1000)
            for n in (0, 1, 10, 30, 100, 300):
                other = copy.deepcopy(model)
                if n:
                    other.add_rows(*draw(rng, function, 4, n))
                is_shut = other.predict_gate(fresh[0]) < 0.1
                row = [is_shut.mean(), *scores(other, *fresh, is_shut), other.memory_.factor]
                found.setdefault(n, []).append(row + scores(other, *own))
        for n, rows in found.items():
            all_nan = np.isnan(rows).all(axis=0)
            means = np.where(all_nan, np.nan, np.nanmean(np.where(all_nan, 0, rows), axis=0))
            print(f"{name} | {n} |", " ".join(f"{mean:.2f}" for mean in means), flush=True)
    function, rng = FUNCTIONS["wave"], np.random.default_rng(0)
    model = LocalRegressor("fast", random_state=0)
    model.fit(*draw(rng, function, -3, 400))
    X, y = draw(rng, function, 4, 51)
    model.add_rows(X[:1], y[:1]).predict(X[:5])
    start = time.perf_counter()
    for row in range(1, 51):
        model.add_rows(X[row : row + 1], y[row : row + 1]).predict(X[:5])
    print(f"one row and a prediction, after the first: {(time.perf_counter() - start) / 50:.3f} s")


if __name__ == "__main__":
    main()
