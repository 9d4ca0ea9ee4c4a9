"""Training of ensemble members by the workers of a Ray cluster.

The loop over chunks runs in this process. A task trains some members for one chunk; their state is
an argument and a result of the task, so that only the current chunk is repeated if a worker dies.
Inputs that all tasks of a stage share, such as the rows, stay on the device of the worker.
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
from jaxtyping import Float

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
from sigmax.settings import check_choice, check_count
from sigmax.training import (
    TRAINER,
    AbstractStage,
    MemberState,
    Supply,
    keep_better,
    on_arrays,
    start_members,
    train_chunk,
)

LOADED: dict[tuple[str, str], Any] = {}
"""Inputs of the last stage that this process has loaded, on their device."""


def to_device(tree: Any, device: Any = None) -> Any:
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, device), rest)


def advance_part(
    inputs: Sequence[Any],
    members: slice,
    state: MemberState | None,
    scores: Float[np.ndarray, " members"] | None,
    chunk: int,
) -> tuple[MemberState, dict[str, np.ndarray]]:
    """Train some members for one chunk and return their figures.

    ``inputs`` has the reference of the inputs of the stage and, where members learn from other rows
    in every chunk, that of their folds and data; in a list, so that they are fetched only if
    needed. ``members`` are positions, ``state`` is that after the previous chunk, None for the
    first, and ``scores`` are those of the checkpoints after it, for `keep_better`.
    """
    reference, *others = inputs
    device = own_device()
    with nullcontext() if device is None else jax.default_device(device):
        key = reference.hex(), str(device)
        if key not in LOADED:
            LOADED.clear()
            clear_if_full()
            LOADED[key] = to_device(import_ray().get(reference), device)
        of_members, data, stage = LOADED[key]
        networks, states, key_data, folds = on_arrays(lambda leaf: leaf[members], of_members)
        if state is None:
            trained = start_members(networks, states, stage.one_chunk())
        else:
            trained = to_device(state, device)
        if scores is not None:
            trained = keep_better(trained, scores)
        learned = scored = folds, data
        for other in others:
            all_folds, rows = to_device(import_ray().get(other), device)
            learned = on_arrays(lambda leaf: leaf[members], all_folds), rows
        keys = jax.random.wrap_key_data(key_data)
        return on_arrays(np.asarray, train_chunk(trained, keys, learned, stage, chunk, scored))


def own_device() -> Any:
    """Return the GPU that Ray has assigned to this task, or None."""
    given = import_ray().get_runtime_context().get_accelerator_ids().get("GPU", [])
    if not given:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")  # JAX numbers only these
    names = visible.split(",") if visible else []
    number = names.index(given[0]) if given[0] in names else int(given[0])
    return jax.local_devices()[number]


GPU_VARIABLES = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Let a process see all GPUs of its node: JAX cannot change its devices, but the next task may have
another GPU."""


@contextmanager
def on_ray(
    address: str | None = None, n_workers: int | None = None, device: str = "auto"
) -> Iterator[None]:
    """Train the ensemble members of all models that are fitted in the block on a Ray cluster.

    Up to rounding, results equal those of a local fit with the same seed. Training amplifies
    rounding: with one worker nothing differs, but with several workers final scores may differ as
    with another seed. The work of a worker or node that dies is repeated with the same result.

    Parameters
    ----------
    address
        Address of the cluster for ``ray.init``; by default a cluster is started on this machine.
        After ``ray.init``, the cluster of this process is used.
    n_workers
        Number of cores of a cluster that is started here; by default all.
    device
        ``"gpu"`` for a GPU per worker; with ``"auto"`` and ``"cpu"`` workers have a core each.

    Raises
    ------
    MissingExtraError
        If Ray is not installed.
    ClusterError
        If there is no such cluster, or it has no node left.
    """
    check_choice("device", device, DEVICES)
    if n_workers is not None:
        check_count("n_workers", n_workers)
    with ray_session(address, n_workers) as ray:
        # Called once: parts and rounding do not change when a node dies.
        token = TRAINER.set(partial(RayTrainer, ray, device, worker_nodes(ray, device)))
        try:
            yield
        finally:
            TRAINER.reset(token)


@final
class RayTrainer:
    """Ensemble members in parts, one per worker, with the interface of `LocalTrainer`."""

    def __init__(
        self,
        ray: Any,
        device: str,
        nodes: Sequence[str],
        of_members: Any,
        data: Any,
        stage: AbstractStage,
        supply: Supply | None,
    ):
        networks, states, keys, folds = of_members
        self.ray, self.supply, n_members = ray, supply, len(keys)
        n_parts = max(1, min(n_members, len(nodes)))
        ends = [i * n_members // n_parts for i in range(n_parts + 1)]
        self.parts = [slice(*part) for part in pairwise(ends)]
        self.tasks = [remote_task(ray, device, *nodes[i : i + 1]) for i in range(n_parts)]
        of_members = networks, states, jax.random.key_data(keys), folds
        self.inputs = ray.put(on_arrays(np.asarray, (of_members, data, stage)))
        self.states: list[Any] = [None] * n_parts
        self.scores: Float[np.ndarray, " members"] | None = None

    def advance(self, chunk: int) -> dict[str, np.ndarray]:
        inputs = [self.inputs]
        if self.supply is not None:
            inputs.append(self.ray.put(on_arrays(np.asarray, self.supply(chunk))))
        results = []
        for task, members, state in zip(self.tasks, self.parts, self.states, strict=True):
            scores = None if self.scores is None else self.scores[members]
            results.append(task.remote(inputs, members, state, scores, chunk))
        states, figures = (list(each) for each in zip(*results, strict=True))
        found = self.fetch(figures)
        # Wait, so that the states are here if a node dies.
        wait_for_tasks(self.ray, states, len(states))
        self.states, self.scores = states, None
        return {name: np.concatenate([own[name] for own in found]) for name in found[0]}

    def keep(self, scores: Float[np.ndarray, " members"]) -> None:
        self.scores = scores  # for the next task, or for the end

    def end(self) -> MemberState:
        parts = [eqx.partition(part, eqx.is_array) for part in self.fetch(self.states)]
        arrays = jax.tree.map(lambda *own: np.concatenate(own), *(part[0] for part in parts))
        members = to_device(eqx.combine(arrays, parts[0][1]))
        return members if self.scores is None else keep_better(members, self.scores)

    def fetch(self, references: Sequence[Any]) -> list[Any]:
        wait_for_tasks(self.ray, references, len(references))
        try:
            return self.ray.get(list(references))
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            raise ClusterError(
                f"The Ray cluster could not go on with the training: {first_line(error)}"
            ) from error


def remote_task(ray: Any, device: str, node: str | None = None) -> Any:
    """Return `advance_part` as a task of Ray, preferably on the given node."""
    options = task_options(device, GPU_VARIABLES if device == "gpu" else {})
    options |= {"num_returns": 2, "max_calls": 0}  # a process runs more than one task
    if node is not None:
        strategies = ray.util.scheduling_strategies
        options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    return ray.remote(**options)(advance_part)
