"""Compiled programs are dropped before they use up the memory maps of the process.

On Linux the programs of one fit on the CPU take about a thousand memory maps, and a process has
65,530: after some sixty fits of different shapes or settings, as in a grid search, the next one
would crash.
"""

import gc
from pathlib import Path

import jax

__all__ = ["clear_if_full"]

MAPS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")


def clear_if_full(share: float = 0.5) -> bool:
    """Drop what JAX has compiled if the process uses more than ``share`` of its maps.

    What is needed again is compiled again. Returns whether it did.
    """
    try:
        limit, text = int(LIMIT.read_text()), MAPS.read_bytes()
    except OSError:
        return False  # no Linux: no such limit
    if text.count(b"\n") <= share * limit:
        return False
    jax.clear_caches()
    gc.collect()
    return True
