"""Seconds of one autoencoder of the shape of MNIST, on this device, compilation apart.

    python benchmarks/generative.py [--method vae] [--steps 20000] [--rows 60000]

Made-up rows of that shape: what is in them does not matter for the time.
"""

import argparse
import time

import jax
import numpy as np
from rich.console import Console

from sigmax.paper.generative import GENERATIVE_METHODS
from sigmax.runs.methods import stopwatch


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--method", default="vae", choices=sorted(GENERATIVE_METHODS))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=60_000)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    X = (rng.uniform(size=(given.rows, 2)) @ rng.uniform(size=(2, 784)) / 2).astype(np.float32)
    model = GENERATIVE_METHODS[given.method].create(0)
    model.set_params(n_steps=given.steps, scaling="none", min_std=0.01)
    with stopwatch() as watch:
        model.fit(X)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        model.log_prob(X[:1000], n_samples=500)
        seconds.append(time.perf_counter() - begin)
    console = Console(width=160)
    console.print(f"{jax.devices()[0].device_kind}, {given.method}, {given.steps} steps")
    console.print(f"compile {watch.compile:.1f} s, fit {watch.run:.1f} s")
    console.print(f"log p(x), 1,000 rows x 500: first {seconds[0]:.1f} s, then {seconds[1]:.1f} s")


if __name__ == "__main__":
    main()
