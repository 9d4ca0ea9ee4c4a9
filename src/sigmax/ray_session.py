"""Connection to Ray for the time of a block, and the common options of our tasks."""

import logging
import re
import socket
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sigmax.errors import ClusterError, InvalidArgumentError, MissingExtraError

DEVICES = {"auto": None, "cpu": "cpu", "gpu": "cuda"}
"""Kinds of devices, and JAX's names for the platforms; with None, JAX chooses."""

N_RETRIES = 3
"""Number of times that a task is repeated if its process or node dies."""

LONGEST_SILENCE = 25.0
"""Seconds in which the head of a cluster may return; after 60 Ray would end this process."""

LONGEST_WITHOUT_NODES = 60.0
"""Seconds in which nodes may join a cluster without nodes, before an error is raised."""


def import_ray() -> Any:
    with MissingExtraError.unless_imported("The Ray engine needs Ray", "ray"):
        import ray
    return ray


@contextmanager
def ray_session(address: str | None = None, n_workers: int | None = None) -> Iterator[Any]:
    """Connect to the cluster at ``address``, or start one here with ``n_workers`` cores.

    A session that the caller has opened by ``ray.init`` is used, and stays open afterwards.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"address": address}
    if address is not None and re.fullmatch(r"[^/]+:\d+", address) and not answers(address):
        raise ClusterError(f"There is no Ray cluster at {address!r}: no server answers.")
    if address is None:  # "local", so that Ray does not join a cluster on this machine
        settings = {"address": "local", "num_cpus": n_workers, "include_dashboard": False}
    with warnings.catch_warnings():  # Ray forks only to execute its own binaries
        warnings.filterwarnings("ignore", message=r"os\.fork\(\)", category=RuntimeWarning)
        try:
            ray.init(log_to_driver=False, logging_level=logging.WARNING, **settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = "here" if address is None else f"at {address!r}"
            raise ClusterError(f"No Ray cluster {where}: {first_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def task_options(device: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Options of a task: one core, for ``gpu`` one GPU, repetition if it dies, and variables.

    JAX is restricted to the device; without ``gpu``, Ray hides all GPUs from the process.
    """
    variables, platform = dict(environment or {}), DEVICES[device]
    options: dict[str, Any] = {"num_cpus": 1, "max_retries": N_RETRIES}
    if platform is not None:
        variables["JAX_PLATFORMS"] = platform
    if device == "gpu":
        options["num_gpus"] = 1
        variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes may share a GPU
    return options | {"runtime_env": {"env_vars": variables}} if variables else options


def worker_nodes(ray: Any, device: str) -> list[str]:
    """Nodes of a cluster in turns, each as many times as it can run tasks at once."""
    resource = "GPU" if device == "gpu" else "CPU"
    nodes = {
        node["NodeID"]: int(node["Resources"].get(resource, 0))
        for node in ray.nodes()
        if node["Alive"]
    }
    if device == "gpu" and not any(nodes.values()):
        raise InvalidArgumentError("`device` is 'gpu', and the Ray cluster has no GPU.")
    turns = range(max(nodes.values(), default=0))
    return [name for turn in turns for name, room in nodes.items() if turn < room]


def wait_for_tasks(ray: Any, references: Sequence[Any], n_done: int) -> tuple[list, list]:
    """References of finished tasks, at least ``n_done``, and of the others.

    A cluster that does not answer for a while, or has no node left, raises ClusterError.
    """
    last_seen = last_node = time.monotonic()
    while True:
        done, left = ray.wait(list(references), num_returns=n_done, timeout=5.0)
        if len(done) >= n_done:
            return done, left
        now = time.monotonic()
        if not answers(ray.get_runtime_context().gcs_address):
            if now - last_seen > LONGEST_SILENCE:
                raise ClusterError("The Ray cluster has failed: its head does not answer.")
            continue
        last_seen = now
        if ray.cluster_resources().get("CPU"):
            last_node = now
        elif now - last_node > LONGEST_WITHOUT_NODES:
            raise ClusterError("The Ray cluster has no node left.")


def answers(address: str) -> bool:
    """True if a server listens at an address of host and port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=5.0):
            return True
    except OSError:
        return False


def first_line(error: Exception) -> str:
    """First line of the message of an error; those of Ray may have many."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
