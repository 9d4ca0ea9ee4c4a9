"""What the settings of LocalRegressor give, on held-out rows of training splits.

    python benchmarks/local_choices.py [--datasets yacht,boston] [--splits 2] [--preset fast]

From the training rows of each standard split a tenth is set aside to judge by; no test row is
read. Prints, for each variation of the default, mean log-likelihood, RMSE and coverage, and the
average rank over the data sets.
"""

import argparse

import numpy as np
from rich.console import Console

from sigmax import LocalRegressor
from sigmax.data import load_uci
from sigmax.estimators import fit_together
from sigmax.metrics import coverage, log_likelihood, rmse

VARIATIONS = {
    "default": {},
    "weights left alone": {"weight_decay": 0.0},
    "three times the weight decay": {"weight_decay": 21.0},
    "no squared error": {"error_weight": 0.0},
    "no recalibration": {"recalibrate": False},
    "heard farther in input space": {"input_scale": 5.0},
    "all neighbours asked": {"n_asked": 64},
    "faster waves": {"frequency": 0.3},
}


def inner_split(name: str, split: int) -> tuple[np.ndarray, ...]:
    """Training and judging rows, both of a standard split's training rows."""
    data = load_uci(name)
    rows = np.random.default_rng(100 + split).permutation(data.splits[split][0])
    judged, kept = np.split(rows, [min(max(30, len(rows) // 10), 2000)])
    return data.X[kept], data.y[kept], data.X[judged], data.y[judged]


def judge(name: str, n_splits: int, settings: dict) -> tuple[float, float, float]:
    """Mean log-likelihood, RMSE and coverage of 90 % intervals."""
    splits = [inner_split(name, split) for split in range(n_splits)]
    models = [LocalRegressor(random_state=split, **settings) for split in range(n_splits)]
    fit_together(models, [(X, y) for X, y, _, _ in splits])
    scores = []
    for model, (_, _, X, y) in zip(models, splits, strict=True):
        dist = model.predict_dist(X)
        scores.append((log_likelihood(y, dist), rmse(y, dist), coverage(y, dist)))
    likelihood, error, covered = np.mean(scores, axis=0)
    return float(likelihood), float(error), float(covered)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--datasets", default="boston,energy,concrete")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--preset", default=None)
    given = parser.parse_args()
    names, console = given.datasets.split(","), Console(width=160)
    found = {}
    for title, settings in VARIATIONS.items():
        settings = {"preset": given.preset, **settings}
        found[title] = [judge(name, given.splits, settings) for name in names]
        shown = [f"{ll:.3f} ({error:.3g}, {covered:.2f})" for ll, error, covered in found[title]]
        console.print(f"| {title} | " + " | ".join(shown) + " |")
    likelihoods = np.array([[ll for ll, _, _ in row] for row in found.values()])
    ranks = (-likelihoods).argsort(axis=0).argsort(axis=0).mean(axis=1) + 1
    order = [f"{title} {rank:.1f}" for title, rank in zip(found, ranks, strict=True)]
    console.print("average rank: " + ", ".join(order))


if __name__ == "__main__":
    main()
