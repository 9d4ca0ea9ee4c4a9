"""GPUs of Ray, for which devices of the CPU stand: every task has one of its own."""

import os
import time

import device_cases
import numpy as np
import pytest

import sigmax
from sigmax import ray_session
from sigmax.ray_training import GPU_VARIABLES, own_device

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # Ray's, to start its programs
]


@pytest.fixture
def two_devices(monkeypatch):
    monkeypatch.setitem(ray_session.DEVICES, "gpu", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", f"{flags} --xla_force_host_platform_device_count=2")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")  # workers compile as this process
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_every_task_has_one_of_the_gpus(two_devices, tmp_path):
    def name_device(here):  # of a task that goes on until the other one is there
        name, end = str(own_device()), time.monotonic() + 600
        here.touch()
        while len(list(here.parent.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        return name

    options = ray_session.task_options("gpu", GPU_VARIABLES) | {"max_calls": 0}
    task = ray.remote(**options)(name_device)
    for time_ in ("first", "second"):  # also in processes that had a task before
        (tmp_path / time_).mkdir()
        names = ray.get([task.remote(tmp_path / time_ / one) for one in ("a", "b")])
        assert len(set(names)) == 2
    expected = device_cases.train_regressors()
    with sigmax.on_ray(device="gpu"):
        found = device_cases.train_regressors()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
