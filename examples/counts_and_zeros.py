"""Counts with many zeros: one model for all values, or two parts, one of them for the zeros."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from sigmax import LocalRegressor

rng = np.random.default_rng(1)
X = rng.uniform(-2, 2, (2500, 2))
is_zero = rng.uniform(size=2500) < 0.3 + 0.1 * X[:, 1]  # beside the zeros of the counts
y = np.where(is_zero, 0, rng.poisson(np.exp(1 + 0.5 * X[:, 0]))).astype(float)
X, X_new, y, y_new = X[:500], X[500:], y[:500], y[500:]

model = LocalRegressor("fast", random_state=0).fit(X, y)
dist = model.predict_dist(X_new)
for coverage in (0.5, 0.9):
    lower, upper = dist.interval(coverage).T
    held = np.mean((lower <= y_new) & (y_new <= upper))
    print(f"{coverage:.0%} intervals of one model hold {held:.2f}")

occurs = LogisticRegression().fit(X, y > 0)  # two parts: whether anything happens ...
how_many = LocalRegressor("fast", random_state=0).fit(X[y > 0], y[y > 0])  # ... and how much
p_any = occurs.predict_proba(X_new)[:, 1]
p_many = p_any * (1 - how_many.predict_dist(X_new).cdf(5.5))

# The density is continuous: the count k is what lies between k - 0.5 and k + 0.5.
one, two, came = dist.cdf(0.5).mean(), 1 - p_any.mean(), np.mean(y_new == 0)
print(f"no event:    one model {one:.2f}, two parts {two:.2f}, came {came:.2f}")
one, two, came = 1 - dist.cdf(5.5).mean(), p_many.mean(), np.mean(y_new >= 6)
print(f"six or more: one model {one:.2f}, two parts {two:.2f}, came {came:.2f}")
