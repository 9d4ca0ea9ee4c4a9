"""One runner for all comparisons: data sets, our methods, those of other packages, one protocol.

    python benchmarks/suite.py run panel quick,catboost,ngboost [--folds 0,1] [--jobs 2] --out FILE
    python benchmarks/suite.py report FILE ... [--tables] [--held-out] [--picture PNG]
    python benchmarks/suite.py rank FILE ... [--picture PNG] [--page docs/which_method.md]

Needs SIGMAX_DATA. Data sets are `panel`, the 76 small real tables on which experts and defaults are
chosen, in five folds; and those on which nothing is chosen: `standard`, the first standard splits
of twelve UCI sets; `subsets` of these with 30, 100, 300 and 1,000 rows; `tables`, six tables of
mixed type; and `foundation`, the cells with published figures of foundation models.

Methods are ours and those of other packages (`RIVALS`), each a function from training and test rows
to forecasts; one that is not installed is skipped. Every forecast has a cdf, by which all are
scored in the same way: CRPS, coverage and Winkler score of the central 90 % interval, the
Kolmogorov-Smirnov distance of the PIT values from uniform (drawn within the jumps of the cdf), and
a log score, the logarithm of the probability of y ± 0.005 over 0.01, with probabilities of at least
1e-8. The unit is the standard deviation of the training targets. Quantiles become a cdf by
`QuantileForecast`. For our methods there is also the mean log-density. Seconds are those of fit and
prediction, with 90 % intervals, in a process with one thread.

A run appends to its file and leaves out what is there. `report` compares each method with the first
one: geometric means over tables of the ratio of CRPS, by number of rows; ``--tables`` prints the
differences of every table, ``--held-out`` compares the held-out scores of training rows, which
`sigmax fit` shows, with those of the test rows. `rank` has mean ranks with tests over tables, and
groups of tables. All use the folds that every method has.

PYTHONPATH of an older checkout with ``--label`` gives the figures of that version.
JAX_PLATFORMS=cuda trains networks on a GPU that all processes share.
"""

import argparse
import importlib
import json
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("SIGMAX_DATA", "../shared/data"))
COVERAGE, RESOLUTION, LEAST = 0.9, 0.01, 1e-8
LOWEST = 0.1
"""Smallest ratio of CRPS in a picture."""
SIZES = {"under 100": (0, 100), "100 to 299": (100, 300), "300 to 999": (300, 1000)}
SIZES |= {"1,000 and more": (1000, 10**9), "all": (0, 10**9)}

Split = tuple[Any, np.ndarray, Any, np.ndarray]
"""Training rows, their targets, test rows and theirs."""
Rival = Callable[[Any, np.ndarray, Any], Any]


# The data.


@final
@dataclass(frozen=True)
class Tables:
    """Tables of a benchmark, and how they are divided into training and test rows."""

    names: Callable[[], Sequence[str]]
    """Names of the tables, the largest first."""
    read: Callable[[str, int], Split]
    n_folds: int


def panel_index() -> dict[str, dict[str, Any]]:
    """Metadata of the tables by name, the largest table first."""
    index = json.loads((DATA / "panel" / "index.json").read_text())
    return {one["name"]: one for one in sorted(index, key=lambda one: -one["rows"])}


def read_panel(name: str, fold: int) -> Split:
    X: Any = pd.read_csv(DATA / "panel" / f"{name}.csv.gz")
    y = X.pop(panel_index()[name]["target"]).to_numpy(float)
    test = np.sort(np.random.default_rng(0).permutation(len(y))[fold::5])
    train = np.setdiff1d(np.arange(len(y)), test)
    return X.iloc[train], y[train], X.iloc[test], y[test]


@lru_cache(maxsize=2)
def load_uci(name: str) -> Any:
    from sigmax.data import load_uci

    return load_uci(name)


