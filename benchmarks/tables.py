"""Real tables of mixed type: our estimators as they are, behind skrub's encoding, and CatBoost.

    python benchmarks/tables.py run --out tables.jsonl
    python benchmarks/tables.py show tables.jsonl

Every table is cut to ``--rows`` rows drawn at random, of which a fifth is held out; a split is
another draw. Columns that leak the target are left out, and nothing else is told to any method.
One line is written per table, split and method; a run goes on where it was.

- ``sigmax``: `LocalRegressor` in the fast preset, which takes the table.
- ``skrub``: the same estimator behind skrub's TableVectorizer, gaps filled by the mean with a flag.
- ``catboost``: CatBoost's Normal density with its own categories and gaps, depth and step size by
  its own cross-validation on the training rows, as many trees as held-out rows ask for.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sigmax import LocalRegressor
from sigmax.distributions import Normal, Predictive
from sigmax.metrics import evaluate

TABLES = {
    "employee_salaries": ("current_annual_salary", []),
    "kc_housing": ("price", []),
    "ames": ("Sale_Price", []),
    "taxis": ("fare", ["total", "tip", "tolls"]),
    "diamonds": ("price", []),
    "hotel_rates": ("avg_price_per_room", []),
}
"""The target of every table, and the columns that leak it."""

Split = tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]


def load_split(name: str, split: int, n_rows: int) -> Split:
    """Training rows, their targets, held-out rows and theirs."""
    target, leaks = TABLES[name]
    folder = Path(os.environ.get("SIGMAX_DATA", "../shared/data"))
    frame = pd.read_csv(folder / "tables" / f"{name}.csv.gz")
    order = np.random.default_rng(split).permutation(len(frame))[:n_rows]
    frame = frame.iloc[order].reset_index(drop=True)
    y = frame.pop(target).to_numpy(dtype=np.float64)
    frame, n = frame.drop(columns=leaks), len(frame) * 4 // 5
    return frame.iloc[:n], y[:n], frame.iloc[n:], y[n:]


def run_sigmax(data: Split, preset: str) -> dict[str, float]:
    X, y, X_new, y_new = data
    model = LocalRegressor(preset, random_state=0).fit(X, y)
    lower, upper = model.predict_interval(X_new, 0.9, method="conformal").T
    covered = float(np.mean((lower <= y_new) & (y_new <= upper)))
    width = float(np.mean(upper - lower))
    conformal = {"conformal_coverage": covered, "conformal_width": width}
    return evaluate(y_new, model.predict_dist(X_new)) | conformal


def run_skrub(data: Split, preset: str) -> dict[str, float]:
    X, X_new = vectorised(data)
    model = LocalRegressor(preset, random_state=0).fit(X, data[1])
    return evaluate(data[3], model.predict_dist(X_new))


def vectorised(data: Split) -> tuple[np.ndarray, np.ndarray]:
    """Rows as skrub encodes them, without gaps."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline

    skrub = import_module("skrub")
    encoder = make_pipeline(skrub.TableVectorizer(), SimpleImputer(add_indicator=True))
    X = np.asarray(encoder.fit_transform(data[0]), dtype=np.float64)
    return X, np.asarray(encoder.transform(data[2]), dtype=np.float64)


def run_catboost(data: Split, preset: str) -> dict[str, float]:
    catboost = import_module("catboost")
    X, y, X_new, y_new = data
    texts = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]

    def pool(frame: pd.DataFrame, target: np.ndarray | None = None) -> Any:
        cells = {name: frame[name].astype(object).where(frame[name].notna(), "") for name in texts}
        return catboost.Pool(frame.assign(**cells).astype(dict.fromkeys(texts, str)), target, texts)

    scale = y.std()
    center = y.mean()
    fixed = {"loss_function": "RMSEWithUncertainty", "verbose": False, "random_seed": 0}
    fixed |= {"thread_count": int(os.environ.get("CATBOOST_THREADS", "2"))}
    fixed |= {"allow_writing_files": False}
    model = catboost.CatBoostRegressor(iterations=1000, early_stopping_rounds=50, **fixed)
    grid = {"depth": [4, 6, 8], "learning_rate": [0.03, 0.06, 0.12]}
    standard = pool(X, (y - center) / scale)
    found = model.grid_search(grid, standard, cv=3, refit=False, verbose=False, plot=False)
    curve = np.asarray(found["cv_results"]["test-RMSEWithUncertainty-mean"])
    best = {"iterations": int(curve.argmin()) + 1} | found["params"]
    model = catboost.CatBoostRegressor(**fixed, **best).fit(standard)
    mean, variance = np.asarray(model.predict(pool(X_new))).T
    dist = Predictive(Normal(center + scale * mean, scale * np.sqrt(variance)))
    return evaluate(y_new, dist)


