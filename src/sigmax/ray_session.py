"""A connection to Ray for the time of a block, and what all our tasks on it have in common."""

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
"""Kinds of devices, and JAX's names for the platforms; without one, JAX takes what it finds."""

N_RETRIES = 3
"""How often a task is repeated whose process or node has died."""

LONGEST_SILENCE = 25.0
"""Seconds in which the head of a cluster may come back; after 60 Ray would end this process."""

LONGEST_WITHOUT_NODES = 60.0
"""Seconds in which nodes may join a cluster that has none left, before the work is given up."""


def import_ray() -> Any:
    """Ray, or the sentence that names the extra."""
    try:
        import ray
    except ImportError as error:
        message = 'The Ray engine needs Ray: pip install "sigmax[ray]".'
        raise MissingExtraError(message) from error
    return ray


@contextmanager
def ray_session(address: str | None = None, n_workers: int | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster.

    A program that has called ``ray.init`` keeps its own session, which stays open afterwards. Else
    it is the cluster at ``address``, or one on this machine with ``n_workers`` cores.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"address": address}
    if address is not None and re.fullmatch(r"[^/]+:\d+", address) and not answers(address):
        raise ClusterError(f"There is no Ray cluster at {address!r}: nobody answers there.")
    if address is None:  # "local", or Ray looks for a cluster that has been started here
        settings = {"address": "local", "num_cpus": n_workers, "include_dashboard": False}
    with warnings.catch_warnings():  # Ray forks to execute its own programs, not ours
        warnings.filterwarnings("ignore", message=r"os\.fork\(\)", category=RuntimeWarning)
        try:
            ray.init(log_to_driver=False, logging_level=logging.WARNING, **settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            place = "here" if address is None else f"at {address!r}"
            message = f"There is no Ray cluster to be had {place}: {first_line(error)}"
            raise ClusterError(message) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def task_options(device: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What Ray is told of a task: it has a core, for ``gpu`` a GPU, and is repeated if it dies.

    Its process has the variables ``environment``, and JAX is kept to the device. Without ``gpu``
    Ray hides all GPUs from it.
    """
    variables, platform = dict(environment or {}), DEVICES[device]
    options: dict[str, Any] = {"num_cpus": 1, "max_retries": N_RETRIES}
    if platform is not None:
        variables["JAX_PLATFORMS"] = platform
    if device == "gpu":
        options["num_gpus"] = 1
        variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # another process may have its turn
    return options | {"runtime_env": {"env_vars": variables}} if variables else options


def worker_nodes(ray: Any, device: str) -> list[str]:
    """The nodes of a cluster, each as often as it has room for a task, in turns."""
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
    """Those that are done, at least ``n_done``, and those that are not.

    Raises
    ------
    ClusterError
        If the cluster is gone for a while, or has no node left to work on them.
    """
    last_seen = last_node = time.monotonic()
    while True:
        done, left = ray.wait(list(references), num_returns=n_done, timeout=5.0)
        if len(done) >= n_done:
            return done, left
        now = time.monotonic()
        if not answers(ray.get_runtime_context().gcs_address):
            if now - last_seen > LONGEST_SILENCE:
                raise ClusterError("The Ray cluster is gone: its head does not answer any more.")
            continue
        last_seen = now
        if ray.cluster_resources().get("CPU"):
            last_node = now
        elif now - last_node > LONGEST_WITHOUT_NODES:
            raise ClusterError("The Ray cluster has no node left that could do the work.")


def answers(address: str) -> bool:
    """Whether somebody listens at an address of a host and a port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=5.0):
            return True
    except OSError:
        return False


def first_line(error: Exception) -> str:
    """Of the message of an error, which for Ray's may have many."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
