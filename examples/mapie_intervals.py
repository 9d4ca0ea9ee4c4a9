"""MAPIE around our estimators: intervals with a guarantee, as wide as the noise is at each row."""

import numpy as np
from mapie.conformity_scores import StdConformityScore
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin

from sigmax import CombinedRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (1900, 1))
y = X[:, 0] * np.sin(X[:, 0]) + (0.3 + 0.3 * X[:, 0]) * rng.normal(size=1900)
train, held_out, test = slice(400), slice(400, 900), slice(900, None)
model = CombinedRegressor(preset="fast", n_steps=500, random_state=0).fit(X[train], y[train])


class Quantile(RegressorMixin, BaseEstimator):
    """One quantile of a fitted model, as a regressor."""

    fitted_ = True

    def __init__(self, model, level):
        self.model, self.level = model, level

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.model.predict_quantiles(X, [self.level])[:, 0]


by_std = SplitConformalRegressor(
    model, confidence_level=0.9, conformity_score=StdConformityScore(), prefit=True
)
by_quantiles = ConformalizedQuantileRegressor(
    [Quantile(model, level) for level in (0.05, 0.95, 0.5)], confidence_level=0.9, prefit=True
)
plain = SplitConformalRegressor(model, confidence_level=0.9, prefit=True)
for name, wrapped in {"std": by_std, "quantiles": by_quantiles, "plain": plain}.items():
    wrapped.conformalize(X[held_out], y[held_out])
    _, intervals = wrapped.predict_interval(X[test])
    lower, upper = intervals[:, 0, 0], intervals[:, 1, 0]
    holds = np.mean((lower <= y[test]) & (y[test] <= upper))
    calm, noisy = ((upper - lower)[part].mean() for part in (X[test, 0] < 2, X[test, 0] > 8))
    print(f"{name:<9} holds {holds:.2f}, width {calm:.1f} below x = 2, {noisy:.1f} above x = 8")
