"""A model in MLflow: stored without a pickle, served as mean, spread, interval and quantiles."""

import mlflow.pyfunc
import numpy as np
import pandas as pd

import sigmax.integrations.mlflow as flavor
from sigmax import CombinedRegressor

rng = np.random.default_rng(0)
X = pd.DataFrame({"x": rng.uniform(0, 10, 400)})
y = X["x"] * np.sin(X["x"]) + (0.3 + 0.3 * X["x"]) * rng.normal(size=400)

model = CombinedRegressor(preset="fast", n_steps=500, random_state=0).fit(X, y)
flavor.save_model(model, "saved", input_example=X[:3])  # or log_model(model, "name") in a run

served = mlflow.pyfunc.load_model("saved")
print(served.metadata.get_input_schema())
print(served.predict(X[:2]).round(1).to_string(index=False))
asked = {"coverage": 0.5, "quantiles": [0.25, 0.75]}
print(served.predict(X[:2], params=asked).round(1).to_string(index=False))

again = flavor.load_model("saved")  # the estimator itself; nothing in the folder is executed
print("the same predictions:", bool(np.array_equal(again.predict(X), model.predict(X))))
