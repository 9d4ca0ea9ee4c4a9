"""Scorers for ``GridSearchCV(scoring=...)`` and similar tools: higher is better for all of them.

They score the distributions of the estimator's ``predict_dist(X)``. Pass the function itself:
scikit-learn looks up names such as ``"r2"`` in a list of its own, which has no ``"crps"``.

Examples
--------
>>> import numpy as np
>>> from sklearn.model_selection import cross_val_score
>>> from sigmax import LinearRegressor, scorers
>>> X = np.random.default_rng(0).normal(size=(60, 1))
>>> cross_val_score(LinearRegressor(), X, X[:, 0], scoring=scorers.crps, cv=3).round(2)
array([-0., -0., -0.])
"""

from sigmax import metrics

__all__ = ["crps", "interval_score", "log_likelihood"]


def log_likelihood(estimator, X, y, sample_weight=None) -> float:
    """Mean log-density of ``y``."""
    return metrics.log_likelihood(y, estimator.predict_dist(X), sample_weight=sample_weight)


def crps(estimator, X, y, sample_weight=None) -> float:
    """Minus the mean continuous ranked probability score."""
    return -metrics.crps(y, estimator.predict_dist(X), sample_weight=sample_weight)


def interval_score(estimator, X, y, sample_weight=None) -> float:
    """Minus the mean Winkler score of the central 90 % interval."""
    return -metrics.interval_score(y, estimator.predict_dist(X), sample_weight=sample_weight)
