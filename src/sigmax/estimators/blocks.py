"""Rows in blocks of a few sizes, so that programs are compiled for these alone."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sigmax.compilation import on_device
from sigmax.training import bucket_size, pad_rows

__all__ = ["ROWS_PER_CALL", "by_blocks", "on_all_devices", "padded", "stack_members"]

ROWS_PER_CALL = 8192


def padded(rows: Any, n_slots: int) -> Any:
    """All arrays of a pytree with ``n_slots`` rows, on the device."""
    return jax.tree.map(lambda leaf: on_device(pad_rows(leaf, n_slots)), rows)


def spread_rows(rows: Any, n_slots: int) -> Any:
    """All arrays of a pytree with ``n_slots`` rows, divided among the devices of this process.

    Where they are no multiple of the number of devices, there are a few more.
    """
    n_devices = jax.local_device_count()
    if n_devices == 1:
        return padded(rows, n_slots)
    n_slots = -(-n_slots // n_devices) * n_devices
    places = devices_along(PartitionSpec("rows"))
    return jax.tree.map(lambda leaf: jax.device_put(pad_rows(leaf, n_slots), places), rows)


def on_all_devices(tree: Any) -> Any:
    """A copy of all arrays on every device of this process."""
    if jax.local_device_count() == 1:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, devices_along(PartitionSpec())), rest)


def devices_along(spec: PartitionSpec) -> NamedSharding:
    return NamedSharding(Mesh(np.asarray(jax.local_devices()), ("rows",)), spec)


def by_blocks(function: Any, X: Any, *, axis: int, rows_per_call: int = ROWS_PER_CALL) -> Any:
    """``function`` of all rows of a pytree ``X``, in calls of a few sizes.

    Rows lie along the first axis of all arrays of ``X``, and along ``axis`` of what is returned.
    Every device of this process has ``rows_per_call`` of them at most.
    """
    n_rows, blocks = len(jax.tree.leaves(X)[0]), []
    rows_per_call *= jax.local_device_count()
    for first in range(0, n_rows, rows_per_call):
        n_here = min(rows_per_call, n_rows - first)
        block = jax.tree.map(lambda leaf, at=slice(first, first + n_here): leaf[at], X)
        n_slots = min(bucket_size(n_here, smallest=64), rows_per_call)
        blocks.append(function(spread_rows(block, n_slots)))
    rows = (slice(None),) * axis + (slice(n_rows),)
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves, axis=axis)[rows].astype(np.float64), *blocks
    )


def stack_members(members: Sequence[Any]) -> Any:
    """Members along a new first axis."""
    return jax.tree.map(lambda *leaves: on_device(np.stack(leaves)), *members)
