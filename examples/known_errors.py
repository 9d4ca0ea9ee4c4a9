"""Rows whose measurement errors are known: standard deviations beside the targets."""

import numpy as np

from sigmax import SigmaxRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (5200, 1))
exact = np.sin(2 * X[:, 0]) + 0.5 * X[:, 0] + 0.2 * rng.normal(size=5200)  # noise of 0.2
y_error = np.where(rng.random(5200) < 0.5, 0.05, 1.0)  # a good and a bad instrument
y = exact + y_error * rng.normal(size=5200)
X, X_new, y, y_error = X[:200], X[200:], y[:200], y_error[:200]
exact_new = exact[200:]

usual = SigmaxRegressor("quick", random_state=0).fit(X, y)
model = SigmaxRegressor("quick", random_state=0).fit(X, y, y_error=y_error)

for name, dist in (("ignored", usual.predict_dist(X_new)), ("known", model.predict_dist(X_new))):
    lower, upper = dist.interval(0.9).T
    held, crps = np.mean((lower <= exact_new) & (exact_new <= upper)), dist.crps(exact_new).mean()
    width = np.mean(upper - lower)
    print(f"errors {name:8} CRPS {crps:.3f}  90 % intervals: width {width:.2f}, hold {held:.1%}")

for error in (0.0, 0.05, 1.0):
    std = np.median(model.predict_dist(X_new, y_error=error).std)
    print(f"a new measurement with an error of {error:4}: standard deviation {std:.2f}")
