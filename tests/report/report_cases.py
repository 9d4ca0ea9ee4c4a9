"""Model with predictions by known formulas, and reports of it."""

from typing import Any

import numpy as np
import pandas as pd

from sigmax.distributions import Normal, Predictive
from sigmax.report import HeldOutRows, LearnedRows, ModelReport
from sigmax.report.tables import ReportTable, TableCell
from sigmax.report.validation import COVERAGE
from sigmax.tables import infer_schema
from sigmax.tables.profile import Finding

HOSTILE = "</script><script>alert(1)</script><!-- \"'&"
"""Text that would be a script, were it not shown as text."""


class KnownModel:
    """Size drives the mean, kind drives both, day drives the spread, and noise drives nothing.

    It has a gate and names neighbours.
    """

    def __init__(self, names: tuple[str, str, str] = ("size", "kind", "day"), n_train: int = 40):
        self.names, self.n_train = names, n_train

    def moments(self, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        size, kind, day = (X[name] for name in self.names)
        is_b = (kind == "b").to_numpy(float)
        months = pd.to_datetime(day).dt.month.to_numpy(float)
        mean = 100 + 15 * size.fillna(0).to_numpy(float) + 20 * is_b
        return mean, (5 + 3 * is_b) * np.exp(0.05 * months)

    def predict_dist(self, X: pd.DataFrame) -> Predictive:
        return Predictive(Normal(*self.moments(X)))

    def predict_interval(self, X, coverage, method="distribution"):
        return self.predict_dist(X).interval(coverage)

    def predict_gate(self, X: pd.DataFrame) -> np.ndarray | None:
        return 1 / (1 + np.exp(-6 * (X[self.names[0]].fillna(0).to_numpy(float) - 3)))

    def explain_uncertainty(self, X, part="total", columns=()):
        """Knowing the day narrows a prediction by 2, knowing the noise widens it by the row."""
        effects = {"day": np.full(len(X), 2.0), "noise": -0.1 - np.arange(len(X))}
        return pd.DataFrame({name: effects.get(name, np.zeros(len(X))) for name in columns})

    def explain_neighbors(self, X, k=5):
        rows = np.arange(len(X))[:, None] + np.arange(k)
        return rows % self.n_train, np.tile(np.linspace(0.5, 0.05, k), (len(X), 1))


class BareModel:
    """A model that gives a distribution and nothing else."""

    def __init__(self, model: KnownModel):
        self.predict_dist = model.predict_dist
        self.explain_uncertainty = model.explain_uncertainty

    def predict_gate(self, X) -> None:
        return None


def make_rows(n: int, seed: int = 0, hostile: bool = False) -> tuple[pd.DataFrame, np.ndarray, Any]:
    """Rows with a number, a category, a date and noise; their targets; the model that is true."""
    rng = np.random.default_rng(seed)
    names = ("size", "kind", "day") if not hostile else (f"size{HOSTILE}", "kind<b>", "day")
    day = np.datetime64("2024-01-01") + rng.integers(0, 365, n).astype("timedelta64[D]")
    size = np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n).round(3))
    X = pd.DataFrame(
        {
            names[0]: size,
            names[1]: np.where(rng.random(n) < 0.3, "b", HOSTILE if hostile else "a"),
            names[2]: np.datetime_as_string(day),
            "noise": rng.normal(size=n).round(3),
        }
    )
    model = KnownModel(names)
    mean, std = model.moments(X)
    return X, mean + std * rng.normal(size=n), model


def predicted_rows(model: Any, X: pd.DataFrame, y: np.ndarray, **known: Any) -> HeldOutRows:
    """Rows as a model predicts them, numbered from 1 and without groups unless these are given."""
    dist, numbers = model.predict_dist(X), np.arange(1, len(y) + 1)
    known = {"numbers": numbers, "columns": pd.DataFrame(index=range(len(y))), **known}
    gate = model.predict_gate(X)
    return HeldOutRows.create(X, y, dist, dist.interval(COVERAGE), gate, **known)


def make_report(
    n: int = 400, *, model: Any = None, hostile: bool = False, **changes: Any
) -> ModelReport:
    """A report of the true model, or of another one."""
    X, y, true = make_rows(n, hostile=hostile)
    X_train, y_train, _ = make_rows(40, seed=1, hostile=hostile)
    model = true if model is None else model
    kind = true.names[1]
    rows = predicted_rows(model, X, y, columns=X[[kind, "day"]])
    name = HOSTILE if hostile else "y"
    crps = TableCell("1.2 ± 0.1", 1.2)
    scores = ReportTable(title="scores", header=["score", "model"], rows=[["CRPS", crps]])
    known = {
        "title": f"{name} of data.csv",
        "subtitle": "a page for tests",
        "target": name,
        "model": model,
        "rows": rows,
        "schema": infer_schema(X),
        "scores": [scores],
        "findings": [Finding("duplicates", (), "Rows occur twice."), Finding("leak", ("x",), name)],
        "training": LearnedRows(X_train, y_train, np.arange(1, 41)),
        "group_column": kind,
        "time_column": "day",
        "command": "sigmax fit data.csv",
        "metadata": [("rows", f"{n:,}"), ("setting", name)],
    }
    return ModelReport(**{**known, **changes})
