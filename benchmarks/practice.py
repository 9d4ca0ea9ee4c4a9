"""Missing cells, unseen categories, later dates and rows beyond the training range, in numbers.

    python benchmarks/practice.py run [--method quick] [--jobs 2] [--out practice.jsonl]
    python benchmarks/practice.py report practice.jsonl [before.jsonl]

Every table is fitted once (at most 1,000 random rows) and predicted at other rows (at most 300), as
they are and with one change: one column blanked (a missing value in every row), one category
renamed to a value that no training row has, all dates moved on by 6, 12 or 24 months. A second fit
per important column leaves out the rows of its outermost tenth, which are then predicted. Ridge
and histogram boosting (missing values imputed by the mean or the most frequent category) see the
same rows. Four made-up tables go on beyond the range of their training rows: a trend, steps, no
trend, and a number. `report` prints means over tables of RMSE / std(y) and of the coverage of 90 %
intervals.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from suite import create, one_thread

DATA = Path(os.environ.get("SIGMAX_DATA", "../shared/data"))

TABLES = {
    "employee_salaries": ("current_annual_salary", ()),
    "kc_housing": ("price", ()),
    "ames": ("Sale_Price", ()),
    "taxis": ("fare", ("total", "tip", "tolls")),
    "diamonds": ("price", ()),
    "hotel_rates": ("avg_price_per_room", ()),
}

PANEL = (
    "AER_CASchools",
    "Ecdat_Clothing",
    "ISLR_Carseats",
    "ISLR_Wage",
    "carData_SLID",
    "gapminder_gapminder",
    "modeldata_Sacramento",
    "modeldata_car_prices",
    "openintro_nba_players_19",
    "wooldridge_mroz",
)

MADE_UP = ("trend", "steps", "no trend", "number")

MOST_TRAINING, MOST_TEST, MOST_COLUMNS = 1000, 300, 12

MONTHS = (6, 12, 24)


def read(name: str) -> tuple[Any, np.ndarray]:
    """Columns and target of a table, its dates parsed."""
    if name in TABLES:
        target, dropped = TABLES[name]
        frame: Any = pd.read_csv(DATA / "tables" / f"{name}.csv.gz").drop(columns=list(dropped))
    else:
        index = json.loads((DATA / "panel" / "index.json").read_text())
        target = next(one["target"] for one in index if one["name"] == name)
        frame = pd.read_csv(DATA / "panel" / f"{name}.csv.gz")
    frame = frame[frame[target].notna()].reset_index(drop=True)
    for column in frame.columns:
        if any(word in column.lower() for word in ("date", "pickup", "dropoff")):
            try:
                frame[column] = pd.to_datetime(frame[column], format="mixed")
            except (ValueError, TypeError):
                continue
    return frame.drop(columns=target), frame[target].to_numpy(float)


def changes(X: Any, train: Any) -> dict[str, Any]:
    """The rows as they are and with one change each, by name."""
    found = {"as they are": X}
    columns = list(X.columns)
    step = max(1, len(columns) // MOST_COLUMNS)
    for column in columns[::step]:
        blanked = X.copy()
        dtype = object if X[column].dtype.kind in "biuO" else X[column].dtype
        blanked[column] = pd.Series([None] * len(X), dtype=dtype, index=X.index)
        if X[column].dtype.kind in "iu":
            blanked[column] = np.nan
        had_gaps = train[column].isna().any()
        found[f"{'gap known' if had_gaps else 'blanked'}: {column}"] = blanked
    for column in [name for name in columns if train[name].dtype.kind == "O"][:MOST_COLUMNS]:
        renamed = X.copy()
        renamed[column] = "a value of no training row"
        found[f"renamed: {column}"] = renamed
    dates = [name for name in columns if X[name].dtype.kind == "M"]
    for months in MONTHS if dates else ():
        later = X.copy()
        for column in dates:
            later[column] = X[column] + pd.DateOffset(months=months)
        found[f"{months} months later"] = later
    return found


def made_up(kind: str, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Columns, target, and how far each row lies beyond the training rows: 0 for these.

    Dates run over three years of training rows and up to 24 months more, numbers up to a fifth of
    their range beyond.
    """
    rng = np.random.default_rng(seed)
    n = 900
    years = np.sort(rng.uniform(0, 5, n))
    x, noise = rng.normal(size=n), 0.3 * rng.normal(size=n)
    date = pd.Timestamp("2020-01-01") + pd.to_timedelta((years * 365.25).round(), unit="D")
    season = np.sin(2 * np.pi * years)
    targets = {
        "trend": 10 + 2 * years + season + x + noise,
        "steps": 10 * np.floor(2 * years) + x + noise,
        "no trend": 10 + season + x + noise,
        "number": 6 * years / 5 + x + noise,
    }
    beyond = np.maximum(years - 3, 0)
    if kind == "number":
        return pd.DataFrame({"t": years, "x": x}), targets[kind], np.maximum(years - 5 / 1.2, 0)
    return pd.DataFrame({"date": date, "x": x}), targets[kind], beyond


