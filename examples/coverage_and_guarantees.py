"""90 % intervals from a distribution and from held-out errors, of two models."""

import numpy as np

from sigmax import LinearRegressor, LocalRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (2500, 2))
noise = np.where(X[:, 0] > 1, 1.5, 0.3) * rng.standard_t(4, 2500)
y = X[:, 0] + np.sin(2 * X[:, 1]) + noise
X, X_new, y, y_new = X[:500], X[500:], y[:500], y[500:]
loud_new = X_new[:, 0] > 1


def show(name, interval):
    lower, upper = interval.T
    inside = (lower <= y_new) & (y_new <= upper)
    parts = f"quiet {inside[~loud_new].mean():.2f}, loud {inside[loud_new].mean():.2f}"
    print(f"{name:<22} all {inside.mean():.2f}, {parts}; mean width {(upper - lower).mean():.1f}")


model = LocalRegressor("fast", random_state=0).fit(X, y)
show("Local, distribution", model.predict_interval(X_new, coverage=0.9))
show("Local, conformal", model.predict_interval(X_new, coverage=0.9, method="conformal"))

linear = LinearRegressor().fit(X, y)
show("linear, conformal", linear.predict_interval(X_new, coverage=0.9, method="conformal"))
