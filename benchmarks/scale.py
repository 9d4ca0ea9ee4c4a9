"""Graph, fit and prediction of LocalRegressor against the number of rows, on this device.

    python benchmarks/scale.py [--rows 1000 10000 100000 464000] [--features 90] [--preset fast]
    python benchmarks/scale.py --together 20 --rows 7373 --features 8

Made-up rows of the shape of Year Prediction MSD; compilation is kept apart. With ``--together``, so
many models are fitted in one call.
"""

import argparse
import resource
import time

import jax
import numpy as np
from rich.console import Console

from sigmax import LocalRegressor
from sigmax.estimators import fit_together
from sigmax.experiments.fits import stopwatch
from sigmax.neighbors import neighbor_graph


def make_rows(n_rows: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Twelve hidden causes, as many features as wanted, and noise that depends on one of them."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n_rows, 12))
    X = hidden @ rng.normal(size=(12, n_features)) + 0.3 * rng.normal(size=(n_rows, n_features))
    y = np.sin(hidden[:, 0]) + hidden[:, 1] * hidden[:, 2]
    return X, y + np.exp(0.5 * hidden[:, 3]) * rng.normal(size=n_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000, 464_000])
    parser.add_argument("--features", type=int, default=90)
    parser.add_argument("--preset", default=None)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--predict", type=int, default=20_000)
    given = parser.parse_args()
    console = Console(width=160)
    console.print(f"{jax.devices()[0].device_kind}, {given.features} features, {given.preset}")
    console.print("   rows  graph s  compile s    fit s    steps  ms/step  predict rows/s  GiB")
    for n_rows in given.rows:
        sets = [make_rows(n_rows, given.features, seed) for seed in range(given.together)]

        begin = time.perf_counter()
        neighbor_graph(sets[0][0].astype(np.float32), 64)
        graph = time.perf_counter() - begin
        models = [LocalRegressor(given.preset, random_state=seed) for seed in range(len(sets))]
        with stopwatch() as watch:
            fit_together(models, sets)
        model, n_steps = models[0], models[0].recipe().fit_to(n_rows).n_steps
        rows = make_rows(given.predict, given.features, seed=99)[0]
        model.predict_dist(rows[:2048])
        begin = time.perf_counter()
        model.predict_dist(rows)
        speed = given.predict / (time.perf_counter() - begin)
        taken = max(len(m.history_["distribution"]) for m in models) * (n_steps // 50)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        console.print(
            f"{n_rows:7} {graph:8.1f} {watch.compile:10.1f} {watch.run:8.1f} {taken:8} "
            f"{watch.run / taken * 1000:8.2f} {speed:15.0f} {memory:4.1f}"
        )


if __name__ == "__main__":
    main()
