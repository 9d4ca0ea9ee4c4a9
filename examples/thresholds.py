"""Probabilities of more than a value, the reason for a wide prediction, and two targets."""

import numpy as np
import pandas as pd

from sigmax import SigmaxRegressor

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.uniform(-1, 1, (1300, 2)), columns=["size", "age"])
noise = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 1300)
Y = 3 * X[["size"]].to_numpy() + 0.5 * np.exp(X[["age"]].to_numpy()) * noise
X, X_new, Y, Y_new = X[:300], X[300:], Y[:300], Y[300:]

model = SigmaxRegressor("quick", random_state=0).fit(X, Y[:, 0])
for threshold in (0, 2):
    p, share = model.predict_dist(X_new).sf(threshold), np.mean(Y_new[:, 0] > threshold)
    print(f"more than {threshold}: predicted {p.mean():.2f}, observed {share:.2f}")

change = model.explain_uncertainty(X_new[:100])
ages = np.asarray(X_new["age"])[:100]
for name, rows in (("old", ages > 0.5), ("new", ages < -0.5)):
    size, age = change[rows].mean()
    print(f"{name} ones, standard deviation if unknown: size {size:+.2f}, age {age:+.2f}")

both = SigmaxRegressor("quick", random_state=0).fit(X, Y)
draws = both.predict_dist(X_new).sample(50, random_state=0)
predicted, observed = np.mean(draws.min(axis=-1) > 1), np.mean(Y_new.min(axis=-1) > 1)
print(f"both more than 1: predicted {predicted:.2f}, observed {observed:.2f}")