def uci_sizes() -> dict[str, int]:
    """Numbers of rows of the twelve sets, the largest first."""
    from sigmax.data import UCI_SETS

    sizes = {name: one.n_rows for name, one in UCI_SETS.items() if name != "year"}
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def read_standard(name: str, split: int) -> Split:
    data = load_uci(name)
    train, test = data.splits[split]
    return data.X[train], data.y[train], data.X[test], data.y[test]


def subset_names() -> list[str]:
    """Subsets named "boston/100", of sets that leave at least 100 test rows."""
    sizes = uci_sizes()
    return [f"{name}/{n}" for n in (1000, 300, 100, 30) for name in sizes if sizes[name] >= n + 100]


def read_subset(table: str, fold: int) -> Split:
    """A random subset of a set, and at most 300 test rows drawn from the rest."""
    name, n = table.split("/")
    data = load_uci(name)
    rows = np.random.default_rng([fold, int(n)]).permutation(len(data.y))
    train, test = rows[: int(n)], rows[int(n) :][:300]
    return data.X[train], data.y[train], data.X[test], data.y[test]


MIXED = {
    "diamonds": ("price", []),
    "kc_housing": ("price", []),
    "hotel_rates": ("avg_price_per_room", []),
    "employee_salaries": ("current_annual_salary", []),
    "taxis": ("fare", ["total", "tip", "tolls"]),
    "ames": ("Sale_Price", []),
}
"""Target of every table of mixed type, and the columns that leak it."""


def read_mixed(name: str, split: int) -> Split:
    """At most 4,000 rows drawn at random, of which a fifth is held out."""
    target, leaks = MIXED[name]
    frame = pd.read_csv(DATA / "tables" / f"{name}.csv.gz")
    frame = frame.iloc[np.random.default_rng(split).permutation(len(frame))[:4000]]
    frame = frame.reset_index(drop=True)
    y = frame.pop(target).to_numpy(dtype=np.float64)
    frame, n = frame.drop(columns=leaks), len(frame) * 4 // 5
    return frame.iloc[:n], y[:n], frame.iloc[n:], y[n:]


def foundation_names() -> list[str]:
    from foundation import published_cells

    return [f"{name}/{n}" for name, n in sorted(published_cells(), key=lambda cell: -cell[1])]


def read_foundation(table: str, subset: int) -> Split:
    from foundation import load_dataset, split_rows, take

    name, n = table.split("/")
    X, y = load_dataset(name)
    train, test = split_rows(len(y), int(n), subset)
    return take(X, train), y[train], take(X, test), y[test]


SETS = {
    "panel": Tables(lambda: list(panel_index()), read_panel, 5),
    "standard": Tables(lambda: list(uci_sizes()), read_standard, 5),
    "subsets": Tables(subset_names, read_subset, 3),
    "tables": Tables(lambda: list(MIXED), read_mixed, 3),
    "foundation": Tables(foundation_names, read_foundation, 4),
}


# The methods.


def create(method: str, seed: int = 0) -> Any:
    """Estimator by the name of a method: those here, and those of `sigmax.runs.methods`."""
    import sigmax
    from sigmax.runs.methods import METHODS

    if method in ("quick", "default", "best"):
        return sigmax.SigmaxRegressor(method, random_state=seed)
    if method == "linear":
        return sigmax.LinearRegressor()
    if method not in METHODS:
        raise SystemExit(f"There is no method {method!r}.")
    return METHODS[method].create(seed)


LEVELS = np.arange(1, 100) / 100
FEW_LEVELS = np.concatenate([[0.01], np.arange(1, 20) / 20, [0.99]])


