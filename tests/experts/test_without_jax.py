"""A quick stack neither compiles nor imports JAX; its predictions import no part of reports."""

import subprocess
import sys

import pytest

LATE = ("jax", "equinox", "optax", "matplotlib", "ray")

CHECK = f"""
import sys

def check(step, *others):
    found = [name for name in (*{LATE}, *others) if name in sys.modules]
    assert not found, f"{{step}} imports {{found}}"
"""

ESTIMATOR = """
import numpy as np
from sigmax import SigmaxRegressor
from sigmax.estimators import load_estimator

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.exp(X[:, 0])  # skewed: experts are also fitted to a transform
y[:6] = 0.0  # repeated values
X[::7, 1] = np.nan
model = SigmaxRegressor(effort="quick", random_state=0).fit(X, y)
check("fit")
dist = model.predict_dist(X)
dist.mean, dist.std, dist.interval(0.9), dist.quantile([0.1, 0.5])
dist.crps(y), dist.log_prob(y), dist.cdf(y), dist.sample(2, random_state=0)
check("a distribution")
model.predict_uncertainty(X), model.predict_interval(X, method="conformal"), model.leaderboard_
model.predict_quantiles(X), model.predict_shares(X), model.explain_neighbors(X, 2)
model.add_rows(X[:2], y[:2])
check("a method of the estimator")
model.save("model")
assert np.array_equal(load_estimator("model").predict_interval(X), model.predict_interval(X))
check("saving and loading")
"""

FIT = """
import numpy as np
import pandas as pd
from sigmax.cli import app

rng = np.random.default_rng(0)
frame = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "y"])
frame.assign(b=rng.choice(["u", "v"], 80)).to_csv("rows.csv", index=False)
app("fit rows.csv --target y --effort quick --out model".split(), standalone_mode=False)
check("sigmax fit")
"""

PREDICT = """
from pathlib import Path
from sigmax.cli import app

app("predict model rows.csv --out predicted.csv".split(), standalone_mode=False)
assert len(Path("predicted.csv").read_text().splitlines()) == 81
check("sigmax predict", "jinja2", "sigmax.cli.fit", "sigmax.runs")
"""


@pytest.mark.parametrize("scripts", [[ESTIMATOR], [FIT, PREDICT]], ids=["estimator", "command"])
def test_a_quick_stack_does_not_import(scripts, tmp_path):
    for script in scripts:
        code = [sys.executable, "-c", CHECK + script]
        found = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert found.returncode == 0, found.stderr
