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
    """Score an estimator by the mean log-density of ``y``.

    Parameters
    ----------
    estimator
        Fitted estimator with `predict_dist`.
    X, y
        Rows and their targets.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        Higher is better.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LinearRegressor, scorers
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(500, 1)), rng.normal(size=500)
    >>> round(scorers.log_likelihood(LinearRegressor().fit(X, y), X, y), 1)
    -1.4
    """
    return metrics.log_likelihood(y, estimator.predict_dist(X), sample_weight=sample_weight)


def crps(estimator, X, y, sample_weight=None) -> float:
    """Score an estimator by minus the mean continuous ranked probability score.

    Parameters
    ----------
    estimator
        Fitted estimator with `predict_dist`.
    X, y
        Rows and their targets.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        At most 0, in the units of y; higher is better.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LinearRegressor, scorers
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(500, 1)), rng.normal(size=500)
    >>> round(scorers.crps(LinearRegressor().fit(X, y), X, y), 1)
    -0.5
    """
    return -metrics.crps(y, estimator.predict_dist(X), sample_weight=sample_weight)


def interval_score(estimator, X, y, sample_weight=None) -> float:
    """Score an estimator by minus the mean Winkler score of the central 90 % interval.

    Parameters
    ----------
    estimator
        Fitted estimator with `predict_dist`.
    X, y
        Rows and their targets.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        At most 0, in the units of y; higher is better.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import LinearRegressor, scorers
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(500, 1)), rng.normal(size=500)
    >>> round(scorers.interval_score(LinearRegressor().fit(X, y), X, y), 0)
    -4.0
    """
    return -metrics.interval_score(y, estimator.predict_dist(X), sample_weight=sample_weight)
