"""Many models at once: fits that differ in data and seed only are one call to the device."""

import numpy as np

from sigmax import MeanVarianceRegressor
from sigmax.estimators import fit_together

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (500, 2))
y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.2 * rng.normal(size=500)
parts = np.array_split(rng.permutation(500), 4)

models, data = [], []
for i, held_out in enumerate(parts):
    rows = np.setdiff1d(np.arange(500), held_out)
    models.append(MeanVarianceRegressor("fast", n_steps=300, random_state=i))
    data.append((X[rows], y[rows]))
fit_together(models, data)
for model, held_out in zip(models, parts, strict=True):
    error = np.sqrt(np.mean((model.predict(X[held_out]) - y[held_out]) ** 2))
    print(f"held-out RMSE {error:.2f}")
