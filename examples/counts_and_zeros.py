"""Counts with many zeros: the probability of none, and of six or more, by one model."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from sigmax import SigmaxRegressor

rng = np.random.default_rng(1)
X = rng.uniform(-2, 2, (2500, 2))
is_zero = rng.uniform(size=2500) < 0.3 + 0.1 * X[:, 1]  # beside the zeros of the counts
y = np.where(is_zero, 0, rng.poisson(np.exp(1 + 0.5 * X[:, 0]))).astype(float)
X, X_new, y, y_new = X[:500], X[500:], y[:500], y[500:]

model = SigmaxRegressor("quick", random_state=0).fit(X, y)
dist = model.predict_dist(X_new)
for coverage in (0.5, 0.9):
    lower, upper = dist.interval(coverage).T
    held = np.mean((lower <= y_new) & (y_new <= upper))
    print(f"{coverage:.0%} intervals hold {held:.2f}")

none, many = dist.probability_of(0), dist.sf(5)
print(f"no event:    predicted {none.mean():.2f}, came {np.mean(y_new == 0):.2f}")
print(f"six or more: predicted {many.mean():.2f}, came {np.mean(y_new > 5):.2f}")

logistic = LogisticRegression().fit(X, y == 0).predict_proba(X_new)[:, 1]
for name, p in (("of this model", none), ("of logistic regression", logistic)):
    print(f"Brier score of no event, {name}: {np.mean((p - (y_new == 0)) ** 2):.4f}")
