"""The axis of members: a function of one member for all of them, spread over the devices.

Where members are fewer than devices, several devices share a member, and divide its rows.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Key

from sigmax.compilation import compiled
from sigmax.random import name_number

MEMBERS = "members"
"""The name of the axis, for what members do together."""

ROWS = "rows"
"""The name of the other axis of devices."""

MESH: ContextVar[Mesh | None] = ContextVar("MESH", default=None)
"""Of the members whose program is being traced."""


def device_mesh(n_members: int) -> Mesh | None:
    """The devices in lines, of which every line has members of its own; None of one device.

    Of 8 devices and 3 members, two devices share a member and two have no work.
    """
    devices = jax.devices()
    if len(devices) == 1:
        return None
    n_lines = min(n_members, len(devices))
    n_each = len(devices) // n_lines
    return Mesh(np.asarray(devices[: n_lines * n_each]).reshape(n_lines, n_each), (MEMBERS, ROWS))


def divide_rows(rows: Any) -> Any:
    """Arrays of one member, in a function of `over_members`, divided along their first axis.

    What is computed of them is, too, by the devices that share the member. They need be no multiple
    of these.
    """
    mesh = MESH.get()
    if mesh is None or mesh.shape[ROWS] == 1:
        return rows
    places = NamedSharding(mesh, PartitionSpec(ROWS))
    return jax.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, places), rows)


def name_keys(keys: Key[Array, " members"], name: str) -> Key[Array, " members"]:
    """Every member's key of the consumer ``name``, as `sigmax.random.named_key` gives it."""
    return fold_in_all(keys, np.uint32(name_number(name)))


@compiled
def fold_in_all(keys: Key[Array, " members"], number: Any) -> Key[Array, " members"]:
    return jax.vmap(jax.random.fold_in, (0, None))(keys, number)


def count_members(tree: Any) -> int:
    """The length of the first axis of all arrays of ``tree``."""
    return len(next(leaf for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)))


def over_members(function: Callable, n_mapped: int) -> Callable:
    """``function`` of one member, compiled for all: its first arguments have an axis of members.

    One member alone is not mapped over, which on a CPU compiles a quarter quicker and runs up to
    twice as quick; then there is no axis of the name `MEMBERS`.
    """

    @compiled
    @wraps(function)
    def call(*arguments: Any) -> Any:
        mapped, shared = arguments[:n_mapped], arguments[n_mapped:]
        n_members = count_members(mapped)
        token = MESH.set(device_mesh(n_members))
        try:
            if n_members == 1:
                alone = function(*on_arrays(lambda leaf: leaf[0], mapped), *shared)
                return on_arrays(lambda leaf: leaf[None], alone)
            axes = (eqx.if_array(0),) * n_mapped + (None,) * len(shared)
            return eqx.filter_vmap(function, in_axes=axes, axis_name=MEMBERS)(*arguments)
        finally:
            MESH.reset(token)

    return call


def on_arrays(function: Callable, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: function(leaf) if eqx.is_array(leaf) else leaf, tree)


@compiled
def take_members(tree: Any, index: Int[Array | np.ndarray, " members"]) -> Any:
    return on_arrays(lambda leaf: leaf[index], tree)


def spread_members(tree: Any) -> Any:
    """Members spread over the devices, each device with as many.

    Where they are no multiple of the number of devices, the axis is padded with copies of the first
    ones. With one device nothing changes.
    """
    n_members = count_members(tree)
    mesh = device_mesh(n_members)
    if mesh is None:
        return tree
    n_lines = mesh.shape[MEMBERS]
    n_slots = -(-n_members // n_lines) * n_lines
    padded = tree if n_slots == n_members else take_members(tree, np.arange(n_slots) % n_members)
    arrays, rest = eqx.partition(padded, eqx.is_array)
    sharded = jax.device_put(arrays, NamedSharding(mesh, PartitionSpec(MEMBERS)))
    return eqx.combine(sharded, rest)


def without_padding(tree: Any, n_members: int) -> Any:
    """The first members, which are no copies."""
    if count_members(tree) == n_members:
        return tree
    return take_members(tree, np.arange(n_members))
