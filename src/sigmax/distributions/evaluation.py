"""Evaluation of densities in float64 by compiled functions, in blocks of a few sizes."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from sigmax.compilation import LARGEST_BLOCK, compiled, padded_blocks
from sigmax.distributions.base import AbstractDistribution
from sigmax.values import tree_map

ROWS_SOLVED = 1024
"""Rows whose quantiles a CPU solves for together: all wait for the last, and fit into a cache."""


def evaluate(dist: AbstractDistribution, name: str, *arguments: np.ndarray) -> np.ndarray:
    """A property or a method of the density, for arguments of its shape."""
    with jax.enable_x64(True):
        is_solved = name == "quantile" and jax.default_backend() == "cpu"
        largest = ROWS_SOLVED if is_solved else None
        found = blocks(dist, *arguments, largest=largest)
        parts = [np.asarray(compute(name, *block))[:n_rows] for n_rows, block in found]
    return np.concatenate(parts)


def sample(dist: AbstractDistribution, n: int, seed: int) -> np.ndarray:
    """``n`` independent draws of every density, along a new first axis."""
    draws = []
    with jax.enable_x64(True):
        for n_rows, (part,) in blocks(dist):
            key = jax.random.fold_in(jax.random.key(seed), len(draws))
            draws.append(np.asarray(draw(n, part, key))[:, :n_rows])
    return np.concatenate(draws, axis=1)


def blocks(
    dist: AbstractDistribution, *arguments: np.ndarray, largest: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Blocks of rows, padded by repeating the last one, and how many of them are true."""
    n_axes = len(dist.shape)  # of a leaf's axes, members may come first
    for n_true, rows in padded_blocks(dist.shape[0], largest or LARGEST_BLOCK):
        yield (
            n_true,
            tree_map(
                lambda leaf, rows=rows: leaf.take(rows, axis=leaf.ndim - n_axes), (dist, *arguments)
            ),
        )


@compiled
def compute(name: str, dist: AbstractDistribution, *arguments):
    value = getattr(dist, name)
    return value(*arguments) if arguments else value


@compiled
def draw(n: int, dist: AbstractDistribution, key):
    return dist.sample(key, n)