@final
class QuantileForecast:
    """Forecast by quantiles at levels from 0.01 to 0.99, among them 0.05 and 0.95.

    The cdf is linear between the quantiles, which are sorted, and jumps where they are equal. Each
    tail is the exponential through the quantiles of probabilities 0.01 and 0.05 on its side, moved
    to begin at the outermost one.
    """

    def __init__(self, quantiles: Any, levels: np.ndarray = LEVELS):
        self.q, self.levels = np.sort(np.asarray(quantiles, np.float64), axis=1), levels
        low, high = (np.searchsorted(levels, level - 1e-9) for level in (0.05, 0.95))
        ends = self.q[:, low] - self.q[:, 0], self.q[:, -1] - self.q[:, high]
        self.scales = [np.maximum(end / np.log(5), 1e-9) for end in ends]

    def tails(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of less than y in the lower tail, and of more than y in the upper one."""
        beyond = np.minimum(y - self.q[:, 0], 0), np.minimum(self.q[:, -1] - y, 0)
        return tuple(
            self.levels[0] * np.exp(d / s) for d, s in zip(beyond, self.scales, strict=True)
        )

    def cdf(self, y: np.ndarray) -> np.ndarray:
        low, high = self.tails(y)
        left, right, y = self.q[:, :-1], self.q[:, 1:], y[:, None]
        width = np.where(right > left, right - left, 1)
        share = np.where(right > left, np.clip((y - left) / width, 0, 1), y >= right)
        return low + self.levels[0] - high + share @ np.diff(self.levels)

    def interval(self, coverage: float) -> np.ndarray:
        ends = [(1 - coverage) / 2, (1 + coverage) / 2]
        return np.array([np.interp(ends, self.levels, row) for row in self.q])

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Integral of (F - 1{y <= t})², in closed form on every segment and in both tails."""
        a, b = self.q[:, :-1], self.q[:, 1:]
        p, r = self.levels[:-1], self.levels[1:]
        c = np.clip(y[:, None], a, b)
        f = p + (r - p) * (c - a) / np.where(b > a, b - a, 1)
        below = (c - a) * (p**2 + p * f + f**2)
        above = (b - c) * ((1 - f) ** 2 + (1 - f) * (1 - r) + (1 - r) ** 2)
        total, outer = np.sum(below + above, axis=1) / 3, self.levels[0]
        distances = np.maximum(self.q[:, 0] - y, 0), np.maximum(y - self.q[:, -1], 0)
        for tail, scale, distance in zip(self.tails(y), self.scales, distances, strict=True):
            # F² up to y, then (1 - F)² up to the outermost quantile; the upper tail is its mirror
            inner = distance - 2 * scale * (outer - tail) + scale * (outer**2 - tail**2) / 2
            total += scale * tail**2 / 2 + inner
        return total


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


def normal(mean: Any, std: Any) -> Any:
    from sigmax.distributions import Normal, Predictive

    mean, std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
    return Predictive(Normal(mean, np.maximum(std, 1e-6)))


# Rivals: training rows, standardised targets and test rows -> forecasts.


def on_arrays(predict: Rival) -> Rival:
    """Rival that reads numbers only, on the encoded rows of a frame."""

    def on_frames(X: Any, y: np.ndarray, X_new: Any) -> Any:
        encoding = numeric_encoding()
        return predict(encoding.fit_transform(X), y, encoding.transform(X_new))

    return on_frames


def ridge(X: Any, y: np.ndarray, X_new: Any) -> Any:
    from sklearn.linear_model import BayesianRidge

    return normal(*BayesianRidge().fit(X, y).predict(X_new, return_std=True))


def gaussian_process(X: Any, y: np.ndarray, X_new: Any) -> Any:
    """Squared exponential with a length-scale per column, found on at most 500 rows; 3,000 rows."""
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    rows = np.random.default_rng(0).permutation(len(y))
    few, many = rows[:500], rows[:3000]
    scales: Any = np.ones(X.shape[1])
    kernel = kernels.ConstantKernel() * kernels.RBF(scales) + kernels.WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, random_state=0).fit(X[few], y[few])
    model.set_params(kernel=model.kernel_, optimizer=None).fit(X[many], y[many])
    return normal(*model.predict(X_new, return_std=True))