METHODS: dict[str, Callable[[Split, str], dict[str, float]]] = {
    "sigmax": run_sigmax,
    "skrub": run_skrub,
    "catboost": run_catboost,
}


def run(options: argparse.Namespace) -> None:
    """Write one line per table, split and method that has none yet."""
    out = Path(options.out)
    done = {key_of(line) for line in read(out)} if out.exists() else set()
    for split in range(options.first_split, options.first_split + options.splits):
        for name in options.tables.split(","):
            for method in options.methods.split(","):
                line: dict[str, Any] = {"table": name, "split": split, "method": method}
                line |= {"rows": options.rows, "preset": options.preset}
                if key_of(line) in done:
                    continue
                data = load_split(name, split, options.rows)
                begin = time.perf_counter()
                line["scores"] = METHODS[method](data, options.preset)
                line["seconds"] = round(time.perf_counter() - begin, 1)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


def key_of(line: dict[str, Any]) -> tuple:
    return tuple(line[name] for name in ("table", "split", "method", "rows", "preset"))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def show(options: argparse.Namespace) -> None:
    """A Markdown table over the splits that all methods of a table have."""
    lines = [line for path in options.records for line in read(Path(path))]
    methods = [name for name in METHODS if any(line["method"] == name for line in lines)]
    print(f"| table | splits | {' | '.join(f'CRPS {name}' for name in methods)} |", end="")
    print(f" {' | '.join(f'90 % cov. {name}' for name in methods)} | conformal |")
    print("|---|" + "---:|" * (2 + 2 * len(methods)))
    ratios: dict[str, list[float]] = {name: [] for name in methods}
    for table in TABLES:
        scores = {
            name: {
                line["split"]: line["scores"]
                for line in lines
                if line["table"] == table and line["method"] == name
            }
            for name in methods
        }
        common = sorted(set.intersection(*(set(found) for found in scores.values())))
        if not common:
            continue

        def mean(name: str, score: str, scores=scores, common=common) -> float:
            return float(np.mean([scores[name][split].get(score, np.nan) for split in common]))

        cells = [f"{mean(name, 'crps'):.4g}" for name in methods]
        cells += [f"{100 * mean(name, 'coverage'):.1f} %" for name in methods]
        cells.append(f"{100 * mean(methods[0], 'conformal_coverage'):.1f} %")
        print(f"| {table} | {len(common)} | {' | '.join(cells)} |")
        for name in methods:
            ratios[name].append(mean(methods[0], "crps") / mean(name, "crps"))
    for name in methods[1:]:
        log_ratios = np.log(ratios[name])
        print(
            f"\nCRPS of {methods[0]} over {name}, geometric mean of {len(log_ratios)} tables:"
            f" {np.exp(log_ratios.mean()):.3f}; by table"
            f" {', '.join(f'{ratio:.3f}' for ratio in ratios[name])}."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--tables", default=",".join(TABLES))
    runner.add_argument("--methods", default=",".join(METHODS))
    runner.add_argument("--splits", type=int, default=3)
    runner.add_argument("--first-split", type=int, default=0)
    runner.add_argument("--rows", type=int, default=4000)
    runner.add_argument("--preset", default="fast")
    runner.add_argument("--out", default="tables.jsonl")
    runner.set_defaults(call=run)
    shower = commands.add_parser("show")
    shower.add_argument("records", nargs="+")
    shower.set_defaults(call=show)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
