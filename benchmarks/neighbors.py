"""Seconds, recall and memory of the neighbour graph: ``python benchmarks/neighbors.py``."""

import argparse
import multiprocessing
import threading
import time

import numpy as np
import psutil

from sigmax.neighbors import exact_neighbors, neighbor_graph

KINDS = ("clusters", "latent", "independent")


def make_rows(kind: str, n: int, d: int) -> np.ndarray:
    """Standardised rows: 50 Gaussian clusters, 15 latent features, or independent features."""
    rng = np.random.default_rng(0)
    if kind == "clusters":
        X = rng.normal(size=(50, d))[rng.integers(50, size=n)] + 0.5 * rng.normal(size=(n, d))
    elif kind == "latent":
        X = np.tanh(rng.normal(size=(n, 15)) @ rng.normal(size=(15, d)) / 4)
        X += 0.1 * rng.normal(size=(n, d))
    else:
        X = rng.normal(size=(n, d))
    return (X - X.mean(axis=0)) / X.std(axis=0)


class PeakMemory:
    """Most resident memory, in MiB, beyond that at the start of the ``with`` block."""

    def __enter__(self):
        self._process, self._done = psutil.Process(), threading.Event()
        self._start = self._peak = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._peak = max(self._peak, self._process.memory_info().rss)

    def __exit__(self, *_) -> None:
        self._done.set()
        self._thread.join()

    @property
    def extra(self) -> float:
        return (self._peak - self._start) / 2**20


def measure(kind: str, n: int, d: int, k: int, method: str) -> None:
    """Time one graph and print its line; peak memory beyond that of the data alone."""
    X = make_rows(kind, n, d)
    neighbor_graph(X[:1000], min(k, 100), method=method)  # imports, thread pools
    start = time.perf_counter()
    with PeakMemory() as memory:
        graph = neighbor_graph(X, k, method=method)
    seconds = time.perf_counter() - start
    sample = np.random.default_rng(1).choice(n, min(n, 500), replace=False)
    truth, _ = exact_neighbors(X[sample], X, k)
    recall = np.mean([np.isin(graph[i], t).mean() for i, t in zip(sample, truth, strict=True)])
    measured = f"{seconds:8.2f} {recall:7.4f} {memory.extra:9.0f}"
    print(f"{kind:12} {n:8d} {d:4d} {k:4d} {method:12} {measured}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[100_000], help="rows")
    parser.add_argument("--d", type=int, nargs="+", default=[90], help="features")
    parser.add_argument("--k", type=int, default=50, help="neighbours")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["clusters", "independent"])
    parser.add_argument(
        "--methods", nargs="+", default=["exact", "approximate"], help="exact, approximate, auto"
    )
    args = parser.parse_args()
    print("kind                n    d    k method        seconds  recall extra MiB")
    context = multiprocessing.get_context("spawn")  # a process each: peak memory never falls
    for n in args.n:
        for d in args.d:
            for kind in args.kinds:
                for method in args.methods:
                    process = context.Process(target=measure, args=(kind, n, d, args.k, method))
                    process.start()
                    process.join()


if __name__ == "__main__":
    main()
