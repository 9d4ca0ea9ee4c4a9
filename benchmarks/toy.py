"""The toy problem over seeds: the default estimator, and what each departure from the paper gives.

python benchmarks/toy.py [--seeds 5] [--variants "Local;default"]

"peak" is the largest standard deviation beyond the data, over the larger of that at their end and
that of y: 1 is no peak.
"""

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from sigmax import CombinedRegressor, LocalRegressor, MeanVarianceRegressor, SigmaxRegressor
from sigmax.data import ToyProblem
from sigmax.estimators import AbstractRegressor
from sigmax.paper.curves import score_toy

VARIANTS = {
    "Stack": (SigmaxRegressor, {}),
    "Stack, quick": (SigmaxRegressor, {"effort": "quick"}),
    "Local": (LocalRegressor, {}),
    "default": (CombinedRegressor, {}),
    "mean left alone": (CombinedRegressor, {"shrink_mean": False}),
    "gate without margin, γ = 0.03": (CombinedRegressor, {"gate_scale": 0.03}),
    "no gate": (CombinedRegressor, {"extrapolate": False}),
    "uniform batches": (CombinedRegressor, {"locality": False}),
    "mean and variance together": (CombinedRegressor, {"split": False}),
    "Normal": (CombinedRegressor, {"inverse_gamma": False}),
    "tails of any weight, α > 1.1": (CombinedRegressor, {"min_concentration": 1.1}),
    "preset fast": (CombinedRegressor, {"preset": "fast"}),
    "preset paper": (CombinedRegressor, {"preset": "paper"}),
    "NN": (MeanVarianceRegressor, {}),
    "NN, five members": (MeanVarianceRegressor, {"n_members": 5}),
}


def peak(model: AbstractRegressor, y_std: float) -> float:
    """The largest standard deviation beyond the data, relative to those on either side of it."""
    ends = []
    for first, last in ((0.0, -4.0), (10.0, 14.0)):
        _, std = model.predict(np.linspace(first, last, 101)[:, None], return_std=True)
        ends.append(std.max() / max(std[0], y_std))
    return float(max(ends))


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", default=";".join(VARIANTS))
    given = parser.parse_args()
    seeds = range(given.seeds)
    table = Table(title=f"toy problem, mean over {len(seeds)} seeds")
    table.add_column("variant", no_wrap=True)
    for column in ("std error", "below true", "90 % cov.", "std(−4)", "std(14)", "peak"):
        table.add_column(column, justify="right")
    chosen = {name: VARIANTS[name] for name in given.variants.split(";")}
    for name, (estimator, settings) in chosen.items():
        found = []
        for seed in seeds:
            X, y = ToyProblem().sample(500, random_state=seed)
            model = estimator(**settings, random_state=seed).fit(X, y)
            scores = score_toy(model, float(y.std()), seed + 1)
            found.append(scores | {"peak": peak(model, float(y.std()))})
        mean = {key: float(np.mean([row[key] for row in found])) for key in found[0]}
        table.add_row(
            name,
            f"{mean['std_error']:.3f}",
            f"{mean['excess']:.3f}",
            f"{mean['coverage']:.3f}",
            f"{mean['std_left']:.2f}",
            f"{mean['std_right']:.2f}",
            f"{mean['peak']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
