"""Coverage and width of intervals against the number of rows, from 2 to 200.

    python benchmarks/few_rows.py run --label after --out few_rows.jsonl [--jobs 2]
    python benchmarks/few_rows.py table few_rows.jsonl
    python benchmarks/few_rows.py picture few_rows.jsonl --out docs/few_rows.png

A problem is y = sin(2 w·x) + 0.3 ε with a random direction w of length 1 and standard Normal x, in
1 or 5 features. Each is learned from n rows and judged on 200 new ones. One line is written per
method, number of features and number of rows; a run goes on where it was. The reference is a
Gaussian process whose hyper-parameters are known: those that 400 rows of the same problem find.

`run` uses nothing but the public interface, so that PYTHONPATH of an older checkout gives the
figures before a change.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from suite import create, one_thread

from sigmax import CombinedRegressor, LocalRegressor, MeanVarianceRegressor
from sigmax.estimators import fit_together

SIZES = (2, 3, 5, 10, 20, 50, 100, 200)
FEATURES = (1, 5)
NOISE = 0.3
N_NEW = 200
LEVELS = (0.5, 0.8, 0.9)

METHODS: dict[str, Callable[[int], Any]] = {
    "Local": lambda seed: LocalRegressor(random_state=seed),
    "Local (fast)": lambda seed: LocalRegressor("fast", random_state=seed),
    "Combined": lambda seed: CombinedRegressor(random_state=seed),
    "Combined (fast)": lambda seed: CombinedRegressor("fast", random_state=seed),
    "Ens-NN": lambda seed: MeanVarianceRegressor(n_members=5, random_state=seed),
    "Ens-NN (fast)": lambda seed: MeanVarianceRegressor("fast", n_members=5, random_state=seed),
    "GP": partial(create, "gp"),
    "quick": partial(create, "quick"),
    "default": partial(create, "default"),
}
NETWORKS = tuple(name for name in METHODS if name not in ("GP", "quick", "default"))
"""Methods that learn all problems of one size in one training."""
REFERENCE = "known GP"
COLORS = {"Local (fast)": "C0", "Combined (fast)": "C1", "Ens-NN (fast)": "C2", "GP": "C3"}


def make_problem(seed: int, n_features: int, n_rows: int) -> tuple[np.ndarray, ...]:
    """Training rows and new rows of one problem; fewer rows are the first of more."""
    rng = np.random.default_rng([seed, n_features])
    direction = rng.normal(size=n_features)
    direction /= np.linalg.norm(direction)

    def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(n, n_features))
        return X, np.sin(2 * X @ direction) + NOISE * rng.normal(size=n)

    X_new, y_new = draw(N_NEW, rng)
    X, y = draw(400, rng)
    return X[:n_rows], y[:n_rows], X_new, y_new


def judge(y: np.ndarray, mean: np.ndarray, dist: Any) -> dict[str, Any]:
    """Scores of one problem."""
    centrality = np.abs(2 * dist.cdf(y) - 1)
    bounds = dist.interval(0.9)
    return {
        "coverage": [float(np.mean(centrality <= level)) for level in LEVELS],
        "width": float(np.mean(bounds[:, 1] - bounds[:, 0])),
        "log_likelihood": float(dist.log_prob(y).mean()),
        "crps": float(dist.crps(y).mean()),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
    }


def run_networks(method: str, n_features: int, n_rows: int, n_problems: int) -> list[dict]:
    """All problems of one size in one training."""
    problems = [make_problem(seed, n_features, n_rows) for seed in range(n_problems)]
    models = [METHODS[method](seed) for seed in range(n_problems)]
    fit_together(models, [(X, y) for X, y, *_ in problems])
    return [score(model, *new) for model, (_, _, *new) in zip(models, problems, strict=True)]


def score(model: Any, X_new: np.ndarray, y_new: np.ndarray) -> dict[str, Any]:
    dist = model.predict_dist(X_new)
    return judge(y_new, dist.mean, dist)


def run_problem(method: str, n_features: int, n_rows: int, seed: int) -> dict[str, Any]:
    """One problem."""
    if method == REFERENCE:
        return judge_reference(n_features, n_rows, seed)
    X, y, *new = make_problem(seed, n_features, n_rows)
    return score(METHODS[method](seed).fit(X, y), *new)


def judge_reference(n_features: int, n_rows: int, seed: int) -> dict[str, Any]:
    """A Gaussian process that knows the scales of the problem, by scikit-learn."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    from sigmax.distributions import Normal, Predictive

    X, y, X_new, y_new = make_problem(seed, n_features, 400)
    noise: Any = WhiteKernel(NOISE**2, "fixed")
    scales: Any = np.ones(n_features)
    kernel = ConstantKernel(0.5) * RBF(scales, (0.1, 100.0)) + noise
    known = GaussianProcessRegressor(kernel, alpha=0.0).fit(X, y).kernel_
    settings: dict[str, Any] = {"alpha": 0.0, "optimizer": None}
    model = GaussianProcessRegressor(known, **settings).fit(X[:n_rows], y[:n_rows])
    mean, std = map(np.asarray, model.predict(X_new, return_std=True))
    return judge(y_new, mean, Predictive(Normal(mean, std)))


