"""What a worker process of a Ray cluster does for a training: one chunk of some members.

It keeps nothing that another one could not make again: the members come with a task and go with its
result. What all tasks of a stage share, the rows above all, stays on its device for the next task.
"""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from sigmax.compilation import clear_if_full
from sigmax.ray_session import import_ray
from sigmax.training.chunk import AbstractStage, MemberState, keep_better, start_members
from sigmax.training.team import train_numbered_chunk

__all__ = ["StageInputs", "advance_part", "device_number", "on_host", "to_device"]


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
        The reference of the `StageInputs`, in a list, so that they are fetched only if need be.
    members
        Which members these are.
    state
        As the chunk before left them; None before the first.
    judged
        What their snapshots of the chunk before are worth, for `keep_better`.
    """
    (reference,) = inputs
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
        inputs_of_part = keys, folds, shared.data, shared.stage
        return on_host(train_numbered_chunk(trained, *inputs_of_part, chunk))


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
