"""`SigmaxRegressor` with the interface of ScoringBench, a leader board of proper scoring rules.

That benchmark calls `fit(X, y)`, `predict(X)` and `predict_distribution(X)`, which returns a
histogram per row. There, its own class of histograms is passed: `SigmaxWrapper(container=...)`.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from sigmax import SigmaxRegressor


class SigmaxWrapper:
    def __init__(
        self,
        effort: str = "quick",
        *,
        n_bins: int = 200,
        container: Callable[..., Any] = SimpleNamespace,
        random_state: int = 0,
    ):
        self.effort, self.n_bins = effort, n_bins
        self.container, self.random_state = container, random_state

    def fit(self, X, y) -> "SigmaxWrapper":
        y = np.asarray(y, dtype=np.float64)
        self.train_range = float(y.min()), float(y.max())
        self.model = SigmaxRegressor(self.effort, random_state=self.random_state).fit(X, y)
        return self

    def predict(self, X) -> np.ndarray:
        return self.model.predict(X)

    def predict_distribution(self, X):
        """Bins of equal probability; the outermost ones end at a tenth of it from 0 and 1."""
        dist, n = self.model.predict_dist(X), self.n_bins
        edges = dist.quantile([0.1 / n, *(np.arange(1, n) / n), 1 - 0.1 / n])
        return self.container(
            probas=np.full((len(dist), n), 1 / n),
            bin_edges=edges,
            bin_midpoints=(edges[:, :-1] + edges[:, 1:]) / 2,
            mean=dist.mean,
            train_range=self.train_range,
        )


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(0, 10, 300), "kind": rng.choice(["a", "b"], 300)})
    y = np.sin(X["x"]) + (X["kind"] == "a") * 0.5 + 0.1 * rng.normal(size=300)
    found = SigmaxWrapper().fit(X[:200], y[:200]).predict_distribution(X[200:])
    edges = found.bin_edges
    inside = (edges[:, 10] <= y[200:]) & (y[200:] <= edges[:, -11])
    print(f"{found.probas.shape[1]} bins for each of {len(edges)} rows")
    print(f"the middle 90 % of the probability holds {np.mean(inside):.2f} of the targets")
    print(f"RMSE of the means {np.sqrt(np.mean((found.mean - y[200:]) ** 2)):.2f}")
