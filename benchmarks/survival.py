"""Survival times of two public sets: the stack with censored targets, Cox and Weibull models.

    pip install lifelines
    python benchmarks/survival.py

Five folds. The integrated Brier score is weighted by the inverse probability of censoring (Graf et
al. 1999), from the first to the ninth decile of the times; lower is better. "at 25 %" is the
share of test rows whose time is below the predicted quartile, as estimated by Kaplan and Meier from
the predicted probabilities of all test rows. All methods get the same columns: numbers with
missing values at the median, categories one-hot.
"""

# Lifelines is in no extra of the package.
# pyright: reportMissingImports=false

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold

from sigmax import SigmaxRegressor

QUARTILES = (0.25, 0.5, 0.75)
SETS = {"gbsg2": ("time", "cens"), "lung": ("time", "status")}
Survival = Callable[[pd.DataFrame, np.ndarray], np.ndarray]
"""Probabilities (rows, times) of rows to live longer than these times."""


def kaplan_meier(time: np.ndarray, is_event: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Estimate of the probability of a longer time, as a function of the time."""
    times, event = np.unique(time), np.asarray(is_event, float)
    at_risk = len(time) - np.searchsorted(np.sort(time), times)
    events = np.bincount(np.searchsorted(times, time), event)
    survival = np.append(1.0, np.cumprod(1 - events / at_risk))
    return lambda at: survival[np.searchsorted(times, at, side="right")]


def brier_score(survival, grid, time, is_event, free) -> float:
    """Integrated Brier score of ``survival`` (rows, grid); ``free`` is the censoring's survival."""
    is_over = (time[:, None] <= grid) & is_event[:, None]
    is_alive = time[:, None] > grid
    at_time, at_grid = np.maximum(free(time - 1e-9), 1e-3), np.maximum(free(grid), 1e-3)
    per_time = survival**2 * is_over / at_time[:, None] + (1 - survival) ** 2 * is_alive / at_grid
    return float(np.trapezoid(per_time.mean(axis=0), grid) / (grid[-1] - grid[0]))


def fit_marginal(X, time, is_event) -> Survival:
    own = kaplan_meier(time, is_event)
    return lambda X, at: np.broadcast_to(own(at), (len(X), len(at)))


def fit_lifelines(name: str) -> Callable[..., Survival]:
    def fit(X, time, is_event) -> Survival:
        import lifelines

        model: Any = getattr(lifelines, name)(penalizer=0.01)
        model.fit(X.assign(time=time, event=is_event), "time", event_col="event")
        return lambda X, at: model.predict_survival_function(X, times=at).to_numpy().T

    return fit


def fit_stack(X, time, is_event) -> Survival:
    censoring = np.where(is_event, "no", "above")
    model = SigmaxRegressor("quick", random_state=0).fit(X, time, censoring=censoring)

    def survival(X, at):
        dist = model.predict_dist(X)
        return np.stack([dist.sf(one) for one in at], axis=1)

    return survival


METHODS = {
    "Cox": fit_lifelines("CoxPHFitter"),
    "Kaplan-Meier": fit_marginal,
    "Weibull AFT": fit_lifelines("WeibullAFTFitter"),
    "stack": fit_stack,
}


def read(name: str) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Columns, times, and whether an event ended them."""
    import lifelines.datasets

    frame = getattr(lifelines.datasets, f"load_{name}")()
    time, event = SETS[name]
    X = pd.get_dummies(frame.drop(columns=[time, event]), drop_first=True).astype(float)
    return X.fillna(X.median()), frame[time].to_numpy(float), frame[event].to_numpy() == 1


def main() -> None:
    warnings.simplefilter("ignore")
    for name in SETS:
        X, times, is_event = read(name)
        print(f"{name}: {len(X)} rows, {X.shape[1]} columns, {np.mean(~is_event):.0%} censored")
        grid = np.linspace(np.quantile(times, 0.1), np.quantile(times, 0.9), 50)
        folds = list(KFold(5, shuffle=True, random_state=0).split(X))
        scores: dict[str, np.ndarray] = {}
        for method, fit in METHODS.items():
            scores[method], levels, start = np.empty(5), np.empty(len(X)), time.perf_counter()
            for fold, (train, test) in enumerate(folds):
                free = kaplan_meier(times[train], ~is_event[train])
                survival = fit(X.iloc[train], times[train], is_event[train])
                rows, own = X.iloc[test], (times[test], is_event[test])
                scores[method][fold] = brier_score(survival(rows, grid), grid, *own, free)
                at = np.unique(times[test])
                found = survival(rows, at)[np.arange(len(test)), np.searchsorted(at, times[test])]
                levels[test] = 1 - found
            seconds = (time.perf_counter() - start) / 5
            observed = 1 - kaplan_meier(levels, is_event)(np.array(QUARTILES))
            change = scores[method] - scores["Cox"]
            shares = ", ".join(
                f"{own:.1%} at {q:.0%}" for own, q in zip(observed, QUARTILES, strict=True)
            )
            print(
                f"  {method:12}  integrated Brier score {scores[method].mean():.4f}"
                f" ({change.mean():+.4f} ± {change.std(ddof=1) / np.sqrt(5):.4f} from"
                f" Cox); {shares}; {seconds:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