def catboost(loss: str, X: Any, y: np.ndarray, X_new: Any) -> Any:
    """Boosted trees with their own categories and missing values, stopped early by a tenth."""
    from sigmax.cli.peers import HELD_OUT, LEARNING_RATE, MOST_TREES, PATIENCE

    texts = list(X.select_dtypes(exclude="number").columns)
    X, X_new = (
        frame.assign(
            **{c: frame[c].astype(object).where(frame[c].notna(), "").astype(str) for c in texts}
        )
        for frame in (X, X_new)
    )
    held, kept = np.split(np.random.default_rng(0).permutation(len(y)), [round(HELD_OUT * len(y))])
    model = importlib.import_module("catboost").CatBoostRegressor(
        loss_function=loss,
        iterations=MOST_TREES,
        learning_rate=LEARNING_RATE,
        early_stopping_rounds=PATIENCE,
        random_seed=0,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
        cat_features=texts,
    )
    model.fit(X.iloc[kept], y[kept], eval_set=(X.iloc[held], y[held]))
    if loss.startswith("MultiQuantile"):
        return QuantileForecast(model.predict(X_new), FEW_LEVELS)
    mean, variance = model.predict(X_new, prediction_type="RMSEWithUncertainty").T
    return normal(mean, np.sqrt(variance))


def booster(name: str, X: Any, y: np.ndarray, X_new: Any) -> Any:
    """NGBoost or XGBoost-distribution with the settings of `peers.py`."""
    model = getattr(importlib.import_module("peers"), name)(random_state=0)
    return model.fit(X, y).predict_dist(X_new)


def quantile_forest(X: Any, y: np.ndarray, X_new: Any) -> Any:
    model = importlib.import_module("quantile_forest").RandomForestQuantileRegressor(random_state=0)
    return QuantileForecast(model.fit(X, y).predict(X_new, quantiles=LEVELS.tolist()))


def bart(X: Any, y: np.ndarray, X_new: Any) -> Any:
    """Bayesian additive regression trees: mixture of the Normals of 200 draws."""
    from sigmax.distributions import Mixture, Normal, Predictive

    model = importlib.import_module("stochtree").BARTModel()
    model.sample(
        X_train=X,
        y_train=y,
        X_test=X_new,
        num_gfr=10,
        num_mcmc=200,
        general_params={"random_seed": 0, "num_threads": 1},
    )
    mean = np.asarray(model.y_hat_test).T
    std = np.sqrt(np.asarray(model.global_var_samples))[:, None]
    return Predictive(Mixture(Normal(mean, np.broadcast_to(std, mean.shape).copy())))


def with_residuals(package: str, name: str, X: Any, y: np.ndarray, X_new: Any) -> QuantileForecast:
    """Mean prediction of the fits of five folds, plus quantiles of their held-out residuals."""
    from sklearn.model_selection import KFold

    residuals, means = np.empty(len(y)), []
    for train, test in KFold(5, shuffle=True, random_state=0).split(y):
        model = getattr(importlib.import_module(package), name)(random_state=0)
        model.fit(X[train], y[train])
        residuals[test] = y[test] - model.predict(X[test])
        means.append(model.predict(X_new))
    spread = np.quantile(residuals, LEVELS, method="weibull")  # ranks over n + 1: conformal
    return QuantileForecast(np.mean(means, axis=0)[:, None] + spread)


