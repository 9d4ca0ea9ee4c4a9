"""Functions compiled by JAX, and rows padded to a few sizes, so that they are compiled for few.

On Linux the compiled functions of one fit on the CPU take about a thousand memory maps, and a
process has 65,530: after some sixty fits of different shapes or settings, as in a grid search, the
next one would crash. So functions that are `compiled` here are dropped before, never others.
"""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from equinox.internal import Static, hashable_combine, hashable_partition
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from sigmax.compilation_cache import keep_programs

keep_programs()

AUTOTUNING = "xla_gpu_autotune_level"
"""XLA's option for a GPU to time many variants of every matrix product: longer than many a fit."""

MAPS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")

JITTED: list[Any] = []  # compiled functions, which can be dropped

Result = TypeVar("Result")


def compiled(function: Callable[..., Result], *, is_tuned: bool = False) -> Callable[..., Result]:
    """Compile a function by JAX: arrays are traced, all else is static and must be hashable.

    It is for functions at the level of a module, which live as long as the process does. It does
    what `equinox.filter_jit` does, and can drop what it has compiled; ``n_programs()`` of the
    function counts that. One that ``is_tuned`` has `AUTOTUNING` on a GPU: a large product that is
    computed hundreds of times.

    Examples
    --------
    >>> @compiled
    ... def power(x, exponent):
    ...     return x**exponent
    >>> power(jax.numpy.arange(3.0), 2)
    Array([0., 1., 4.], dtype=float32)
    """

    @wraps(function)
    def call(arrays: tuple[Any, ...], static: Any) -> tuple[Any, Static]:
        arguments, settings = hashable_combine(arrays, static)
        traced, fixed = hashable_partition(function(*arguments, **settings), eqx.is_array)
        return traced, Static(fixed)

    del call.__wrapped__  # whose arguments are others
    compile_here = partial(jax.jit, call, static_argnums=1)
    in_general, on_gpu = compile_here(), compile_here(compiler_options={AUTOTUNING: 0})

    @wraps(function)
    def wrapper(*arguments: Any, **settings: Any) -> Result:
        arrays, static = hashable_partition((arguments, settings), eqx.is_array)
        call = on_gpu if not is_tuned and is_untuned(arrays) else in_general
        traced, fixed = call(arrays, static)
        return hashable_combine(traced, fixed.value)

    JITTED.extend((in_general, on_gpu))
    wrapper.n_programs = lambda: in_general._cache_size() + on_gpu._cache_size()  # pyright: ignore
    return wrapper


def is_untuned(arrays: Sequence[Any]) -> bool:
    """True if a function is compiled without `AUTOTUNING`: on a GPU, unless XLA_FLAGS ask for it.

    Options belong to whole compiled functions: none can be given where this is part of another.
    """
    is_part = any(isinstance(array, Tracer) for array in arrays)
    if is_part or jax.default_backend() != "gpu":
        return False
    return AUTOTUNING not in os.environ.get("XLA_FLAGS", "") and has_autotuning()


@cache
def has_autotuning() -> bool:
    """True if this version of XLA knows the option `AUTOTUNING`."""
    try:
        jax.jit(lambda: 0, compiler_options={AUTOTUNING: 0})()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def on_device(values: Any, dtype: Any = None) -> Array:
    """Move values to the device without compiling, as `jax.numpy.asarray` does for every shape.

    Examples
    --------
    >>> on_device([1, 2], np.float32)
    Array([1., 2.], dtype=float32)
    """
    return jax.device_put(np.asarray(values, dtype))


def clear_if_full(share: float = 0.5) -> bool:
    """Drop all compiled functions if more than ``share`` of the maps are in use; True if it did.

    What is needed again is compiled again.
    """
    try:
        limit, text = int(LIMIT.read_text()), MAPS.read_bytes()
    except OSError:
        return False  # no Linux: no such limit
    if text.count(b"\n") <= share * limit:
        return False
    for function in JITTED:
        function.clear_cache()
    gc.collect()
    return True


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
    """Append rows of ``fill`` up to ``n_slots`` rows."""
    padding = [(0, n_slots - len(values))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, padding, constant_values=fill)


def padded(rows: Any, n_slots: int) -> Any:
    """Pad all arrays of a pytree to ``n_slots`` rows, on the device."""
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
    """Pad all arrays of a pytree to ``n_slots`` rows, divided among the devices of this process.

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
