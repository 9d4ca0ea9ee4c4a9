"""Coverage and mean width of 90 % intervals, from the distribution and conformal.

    python benchmarks/conformal.py [--datasets yacht,boston] [--methods local] [--splits 10]

Needs SIGMAX_DATA. Every method learns the first standard splits of each set, and its intervals are
judged on their test rows: by the central interval of the distribution, and by the rows that
ensemble members hold out.
The widths are in standard deviations of y; the standard error is that of the mean over splits.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sigmax import CombinedRegressor, LocalRegressor
from sigmax.data import load_uci
from sigmax.estimators import fit_together

Rows = tuple[np.ndarray, np.ndarray]
Intervals = dict[str, np.ndarray]


def by_networks(create: Callable[[int], Any]) -> Callable[[list[Rows], list[Rows]], Any]:
    """All splits in one training; two kinds of intervals of each."""

    def intervals(training: list[Rows], test: list[Rows]) -> list[Intervals]:
        models = [create(seed) for seed in range(len(training))]
        fit_together(models, training)
        methods = ("distribution", "conformal")
        return [
            {name: model.predict_interval(X, method=name) for name in methods}
            for model, (X, _) in zip(models, test, strict=True)
        ]

    return intervals


METHODS = {
    "local": ("Local (fast)", by_networks(lambda seed: LocalRegressor("fast", random_state=seed))),
    "combined": (
        "Combined (fast)",
        by_networks(lambda seed: CombinedRegressor("fast", random_state=seed)),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--datasets", default="yacht,boston,energy,concrete")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--splits", type=int, default=10)
    options = parser.parse_args()
    print("| data set | method | intervals | splits | coverage, in % | width |", flush=True)
    print("| --- | --- | --- | ---: | ---: | ---: |", flush=True)
    start = time.perf_counter()
    for name in options.datasets.split(","):
        data = load_uci(name)
        splits = data.splits[: options.splits]
        parts = [[(data.X[s[i]], data.y[s[i]]) for s in splits] for i in (0, 1)]
        for method in options.methods.split(","):
            title, intervals = METHODS[method]
            found = intervals(*parts)
            for kind in found[0]:
                bounds = [own[kind] for own in found]
                ends = [(b[:, 0], b[:, 1], y) for b, (_, y) in zip(bounds, parts[1], strict=True)]
                covered = [100 * np.mean((low <= y) & (y <= up)) for low, up, y in ends]
                width = np.mean([np.mean(up - low) for low, up, _ in ends]) / data.y.std()
                error = np.std(covered, ddof=1) / len(covered) ** 0.5 if len(covered) > 1 else 0
                coverage = f"{np.mean(covered):.1f} ± {error:.1f}"
                cells = (name, title, kind, len(splits), coverage, f"{width:.3f}")
                print("|", " | ".join(map(str, cells)), "|", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
