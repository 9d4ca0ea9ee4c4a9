"""Coverage of intervals on rounded, zero-inflated, positive, capped and bimodal targets.

``python benchmarks/targets.py --panel`` fits `LocalRegressor(preset="fast")` to made-up targets
and to tables of the panel (``SIGMAX_DATA``/panel), several seeds each. It prints the share of
test rows inside intervals of 50, 80 and 90 %, the width of the last and the CRPS, both over the
standard deviation of y, the share of 90 % intervals with negative ends where no y is negative,
and the log-likelihood. Intervals of a target with few values hold more than their nominal
coverage, whatever the method, as they go from value to value.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

LEVELS = (0.5, 0.8, 0.9)

PANEL = (
    "AER_DoctorVisits",
    "AER_NMES1988",
    "AER_PhDPublications",
    "Ecdat_Wages1",
    "ISLR_College",
    "carData_Vocab",
    "datasets_quakes",
    "openintro_evals",
    "openintro_nba_players_19",
    "wooldridge_attend",
    "wooldridge_crime1",
    "wooldridge_fertil2",
    "wooldridge_k401k",
    "wooldridge_mroz",
    "wooldridge_smoke",
    "wooldridge_wage1",
)
"""Tables with rounded, zero-inflated, positive or capped targets."""

N_TRAIN, N_TEST = 600, 1000


def eleven(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Steps of ten, of which the decimals are rounded to five digits."""
    values = np.array([float(f"{10 * k - 28.9453:.5g}") for k in range(11)])
    return values[
        np.clip(np.round(5 + 2 * x[:, 0] + 0.7 * rng.normal(size=len(x))), 0, 10).astype(int)
    ]


def rate(x: np.ndarray) -> np.ndarray:
    return np.exp(0.6 * x[:, 0] + 0.3 * x[:, 1])


def mostly_zero(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(0.25 * rate(x) * rng.gamma(1.0, 1.0, len(x))).astype(float)


def mean(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0]) + 0.5 * x[:, 1]


MADE_UP: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "eleven values": eleven,
    "Celsius, float32": lambda x, rng: (
        np.round(15 + 5 * mean(x) + 2 * rng.normal(size=len(x)), 1).astype(np.float32).astype(float)
    ),
    "counts": lambda x, rng: rng.poisson(3 * rate(x)).astype(float),
    "mostly zero": mostly_zero,
    "log counts": lambda x, rng: np.log1p(rng.poisson(20 * rate(x))),
    "51 values": lambda x, rng: np.round(np.tanh(mean(x)) / 0.04) * 0.04,
    "ratings": lambda x, rng: np.clip(np.round(3 + mean(x) + 0.7 * rng.normal(size=len(x))), 1, 5),
    "rain": lambda x, rng: np.where(
        rng.uniform(size=len(x)) < 1 / (1 + rate(x)), 0.0, rng.exponential(rate(x))
    ),
    "half constant": lambda x, rng: np.where(
        rng.uniform(size=len(x)) < 0.5, 2.0, mean(x) + 0.5 * rng.normal(size=len(x))
    ),
    "log-normal": lambda x, rng: np.exp(mean(x) + 0.6 * rng.normal(size=len(x))),
    "exponential": lambda x, rng: rng.exponential(rate(x)),
    "capped": lambda x, rng: np.minimum(mean(x) + 0.4 * rng.normal(size=len(x)), 0.8),
    "two modes": lambda x, rng: (
        rng.choice([-3.0, 3.0], len(x)) + 0.5 * mean(x) + 0.3 * rng.normal(size=len(x))
    ),
    "Normal": lambda x, rng: mean(x) + 0.5 * rng.normal(size=len(x)),
}


def made_up(name: str, seed: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N_TRAIN + N_TEST, 3))
    y = MADE_UP[name](x, rng)
    return x[:N_TRAIN], y[:N_TRAIN], x[N_TRAIN:], y[N_TRAIN:]


def of_panel(name: str, seed: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    folder = Path(os.environ["SIGMAX_DATA"]) / "panel"
    index = {one["name"]: one["target"] for one in json.loads((folder / "index.json").read_text())}
    frame = pd.read_csv(folder / f"{name}.csv.gz").dropna(subset=[index[name]])
    order = np.random.default_rng(seed).permutation(len(frame))
    n_train = min(2 * N_TRAIN, 2 * len(frame) // 3)
    X, y = frame.drop(columns=index[name]), frame[index[name]].to_numpy(float)
    train, test = order[:n_train], order[n_train : n_train + N_TEST]
    return X.iloc[train], y[train], X.iloc[test], y[test]


def scores(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    dist = model.predict_dist(X)
    found, lower, upper = {}, np.empty(0), np.empty(0)
    for level in LEVELS:
        lower, upper = dist.interval(level).T
        found[f"{level:.0%}"] = float(np.mean((lower <= y) & (y <= upper)))
    found["width"] = float(np.mean(upper - lower) / y.std())
    found["negative"] = float(np.mean(lower < min(0.0, y.min())))
    found["crps"] = float(dist.crps(y).mean() / y.std())
    found["log-lik."] = float(dist.log_prob(y).mean())
    return found


def main() -> None:
    import sigmax

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--estimator", default="LocalRegressor")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="Targets whose names contain one of these.")
    parser.add_argument("--panel", action="store_true", help="Tables of the panel, too.")
    options = parser.parse_args()
    names = [*MADE_UP, *(PANEL if options.panel else ())]
    if options.only:
        names = [name for name in names if any(part in name for part in options.only)]
    preset = {"preset": options.preset} if options.preset else {}
    rows = []
    for name in names:
        for seed in range(options.seeds):
            read = made_up if name in MADE_UP else of_panel
            X, y, X_test, y_test = read(name, seed)
            model = getattr(sigmax, options.estimator)(random_state=seed, **preset).fit(X, y)
            rows.append({"target": name} | scores(model, X_test, y_test))
        own = pd.DataFrame(rows[-options.seeds :]).drop(columns="target")
        cells = "  ".join(f"{value:7.3f}" for value in own.mean())
        head = f"{'':26}" + "  ".join(f"{column:>7}" for column in own)
        print(head if len(rows) == options.seeds else "", end="\n" * (len(rows) == options.seeds))
        print(f"{name:26}{cells}", flush=True)
    print(
        f"{'mean':26}" + "  ".join(f"{v:7.3f}" for v in pd.DataFrame(rows).mean(numeric_only=True))
    )


if __name__ == "__main__":
    main()
