"""Fits and predictions by several devices of one process, among which rows are divided."""

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
from sigmax.compilation import spread_rows

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
    subprocess.run(command, env=environment, timeout=600, check=True)
    found = np.load(names[2])
    dist, gate = model.predict_dist_and_gate(new)
    np.testing.assert_allclose(found["mean"], dist.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["std"], dist.std, rtol=1e-4)
    np.testing.assert_allclose(found["gate"], np.asarray(gate), atol=1e-5)
    rows, weights = model.explain_neighbors(new[:9], k=3)
    np.testing.assert_allclose(found["weights"], weights, atol=1e-5)
    assert np.mean(found["rows"] == rows) > 0.8  # of equal weights any may be first


FIT = """
import sys
import jax
import numpy as np
from sigmax import LocalRegressor
from sigmax.training import divide_rows, over_members, spread_members

n_members, n_devices = map(int, sys.argv[3:])
assert jax.device_count() == n_devices
divided = over_members(lambda rows: divide_rows(rows) + 1.0, 1)
rows = divided(spread_members(np.ones((n_members, 16, 3), np.float32)))
shares = {shard.data.shape for shard in rows.addressable_shards}
assert shares == {(1, 16 * n_members // n_devices, 3)}, shares

data = np.load(sys.argv[1])
model = LocalRegressor("fast", n_members=n_members, n_steps=12, hidden_sizes=(8,), random_state=0)
model.set_settings(n_components=1)
model.fit(data["X"], data["y"])
dist = model.predict_dist(data["X"])
np.savez(sys.argv[2], mean=dist.mean, std=dist.std, score=model.history_["distribution"])
"""


@pytest.mark.long
@pytest.mark.parametrize("n_members", [1, 2])
def test_devices_that_share_a_member_divide_its_rows_and_end_as_one_device(n_members, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    np.savez(tmp_path / "data.npz", X=X, y=X[:, 0] + 0.1 * rng.normal(size=300))

    def fit(n_devices: int):
        names = [str(tmp_path / name) for name in ("data.npz", f"{n_devices}.npz")]
        flags = f"--xla_force_host_platform_device_count={n_devices}"
        environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", FIT, *names, str(n_members), str(n_devices)]
        subprocess.run(command, env=environment, timeout=600, check=True)
        return np.load(names[1])

    expected = fit(n_members)  # a device for each
    for n_devices in (2, 4, 8)[n_members - 1 :]:
        found = fit(n_devices)
        for name in ("mean", "std", "score"):
            np.testing.assert_allclose(
                found[name], expected[name], rtol=2e-3, atol=2e-3, err_msg=f"{name}, {n_devices}"
            )
