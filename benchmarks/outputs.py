"""Two targets of one table, drawn together and drawn independently: energy score, five folds.

    python benchmarks/outputs.py

Targets are in standard deviations of the training rows. Lower is better; the energy score of both
uses the same predictive distributions, and draws of both use the same random numbers.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold

from sigmax import SigmaxRegressor
from sigmax.distributions import Predictive
from sigmax.metrics import energy_score

DATA = Path(os.environ.get("SIGMAX_DATA", "../shared/data"))


def tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Columns and two targets of a patient (442 rows), and of a red wine (1,599 rows)."""
    diabetes, wine = (
        np.asarray(load_diabetes(return_X_y=True)[0]),
        np.load(DATA / "wine_red.npz")["X"],
    )
    cholesterol, dioxide = [4, 5], [5, 6]
    return {
        "diabetes: total and LDL cholesterol": split(diabetes, cholesterol),
        "wine_red: free and total sulfur dioxide": split(wine, dioxide),
    }


def split(columns: np.ndarray, targets: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.delete(columns, targets, axis=1), columns[:, targets]


def main() -> None:
    for name, (X, y) in tables().items():
        found = []
        for train, test in KFold(5, shuffle=True, random_state=0).split(X):
            mean, std = y[train].mean(axis=0), y[train].std(axis=0)
            model = SigmaxRegressor("quick", random_state=0).fit(X[train], (y[train] - mean) / std)
            dist, truth = model.predict_dist(X[test]), (y[test] - mean) / std
            apart = Predictive(dist.dist, dist.ends, np.eye(2))
            scores = [energy_score(truth, own, n_samples=100) for own in (dist, apart)]
            assert dist.correlation is not None
            found.append([*scores, dist.correlation[0, 1]])
        together, apart, correlation = np.transpose(found)
        change = together - apart
        error = change.std(ddof=1) / np.sqrt(len(change))
        print(
            f"{name}: energy score {together.mean():.4f} together, {apart.mean():.4f} independent,"
            f" difference {change.mean():+.4f} ± {error:.4f}; correlation {correlation.mean():.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
