"""The panel of 76 small real tables on which experts and defaults are chosen.

    python benchmarks/panel.py run quick [--folds 0,1,2,3,4] [--jobs 2] --out quick.jsonl
    python benchmarks/panel.py report docs/panel/*.jsonl [--picture docs/panel/panel.png]

Every table of ``$SIGMAX_DATA/panel`` is divided into five folds; each is predicted by a fit to the
other four. A record has the mean CRPS and log-likelihood of its test rows in standard deviations of
the training targets, the coverage of 90 % intervals and the seconds of fit and prediction. A run
takes one or several methods, separated by commas, appends to its file and leaves out what is there.
`report` compares each method with the first one: geometric means over tables of the ratio of CRPS,
by number of rows, and with ``--tables`` the mean difference of every table. ``--held-out`` compares
the held-out scores of training rows, which `sigmax fit` shows, with those of the test rows.

A run uses only the public interface, but for held-out scores where a version has them, so that
PYTHONPATH of an older checkout with ``--label`` gives the figures of that version.
`small.py` and `standard.py` have the same commands for UCI sets.

The other data sets of this repository (UCI, ``tables``, ``foundation``) are tests: no default is
chosen on them.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd

DATA = Path(os.environ.get("SIGMAX_DATA", "../shared/data"))
N_FOLDS, COVERAGE = 5, 0.9
SIZES = {"under 100": (0, 100), "100 to 299": (100, 300), "300 to 999": (300, 1000)}
SIZES |= {"1,000 and more": (1000, 10**9), "all": (0, 10**9)}


@final
@dataclass(frozen=True)
class Tables:
    """Tables of a benchmark, and how they are divided into training and test rows."""

    names: Callable[[], Sequence[str]]
    """Names of the tables, the largest first."""
    read: Callable[[str, int], tuple[Any, np.ndarray, Any, np.ndarray]]
    """Training rows, their targets, test rows and theirs, by table and fold."""
    n_folds: int
    sizes: dict[str, tuple[int, int]]
    """Groups of tables by their numbers of training rows."""


def create(method: str, seed: int = 0) -> Any:
    """Estimator by the name of a method: those here, and those of `sigmax.runs.methods`."""
    import sigmax
    from sigmax.runs.methods import METHODS

    if method in ("quick", "default", "best"):
        return sigmax.SigmaxRegressor(method, random_state=seed)
    if method == "linear":
        return sigmax.LinearRegressor()
    if method == "catboost":
        from sigmax.cli.peers import CatBoost

        return CatBoost(random_state=seed)
    if method == "ridge":
        return BayesianRidgeOneHot()
    if method not in METHODS:
        raise SystemExit(f"There is no method {method!r}.")
    return METHODS[method].create(seed)


def numeric_encoding() -> Any:
    """Standardised numbers with 0 and a flag for missing values, frequent categories one-hot."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(
        StandardScaler(),
        SimpleImputer(
            strategy="constant", fill_value=0.0, add_indicator=True, keep_empty_features=True
        ),
    )
    categories = OneHotEncoder(
        max_categories=21,  # rarer ones share a column
        handle_unknown="infrequent_if_exist",
        sparse_output=False,
    )
    is_number = make_column_selector(dtype_include="number")
    is_text = make_column_selector(dtype_exclude="number")
    return make_column_transformer((numbers, is_number), (categories, is_text))


class BayesianRidgeOneHot:
    """Bayesian ridge regression of scikit-learn on one-hot columns."""

    def fit(self, X: Any, y: Any) -> "BayesianRidgeOneHot":
        from sklearn.linear_model import BayesianRidge

        self.encoding = numeric_encoding()
        self.model = BayesianRidge().fit(self.encoding.fit_transform(pd.DataFrame(X)), y)
        return self

    def predict_dist(self, X: Any) -> Any:
        from sigmax.distributions import Normal, Predictive

        mean, std = self.model.predict(self.encoding.transform(pd.DataFrame(X)), return_std=True)
        return Predictive(Normal(mean, std))


def panel_index() -> dict[str, dict[str, Any]]:
    """Metadata of the tables by name, the largest table first."""
    index = json.loads((DATA / "panel" / "index.json").read_text())
    return {one["name"]: one for one in sorted(index, key=lambda one: -one["rows"])}