def run(options: argparse.Namespace) -> None:
    """Write one line per cell that has none yet."""
    out, label = Path(options.out), options.label
    known = {key_of(line) for line in read(out)} if out.exists() else set()
    cells = [
        (method, d, n)
        for n in map(int, options.sizes.split(","))
        for d in map(int, options.features.split(","))
        for method in options.methods.split(",")
    ]
    if options.jobs > 1:
        one_thread()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for method, d, n in cells:
            if (label, method, d, n) in known:
                continue
            begin = time.perf_counter()
            if method in NETWORKS:
                scores = run_networks(method, d, n, options.problems)
            else:
                scores = [*pool.map(partial(run_problem, method, d, n), range(options.problems))]
            line = {"label": label, "method": method, "features": d, "rows": n, "scores": scores}
            line["seconds"] = time.perf_counter() - begin
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            means = summarise(line)
            print(f"{label} {method}, {d} x {n}: {means}, {line['seconds']:.0f} s", flush=True)


def read(path: Path) -> list[dict]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.decode().splitlines()]


def key_of(line: dict) -> tuple:
    return line["label"], line["method"], line["features"], line["rows"]


def summarise(line: dict) -> dict[str, float]:
    """Means over the problems."""
    coverage = np.array([one["coverage"] for one in line["scores"]])
    found = {"c50": coverage[:, 0], "c80": coverage[:, 1], "c90": coverage[:, 2]}
    names = {"width": "width", "ll": "log_likelihood", "crps": "crps"}
    found |= {
        short: np.array([one[name] for one in line["scores"]]) for short, name in names.items()
    }
    means = {name: round(float(values.mean()), 3) for name, values in found.items()}
    n = len(coverage)
    return means | {"se90": round(float(coverage[:, 2].std(ddof=1) / np.sqrt(n)), 3), "n": n}


def in_order(lines: Sequence[dict], what: str) -> list:
    return list(dict.fromkeys(line[what] for line in lines))


def table(options: argparse.Namespace) -> None:
    """Coverage of 90 % intervals, mean width and log-likelihood; * marks under 100 problems."""
    lines = read(Path(options.records))
    cells = {key_of(line): summarise(line) for line in lines}
    labels = [label for label in in_order(lines, "label") if label != REFERENCE]
    sizes = sorted({line["rows"] for line in lines})
    for d in sorted({line["features"] for line in lines}):
        for title, name in (
            ("Coverage of 90 % intervals", "c90"),
            ("Mean width of 90 % intervals", "width"),
            ("Mean log-likelihood", "ll"),
        ):
            print(f"\n{title}, {d} feature{'s' * (d > 1)}\n")
            print(f"| method | | {' | '.join(f'n = {n}' for n in sizes)} |")
            print("|---|---|" + "---:|" * len(sizes))
            for method in in_order(lines, "method"):
                for label in [*labels, REFERENCE]:
                    row = [cells.get((label, method, d, n)) for n in sizes]
                    if any(row):
                        values = [
                            f"{cell[name]:.2f}{'*' * (cell['n'] < 100)}" if cell else ""
                            for cell in row
                        ]
                        shown = "" if label == REFERENCE else label
                        print(f"| {method} | {shown} | {' | '.join(values)} |")


def picture(options: argparse.Namespace) -> None:
    """Coverage above, width below, a column per number of features; before is dashed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = read(Path(options.records))
    cells = {key_of(line): summarise(line) for line in lines}
    labels = [label for label in in_order(lines, "label") if label != REFERENCE]
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, sharey="row")
    for column, d in enumerate(FEATURES):
        for row, name in enumerate(("c90", "width")):
            ax = axes[row, column]
            for method, color in COLORS.items():
                for label in labels:
                    points = [
                        (n, cells[(label, method, d, n)][name])
                        for n in SIZES
                        if (label, method, d, n) in cells
                    ]
                    if points:
                        is_last = label == labels[-1]
                        ax.plot(
                            *np.transpose(points),
                            "o-" if is_last else ".--",
                            color=color,
                            alpha=1.0 if is_last else 0.45,
                            label=f"{method}, {label}",
                        )
            known = [
                (n, cells[(REFERENCE, REFERENCE, d, n)][name])
                for n in SIZES
                if (REFERENCE, REFERENCE, d, n) in cells
            ]
            if known:
                ax.plot(*np.transpose(known), "k:", label="GP, hyper-parameters known")
            ax.set_xscale("log")
            ax.set_xticks(SIZES, [str(n) for n in SIZES])
            ax.minorticks_off()
        axes[0, column].axhline(0.9, color="k", lw=0.8)
        axes[0, column].set_title(f"{d} feature{'s' * (d > 1)}")
        axes[1, column].set_xlabel("training rows")
        axes[1, column].set_yscale("log")
    axes[0, 0].set_ylabel("coverage of 90 % intervals")
    axes[1, 0].set_ylabel("mean width")
    handles, names = axes[1, 1].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(options.out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--label", default="after")
    runner.add_argument("--out", default="few_rows.jsonl")
    runner.add_argument("--methods", default=",".join(COLORS))
    runner.add_argument("--sizes", default=",".join(map(str, SIZES)))
    runner.add_argument("--features", default=",".join(map(str, FEATURES)))
    runner.add_argument("--problems", type=int, default=100)
    runner.add_argument("--jobs", type=int, default=1, help="processes for all but networks")
    runner.set_defaults(call=run)
    tables = commands.add_parser("table")
    tables.add_argument("records")
    tables.set_defaults(call=table)
    pictures = commands.add_parser("picture")
    pictures.add_argument("records")
    pictures.add_argument("--out", default="few_rows.png")
    pictures.set_defaults(call=picture)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
