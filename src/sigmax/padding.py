"""Rows padded to a few sizes, so that functions are compiled for these sizes alone."""

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sigmax.compilation import on_device

ROWS_PER_CALL = 8192

SMALLEST_BLOCK, LARGEST_BLOCK = 64, 16_384
"""Rows of a block, of which all sizes in between are powers of two."""


def bucket_size(n_rows: int, *, smallest: int = 256) -> int:
    """Next power of two: data that grow a little keep their compiled shape.

    Examples
    --------
    >>> bucket_size(455), bucket_size(512), bucket_size(513)
    (512, 512, 1024)
    """
    return max(smallest, 1 << (n_rows - 1).bit_length())


def pad_rows(values: np.ndarray, n_slots: int, fill: float = 0.0) -> np.ndarray:
    """``values`` with rows of ``fill`` up to ``n_slots``."""
    padding = [(0, n_slots - len(values))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, padding, constant_values=fill)


def padded(rows: Any, n_slots: int) -> Any:
    """All arrays of a pytree with ``n_slots`` rows, on the device."""
    return jax.tree.map(lambda leaf: on_device(pad_rows(leaf, n_slots)), rows)


def padded_blocks(n_rows: int, largest: int = LARGEST_BLOCK) -> Iterator[tuple[int, np.ndarray]]:
    """Indices of blocks of rows, the last one repeated up to a power of two, and true lengths.

    Examples
    --------
    >>> [(n, rows.shape) for n, rows in padded_blocks(16_400)]
    [(16384, (16384,)), (16, (64,))]
    """
    for start in range(0, n_rows, largest):
        n_true = min(n_rows - start, largest)
        size = bucket_size(n_true, smallest=SMALLEST_BLOCK)
        yield n_true, start + np.minimum(np.arange(size), n_true - 1)


def by_blocks(function: Any, X: Any, *, axis: int, rows_per_call: int = ROWS_PER_CALL) -> Any:
    """``function`` of all rows of a pytree ``X``, in calls of a few sizes, as float64.

    Rows are the first axis of all arrays of ``X``, and ``axis`` of what is returned. Every device
    of this process gets at most ``rows_per_call`` of them.
    """
    n_rows, blocks = len(jax.tree.leaves(X)[0]), []
    rows_per_call *= jax.local_device_count()
    for first in range(0, n_rows, rows_per_call):
        n_here = min(rows_per_call, n_rows - first)
        block = jax.tree.map(lambda leaf, at=slice(first, first + n_here): leaf[at], X)
        n_slots = min(bucket_size(n_here, smallest=SMALLEST_BLOCK), rows_per_call)
        blocks.append(function(spread_rows(block, n_slots)))
    rows = (slice(None),) * axis + (slice(n_rows),)
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves, axis=axis)[rows].astype(np.float64), *blocks
    )


def spread_rows(rows: Any, n_slots: int) -> Any:
    """All arrays of a pytree with ``n_slots`` rows, divided among the devices of this process.

    The number of slots is rounded up to a multiple of the number of devices.
    """
    n_devices = jax.local_device_count()
    if n_devices == 1:
        return padded(rows, n_slots)
    n_slots = -(-n_slots // n_devices) * n_devices
    sharding = device_sharding(PartitionSpec("rows"))
    return jax.tree.map(lambda leaf: jax.device_put(pad_rows(leaf, n_slots), sharding), rows)


def on_all_devices(tree: Any) -> Any:
    """Copy of all arrays on every device of this process."""
    if jax.local_device_count() == 1:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, device_sharding(PartitionSpec())), rest)


def device_sharding(spec: PartitionSpec) -> NamedSharding:
    return NamedSharding(Mesh(np.asarray(jax.local_devices()), ("rows",)), spec)


def stack_members(members: Sequence[Any]) -> Any:
    """Ensemble members along a new first axis."""
    return jax.tree.map(lambda *leaves: on_device(np.stack(leaves)), *members)