def read_panel(name: str, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    X: Any = pd.read_csv(DATA / "panel" / f"{name}.csv.gz")
    y = X.pop(panel_index()[name]["target"]).to_numpy(float)
    test = np.sort(np.random.default_rng(0).permutation(len(y))[fold::N_FOLDS])
    train = np.setdiff1d(np.arange(len(y)), test)
    return X.iloc[train], y[train], X.iloc[test], y[test]


def categories_as_text(X: Any) -> Any:
    """Frame without missing values in columns that are not numbers, which CatBoost rejects."""
    names = X.select_dtypes(exclude="number").columns
    cells = {name: X[name].astype(object).where(X[name].notna(), "").astype(str) for name in names}
    return X.assign(**cells)


def run_task(read: Any, method: str, label: str, table: str, fold: int) -> dict[str, Any]:
    """Record of one method on one fold of one table."""
    warnings.filterwarnings("ignore")
    X, y, X_new, y_new = read(table, fold)
    if method == "catboost" and isinstance(X, pd.DataFrame):
        X, X_new = categories_as_text(X), categories_as_text(X_new)
    record = {"method": label, "table": table, "fold": fold, "rows": len(y)}
    unit = y.std() or 1.0
    start = time.perf_counter()
    model = create(method)
    model.fit(X, y)
    dist = model.predict_dist(X_new)
    low, high = dist.interval(COVERAGE).T
    record["seconds"] = time.perf_counter() - start
    record["crps"] = float(dist.crps(y_new).mean() / unit)
    record["log_likelihood"] = float(np.mean(dist.log_prob(y_new)) + np.log(unit))
    record["coverage"] = float(np.mean((low <= y_new) & (y_new <= high)))
    record["width"] = float(np.mean(high - low) / unit)
    record["test_rows"] = len(y_new)
    if hasattr(getattr(model, "model_", None), "held_out"):
        known, own = y[model.model_.fitted.held_out.row], model.model_.held_out()
        for name, test, held_out in (
            ("crps", dist.crps(y_new) / unit, own.crps(known) / unit),
            ("log_likelihood", dist.log_prob(y_new), own.log_prob(known)),
        ):
            error = np.sqrt(test.var(ddof=1) / len(test) + held_out.var(ddof=1) / len(held_out))
            record |= {f"held_out_{name}": float(held_out.mean() - test.mean())}
            record |= {f"error_{name}": float(error)}
    if hasattr(model, "leaderboard_"):
        board = model.leaderboard_
        record["weights"] = dict(zip(board["expert"], board["weight"].round(4), strict=True))
    return record


def one_thread() -> None:
    """Settings of processes that share the cores, and a GPU if JAX_PLATFORMS names one."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def run(tables: Tables, given: argparse.Namespace) -> None:
    """Append the records that the file does not have."""
    done = load([given.out]) if given.out.exists() else []
    known = {(one["method"], one["table"], one["fold"]) for one in done}
    folds = map(int, given.folds.split(",")) if given.folds else range(tables.n_folds)
    names = given.only.split(",") if given.only else tables.names()
    tasks = [
        (method, given.label or method, name, fold)
        for fold in folds
        for name in names
        for method in given.methods.split(",")
        if (given.label or method, name, fold) not in known
    ]
    one_thread()  # before the workers start: they inherit it
    context = get_context("spawn")
    with ProcessPoolExecutor(given.jobs, mp_context=context) as pool, given.out.open("a") as file:
        pending = {pool.submit(run_task, tables.read, *task): task for task in tasks}
        for number, future in enumerate(as_completed(pending), 1):
            try:
                record = future.result()
            except Exception as error:
                print(f"{pending[future]}: {error!r}", flush=True)
                continue
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(
                f"{number} of {len(tasks)}: {record['method']}, {record['table']},"
                f" CRPS {record['crps']:.4f}, {record['seconds']:.1f} s",
                flush=True,
            )


def load(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Records of files, without an incomplete last line."""
    texts = [path.read_text().rsplit("\n", 1)[0] for path in paths]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def common(records: Sequence[dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """Records of every method by table and fold, of the folds that all methods have."""
    frame = pd.DataFrame(list(records)).drop_duplicates(["method", "table", "fold"], keep="last")
    frame = frame.set_index(["table", "fold"]).sort_index()
    found = {
        one: frame[frame["method"] == one] for one in dict.fromkeys(r["method"] for r in records)
    }
    shared = None
    for own in found.values():
        shared = own.index if shared is None else shared.intersection(own.index)
    return {method: own.loc[shared] for method, own in found.items()}


def means(frame: pd.DataFrame) -> Any:
    numbers = ["rows", "test_rows", "crps", "log_likelihood", "coverage", "width", "seconds"]
    return frame[numbers].groupby("table").mean()


def report(tables: Tables, given: argparse.Namespace) -> None:
    """Print ratios of CRPS to the first method, by numbers of rows, and draw them."""
    found = common(load(given.records))
    averages = {method: means(own) for method, own in found.items()}
    reference, *others = averages
    first = averages[reference]
    for method, own in averages.items():
        ratio = own["crps"] / first["crps"]
        gain = own["log_likelihood"] - first["log_likelihood"]
        sizes = []
        for name, (low, high) in tables.sizes.items():
            mask = (first["rows"] >= low) & (first["rows"] < high)
            if mask.any():
                sizes.append(f"{name} {np.exp(np.log(ratio[mask]).mean()):.3f}")
        large = own[own["test_rows"] >= 100]["coverage"]
        print(f"{method} / {reference}, CRPS: {', '.join(sizes)}")
        print(
            f"    lower on {int((ratio < 1).sum())} of {len(ratio)}, higher by more than 2 % on"
            f" {int((ratio > 1.02).sum())}; log-likelihood {gain.mean():+.3f} (median"
            f" {gain.median():+.3f}); coverage {own['coverage'].mean():.3f}, lowest with 100 test"
            f" rows {large.min():.3f}; width {own['width'].mean():.3f}; seconds"
            f" {own['seconds'].mean():.1f}"
        )
    if given.held_out:
        for method, own in found.items():
            print(held_out_differences(own, method))
    if given.tables:
        for method in others:
            print(differences(found[reference], found[method], reference, method))
    if given.picture is not None and others:
        draw(averages, reference, others, given.picture)


def held_out_differences(own: Any, method: str) -> str:
    """Held-out scores of training rows minus those of test rows, and their standard errors."""
    lines = []
    for name in ("crps", "log_likelihood"):
        change, error = own[f"held_out_{name}"].groupby("table"), own[f"error_{name}"]
        mean, spread = change.mean(), np.sqrt((error**2).groupby("table").mean())
        n, sign = len(mean), -1 if name == "crps" else 1
        lines.append(
            f"{method}, held-out minus test {name}: {mean.mean():+.4f} ±"
            f" {mean.std() / np.sqrt(n):.4f} (standard error over {n} tables); held-out rows score"
            f" better by more than their standard error on {int(np.sum(sign * mean > spread))}"
        )
    return "\n".join(lines)


def differences(first: pd.DataFrame, own: pd.DataFrame, reference: str, method: str) -> str:
    """Markdown table of paired differences: mean over the folds and its standard error."""
    lines = [
        f"\n| table | rows | folds | CRPS of {reference} | of {method} | difference | coverage |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    change = (own["crps"] - first["crps"]).groupby("table")
    for name, fold_changes in change:
        n = len(fold_changes)
        error = f" ± {fold_changes.std() / np.sqrt(n):.4f}" if n > 1 else ""
        old, new = first.loc[[name]], own.loc[[name]]
        lines.append(
            f"| {name} | {new['rows'].mean():.0f} | {n} | {old['crps'].mean():.4f} |"
            f" {new['crps'].mean():.4f} | {fold_changes.mean():+.4f}{error} |"
            f" {new['coverage'].mean():.3f} |"
        )
    return "\n".join(lines)


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


def main(tables: Tables, about: str) -> None:
    """Commands `run` and `report` of a benchmark."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("methods", help="one or several, separated by commas")
    running.add_argument("--label", help="name of the method in the records")
    running.add_argument("--folds", help="all if left out")
    running.add_argument("--only", help="names of tables, separated by commas")
    running.add_argument("--jobs", type=int, default=2)
    running.add_argument("--out", type=Path, required=True)
    running.set_defaults(call=run)
    reporting = commands.add_parser("report")
    reporting.add_argument("records", type=Path, nargs="+")
    reporting.add_argument("--tables", action="store_true", help="differences of every table")
    reporting.add_argument("--held-out", action="store_true", help="held-out and test scores")
    reporting.add_argument("--picture", type=Path)
    reporting.set_defaults(call=report)
    given = parser.parse_args()
    given.call(tables, given)


PANEL = Tables(lambda: list(panel_index()), read_panel, N_FOLDS, SIZES)

if __name__ == "__main__":
    main(PANEL, __doc__ or "")