def local_behind_skrub(X: Any, y: np.ndarray, X_new: Any) -> Any:
    """`LocalRegressor` on skrub's encoding, with missing values filled and flagged."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline

    from sigmax import LocalRegressor

    vectorizer = importlib.import_module("skrub").TableVectorizer()
    encoder = make_pipeline(vectorizer, SimpleImputer(add_indicator=True))
    Z = np.asarray(encoder.fit_transform(X), np.float64)
    model = LocalRegressor("fast", random_state=0).fit(Z, y)
    return model.predict_dist(np.asarray(encoder.transform(X_new), np.float64))


BOOSTED = partial(with_residuals, "sklearn.ensemble", "HistGradientBoostingRegressor")
QUANTILES = f"MultiQuantile:alpha={','.join(f'{level:.2f}' for level in FEW_LEVELS)}"
RIVALS: dict[str, tuple[str, Rival]] = {
    "catboost": ("catboost", partial(catboost, "RMSEWithUncertainty")),
    "catboost-quantiles": ("catboost", partial(catboost, QUANTILES)),
    "ngboost": ("ngboost", on_arrays(partial(booster, "NGBoost"))),
    "quantile-forest": ("quantile-forest", on_arrays(quantile_forest)),
    "histgb-conformal": ("scikit-learn", on_arrays(BOOSTED)),
    "sklearn-gp": ("scikit-learn", on_arrays(gaussian_process)),
    "xgboost-distribution": (
        "xgboost-distribution",
        on_arrays(partial(booster, "XGBoostDistribution")),
    ),
    "bart": ("stochtree", on_arrays(bart)),
    "ridge": ("scikit-learn", on_arrays(ridge)),
    "realmlp": ("pytabkit", on_arrays(partial(with_residuals, "pytabkit", "RealMLP_TD_Regressor"))),
    "local-skrub": ("skrub", local_behind_skrub),
    "tabm": ("pytabkit", on_arrays(partial(with_residuals, "pytabkit", "TabM_D_Regressor"))),
}
"""Package and function of each method of other packages."""


# The run.


def this_commit() -> str:
    """Commit of the code, or nothing where git does not know."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


def scores(y: np.ndarray, forecast: Any, unit: float) -> dict[str, float]:
    """Mean scores of forecasts at y, in this unit."""
    low, high = forecast.interval(COVERAGE).T
    miss = np.maximum(np.maximum(low - y, y - high), 0)
    less, half = forecast.cdf(np.nextafter(y, -np.inf)), RESOLUTION * unit / 2
    draws = np.random.default_rng(0).uniform(size=len(y))
    pit = less + draws * (forecast.cdf(y) - less)
    near = forecast.cdf(y + half) - forecast.cdf(y - half)
    return {
        "crps": float(forecast.crps(y).mean() / unit),
        "log_score": float(np.log(np.maximum(near, LEAST) / RESOLUTION).mean()),
        "coverage": float(np.mean((low <= y) & (y <= high))),
        "width": float(np.mean(high - low) / unit),
        "interval_score": float(np.mean(high - low + 2 / (1 - COVERAGE) * miss) / unit),
        "pit_ks": float(stats.kstest(pit, "uniform").statistic),
    }


def scores_of_ours(model: Any, dist: Any, y: np.ndarray, y_new: np.ndarray) -> dict[str, Any]:
    """Log-density of test rows, held-out scores of training rows, and the weights of a stack."""
    unit = y.std() or 1.0
    found: dict[str, Any] = {"log_likelihood": float(dist.log_prob(y_new).mean() + np.log(unit))}
    if hasattr(getattr(model, "model_", None), "held_out"):
        known, own = y[model.model_.fitted.held_out.row], model.model_.held_out()
        for name, test, held_out in (
            ("crps", dist.crps(y_new) / unit, own.crps(known) / unit),
            ("log_likelihood", dist.log_prob(y_new), own.log_prob(known)),
        ):
            error = np.sqrt(test.var(ddof=1) / len(test) + held_out.var(ddof=1) / len(held_out))
            found |= {f"held_out_{name}": float(held_out.mean() - test.mean())}
            found |= {f"error_{name}": float(error)}
    if hasattr(model, "leaderboard_"):
        board = model.leaderboard_
        found["weights"] = dict(zip(board["expert"], board["weight"].round(4), strict=True))
    return found


