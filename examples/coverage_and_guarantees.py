"""90 % intervals from a distribution, from held-out errors, and around another regressor."""

import numpy as np
from sklearn.linear_model import BayesianRidge

from sigmax import LocalRegressor
from sigmax.calibration import ConformalRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (2500, 2))
noise = np.where(X[:, 0] > 1, 1.5, 0.3) * rng.standard_t(4, 2500)
y = X[:, 0] + np.sin(2 * X[:, 1]) + noise
X, X_new, y, y_new = X[:500], X[500:], y[:500], y[500:]
loud, loud_new = X[:, 0] > 1, X_new[:, 0] > 1  # known when we predict: groups of rows


def show(name, interval):
    lower, upper = interval.T
    inside = (lower <= y_new) & (y_new <= upper)
    parts = f"quiet {inside[~loud_new].mean():.2f}, loud {inside[loud_new].mean():.2f}"
    print(f"{name:<22} all {inside.mean():.2f}, {parts}; mean width {(upper - lower).mean():.1f}")


model = LocalRegressor("fast", random_state=0).fit(X, y)
show("Local, distribution", model.predict_interval(X_new, coverage=0.9))
show("Local, conformal", model.predict_interval(X_new, coverage=0.9, method="conformal"))

ridge = ConformalRegressor(BayesianRidge(), cv=5, random_state=0).fit(X, y, groups=loud)
show("ridge, CV+", ridge.predict_interval(X_new, coverage=0.9))
show("ridge, CV+ by group", ridge.predict_interval(X_new, coverage=0.9, groups=loud_new))
