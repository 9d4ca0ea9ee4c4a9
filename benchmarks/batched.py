"""Seconds per model when the splits of a benchmark are trained in one call, on this device.

    python benchmarks/batched.py [--models 1 20 100] [--rows 455] [--features 13]

The paper's recipe of Combined, 10,000 iterations; compilation is done before and not counted.
"""

import argparse
import time

import jax
import numpy as np
from rich.console import Console

from sigmax import CombinedRegressor
from sigmax.estimators import fit_together


def seconds_per_model(n_models: int, rows: int, features: int) -> float:
    """A second training of so many models, over their number."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_models, rows, features))
    y = X[:, :, 0] + rng.normal(size=(n_models, rows))
    seconds = 0.0
    for _ in range(2):
        models = [CombinedRegressor("paper", random_state=seed) for seed in range(n_models)]
        begin = time.perf_counter()
        fit_together(models, list(zip(X, y, strict=True)))
        seconds = time.perf_counter() - begin
    return seconds / n_models


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--models", type=int, nargs="+", default=[1, 20, 100])
    parser.add_argument("--rows", type=int, default=455)
    parser.add_argument("--features", type=int, default=13)
    given = parser.parse_args()
    console = Console()
    console.print(f"{jax.devices()[0].device_kind}, {given.rows} x {given.features}")
    console.print("models at once   s / model   the released code's 45 to 80 s, over that")
    for n_models in given.models:
        seconds = seconds_per_model(n_models, given.rows, given.features)
        ratio = f"{45 / seconds:.0f} to {80 / seconds:.0f}"
        console.print(f"{n_models:14} {seconds:11.3f}   {ratio}")


if __name__ == "__main__":
    main()
