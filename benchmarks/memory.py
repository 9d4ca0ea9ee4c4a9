"""Peak memory of a large fit: 500,000 x 90 rows, 200 iterations.

python benchmarks/memory.py [--rows 500000] [--features 90] [--steps 200]
"""

import argparse
import resource
import time

import numpy as np


def resident_gib() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--features", type=int, default=90)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    from sigmax import CombinedRegressor

    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, options.features)) * 3
    X = centers[rng.integers(200, size=options.rows)]
    X += rng.normal(size=X.shape)
    y = X[:, 0] + rng.normal(size=options.rows)
    before = resident_gib()
    begin = time.perf_counter()
    model = CombinedRegressor(n_steps=options.steps, random_state=0, verbose=1).fit(X, y)
    fitted = time.perf_counter()
    model.predict(X[:100_000], return_std=True)
    print(
        f"{options.rows} x {options.features}: data made {before:.2f} GiB, peak"
        f" {resident_gib():.2f} GiB; fit {fitted - begin:.0f} s,"
        f" 100,000 predictions {time.perf_counter() - fitted:.1f} s"
    )


if __name__ == "__main__":
    main()
