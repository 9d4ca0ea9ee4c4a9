"""Ensemble members trained by the workers of a Ray cluster.

The host's loop stays in the program: it hands out one chunk of some members at a time. A worker
keeps nothing that another one could not make again: the members come with a task and go with its
result, and a worker that dies costs the chunks that it was at. What all tasks of a stage share, the
rows above all, stays on its device for the next task.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from sigmax.checks import check_choice, check_count
from sigmax.compilation import clear_if_full
from sigmax.errors import ClusterError
from sigmax.ray_session import (
    DEVICES,
    first_line,
    import_ray,
    ray_session,
    task_options,
    wait_for_tasks,
    worker_nodes,
)
from sigmax.training.loop import (
    AbstractStage,
    AbstractTrainer,
    MemberState,
    keep_better,
    other_trainers,
    start_members,
    train_numbered_chunk,
)


def on_host(tree: Any) -> Any:
    """The tree with arrays of NumPy, which travel."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, tree)


def to_device(tree: Any, device: Any = None) -> Any:
    """The tree with arrays of JAX."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, device), rest)


@final
class StageInputs(eqx.Module):
    """What the training of all members begins from, with arrays of NumPy."""

    networks: Any
    states: Any
    key_data: Any
    folds: Any
    data: Any
    stage: Any
    """A leaf like any other, for it is no array."""

    @classmethod
    def create(
        cls,
        networks: Any,
        states: Any,
        keys: Key[Array, " members"],
        folds: Any,
        data: Any,
        stage: AbstractStage,
    ) -> "StageInputs":
        return on_host(cls(networks, states, jax.random.key_data(keys), folds, data, stage))

    def part(self, members: slice) -> tuple[Any, Any, Any, Any]:
        """Networks, states of optimisers, keys and folds of some members."""
        of_members = self.networks, self.states, self.key_data, self.folds
        networks, states, key_data, folds = jax.tree.map(
            lambda leaf: leaf[members] if eqx.is_array(leaf) else leaf, of_members
        )
        return networks, states, jax.random.wrap_key_data(key_data), folds


KEPT: dict[tuple[str, str], StageInputs] = {}
"""The last inputs that this process has seen, on their device."""


def advance_part(
    inputs: Sequence[Any],
    members: slice,
    state: MemberState | None,
    judged: Float[np.ndarray, " members"] | None,
    chunk: int,
) -> tuple[MemberState, dict[str, np.ndarray]]:
    """Some members after one chunk, and their figures.

    Parameters
    ----------
    inputs
        The reference of the `StageInputs`, and where the members learn from other rows in every
        chunk that of their folds and data; in a list, so that they are fetched only if need be.
    members
        Which members these are.
    state
        As the chunk before left them; None before the first.
    judged
        What their snapshots of the chunk before are worth, for `keep_better`.
    """
    reference, *others = inputs
    device = own_device()
    with nullcontext() if device is None else jax.default_device(device):
        shared = load_inputs(reference, device)
        networks, states, keys, folds = shared.part(members)
        if state is None:
            trained = start_members(networks, states, shared.stage.one_chunk())
        else:
            trained = to_device(state, device)
        if judged is not None:
            trained = keep_better(trained, judged)
        learned = scored = folds, shared.data
        for other in others:
            all_folds, data = to_device(import_ray().get(other), device)
            learned = jax.tree.map(lambda leaf: leaf[members], all_folds), data
        return on_host(train_numbered_chunk(trained, keys, learned, scored, shared.stage, chunk))


def load_inputs(reference: Any, device: Any) -> StageInputs:
    """The inputs of a stage on the device, from what is kept or from the cluster."""
    key = reference.hex(), str(device)
    if key not in KEPT:
        KEPT.clear()
        clear_if_full()
        KEPT[key] = to_device(import_ray().get(reference), device)
    return KEPT[key]


def own_device() -> Any:
    """The GPU that Ray has given to this task, or None if it has none."""
    given = import_ray().get_runtime_context().get_accelerator_ids().get("GPU", [])
    if not given:
        return None
    return jax.local_devices()[device_number(given[0], os.environ.get("CUDA_VISIBLE_DEVICES"))]


def device_number(name: str, visible: str | None) -> int:
    """Which of JAX's devices a GPU of the machine is, where only the ``visible`` ones are seen.

    Examples
    --------
    >>> device_number("3", None), device_number("3", "2,3")
    (3, 1)
    """
    names = visible.split(",") if visible else []
    return names.index(name) if name in names else int(name)


GPU_VARIABLES = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""A process keeps all GPUs of its node in sight: its next task may be given another one, and JAX
cannot change what it has seen."""


@contextmanager
def on_ray(
    address: str | None = None, n_workers: int | None = None, device: str = "auto"
) -> Iterator[None]:
    """Members of all models that are fitted in the block are trained on a Ray cluster.

    They end as they would here, with the same seed and up to rounding, which a long training
    amplifies: with one worker nothing differs, with several the last scores may, as with another
    seed. A worker or a node that dies is replaced by another one and its work is repeated, which
    changes nothing.

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
        # Asked once: the parts stay the same when a node dies, and so does the rounding.
        with other_trainers(partial(RayTrainer, ray, device, worker_nodes(ray, device))):
            yield


@final
class RayTrainer(AbstractTrainer):
    """Members in parts, of which every worker of a cluster has one at a time."""

    def __init__(self, ray: Any, device: str, nodes: Sequence[str], *inputs: Any):
        *started_from, self.supply = inputs
        started = StageInputs.create(*started_from)
        n_members = len(started.key_data)
        self.parts = divide(n_members, max(1, min(n_members, len(nodes))))
        self.tasks = [remote_task(ray, device, *nodes[i : i + 1]) for i in range(len(self.parts))]
        self.ray, self.inputs = ray, ray.put(started)
        self.states: list[Any] = [None] * len(self.parts)
        self.judged: Float[np.ndarray, " members"] | None = None

    def advance(self, chunk: int) -> dict[str, np.ndarray]:
        learned = []
        if self.supply is not None:
            learned = [self.ray.put(on_host(self.supply(chunk)))]
        results = [
            task.remote(
                [self.inputs, *learned],
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
    variables = GPU_VARIABLES if device == "gpu" else {}
    options = task_options(device, variables)
    options |= {"num_returns": 2, "max_calls": 0}  # a process is there for more than one
    if node is not None:
        strategies = ray.util.scheduling_strategies
        options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    return ray.remote(**options)(advance_part)
