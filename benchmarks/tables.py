"""Real tables of mixed type: our estimators as they are, behind skrub's encoding, and CatBoost.

    python benchmarks/tables.py run --out tables.jsonl
    python benchmarks/tables.py show tables.jsonl

Every table is cut to ``--rows`` rows drawn at random, of which a fifth is held out; a split is
another draw. Columns that leak the target are left out, and nothing else is told to any method.
One line is written per table, split and method; a run goes on where it was.

- ``sigmax``: `LocalRegressor` in the fast preset, which takes the table.
- ``quick`` and ``default``: `SigmaxRegressor` with this effort, which takes the table.
- ``skrub``: the same estimator behind skrub's TableVectorizer, gaps filled by the mean with a flag.
- ``catboost``: CatBoost's Normal density with its own categories and gaps, depth and step size by
  its own cross-validation on the training rows, as many trees as held-out rows ask for.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sigmax import LocalRegressor, SigmaxRegressor
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


def run_stack(effort: str, data: Split, preset: str) -> dict[str, float]:
    model = SigmaxRegressor(effort, random_state=0).fit(data[0], data[1])
    return evaluate(data[3], model.predict_dist(data[2]))


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
    "quick": partial(run_stack, "quick"),
    "default": partial(run_stack, "default"),
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
    """A Markdown table: CRPS of ours, ratios on common splits, coverage of 90 % intervals."""
    scores: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for line in (line for path in options.records for line in read(Path(path))):
        scores.setdefault((line["table"], line["method"]), {})[line["split"]] = line["scores"]
    own, *others = (name for name in METHODS if any(method == name for _, method in scores))
    titles = [f"CRPS of {own}", *(f"over {other} (splits)" for other in others)]
    titles += [f"coverage of {name}" for name in (own, *others)]
    titles += ["of conformal intervals"] if own == "sigmax" else []
    print(f"| table | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    ratios: dict[str, list[float]] = {other: [] for other in others}
    for table in TABLES:
        of_table = {name: scores.get((table, name), {}) for name in (own, *others)}
        if not all(of_table.values()):
            continue
        cells = [f"{mean_score(of_table[own], 'crps'):,.4g}"]
        for other in others:
            common = sorted(of_table[own].keys() & of_table[other].keys())
            one, two = (
                np.array([of_table[name][split]["crps"] for split in common])
                for name in (own, other)
            )
            ratios[other].append(float(np.exp(np.mean(np.log(one / two)))))
            cells.append(f"{ratios[other][-1]:.3f} ({len(common)})")
        for name in (own, *others):
            cells.append(f"{100 * mean_score(of_table[name], 'coverage'):.1f} %")
        if own == "sigmax":
            cells.append(f"{100 * mean_score(of_table[own], 'conformal_coverage'):.1f} %")
        print(f"| {table} | {' | '.join(cells)} |")
    for other, found in ratios.items():
        print(f"\nCRPS over that of {other}, geometric mean: {np.exp(np.mean(np.log(found))):.3f}")


def mean_score(of_splits: dict[int, dict[str, float]], score: str) -> float:
    return float(np.mean([found[score] for found in of_splits.values()]))


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
