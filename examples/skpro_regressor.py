"""Our estimators in skpro: its distributions, its metrics, its pipelines."""

import numpy as np
import pandas as pd
from sklearn.preprocessing import StandardScaler
from skpro.metrics import CRPS, LogLoss
from skpro.regression.compose import Pipeline

from sigmax import CombinedRegressor
from sigmax.integrations.skpro import SkproRegressor

rng = np.random.default_rng(0)
X = pd.DataFrame({"x": rng.uniform(0, 10, 600)})
noise = (0.3 + 0.3 * X["x"]) * rng.normal(size=600)
y = pd.DataFrame({"y": X["x"] * np.sin(X["x"]) + noise})
train, test = slice(400), slice(400, None)

model = SkproRegressor(CombinedRegressor(preset="fast", n_steps=500, random_state=0))
pipeline = Pipeline([("scaled", StandardScaler()), ("model", model)]).fit(X[train], y[train])
dist = pipeline.predict_proba(X[test])  # a distribution of skpro: .pdf .cdf .ppf .energy ...
print(f"CRPS {CRPS()(y[test], dist):.2f}, log-loss {LogLoss()(y[test], dist):.2f}")

interval = pipeline.predict_interval(X[test], coverage=[0.5, 0.9])["y"]
truth = y.to_numpy()[test, 0]
for coverage in (0.5, 0.9):
    lower, upper = interval[coverage].to_numpy().T
    holds = np.mean((lower <= truth) & (truth <= upper))
    print(f"intervals of {coverage}: {holds:.2f} hold")
print(pipeline.predict_quantiles(X[test][:2], alpha=[0.05, 0.95]).round(1).to_string())
