"""Predictions by several devices of one process, among which rows are divided."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sigmax import LocalRegressor

CODE = """
import sys
import jax
import numpy as np
from sigmax import LocalRegressor
from sigmax.estimators.blocks import spread_rows

model, X = LocalRegressor.load(sys.argv[1]), np.load(sys.argv[2])
assert jax.device_count() == int(sys.argv[4])
some = spread_rows({"X": np.ones((70, 3), np.float32)}, 70)["X"]
assert len({shard.device for shard in some.addressable_shards}) == int(sys.argv[4])
dist, gate = model.predict_dist_and_gate(X)
rows, weights = model.explain_neighbors(X[:9], k=3)
np.savez(sys.argv[3], mean=dist.mean, std=dist.std, gate=gate, rows=rows, weights=weights)
"""


@pytest.mark.long
@pytest.mark.parametrize("n_devices", [2, 3, 8])  # and no multiple of any of them
def test_rows_are_divided_among_devices(n_devices, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=300)
    model = LocalRegressor("fast", n_steps=30, random_state=0)
    model.fit(X, y)
    model.save(tmp_path / "model")
    new = rng.normal(size=(1001, 3))
    np.save(tmp_path / "new.npy", new)
    names = [str(tmp_path / name) for name in ("model", "new.npy", "found.npz")]
    flags = f"--xla_force_host_platform_device_count={n_devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CODE, *names, str(n_devices)]
    subprocess.run(command, env=environment, timeout=300, check=True)
    found = np.load(names[2])
    dist, gate = model.predict_dist_and_gate(new)
    np.testing.assert_allclose(found["mean"], dist.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["std"], dist.std, rtol=1e-4)
    np.testing.assert_allclose(found["gate"], gate, atol=1e-5)
    rows, weights = model.explain_neighbors(new[:9], k=3)
    np.testing.assert_allclose(found["weights"], weights, atol=1e-5)
    assert np.mean(found["rows"] == rows) > 0.8  # of equal weights any may be first