def run_made_up(task: tuple[str, str, int]) -> list[dict[str, Any]]:
    """Records of one made-up table, within and beyond the range of the training rows."""
    kind, method, seed = task
    X, y, beyond = made_up(kind, seed)
    is_test = np.random.default_rng(seed).uniform(size=len(y)) < 0.2
    train = (beyond == 0) & ~is_test
    parts = {"within": (beyond == 0) & is_test, "beyond": beyond > 0}
    if kind != "number":
        parts = {"within": parts["within"], "0-12 months beyond": (beyond > 0) & (beyond <= 1)}
        parts["12-24 months beyond"] = beyond > 1
    model: Any = create(method, seed).fit(X[train], y[train])
    others, found = rivals(), []
    for other in others.values():
        other.fit(X[train], y[train])
    for part, rows in parts.items():
        about = {"table": kind, "change": f"{kind}, {part}", "spread": float(np.std(y[train]))}
        found.append({**about, "method": "ours"} | scores(model, X[rows], y[rows]))
        for rival, other in others.items():
            error = other.predict(X[rows]) - y[rows]
            found.append({**about, "method": rival, "rmse": float(np.sqrt(np.mean(error**2)))})
    return found


def rivals() -> dict[str, Any]:
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    missing: Any = None

    def numbers(frame):
        return frame.apply(
            lambda column: (
                column.astype("int64").where(column.notna()) / 1e9
                if column.dtype.kind == "M"
                else pd.to_numeric(column)
            )
        ).astype(float)

    def pipeline(regressor):
        is_text = make_column_selector(dtype_include=[object, bool])
        is_number = make_column_selector(dtype_exclude=[object, bool])
        texts = make_pipeline(
            FunctionTransformer(lambda frame: frame.astype(object).where(frame.notna(), None)),
            SimpleImputer(missing_values=missing, strategy="most_frequent"),
            FunctionTransformer(lambda cells: np.asarray(cells).astype(str)),
            OneHotEncoder(handle_unknown="ignore", max_categories=30, sparse_output=False),
        )
        reals = make_pipeline(FunctionTransformer(numbers), SimpleImputer(), StandardScaler())
        columns = make_column_transformer((texts, is_text), (reals, is_number))
        return make_pipeline(columns, regressor)

    return {
        "ridge": pipeline(RidgeCV(np.logspace(-2, 4, 13))),
        "boosting": pipeline(HistGradientBoostingRegressor(random_state=0)),
    }


def plain(X: Any) -> Any:
    """Text and truth values as objects, so that all methods see the same kinds."""
    return X.apply(
        lambda column: column.astype(object) if column.dtype.kind not in "iufM" else column
    )


def same_kinds(X: Any, train: Any) -> Any:
    return X.apply(
        lambda column: (
            column.astype(float)
            if train[column.name].dtype.kind in "iuf"
            else column
            if train[column.name].dtype.kind == "M"
            else column.astype(object)
        )
    )


