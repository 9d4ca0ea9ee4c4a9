"""Members trained by the workers of a Ray cluster, where a program asks for it.

The host's loop stays in the program: it hands out one chunk of some members at a time, and decides
by the scores of all. A worker that dies costs the chunks that it was at.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from sigmax.checks import check_choice, check_count
from sigmax.errors import ClusterError
from sigmax.ray_session import (
    DEVICES,
    first_line,
    ray_session,
    task_options,
    wait_for_tasks,
    worker_nodes,
)
from sigmax.training.chunk import MemberState, keep_better
from sigmax.training.ray_worker import StageInputs, advance_part, to_device
from sigmax.training.team import AbstractTeam, other_teams

__all__ = ["RayTeam", "on_ray"]


@contextmanager
def on_ray(
    address: str | None = None, n_workers: int | None = None, device: str = "auto"
) -> Iterator[None]:
    """Members of all models that are fitted in the block are trained on a Ray cluster.

    They end as they would here, with the same seed and up to rounding. A worker or a node that dies
    is replaced by another one, and its work is repeated.

    Parameters
    ----------
    address
        The cluster to join, as ``ray.init`` takes it; without one, it is started on this machine.
        A program that has called ``ray.init`` itself stays in its own.
    n_workers
        Cores of a cluster that is started here; all if left out.
    device
        ``"gpu"`` for a GPU per worker; with ``"auto"`` and ``"cpu"`` workers have a core each.

    Raises
    ------
    MissingExtraError
        If Ray is not installed.
    ClusterError
        If there is no such cluster, or if no node of it is left.
    """
    check_choice("device", device, DEVICES)
    if n_workers is not None:
        check_count("n_workers", n_workers)
    with ray_session(address, n_workers) as ray:
        worker_nodes(ray, device)  # what is wrong with the device is told now
        with other_teams(partial(RayTeam, ray, device)):
            yield


@final
class RayTeam(AbstractTeam):
    """Members in parts, of which every worker of a cluster has one at a time."""

    def __init__(self, ray: Any, device: str, *inputs: Any):
        started, nodes = StageInputs.create(*inputs), worker_nodes(ray, device)
        n_members = len(started.key_data)
        self.parts = divide(n_members, max(1, min(n_members, len(nodes))))
        self.tasks = [remote_task(ray, device, *nodes[i : i + 1]) for i in range(len(self.parts))]
        self.ray, self.inputs = ray, ray.put(started)
        self.states: list[Any] = [None] * len(self.parts)
        self.judged: Float[np.ndarray, " members"] | None = None

    def advance(self, chunk: int) -> dict[str, np.ndarray]:
        results = [
            task.remote(
                [self.inputs],
                members,
                state,
                None if self.judged is None else self.judged[members],
                chunk,
            )
            for task, members, state in zip(self.tasks, self.parts, self.states, strict=True)
        ]
        states, figures = (list(each) for each in zip(*results, strict=True))
        found = self.fetch(figures)
        # Waited for, so that there is a copy here when the node of the only other one dies.
        wait_for_tasks(self.ray, states, len(states))
        self.states, self.judged = states, None
        return {name: np.concatenate([own[name] for own in found]) for name in found[0]}

    def keep(self, judged: Float[np.ndarray, " members"]) -> None:
        self.judged = judged  # for the next task, or for the end

    def end(self) -> MemberState:
        parts = [eqx.partition(part, eqx.is_array) for part in self.fetch(self.states)]
        arrays = jax.tree.map(lambda *own: np.concatenate(own), *(part[0] for part in parts))
        members = to_device(eqx.combine(arrays, parts[0][1]))
        return members if self.judged is None else keep_better(members, self.judged)

    def fetch(self, references: Sequence[Any]) -> list[Any]:
        """The values, once all are there."""
        wait_for_tasks(self.ray, references, len(references))
        try:
            return self.ray.get(list(references))
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            raise ClusterError(
                f"The Ray cluster could not go on with the training: {first_line(error)}"
            ) from error


def divide(n_members: int, n_parts: int) -> list[slice]:
    """Parts of nearly the same size.

    Examples
    --------
    >>> divide(5, 2)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    ends = [i * n_members // n_parts for i in range(n_parts + 1)]
    return [slice(*part) for part in pairwise(ends)]


def remote_task(ray: Any, device: str, node: str | None = None) -> Any:
    """`advance_part` as a task of Ray, on a node if that is alive, and else on another one."""
    more = {}
    if device == "gpu":  # a process has the GPUs of its node in sight, and is given one for a task
        more["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] = "1"
    options = task_options(device, more) | {"num_returns": 2, "max_calls": 0}  # no end after a call
    if node is not None:
        strategies = ray.util.scheduling_strategies
        options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    return ray.remote(**options)(advance_part)
