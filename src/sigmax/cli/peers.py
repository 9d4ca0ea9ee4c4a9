"""Models of other packages for comparison."""

import importlib
from abc import abstractmethod
from importlib.util import find_spec
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from sigmax.distributions import Normal, Predictive
from sigmax.errors import MissingExtraError
from sigmax.estimators import AbstractRegressor

PACKAGES = ("catboost",)
"""Methods with the names of their packages."""

MOST_TREES = 2000
PATIENCE = 50
HELD_OUT = 0.1
LEARNING_RATE = 0.03


def is_installed(name: str) -> bool:
    return find_spec(name.replace("-", "_")) is not None


def load_package(name: str) -> Any:
    if not is_installed(name):
        raise MissingExtraError(f'{name} is not installed: pip install "sigmax[peers]".')
    return importlib.import_module(name.replace("-", "_"))


class AbstractPeer(AbstractRegressor):
    """A model of another package, which can be fitted and scored but not saved."""

    model_: Any

    def __init__(self, *, random_state: int = 0):
        self.random_state = random_state


class AbstractBooster(AbstractPeer):
    """Boosted trees with a Normal output, standardised y and early stopping."""

    def fit(self, X, y, sample_weight=None) -> "AbstractBooster":
        self.mean_, self.std_ = np.mean(y), np.std(y)
        y = (y - self.mean_) / self.std_
        rows = np.random.default_rng(self.random_state).permutation(len(y))
        held, kept = np.split(rows, [round(HELD_OUT * len(y))])
        parts = [(_safe_indexing(X, part), y[part]) for part in (kept, held)]
        self.model_ = self.boost(*parts[0], *parts[1])
        return self

    def predict_dist(self, X) -> Predictive:
        mean, std = (np.asarray(values, dtype=np.float64) for values in self.mean_and_std(X))
        return Predictive(Normal(self.mean_ + self.std_ * mean, self.std_ * std))

    @abstractmethod
    def boost(self, X: Any, y: NDArray, X_held: Any, y_held: NDArray) -> Any:
        """The fitted model of the package."""

    @abstractmethod
    def mean_and_std(self, X: Any) -> tuple[NDArray, NDArray]:
        """Mean and standard deviation of standardised y."""


@final
class CatBoost(AbstractBooster):
    """CatBoost with the loss RMSEWithUncertainty; text columns of a frame are categories."""

    def boost(self, X, y, X_held, y_held):
        is_frame = isinstance(X, pd.DataFrame)
        texts = list(X.select_dtypes(exclude="number").columns) if is_frame else None
        model = load_package("catboost").CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            iterations=MOST_TREES,
            learning_rate=LEARNING_RATE,
            early_stopping_rounds=PATIENCE,
            random_seed=self.random_state,
            thread_count=-1,
            verbose=False,
            allow_writing_files=False,
            cat_features=texts,
        )
        return model.fit(X, y, eval_set=(X_held, y_held))

    def mean_and_std(self, X):
        mean, variance = self.model_.predict(X, prediction_type="RMSEWithUncertainty").T
        return mean, np.sqrt(variance)