def scores(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    dist, gate = model.predict_dist_and_gate(X)
    lower, upper = dist.interval(0.9).T
    return {
        "rmse": float(np.sqrt(np.mean((dist.mean - y) ** 2))),
        "crps": float(np.mean(dist.crps(y))),
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
        "width": float(np.median(upper - lower)),
        "off_data": float(np.mean(gate > 0.5)) if gate is not None else np.nan,
    }


def run_task(task: tuple[str, str, int]) -> list[dict[str, Any]]:
    """All records of one table, real or made up."""
    return (run_made_up if task[0] in MADE_UP else run_one)(task)


def run_one(task: tuple[str, str, int]) -> list[dict[str, Any]]:
    """All records of one table."""
    import warnings

    warnings.filterwarnings("ignore")
    from sklearn.inspection import permutation_importance

    name, method, seed = task
    X, y = read(name)
    X = plain(X)
    order = np.random.default_rng(seed).permutation(len(X))
    n_test = min(MOST_TEST, len(X) // 3)
    test, train = order[:n_test], order[n_test : n_test + MOST_TRAINING]
    X_train, y_train, X_test, y_test = X.iloc[train], y[train], X.iloc[test], y[test]
    spread, found = float(np.std(y_test)), []

    def record(method: str, change: str, **more: float) -> None:
        found.append({"table": name, "method": method, "change": change, "spread": spread} | more)

    others = rivals()
    model: Any = create(method, seed).fit(X_train, y_train)
    for other in others.values():
        other.fit(X_train, y_train)
    for change, rows in changes(X_test, X_train).items():
        rows = same_kinds(rows, X_train)
        record("ours", change, **scores(model, rows, y_test))
        for rival, other in others.items():
            error = other.predict(rows) - y_test
            record(rival, change, rmse=float(np.sqrt(np.mean(error**2))))

    found_importance: Any = permutation_importance(
        others["boosting"], X_test, y_test, n_repeats=2, random_state=0
    )
    importance = found_importance.importances_mean
    numeric = [j for j, column in enumerate(X.columns) if X[column].dtype.kind in "iufM"]
    ranked = sorted(numeric, key=lambda j: -importance[j])[:2]
    both = np.concatenate([train, test])
    for j in ranked:
        column = X.iloc[both, j].rank(pct=True).to_numpy()
        for side, is_outer in (("low", column <= 0.1), ("high", column > 0.9)):
            inner, outer = both[~is_outer & ~np.isnan(column)], both[is_outer]
            if not 10 <= len(outer) <= len(inner):
                continue
            inner = inner[:MOST_TRAINING]
            own: Any = create(method, seed).fit(X.iloc[inner], y[inner])
            change = f"edge {side}: {X.columns[j]}"
            record("ours", change, **scores(own, X.iloc[outer], y[outer]))
            for rival, other in rivals().items():
                error = other.fit(X.iloc[inner], y[inner]).predict(X.iloc[outer]) - y[outer]
                record(rival, change, rmse=float(np.sqrt(np.mean(error**2))))
    return found


def summary(records: list[dict[str, Any]]) -> Any:
    """Mean over tables of RMSE / std(y), CRPS / std(y), coverage and share off the data."""
    frame: Any = pd.DataFrame(records)
    frame["kind"] = frame["change"].str.split(":").str[0].str.replace(" low| high", "", regex=True)
    for score in ("rmse", "crps"):
        frame[score] = frame[score] / frame["spread"]
    by_table = frame.groupby(["kind", "method", "table"])[["rmse", "crps", "coverage", "off_data"]]
    means = by_table.mean().groupby(level=[0, 1])
    found = means.mean()
    found["tables"] = means.size()
    lowest = frame[frame["method"] == "ours"].groupby(["kind", "method"])["coverage"].min()
    found["lowest coverage"] = lowest
    return found


def losses(records: list[dict[str, Any]]) -> Any:
    """By table: the RMSE that a blanked cell costs, ours and that of boosting, over std(y)."""
    frame: Any = pd.DataFrame(records)
    kind = frame["change"].str.split(":").str[0]
    base = frame[kind == "as they are"].set_index(["table", "method"])["rmse"]
    some = frame[kind.isin(["blanked", "renamed"])].copy()
    keys = pd.MultiIndex.from_frame(some[["table", "method"]])
    some["loss"] = (some["rmse"].to_numpy() - base[keys].to_numpy()) / some["spread"]
    some["kind"] = kind[some.index]
    return some.groupby(["kind", "table", "method"])["loss"].mean().unstack("method")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--method", default="quick")
    run.add_argument("--jobs", type=int, default=2)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--out", default="practice.jsonl")
    run.add_argument("--only", nargs="*", default=[*TABLES, *PANEL, *MADE_UP])
    report = commands.add_parser("report")
    report.add_argument("records", nargs="+")
    options = parser.parse_args()
    if options.command == "report":
        for path in options.records:
            records = [json.loads(line) for line in Path(path).read_text().splitlines()]
            print(f"\n{path}\n{summary(records).round(3).to_string()}")
            print(f"\nRMSE lost, over std(y)\n{losses(records).round(3).to_string()}")
        return
    tasks = [(name, options.method, options.seed) for name in options.only]
    with (
        ProcessPoolExecutor(options.jobs, initializer=one_thread) as pool,
        open(options.out, "w") as out,
    ):
        for records in pool.map(run_task, tasks):
            for record in records:
                out.write(json.dumps(record) + "\n")
            out.flush()
            print(records[0]["table"], flush=True)


if __name__ == "__main__":
    main()
