"""crepes around our estimators: conformal intervals and predictive distributions."""

import numpy as np
from crepes import ConformalPredictiveSystem, WrapRegressor
from crepes.extras import DifficultyEstimator

from sigmax import CombinedRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (1900, 1))
y = X[:, 0] * np.sin(X[:, 0]) + (0.3 + 0.3 * X[:, 0]) * rng.normal(size=1900)
train, held_out, test = slice(400), slice(400, 900), slice(900, None)

model = CombinedRegressor(preset="fast", n_steps=500, random_state=0)
wrapped = WrapRegressor(model)
wrapped.fit(X[train], y[train])
difficulty = DifficultyEstimator()  # the standard deviation that the model predicts
difficulty.fit(X[train], f=lambda X: model.predict(X, return_std=True)[1], beta=0)

wrapped.calibrate(X[held_out], y[held_out], de=difficulty, seed=0)
lower, upper = wrapped.predict_int(X[test], confidence=0.9).T
holds = np.mean((lower <= y[test]) & (y[test] <= upper))
calm, noisy = ((upper - lower)[part].mean() for part in (X[test, 0] < 2, X[test, 0] > 8))
print(f"intervals hold {holds:.2f}, width {calm:.1f} below x = 2, {noisy:.1f} above x = 8")

mean, std = model.predict(X, return_std=True)
system = ConformalPredictiveSystem().fit((y - mean)[held_out], sigmas=std[held_out], seed=0)
rows = {"y_hat": mean[test], "y": y[test], "sigmas": std[test], "seed": 0}
scores = system.evaluate(**rows, confidence=0.9, metrics=["error", "CRPS"])
print(f"distributions miss {scores['error']:.2f} of the rows, CRPS {scores['CRPS']:.2f}")
print(f"CRPS of the model itself {model.predict_dist(X[test]).crps(y[test]).mean():.2f}")
