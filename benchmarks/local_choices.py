"""Scores of variations of LocalRegressor, on held-out rows of training splits.

    python benchmarks/local_choices.py [--datasets yacht,boston] [--splits 4] [--preset fast]

A tenth of the training rows of each standard split is held out for scoring; no test row is
read. Prints, for each variation of the default, mean log-likelihood, RMSE and coverage for every
data set, then by how much its log-likelihood differs from the default's, and its average rank.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rich.console import Console

from sigmax import LocalRegressor
from sigmax.data import load_uci
from sigmax.estimators import fit_together
from sigmax.experts import Local
from sigmax.metrics import coverage, log_likelihood, rmse


def spread_decayed(times: float) -> type:
    """LocalRegressor with another weight decay in the network of the prior's variance."""

    def stages(self):
        (stage,) = Local.stages(self)
        (phase,) = stage.phases
        parts = tuple(
            replace(part, weight_decay=times * part.weight_decay) if part.name == "spread" else part
            for part in phase.parts
        )
        return (replace(stage, phases=(replace(phase, parts=parts),)),)

    expert = type("SpreadDecayed", (Local,), {"stages": stages})
    presets = {name: expert(**vars(preset)) for name, preset in LocalRegressor.presets.items()}
    return type("SpreadDecayedRegressor", (LocalRegressor,), {"presets": presets})


def squash(X: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Features by median and quartiles of ``X``, smoothly kept within ±3."""
    low, middle, high = np.quantile(X, [0.25, 0.5, 0.75], axis=0)
    scale = np.where(high > low, (high - low) / 1.349, X.std(axis=0) + 1e-12)
    scaled = [(rows - middle) / scale for rows in (X, *others)]
    return [rows / np.sqrt(1 + (rows / 3) ** 2) for rows in scaled]


@dataclass(frozen=True)
class Variation:
    """Changed settings, another class of model, or transformed features."""

    settings: dict[str, Any] = field(default_factory=dict)
    create: Callable = LocalRegressor
    squashed: bool = False


VARIATIONS = {
    "default": Variation(),
    "weights left alone": Variation({"weight_decay": 0.0}),
    "three times the weight decay": Variation({"weight_decay": 3 * Local().weight_decay}),
    "ten times, in the variance only": Variation(create=spread_decayed(10.0)),
    "none, in the variance only": Variation(create=spread_decayed(0.0)),
    "no squared error": Variation({"error_weight": 0.0}),
    "no recalibration": Variation({"recalibrate": False}),
    "longer length-scale in input space": Variation({"input_scale": 5.0}),
    "all neighbours are queries": Variation({"n_queries": 64}),
    "faster waves": Variation({"frequency": 0.3}),
    "heavier tails (α > 1.1)": Variation({"min_concentration": 1.1}),
    "lighter tails (α > 10)": Variation({"min_concentration": 10.0}),
    "robust scaling, smooth clipping": Variation(squashed=True),
    "eight members of 32 units": Variation({"n_members": 8, "hidden_sizes": (32, 32)}),
    "ten members of 64 units": Variation({"n_members": 10, "hidden_sizes": (64, 64)}),
    "sixteen members of 64 units": Variation({"n_members": 16, "hidden_sizes": (64, 64)}),
    "ten members": Variation({"n_members": 10}),
}


def inner_split(name: str, split: int) -> tuple[np.ndarray, ...]:
    """Rows for training and rows for scoring, both from the training rows of a standard split."""
    data = load_uci(name)
    rows = np.random.default_rng(100 + split).permutation(data.splits[split][0])
    judged, kept = np.split(rows, [min(max(30, len(rows) // 10), 2000)])
    return data.X[kept], data.y[kept], data.X[judged], data.y[judged]


def judge(name: str, n_splits: int, preset: str | None, variation: Variation) -> np.ndarray:
    """Log-likelihood, RMSE and coverage of 90 % intervals along the columns, a row per split."""
    splits = [inner_split(name, split) for split in range(n_splits)]
    if variation.squashed:
        pairs = [squash(X, new) for X, _, new, _ in splits]
        splits = [(X, y, new, v) for (X, new), (_, y, _, v) in zip(pairs, splits, strict=True)]
    models = [
        variation.create(preset, random_state=split).set_settings(**variation.settings)
        for split in range(n_splits)
    ]
    fit_together(models, [(X, y) for X, y, _, _ in splits])
    scores = []
    for model, (_, _, X, y) in zip(models, splits, strict=True):
        dist = model.predict_dist(X)
        scores.append((log_likelihood(y, dist), rmse(y, dist), coverage(y, dist)))
    return np.array(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--datasets", default="boston,concrete,energy,yacht,wine_red")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--preset", default=None)
    given = parser.parse_args()
    names, console = given.datasets.split(","), Console(width=220)
    found = {}
    for title, variation in VARIATIONS.items():
        scores = [judge(name, given.splits, given.preset, variation) for name in names]
        found[title] = np.array([of_set[:, 0] for of_set in scores])
        means = [of_set.mean(axis=0) for of_set in scores]
        shown = [f"{ll:.3f} ({error:.3g}, {covered:.2f})" for ll, error, covered in means]
        gain = found[title] - found["default"]
        error = np.sqrt(gain.var(axis=1, ddof=1).mean() / gain.size)
        shown.append(f"{gain.mean():+.3f} ± {error:.3f}")
        console.print(f"| {title} | " + " | ".join(shown) + " |")
    likelihoods = np.array([scores.mean(axis=1) for scores in found.values()])
    ranks = (-likelihoods).argsort(axis=0).argsort(axis=0).mean(axis=1) + 1
    order = [f"{title} {rank:.1f}" for title, rank in zip(found, ranks, strict=True)]
    console.print("average rank: " + ", ".join(order))


if __name__ == "__main__":
    main()
