"""Plain predictors that a model must beat: the marginal, and a line with constant variance."""

from collections.abc import Mapping
from typing import final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

from sigmax.commands.encoding import SimpleEncoding
from sigmax.distributions import Mixture, Normal, Predictive

__all__ = ["LinearBaseline", "MarginalBaseline"]

N_QUANTILES = 99
PENALTIES = np.logspace(-2, 5, 15)


@final
class MarginalBaseline:
    """The same density for every row, that of the training targets.

    It is a smoothed histogram: a Normal at each of 99 quantiles, as wide as their distance, but no
    narrower than Silverman's bandwidth.
    """

    title = "marginal"
    about = "the smoothed distribution of the training targets, the same for every row"

    def __init__(self, y: NDArray[np.float64]):
        levels = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
        self.quantiles = np.quantile(y, levels)
        low, high = np.quantile(y, [0.25, 0.75])
        spread = min(s for s in (np.std(y), (high - low) / 1.34, np.inf) if s > 0)
        least = 0.9 * spread * len(y) ** -0.2 if np.isfinite(spread) else 1e-6
        self.widths = np.maximum(np.gradient(self.quantiles), least)

    def predict_dist(self, frame: pd.DataFrame) -> Predictive:
        shape = (N_QUANTILES, len(frame))
        means, stds = (
            np.broadcast_to(part[:, None], shape) for part in (self.quantiles, self.widths)
        )
        return Predictive(Mixture(Normal(means, stds)))


@final
class LinearBaseline:
    """Ridge regression on a simple encoding, with one variance from held-out residuals.

    The penalty and the variance are those of leave-one-out cross-validation.
    """

    title = "linear"
    about = "ridge regression on a simple encoding, Normal noise of one variance"

    def __init__(self, frame: pd.DataFrame, y: NDArray[np.float64], kinds: Mapping[str, str]):
        self.kinds = kinds
        self.encoding = SimpleEncoding.fit(frame, kinds)
        self.model = RidgeCV(PENALTIES, store_cv_results=True).fit(self.encoding(frame, kinds), y)
        errors = self.model.cv_results_.mean(axis=0)
        self.std = max(float(np.sqrt(np.min(errors))), 1e-6 * float(np.abs(y).max()), 1e-300)

    def predict_dist(self, frame: pd.DataFrame) -> Predictive:
        mean = self.model.predict(self.encoding(frame, self.kinds))
        return Predictive(Normal(mean, np.full(len(frame), self.std)))
