"""The toy problem over seeds: the default estimator, and what each departure from the paper gives.

python benchmarks/toy.py [--seeds 5]
"""

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from sigmax import CombinedRegressor, MeanVarianceRegressor
from sigmax.data import ToyProblem
from sigmax.paper.toy import score_toy

VARIANTS = {
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


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = Table(title=f"toy problem, mean over {len(seeds)} seeds")
    table.add_column("variant", no_wrap=True)
    for column in ("std error", "below true", "90 % cov.", "std(−4)", "std(14)"):
        table.add_column(column, justify="right")
    for name, (estimator, settings) in VARIANTS.items():
        found = []
        for seed in seeds:
            X, y = ToyProblem().sample(500, random_state=seed)
            model = estimator(**settings, random_state=seed).fit(X, y)
            found.append(score_toy(model, float(y.std()), seed + 1))
        mean = {key: float(np.mean([row[key] for row in found])) for key in found[0]}
        table.add_row(
            name,
            f"{mean['std_error']:.3f}",
            f"{mean['excess']:.3f}",
            f"{mean['coverage']:.3f}",
            f"{mean['std_left']:.2f}",
            f"{mean['std_right']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