def run_task(read: Any, method: str, label: str, table: str, fold: int) -> dict[str, Any]:
    """Record of one method on one fold of one table."""
    warnings.filterwarnings("ignore")
    X, y, X_new, y_new = read(table, fold)
    frame = pd.DataFrame(X)
    record: dict[str, Any] = {"method": label, "table": table, "fold": fold, "rows": len(y)}
    record |= {"test_rows": len(y_new), "columns": frame.shape[1]}
    record["text_columns"] = frame.select_dtypes(exclude="number").shape[1]
    unit, start = float(y.std()) or 1.0, time.perf_counter()
    if method in RIVALS:
        package, predict = RIVALS[method]
        forecast = predict(frame, (y - y.mean()) / unit, pd.DataFrame(X_new))
        forecast.interval(COVERAGE)
        record["seconds"] = time.perf_counter() - start
        record["versions"] = {package: version(package)}
        return record | scores((y_new - y.mean()) / unit, forecast, 1.0)
    model = create(method).fit(X, y)
    forecast = model.predict_dist(X_new)
    forecast.interval(COVERAGE)
    record["seconds"] = time.perf_counter() - start
    record["versions"] = {"sigmax": this_commit()}
    both = pd.concat([frame, pd.DataFrame(X_new)])
    known = both.duplicated().to_numpy()[len(y) :]
    if known.any():  # the others are the first rows with their X
        record["crps_new"] = float(forecast.crps(y_new)[~known].mean() / unit)
    return record | scores(y_new, forecast, unit) | scores_of_ours(model, forecast, y, y_new)


def one_thread() -> None:
    """Settings of processes that share the cores, and a GPU if JAX_PLATFORMS names one."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def is_available(method: str) -> bool:
    """False, with a line, if a method needs a package that is not installed."""
    if method not in RIVALS:
        return create(method) is not None  # ends the program if there is none
    package, _ = RIVALS[method]
    try:
        return bool(version(package))
    except PackageNotFoundError:
        print(f"{method}: skipped, {package} is not installed", flush=True)
        return False


def run(given: argparse.Namespace) -> None:
    """Append the records that the file does not have."""
    tables = SETS[given.data]
    done = load([given.out]) if given.out.exists() else []
    known = {(one["method"], one["table"], one["fold"]) for one in done}
    folds = map(int, given.folds.split(",")) if given.folds else range(tables.n_folds)
    names = given.only.split(",") if given.only else tables.names()
    methods = [method for method in given.methods.split(",") if is_available(method)]
    tasks = [
        (method, given.label or method, name, fold)
        for fold in folds
        for name in names
        for method in methods
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
    return frame.groupby("table").mean(numeric_only=True)


def report(given: argparse.Namespace) -> None:
    """Print ratios of CRPS to the first method, by numbers of rows, and draw them."""
    found = common(load(given.records))
    averages = {method: means(own) for method, own in found.items()}
    reference, *others = averages
    first = averages[reference]
    for method, own in averages.items():
        ratio = own["crps"] / first["crps"]
        has_both = "log_score" in own and not (own["log_score"] + first["log_score"]).isna().any()
        score = "log_score" if has_both else "log_likelihood"  # older records have the latter alone
        gain = own[score] - first[score]
        sizes = []
        for name, (low, high) in SIZES.items():
            mask = (first["rows"] >= low) & (first["rows"] < high)
            if mask.any():
                sizes.append(f"{name} {np.exp(np.log(ratio[mask]).mean()):.3f}")
        large = own[own["test_rows"] >= 100]["coverage"]
        print(f"{method} / {reference}, CRPS: {', '.join(sizes)}")
        print(
            f"    lower on {int((ratio < 1).sum())} of {len(ratio)}, higher by more than 2 % on"
            f" {int((ratio > 1.02).sum())}; {score.replace('_', ' ')} {gain.mean():+.3f} (median"
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
        label = f"{method}: {mean:.2f} on average"
        axes.scatter(rows, np.maximum(ratio, LOWEST), s=18, alpha=0.7, label=label)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="training rows", ylabel=f"CRPS / {reference}")
    axes.set_yticks([LOWEST, 0.2, 0.5, 1.0, 2.0], [f"{LOWEST} or less", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(picture, dpi=150)


# Ranks over tables.

NOISE = {"little": (0, 0.15), "some": (0.15, 0.35), "much": (0.35, 10)}
KINDS = {
    "training rows": ("rows", dict(list(SIZES.items())[:-1])),
    "columns": ("columns", {"up to 5": (0, 6), "6 to 10": (6, 11), "more": (11, 10**9)}),
    "columns of text": ("text_columns", {"none": (0, 1), "some": (1, 10**9)}),
    "noise": ("noise", NOISE),
}
"""Groups of tables by a quantity; noise is the lowest CRPS of any method."""


def holm(p_values: np.ndarray) -> np.ndarray:
    """Adjusted p-values of several tests.

    Examples
    --------
    >>> holm(np.array([0.04, 0.01, 0.03])).tolist()
    [0.06, 0.03, 0.06]
    """
    order, n = np.argsort(p_values), len(p_values)
    steps = np.maximum.accumulate(p_values[order] * (n - np.arange(n)))
    return np.minimum(steps, 1)[np.argsort(order)]


def critical_difference(n_methods: int, n_tables: int) -> float:
    """Difference of mean ranks that Nemenyi's test calls significant at 5 %."""
    quantile = stats.studentized_range.ppf(0.95, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_tables)))


