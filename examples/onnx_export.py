"""A fitted model as an ONNX file: another runtime computes the parameters of its density."""

import numpy as np
import onnxruntime
from scipy import stats

from sigmax import LocalRegressor
from sigmax.integrations.onnx import export

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (400, 1))
y = X[:, 0] * np.sin(X[:, 0]) + (0.3 + 0.3 * X[:, 0]) * rng.normal(size=400)

model = LocalRegressor(preset="fast", n_trees=0, random_state=0).fit(X, y)
export(model, "model.onnx")

session = onnxruntime.InferenceSession("model.onnx")
names = [entry.name for entry in session.get_outputs()]
found = dict(zip(names, map(np.asarray, session.run(None, {"X": X[:5]})), strict=True))
print({name: part.shape for name, part in found.items()})  # rows, components

components = stats.t.pdf(y[:5, None], found["df"], found["loc"], found["scale"])
density = np.sum(found["weight"] * components, axis=1)
difference = np.log(density) - model.predict_dist(X[:5]).log_prob(y[:5])
print("log-densities within 1e-4 of ours:", bool(np.abs(difference).max() < 1e-4))
