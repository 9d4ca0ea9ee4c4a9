"""Our sampler for Optuna beside Optuna's own.

    python benchmarks/optuna_samplers.py run --seeds 10
    python benchmarks/optuna_samplers.py report

`run` appends a line of JSON for every finished study and leaves out what is there already; `report`
prints the table of docs/integrations/optuna.md. Branin is a function of two numbers. `svr` and
`boosting` are what tuning is like: the cross-validated errors of a support vector machine and of
boosted trees on scikit-learn's diabetes data.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from sigmax.integrations.optuna import SigmaxSampler

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "docs" / "integrations" / "optuna_samplers.jsonl"
N_TRIALS = 50


def branin(trial: optuna.Trial) -> float:
    """Least value 0.398, at three points."""
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)
    curve = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return float(curve**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10)


def svr(trial: optuna.Trial) -> float:
    """Root mean squared error, in five folds."""
    gamma: Any = trial.suggest_float("gamma", 1e-4, 1e1, log=True)
    model = SVR(
        kernel=trial.suggest_categorical("kernel", ["rbf", "sigmoid", "poly"]),
        C=trial.suggest_float("C", 1e-2, 1e4, log=True),
        gamma=gamma,
        epsilon=trial.suggest_float("epsilon", 1e-2, 1e2, log=True),
        max_iter=20_000,
    )
    return error_of(make_pipeline(StandardScaler(), model), n_folds=5)


def boosting(trial: optuna.Trial) -> float:
    """Root mean squared error, in three folds."""
    model = HistGradientBoostingRegressor(
        loss=trial.suggest_categorical("loss", ["squared_error", "absolute_error"]),
        learning_rate=trial.suggest_float("learning_rate", 1e-3, 1.0, log=True),
        max_iter=trial.suggest_int("max_iter", 10, 100, log=True),
        max_leaf_nodes=trial.suggest_int("max_leaf_nodes", 2, 64, log=True),
        min_samples_leaf=trial.suggest_int("min_samples_leaf", 2, 64, log=True),
        l2_regularization=trial.suggest_float("l2_regularization", 1e-3, 1e3, log=True),
        random_state=0,
    )
    return error_of(model, n_folds=3)


def error_of(model: Any, n_folds: int) -> float:
    X, y = load_diabetes(return_X_y=True)
    scoring = "neg_root_mean_squared_error"
    return float(-cross_val_score(model, X, y, cv=n_folds, scoring=scoring).mean())


PROBLEMS: dict[str, Callable[[optuna.Trial], float]] = {
    "branin": branin,
    "svr": svr,
    "boosting": boosting,
}
SAMPLERS: dict[str, Callable[[int], Any]] = {
    "SigmaxSampler": lambda seed: SigmaxSampler(seed=seed, noise_free=True),
    "GPSampler": lambda seed: optuna.samplers.GPSampler(seed=seed, deterministic_objective=True),
    "TPESampler": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "RandomSampler": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


def read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def run(arguments: argparse.Namespace) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore")
    known = [(r["problem"], r["sampler"], r["seed"]) for r in read(arguments.records)]
    for seed in range(arguments.seeds):
        for problem in arguments.problems:
            for sampler, create in SAMPLERS.items():
                if (problem, sampler, seed) in known:
                    continue
                start, study = time.perf_counter(), optuna.create_study(sampler=create(seed))
                study.optimize(PROBLEMS[problem], n_trials=N_TRIALS)
                values = np.minimum.accumulate([trial.values[0] for trial in study.trials])
                record = {"problem": problem, "sampler": sampler, "seed": seed}
                record |= {"best": [float(f"{value:.6g}") for value in values]}
                record |= {"seconds": round(time.perf_counter() - start, 1)}
                with arguments.records.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(problem, sampler, seed, values[-1], record["seconds"], flush=True)


def report(arguments: argparse.Namespace) -> None:
    """The table, printed."""
    records = list(read(arguments.records))
    print("| problem | sampler | seeds | after 20 | after 30 | after 50 | median | s per study |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for problem in arguments.problems:
        for sampler in SAMPLERS:
            mine = [r for r in records if (r["problem"], r["sampler"]) == (problem, sampler)]
            if len(mine) < 2:
                continue
            best = np.array([r["best"] for r in mine])
            error = best.std(axis=0, ddof=1) / np.sqrt(len(best))
            cells = [f"{best[:, n - 1].mean():.5g} ± {error[n - 1]:.1g}" for n in (20, 30, 50)]
            seconds = np.mean([r["seconds"] for r in mine])
            cells = [str(len(mine)), *cells, f"{np.median(best[:, -1]):.5g}", f"{seconds:.0f}"]
            print(f"| {problem} | {sampler} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=Path, default=RECORDS)
    arguments = parser.parse_args()
    {"run": run, "report": report}[arguments.command](arguments)


if __name__ == "__main__":
    main()
