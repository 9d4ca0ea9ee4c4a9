"""Pinned results: predictions and scores that only a change of method may move.

``pinned.json`` holds the predictions of one small fit per estimator and the scores of fixed seeds
on two data sets that scikit-learn ships. Moving code must leave them equal to rounding. After a
change that is meant to alter results, rewrite the values and record the reason::

    python tests/test_pinned.py --write --what "Prior of the gate" --why "Coverage far away"
"""

import argparse
import datetime
import json
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_wine

from sigmax import (
    VAE,
    BayesianRegressor,
    CombinedRegressor,
    CombVAE,
    GPRegressor,
    LinearRegressor,
    LocalRegressor,
    MCDropoutRegressor,
    MeanVarianceRegressor,
    SigmaxRegressor,
    SparseGPRegressor,
)
from sigmax.estimators import AbstractRegressor, MarginalRegressor
from sigmax.metrics import coverage, crps, log_likelihood, rmse

PINNED = Path(__file__).with_name("pinned.json")

SMALL: dict[str, Any] = {"hidden_sizes": (8,), "n_steps": 60, "random_state": 0}
ENSEMBLE: dict[str, Any] = SMALL | {"n_members": 2}
PROCESS: dict[str, Any] = {"n_restarts": 1, "max_iter": 20, "random_state": 0}
BRIEF: dict[str, Any] = PROCESS | {"max_iter": 3}

REGRESSORS: dict[str, AbstractRegressor] = {
    "LocalRegressor": LocalRegressor(**ENSEMBLE),
    "CombinedRegressor": CombinedRegressor(**ENSEMBLE),
    "CombinedRegressor paper": CombinedRegressor("paper", **ENSEMBLE),
    "MeanVarianceRegressor": MeanVarianceRegressor(**ENSEMBLE),
    "MCDropoutRegressor": MCDropoutRegressor(n_draws=10, **ENSEMBLE),
    "BayesianRegressor": BayesianRegressor(n_draws=10, **ENSEMBLE),
    "GPRegressor average": GPRegressor(**PROCESS),
    "GPRegressor exact": GPRegressor(average=False, **PROCESS),
    "GPRegressor varying": GPRegressor(noise="varying", **PROCESS),
    "SparseGPRegressor": SparseGPRegressor(n_inducing=20, average=False, **BRIEF),
    "LinearRegressor": LinearRegressor(),
    "MarginalRegressor": MarginalRegressor(),
    "SigmaxRegressor quick": SigmaxRegressor("quick", random_state=0),
}
CONFORMAL = (
    "LocalRegressor",
    "CombinedRegressor",
    "MeanVarianceRegressor",
    "SigmaxRegressor quick",
)
"""Regressors whose conformal intervals are pinned as well."""
VAES: dict[str, VAE | CombVAE] = {
    "VAE": VAE(batch_size=32, **SMALL),
    "CombVAE": CombVAE(batch_size=32, n_inducing=20, n_neighbors=8, n_secondary=8, **SMALL),
}
SCORED: dict[str, AbstractRegressor] = {
    "LocalRegressor": LocalRegressor(n_members=2, hidden_sizes=(16,), n_steps=100),
    "CombinedRegressor": CombinedRegressor(n_members=2, hidden_sizes=(16,), n_steps=200),
    "GPRegressor": GPRegressor(n_restarts=1, max_iter=30),
    "LinearRegressor": LinearRegressor(),
    "SigmaxRegressor quick": SigmaxRegressor("quick"),
}
DATA = ("diabetes", "wine")
SEEDS = (0, 1)

OF_STD, OF_SCORE = 2e-3, 1e-2
"""Tolerances: of predictions in predictive standard deviations, of scores relative to the score.

Log-likelihoods, which may be near 0, have the second one in nats. Coverage may differ by one row.
"""


def make_table() -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Training rows with a category and a missing value, and new rows.

    The new rows are two training rows, one with a missing value, one with an unseen category, and
    one far from the training data.
    """
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    X["kind"] = np.array(["x", "y", "z"])[rng.integers(3, size=60)]
    noise = 0.3 * (1 + (X["kind"] == "y")) * rng.normal(size=60)
    y = np.asarray(10 + 2 * X["a"] - X["b"] ** 2 + (X["kind"] == "x") + noise)
    X.loc[7, "b"] = np.nan
    new = pd.DataFrame({"a": [0.5, -1.0, 8.0], "b": [np.nan, 0.2, -8.0], "kind": ["x", "w", "z"]})
    return X, y, pd.concat([X.iloc[:2], new], ignore_index=True)


def predictions_of(name: str) -> dict[str, np.ndarray]:
    X, y, new = make_table()
    model = REGRESSORS[name].fit(X, y)
    dist = model.predict_dist(new)
    found = {"mean": dist.mean, "std": dist.std}
    found |= {f"quantile {q}": dist.quantile(q) for q in (0.05, 0.95)}
    gate = model.predict_gate(new)
    if gate is not None:
        found["gate"] = gate
    if name in CONFORMAL:
        found["conformal lower"], found["conformal upper"] = model.predict_interval(
            new, coverage=0.8, method="conformal"
        ).T
    return found


def densities_of(name: str) -> dict[str, np.ndarray]:
    """Bounds, codes and reconstructions of a few rows, and the decoder's std at their codes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1)) * [1.0, -1.0, 2.0] + 0.3 * rng.normal(size=(60, 3))
    model = VAES[name].fit(X)
    rows = X[:3]
    return {
        "elbo": model.elbo(rows, n_samples=20),
        "log_prob": model.log_prob(rows, n_samples=20),
        "code": model.encode(rows).ravel(),
        "reconstruction": model.reconstruct(rows).ravel(),
        "std": model.decode_dist(model.encode(rows)).std.ravel(),
    }


