"""Functions compiled by JAX, whose programs are dropped before they use up the process's maps.

On Linux the programs of one fit on the CPU take about a thousand memory maps, and a process has
65,530: after some sixty fits of different shapes or settings, as in a grid search, the next one
would crash. Only programs of functions that are marked here are dropped, never those of others.
"""

import gc
import os
from collections.abc import Callable
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, TypeVar, final

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from sigmax.compilation_cache import keep_programs

keep_programs()

AUTOTUNING = "xla_gpu_autotune_level"
"""XLA's option for a GPU: to time many variants of every matrix product before one is chosen, which
takes longer than many a fit."""

MAPS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")

JITTED: list[Any] = []
"""What holds the programs of all functions that are `compiled`."""

Result = TypeVar("Result")


@final
class Static(eqx.Module):
    """A value that is part of a tree's structure."""

    value: Any = eqx.field(static=True)


def compiled(function: Callable[..., Result], *, is_tuned: bool = False) -> Callable[..., Result]:
    """``function`` compiled by JAX: arrays are traced, all else is static and must be hashable.

    It is for functions at the level of a module, which live as long as the process does. It does
    what `equinox.filter_jit` does, and knows its own programs, so that these can be dropped;
    ``n_programs()`` of the function counts them. One that ``is_tuned`` has `AUTOTUNING` on a GPU:
    a large product that is made hundreds of times.

    Examples
    --------
    >>> @compiled
    ... def power(x, exponent):
    ...     return x**exponent
    >>> power(jax.numpy.arange(3.0), 2)
    Array([0., 1., 4.], dtype=float32)
    """

    @wraps(function)
    def call(arrays: list[Any], static: tuple[Any, tuple[Any, ...]]) -> tuple[Any, Static]:
        structure, others = static
        leaves = [
            other if array is None else array for array, other in zip(arrays, others, strict=True)
        ]
        arguments, settings = jax.tree.unflatten(structure, leaves)
        traced, fixed = eqx.partition(function(*arguments, **settings), eqx.is_array)
        leaves, structure = jax.tree.flatten(fixed)
        return traced, Static((structure, tuple(leaves)))

    del call.__wrapped__  # whose arguments are others
    compile_here = partial(jax.jit, call, static_argnums=1)
    in_general, on_gpu = compile_here(), compile_here(compiler_options={AUTOTUNING: 0})

    @wraps(function)
    def wrapper(*arguments: Any, **settings: Any) -> Result:
        leaves, structure = jax.tree.flatten((arguments, settings))
        is_array = [eqx.is_array(leaf) for leaf in leaves]
        arrays = [leaf if yes else None for leaf, yes in zip(leaves, is_array, strict=True)]
        others = [None if yes else leaf for leaf, yes in zip(leaves, is_array, strict=True)]
        call = on_gpu if not is_tuned and is_untuned(arrays) else in_general
        traced, fixed = call(arrays, (structure, tuple(others)))
        structure, leaves = fixed.value
        return eqx.combine(traced, jax.tree.unflatten(structure, leaves))

    JITTED.extend((in_general, on_gpu))
    wrapper.n_programs = lambda: in_general._cache_size() + on_gpu._cache_size()  # pyright: ignore
    return wrapper


def is_untuned(arrays: list[Any]) -> bool:
    """Whether a program is to be compiled without `AUTOTUNING`: on a GPU, if nobody asks for it.

    Options go with whole programs: none can be given where this one becomes part of another.
    """
    is_part = any(isinstance(array, Tracer) for array in arrays)
    if is_part or jax.default_backend() != "gpu":
        return False
    return AUTOTUNING not in os.environ.get("XLA_FLAGS", "") and has_autotuning()


@cache
def has_autotuning() -> bool:
    """Whether this version of XLA knows the option `AUTOTUNING`."""
    try:
        jax.jit(lambda: 0, compiler_options={AUTOTUNING: 0})()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def on_device(values: Any, dtype: Any = None) -> Array:
    """An array of NumPy on the device, without a program: `jax.numpy.asarray` compiles one a shape.

    Examples
    --------
    >>> on_device([1, 2], np.float32)
    Array([1., 2.], dtype=float32)
    """
    return jax.device_put(np.asarray(values, dtype))


def clear_if_full(share: float = 0.5) -> bool:
    """Drop the programs of `compiled` functions if more than ``share`` of the maps are in use.

    What is needed again is compiled again. Returns whether it did.
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
