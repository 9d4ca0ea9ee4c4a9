"""The panel of 76 small real tables on which experts and defaults are chosen.

    python benchmarks/panel.py run quick [--folds 0,1,2,3,4] [--jobs 2] [--out quick.jsonl]
    python benchmarks/panel.py report docs/panel/*.jsonl [--picture docs/panel/panel.png]

Every table of ``$SIGMAX_DATA/panel`` is divided into five folds; each is predicted by a fit to the
other four. A record has the mean CRPS and log-likelihood of its test rows in standard deviations of
the training targets, the coverage of 90 % intervals and the seconds of fit and prediction. A run
appends to its file and leaves out what is there. `report` compares each method with the first one:
geometric means over tables of the ratio of CRPS, by number of rows.

The other data sets of this repository (UCI, ``tables``, ``foundation``) are tests: no default is
chosen on them.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

PANEL = Path(os.environ.get("SIGMAX_DATA", "../shared/data")) / "panel"
N_FOLDS, COVERAGE = 5, 0.9
SIZES = {"under 100": (0, 100), "100 to 299": (100, 300), "300 to 999": (300, 1000)}
SIZES |= {"1,000 and more": (1000, 10**9), "all": (0, 10**9)}


def create(method: str) -> Any:
    """Estimator by the name of a method."""
    import sigmax

    if method in ("quick", "default", "best"):
        return sigmax.SigmaxRegressor(method, random_state=0)
    if method in ("local", "local-fast"):
        return sigmax.LocalRegressor("fast" if method == "local-fast" else None, random_state=0)
    if method == "gp":
        return sigmax.GPRegressor(random_state=0)
    if method == "linear":
        from sigmax.estimators import LinearRegressor

        return LinearRegressor()
    if method == "catboost":
        from sigmax.cli.peers import CatBoost

        return CatBoost(random_state=0)
    if method == "ridge":
        return BayesianRidgeOneHot()
    raise SystemExit(f"There is no method {method!r}.")


class BayesianRidgeOneHot:
    """Bayesian ridge regression of scikit-learn on one-hot columns."""

    def fit(self, X: Any, y: Any) -> "BayesianRidgeOneHot":
        from sklearn.linear_model import BayesianRidge

        from sigmax.cli.peers import numeric_encoding

        self.encoding = numeric_encoding()
        self.model = BayesianRidge().fit(self.encoding.fit_transform(X), y)
        return self

    def predict_dist(self, X: Any) -> Any:
        from sigmax.distributions import Normal, Predictive

        mean, std = self.model.predict(self.encoding.transform(X), return_std=True)
        return Predictive(Normal(mean, std))


def read(name: str, target: str) -> tuple[Any, np.ndarray]:
    frame: Any = pd.read_csv(PANEL / f"{name}.csv.gz")
    return frame.drop(columns=target), frame[target].to_numpy(float)


def run_task(method: str, name: str, target: str, fold: int) -> dict[str, Any]:
    """Record of one method on one fold of one table."""
    warnings.filterwarnings("ignore")
    X, y = read(name, target)
    test = np.sort(np.random.default_rng(0).permutation(len(y))[fold::N_FOLDS])
    train = np.setdiff1d(np.arange(len(y)), test)
    record = {"method": method, "table": name, "fold": fold, "rows": len(train)}
    unit = y[train].std() or 1.0
    start = time.perf_counter()
    model = create(method)
    if method == "catboost":
        texts = X.select_dtypes(exclude="number").columns
        X = X.assign(**{column: X[column].astype(str) for column in texts})
    model.fit(X.iloc[train], y[train])
    dist = model.predict_dist(X.iloc[test])
    low, high = dist.interval(COVERAGE).T
    record["seconds"] = time.perf_counter() - start
    record["crps"] = float(dist.crps(y[test]).mean() / unit)
    record["log_likelihood"] = float(np.mean(dist.log_prob(y[test])) + np.log(unit))
    record["coverage"] = float(np.mean((low <= y[test]) & (y[test] <= high)))
    record["width"] = float(np.mean(high - low) / unit)
    record["test_rows"] = len(test)
    if hasattr(model, "leaderboard_"):
        board = model.leaderboard_
        record["weights"] = dict(zip(board["expert"], board["weight"].round(4), strict=True))
    return record


def one_thread() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def run(method: str, folds: Sequence[int], jobs: int, out: Path) -> None:
    """Append the records of a method that the file does not have."""
    index = json.loads((PANEL / "index.json").read_text())
    done = {(one["table"], one["fold"]) for one in load([out])} if out.exists() else set()
    tasks = [
        (method, one["name"], one["target"], fold)
        for one in sorted(index, key=lambda one: -one["rows"])
        for fold in folds
        if (one["name"], fold) not in done
    ]
    one_thread()  # before the workers start: they inherit it
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool, out.open("a") as file:
        pending = {pool.submit(run_task, *task): task for task in tasks}
        for number, future in enumerate(as_completed(pending), 1):
            try:
                record = future.result()
            except Exception as error:
                print(f"{pending[future]}: {error!r}")
                continue
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{number} of {len(tasks)}: {record['table']}, CRPS {record['crps']:.4f}")


def load(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def by_table(records: Sequence[dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """Means of the records of every method by table, in the order of the methods."""
    frame = pd.DataFrame(list(records))
    methods = list(dict.fromkeys(frame["method"]))
    keys = ["table", "fold"]
    common = set.intersection(
        *(set(map(tuple, frame.loc[frame["method"] == one, keys].to_numpy())) for one in methods)
    )
    shared: Any = frame[[tuple(row) in common for row in frame[keys].to_numpy()]]
    numbers = ["rows", "test_rows", "crps", "log_likelihood", "coverage", "width", "seconds"]
    return {
        one: shared[shared["method"] == one].groupby("table")[numbers].mean() for one in methods
    }


def report(paths: Sequence[Path], picture: Path | None) -> None:
    """Print ratios of CRPS to the first method, and draw them."""
    tables = by_table(load(paths))
    reference, *others = tables
    first = tables[reference]
    for method, own in tables.items():
        ratio = own["crps"] / first["crps"]
        gain = own["log_likelihood"] - first["log_likelihood"]
        sizes = []
        for name, (low, high) in SIZES.items():
            mask = (first["rows"] >= low) & (first["rows"] < high)
            sizes.append(f"{name} {np.exp(np.log(ratio[mask]).mean()):.3f}")
        large = own[own["test_rows"] >= 100]["coverage"]
        print(f"{method} / {reference}, CRPS: {', '.join(sizes)}")
        print(
            f"    lower on {int((ratio < 1).sum())} of {len(ratio)}, higher by more than 2 % on"
            f" {int((ratio > 1.02).sum())}; log-likelihood {gain.mean():+.3f} (median"
            f" {gain.median():+.3f}); coverage {own['coverage'].mean():.3f}, lowest with 100 test"
            f" rows {large.min():.3f}; seconds {own['seconds'].mean():.1f}"
        )
    if picture is not None and others:
        draw(tables, reference, others, picture)


def draw(tables: dict[str, Any], reference: str, others: Sequence[str], picture: Path) -> None:
    """Ratio of CRPS of every table against its number of rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for method in others:
        ratio = tables[method]["crps"] / tables[reference]["crps"]
        mean = np.exp(np.log(ratio).mean())
        rows = tables[reference]["rows"]
        axes.scatter(rows, ratio, s=18, alpha=0.7, label=f"{method}: {mean:.2f} on average")
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="training rows", ylabel=f"CRPS / {reference}")
    axes.set_yticks([0.05, 0.1, 0.2, 0.5, 1.0, 2.0], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("method")
    running.add_argument("--folds", default="0,1,2,3,4")
    running.add_argument("--jobs", type=int, default=2)
    running.add_argument("--out", type=Path)
    reporting = commands.add_parser("report")
    reporting.add_argument("records", type=Path, nargs="+")
    reporting.add_argument("--picture", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        folds = [int(fold) for fold in given.folds.split(",")]
        run(given.method, folds, given.jobs, given.out or Path(f"{given.method}.jsonl"))
    else:
        report(given.records, given.picture)


if __name__ == "__main__":
    main()