def make_split(data: str, seed: int) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]:
    """Two thirds of the rows to train, one third to test.

    Diabetes has 442 rows of numbers. Wine has 178 rows, a category among its columns, and the
    percentage of alcohol as target.
    """
    if data == "diabetes":
        table = cast(Any, load_diabetes(as_frame=True)).frame
    else:
        table = cast(Any, load_wine(as_frame=True)).frame.rename(columns={"target": "cultivar"})
        table["cultivar"] = table["cultivar"].map("class {}".format)
    y = table.pop("target" if data == "diabetes" else "alcohol").to_numpy()
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [2 * len(y) // 3])
    return table.iloc[train], y[train], table.iloc[test], y[test]


def scores_of(name: str, data: str) -> dict[str, list[float]]:
    """One score per seed, of the split and of the fit."""
    found: dict[str, list[float]] = {"CRPS": [], "log-likelihood": [], "RMSE": [], "coverage": []}
    for seed in SEEDS:
        X, y, X_test, y_test = make_split(data, seed)
        model = SCORED[name]
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        dist = model.fit(X, y).predict_dist(X_test)
        scores = crps, log_likelihood, rmse, coverage
        for values, score in zip(found.values(), scores, strict=True):
            values.append(score(y_test, dist))
    return found


def check_pinned(found: dict[str, Any], group: str, name: str, tolerances: dict[str, Any]):
    """Fail with every quantity that differs from its pinned values by more than its tolerance."""
    pinned = json.loads(PINNED.read_text())[group][name]
    assert set(found) == set(pinned), "other quantities than those pinned"
    lines = []
    for quantity, before in pinned.items():
        now = np.asarray(found[quantity])
        assert now.shape == np.shape(before), f"another number of values of the {quantity}"
        change = np.abs(now - before) / (tolerances[quantity] + 1e-6 * np.abs(before))
        if not np.all(change <= 1):
            size = f"{np.max(change):.3g} times the tolerance"
            lines.append(f"{quantity} moved by {size}: pinned {before}, now {rounded(now)}")
    assert not lines, "\n".join([f"{group} of {name}", *lines, "See the first lines of this file."])


@pytest.mark.parametrize("name", REGRESSORS)
def test_predictions_equal_the_pinned_ones(name):
    found = predictions_of(name)
    of_std = OF_STD * np.asarray(found["std"])
    check_pinned(found, "predictions", name, dict.fromkeys(found, of_std) | {"gate": OF_STD})


@pytest.mark.parametrize("name", VAES)
def test_densities_of_autoencoders_equal_the_pinned_ones(name):
    found = densities_of(name)
    of_std = OF_STD * np.asarray(found["std"])
    check_pinned(
        found,
        "densities",
        name,
        dict.fromkeys(found, OF_SCORE) | {"code": OF_STD, "reconstruction": of_std, "std": of_std},
    )


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", SCORED)
def test_scores_equal_the_pinned_ones(name, data):
    found = scores_of(name, data)
    relative = {score: OF_SCORE * np.abs(values) for score, values in found.items()}
    one_row = 1 / len(make_split(data, 0)[3])
    tolerances = relative | {"log-likelihood": OF_SCORE, "coverage": one_row}
    check_pinned(found, "scores", f"{name} on {data}", tolerances)


def rounded(values: Any) -> list[float]:
    """Values to six significant digits."""
    return [float(f"{value:.6g}") for value in np.asarray(values)]


def compute_all() -> dict[str, dict[str, dict[str, list[float]]]]:
    """Every pinned value, by group, name and quantity."""
    found = {
        "predictions": {name: predictions_of(name) for name in REGRESSORS},
        "densities": {name: densities_of(name) for name in VAES},
        "scores": {f"{name} on {data}": scores_of(name, data) for name in SCORED for data in DATA},
    }
    return {
        group: {
            name: {quantity: rounded(values) for quantity, values in of_name.items()}
            for name, of_name in of_group.items()
        }
        for group, of_group in found.items()
    }


def main():
    """Write all values anew, with the reason at the end of the list of reasons."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.add_argument("--what", required=True, help="What changed, in a few words.")
    parser.add_argument("--why", required=True, help="Reason of the change.")
    options = parser.parse_args()
    reasons = json.loads(PINNED.read_text())["reasons"] if PINNED.exists() else []
    today = datetime.date.today().isoformat()
    reasons.append({"date": today, "what changed": options.what, "why": options.why})
    write({"reasons": reasons} | compute_all())


def write(values: dict[str, Any]):
    text = json.dumps(values, indent=2)
    # Numbers of one quantity on one line.
    text = re.sub(r"\[[-+.\de,\s]+\]", lambda found: re.sub(r"\s+", " ", found[0]), text)
    PINNED.write_text(text.replace("[ ", "[").replace(" ]", "]") + "\n")


if __name__ == "__main__":
    main()
