"""Test rows moved 10 standard deviations along every axis: who still speaks, and how wide it gets.

    python benchmarks/off_data.py [--datasets yacht,boston] [--preset fast] [--rows 50]

Prints, per data set, the largest evidence S0 of any moved row, the range of its standard deviation
over that of the prior alone, and over that of y.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from sigmax import LocalRegressor
from sigmax.data import UCI_SETS, load_uci
from sigmax.networks import LocalNetwork, Sums

FAR = 10.0


def prior_std(model: LocalRegressor, X: np.ndarray) -> np.ndarray:
    """Standard deviation of the mixture if no training row spoke, in units of std(y)."""
    x = jnp.asarray(model.x_scaling_(X))
    means, variances = [], []
    for member in range(len(model.networks_.factor)):
        network: LocalNetwork = jax.tree.map(lambda leaf, m=member: leaf[m], model.networks_)
        prior = network.doubted_prior(x, network.see(x))
        nothing = jnp.zeros_like(prior.mean)
        dist = network.update(prior, Sums(nothing[:, 0], nothing, nothing)).dist
        certain = network.certainty(x)[:, None]
        dist = dist.widen(1 + (network.factor - 1) * certain)
        means.append(np.asarray(dist.mean))
        variances.append(np.asarray(dist.variance))
    return np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--datasets", default=",".join(name for name in UCI_SETS if name != "year"))
    parser.add_argument("--preset", default=None)
    parser.add_argument("--rows", type=int, default=50)
    given = parser.parse_args()
    console = Console(width=120)
    console.print("| data set | largest S0 | std over the prior's | std over that of y |")
    console.print("|---|---:|---:|---:|")
    for name in given.datasets.split(","):
        data = load_uci(name)
        train, test = data.splits[0]
        model = LocalRegressor(given.preset, random_state=0)
        model.fit(data.X[train], data.y[train])
        scale, rows = data.X[train].std(axis=0), data.X[test][: given.rows]
        steps = [
            sign * FAR * scale[j] * np.eye(len(scale))[j]
            for j in range(len(scale))
            for sign in (-1, 1)
        ]
        moved = np.concatenate(
            [rows + step for step, s in zip(steps, np.repeat(scale, 2), strict=True) if s > 0]
        )
        parts = model.predict_uncertainty(moved)
        unit = parts["total"] / model.y_scaling_.scale[0]
        ratio = unit / prior_std(model, moved)
        console.print(
            f"| {name} | {parts['evidence'].max():.1e} | {ratio.min():.2f} to {ratio.max():.2f} | "
            f"{unit.min():.2f} to {unit.max():.2f} |"
        )


if __name__ == "__main__":
    main()