def rank(given: argparse.Namespace) -> None:
    """Print mean ranks and groups of tables as Markdown, or put them into a page."""
    averages = {method: means(own) for method, own in common(load(given.records)).items()}
    found = {"losses": losses, "ranks": ranks, "kinds": kinds}
    parts = {f"{given.part} {name}": make(averages) for name, make in found.items()}
    if given.page is None:
        print("\n\n".join(parts.values()))
    else:
        page = given.page.read_text(encoding="utf-8")
        given.page.write_text(refreshed(page, parts), encoding="utf-8")
    if given.picture is not None:
        draw_ranks(averages, given.picture)


def refreshed(page: str, parts: dict[str, str]) -> str:
    """A page with the text between ``<!-- name -->`` and ``<!-- end -->`` made anew."""
    for name, text in parts.items():
        before, begin, rest = page.partition(f"<!-- {name} -->")
        if begin:
            _, end, after = rest.partition("<!-- end -->")
            page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page


def table_of(averages: dict[str, Any], score: str) -> Any:
    """One score by table and method."""
    return pd.DataFrame({method: own[score] for method, own in averages.items()})


def losses(averages: dict[str, Any]) -> str:
    """Tables on which methods of other packages have a lower CRPS than the first one, ours."""
    first, others = next(iter(averages)), [method for method in averages if method in RIVALS]
    crps = table_of(averages, "crps")
    ratio = crps[others].div(crps[first], axis=0)
    lowest = ratio.min(axis=1)
    lines = [
        f"On {int((lowest < 1).sum())} of {len(crps)} tables at least one of {len(others)} rivals"
        f" has a lower CRPS than {first}, on {int((lowest < 0.98).sum())} by more than 2 %.",
        "",
        f"| rival | lower CRPS than {first} on | by more than 2 % on | largest leads (ratio) |",
        "|---|---:|---:|---|",
    ]
    for method in (ratio < 1).sum().sort_values(ascending=False, kind="stable").index:
        lead = ratio[method].sort_values()
        names = [f"{name} ({value:.2f})" for name, value in lead[lead < 0.98].head(4).items()]
        lines.append(
            f"| {method} | {int((lead < 1).sum())} | {int((lead < 0.98).sum())} |"
            f" {', '.join(names) or 'none'} |"
        )
    return "\n".join(lines)


