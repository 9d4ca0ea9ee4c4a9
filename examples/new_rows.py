"""Labelled rows that arrive after the fit: an alarm when predictions stop holding, and a memory."""

import numpy as np

from sigmax import LocalRegressor

rng = np.random.default_rng(0)


def measure(low, high, n, shift=0.0):
    X = rng.uniform([low, -2], [high, 2], (n, 2))
    return X, np.sin(X[:, 0]) + X[:, 1] + shift + rng.normal(0, 0.2, n)


model = LocalRegressor("fast", random_state=0).fit(*measure(-3, 3, 600))
monitor = model.monitor(alpha=0.05)
print("first week:", "ALARM" if monitor.update(*measure(-3, 3, 200)).has_alarm else "no alarm")
monitor.update(*measure(-3, 3, 200, shift=0.4))  # the instrument drifts by two noise levels
for alarm in monitor.alarms[:1]:
    print("second week: ALARM,", alarm.name)

X_new, y_new = measure(5, 8, 150)  # another machine, where nothing was measured before
fresh, y_fresh = measure(5, 8, 500)


def show(when):
    mean, std = model.predict(fresh, return_std=True)
    lower, upper = model.predict_interval(fresh, coverage=0.9).T
    inside = np.mean((lower <= y_fresh) & (y_fresh <= upper))
    error = np.sqrt(np.mean((mean - y_fresh) ** 2))
    print(f"{when}: RMSE {error:.2f}, median std {np.median(std):.2f}, covered {inside:.2f}")


show("another machine, before")
model.add_rows(X_new, y_new)
show("another machine, remembered")
