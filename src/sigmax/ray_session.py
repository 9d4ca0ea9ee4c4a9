"""A connection to Ray, for the time of a block."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sigmax.errors import MissingExtraError

__all__ = ["import_ray", "ray_session"]


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
    if address is None:  # "local", or Ray looks for a cluster that has been started here
        settings = {"address": "local", "num_cpus": n_workers, "include_dashboard": False}
    with warnings.catch_warnings():  # Ray forks to execute its own programs, not ours
        warnings.filterwarnings("ignore", message=r"os\.fork\(\)", category=RuntimeWarning)
        ray.init(log_to_driver=False, logging_level=logging.WARNING, **settings)
    try:
        yield ray
    finally:
        ray.shutdown()