def ranks(averages: dict[str, Any]) -> str:
    """Mean ranks, tests over tables, calibration and seconds."""
    first, *others = averages
    crps, log_score = table_of(averages, "crps"), table_of(averages, "log_score")
    ranks, n = crps.rank(axis=1), len(crps)
    ratio = crps.div(crps[first], axis=0)
    p = holm(np.array([stats.wilcoxon(np.log(ratio[other]))[1] for other in others]))
    adjusted = {other: f"{value:.1g}" for other, value in zip(others, p, strict=True)}
    lines = [
        f"{n} tables; Friedman's test of equal ranks: p ="
        f" {stats.friedmanchisquare(*crps.to_numpy().T)[1]:.1g}. Mean ranks that differ by less"
        f" than {critical_difference(len(averages), n):.2f} may be equal (Nemenyi's test, 5 %).",
        "",
        f"| method | mean rank, CRPS | lowest on | CRPS over {first}'s | median | p |"
        " mean rank, log score | 90 % coverage | PIT-KS | median seconds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for method in ranks.mean().sort_values().index:
        own = averages[method]
        lines.append(
            f"| {method} | {ranks[method].mean():.2f} | {int((ranks[method] == 1).sum())} |"
            f" {np.exp(np.log(ratio[method]).mean()):.2f} | {ratio[method].median():.2f} |"
            f" {adjusted.get(method, '')} |"
            f" {log_score.rank(axis=1, ascending=False)[method].mean():.2f} |"
            f" {100 * own['coverage'].mean():.1f} % | {own['pit_ks'].mean():.3f} |"
            f" {own['seconds'].median():.2g} |"
        )
    return "\n".join(lines)


def kinds(averages: dict[str, Any]) -> str:
    """Mean ranks within groups of tables."""
    crps = table_of(averages, "crps")
    found = next(iter(averages.values())).assign(noise=crps.min(axis=1))
    lines = [
        f"| mean rank, CRPS | tables | {' | '.join(averages)} |",
        f"|---|---:|{'---:|' * len(averages)}",
    ]
    for title, (quantity, groups) in KINDS.items():
        for name, (low, high) in groups.items():
            mask = (found[quantity] >= low) & (found[quantity] < high)
            if mask.any():
                cells = " | ".join(f"{value:.2f}" for value in crps[mask].rank(axis=1).mean())
                lines.append(f"| {title}: {name} | {int(mask.sum())} | {cells} |")
    return "\n".join(lines)


def draw_ranks(averages: dict[str, Any], picture: Path) -> None:
    """Critical-difference diagram: mean ranks, with a bar over methods that may be equal."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    crps = table_of(averages, "crps")
    ranks = crps.rank(axis=1).mean().sort_values()
    difference, n = critical_difference(len(ranks), len(crps)), len(ranks)
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.32 * n), layout="constrained")
    axes.scatter(ranks, range(n), color="black", zorder=3)
    axes.set_yticks(range(n), ranks.index)
    ends = [int(np.searchsorted(ranks, start + difference, side="right")) for start in ranks]
    for first, end in enumerate(ends):
        if end - first > 1 and (first == 0 or end > ends[first - 1]):  # not inside another bar
            axes.plot(
                [ranks.iloc[first], ranks.iloc[end - 1]], [first - 0.3] * 2, "tab:gray", linewidth=4
            )
    axes.set(ylim=(n - 0.4, -0.8), xlabel=f"mean rank of the CRPS over {len(crps)} tables")
    axes.set_title(
        f"Bars: methods that may be equal (ranks within {difference:.2f})", fontsize=10, loc="left"
    )
    axes.grid(axis="x", alpha=0.4)
    figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("data", choices=SETS)
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
    ranking = commands.add_parser("rank")
    ranking.add_argument("records", type=Path, nargs="+")
    ranking.add_argument("--picture", type=Path)
    ranking.add_argument("--page", type=Path, help="put the tables there instead of printing them")
    ranking.add_argument("--part", default="panel", help="name of the tables in the page")
    ranking.set_defaults(call=rank)
    given = parser.parse_args()
    given.call(given)


if __name__ == "__main__":
    main()
