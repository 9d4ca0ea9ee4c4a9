"""How often a monitor of a fitted model raises an alarm, without drift and with it.

    python benchmarks/drift_alarms.py [--fits 20] [--rows 1000]

Every fit is `LocalRegressor(preset="fast")` on a function with noise that differs from row to row;
its stream comes from the same source, then with a shift, a wider noise, or from elsewhere.
"""

import argparse

import numpy as np

from sigmax import LocalRegressor


def draw(rng, n, shift=0.0, scale=1.0, move=0.0):
    X = rng.normal(size=(n, 3))
    X[:, 0] += move
    noise = 0.1 + 0.2 * np.abs(X[:, 1])
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * (shift + scale * rng.normal(size=n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    streams = {
        "no drift": {},
        "shift of one noise level": {"shift": 1.0},
        "noise twice as wide": {"scale": 2.0},
        "x moved by three std": {"move": 3.0},
    }
    print("rows of the fit | stream | tolerance | alarms | median rows to the alarm")
    for n_fit in (200, 1000):
        found, tolerance = {name: [] for name in streams}, 0.0
        for seed in range(arguments.fits):
            rng = np.random.default_rng(seed)
            model = LocalRegressor("fast", random_state=seed).fit(*draw(rng, n_fit))
            for name, change in streams.items():
                monitor = model.monitor(*draw(rng, arguments.rows, **change))
                tolerance = monitor.drift.tolerance
                found[name].append(monitor.alarms[0].since if monitor.has_alarm else np.inf)
        for name, rows in found.items():
            share, median = np.mean(np.isfinite(rows)), np.median(rows)
            print(f"{n_fit} | {name} | {tolerance:.3f} | {share:.0%} of {len(rows)} | {median:g}")


if __name__ == "__main__":
    main()
