"""Plain predictors that a model must beat: the marginal, and a line with constant variance."""

from typing import final

import numpy as np
from sklearn.linear_model import RidgeCV

from sigmax.commands.peers import AbstractPeer
from sigmax.distributions import Mixture, Normal, Predictive

__all__ = ["LinearBaseline", "MarginalBaseline"]

N_QUANTILES = 99
PENALTIES = np.logspace(-2, 5, 15)


@final
class MarginalBaseline(AbstractPeer):
    """The same density for every row, that of the training targets.

    It is a smoothed histogram: a Normal at each of 99 quantiles, as wide as their distance, but no
    narrower than Silverman's bandwidth.
    """

    def fit(self, X, y, sample_weight=None) -> "MarginalBaseline":
        self.quantiles_ = np.quantile(y, (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES)
        low, high = np.quantile(y, [0.25, 0.75])
        spreads = [spread for spread in (np.std(y), (high - low) / 1.34) if spread > 0]
        least = 0.9 * min(spreads, default=1e-6) * len(y) ** -0.2
        self.widths_ = np.maximum(np.gradient(self.quantiles_), least)
        return self

    def predict_dist(self, X) -> Predictive:
        shape = (N_QUANTILES, len(X))
        parts = (self.quantiles_, self.widths_)
        means, stds = (np.broadcast_to(part[:, None], shape) for part in parts)
        return Predictive(Mixture(Normal(means, stds)))


@final
class LinearBaseline(AbstractPeer):
    """Ridge regression on numbers, with the penalty and the one variance of leave-one-out."""

    def fit(self, X, y, sample_weight=None) -> "LinearBaseline":
        self.model_ = RidgeCV(PENALTIES, store_cv_results=True).fit(X, y)
        errors = self.model_.cv_results_.mean(axis=0)
        least = 1e-6 * float(np.abs(y).max()) or 1e-6
        self.std_ = max(float(np.sqrt(np.min(errors))), least)
        return self

    def predict_dist(self, X) -> Predictive:
        return Predictive(Normal(self.model_.predict(X), np.full(len(X), self.std_)))
