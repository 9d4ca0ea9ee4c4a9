"""Functions compiled by JAX, and padding of rows to a few sizes, for which they are compiled.

On Linux the compiled functions of one fit on the CPU take about a thousand memory maps, and a
process has 65,530: after about sixty fits of different shapes or settings, as in a grid search, the
next one would crash. The cache of all functions that are `compiled` here is cleared before that.
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

from sigmax.compilation_cache import enable_cache
from sigmax.values import register_values

enable_cache()
register_values()

AUTOTUNING = "xla_gpu_autotune_level"
"""XLA's option to time many variants of every matrix product on a GPU, which takes long."""

MAPS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")

JITTED: list[Any] = []  # functions whose cache can be cleared

Result = TypeVar("Result")


def compiled(function: Callable[..., Result], *, is_tuned: bool = False) -> Callable[..., Result]:
    """Compile a function with JAX: arrays are traced, all else is static and must be hashable.

    It is for functions of a module, and does the same as `equinox.filter_jit`, but its cache can be
    cleared. ``n_compiled()`` of the function is the number of compiled versions. With ``is_tuned``
    the function has `AUTOTUNING` on a GPU, for large products that are computed hundreds of times.

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

    del call.__wrapped__  # it has other arguments
    compile_here = partial(jax.jit, call, static_argnums=1)
    in_general, on_gpu = compile_here(), compile_here(compiler_options={AUTOTUNING: 0})

    @wraps(function)
    def wrapper(*arguments: Any, **settings: Any) -> Result:
        arrays, static = hashable_partition((arguments, settings), eqx.is_array)
        call = on_gpu if not is_tuned and is_untuned(arrays) else in_general
        traced, fixed = call(arrays, static)
        return hashable_combine(traced, fixed.value)

    JITTED.extend((in_general, on_gpu))
    wrapper.n_compiled = lambda: in_general._cache_size() + on_gpu._cache_size()  # pyright: ignore
    return wrapper


def is_untuned(arrays: Sequence[Any]) -> bool:
    """True if a function is compiled without `AUTOTUNING`: on a GPU, unless XLA_FLAGS set it."""
    is_part = any(isinstance(array, Tracer) for array in arrays)
    if is_part or jax.default_backend() != "gpu":
        return False
    return AUTOTUNING not in os.environ.get("XLA_FLAGS", "") and has_autotuning()


@cache
def has_autotuning() -> bool:
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
    """Clear all caches if more than ``share`` of the memory maps are in use; True if cleared."""
    try:
        limit, text = int(LIMIT.read_text()), MAPS.read_bytes()
    except OSError:
        return False  # not Linux: no limit
    if text.count(b"\n") <= share * limit:
        return False
    for function in JITTED:
        function.clear_cache()
    gc.collect()
    return True


ROWS_PER_CALL = 8192

SMALLEST_BLOCK, LARGEST_BLOCK = 64, 16_384
"""Smallest and largest number of rows of a block; sizes are powers of two."""


def bucket_size(n_rows: int, *, smallest: int = 256) -> int:
    """Next power of two, so that slightly larger data keep their compiled shape.

    Examples
    --------
    >>> bucket_size(455), bucket_size(512), bucket_size(513)
    (512, 512, 1024)
    """
    return max(smallest, 1 << (n_rows - 1).bit_length())


def pad_rows(values: np.ndarray, n_slots: int) -> np.ndarray:
    return np.pad(values, [(0, n_slots - len(values))] + [(0, 0)] * (values.ndim - 1))


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
    """Apply ``function`` to all rows of a pytree ``X`` in blocks of a few sizes, as float64.

    Rows are the first axis of all arrays of ``X``, and ``axis`` of the results. Every device of
    this process gets at most ``rows_per_call`` of them.
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
    """Pad all arrays of a pytree to at least ``n_slots`` rows, divided among the local devices."""
    n_devices = jax.local_device_count()
    if n_devices == 1:
        return padded(rows, n_slots)
    n_slots = -(-n_slots // n_devices) * n_devices
    sharding = device_sharding(PartitionSpec("rows"))
    return jax.tree.map(lambda leaf: jax.device_put(pad_rows(leaf, n_slots), sharding), rows)


def on_all_devices(tree: Any) -> Any:
    if jax.local_device_count() == 1:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, device_sharding(PartitionSpec())), rest)


def device_sharding(spec: PartitionSpec) -> NamedSharding:
    return NamedSharding(Mesh(np.asarray(jax.local_devices()), ("rows",)), spec)


def stack_members(members: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: on_device(np.stack(leaves)), *members)
