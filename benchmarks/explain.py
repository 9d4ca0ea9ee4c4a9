"""Seconds of `explain_uncertainty` with 13 columns."""

import time

import numpy as np

from sigmax import SigmaxRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 13))
y = 3 * X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=500)
model = SigmaxRegressor("quick", random_state=0).fit(X, y)
for n_rows in (1, 10):
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        model.explain_uncertainty(X[:n_rows])
        seconds.append(time.perf_counter() - start)
    print(f"{n_rows} rows: {min(seconds):.2f} s")
