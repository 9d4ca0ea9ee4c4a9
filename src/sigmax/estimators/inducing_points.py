"""Centres that stand for many rows."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

__all__ = ["k_means_centers"]

N_ROUNDS = 8
"""In which the first centres are drawn."""

N_STEPS = 10
"""Of Lloyd's algorithm; the tenth lowers the mean squared distance by less than a hundredth."""

ROWS_AT_ONCE = 4096

Rows = Float[np.ndarray, "rows features"]
Centers = Float[np.ndarray, "centers features"]


def k_means_centers(sample: Rows, n_centers: int, seed: int) -> Centers:
    """The centres of k-means on a sample of rows, by Lloyd's algorithm in single precision.

    The first ones are drawn in rounds, with a probability that grows with the squared distance to
    those of earlier rounds (Bahmani et al. 2012): also a few rows far from all others get a centre.
    """
    rng = np.random.default_rng(seed)
    middle = sample.mean(axis=0)
    rows = np.ascontiguousarray(sample - middle, dtype=np.float32)
    centers = first_centers(rows, n_centers, rng)
    for _ in range(N_STEPS):
        nearest, _ = nearest_centers(rows, centers)
        counts = np.bincount(nearest, minlength=n_centers)
        filled = np.flatnonzero(counts)
        starts = np.cumsum(counts[filled]) - counts[filled]
        sums = np.add.reduceat(rows[np.argsort(nearest, kind="stable")], starts, axis=0)
        centers[filled] = sums / counts[filled][:, None]
    return centers + middle


def first_centers(rows: Rows, n_centers: int, rng: np.random.Generator) -> Centers:
    """Rows to begin from, far apart from each other."""
    squared, parts = np.full(len(rows), np.inf), []
    for size in np.diff(np.linspace(0, n_centers, N_ROUNDS + 1).astype(int)):
        weight = np.maximum(squared, 1e-12 * squared.max() + 1e-30) if parts else np.ones(len(rows))
        chosen = rng.choice(len(rows), size, replace=False, p=weight / weight.sum())
        parts.append(rows[chosen])
        squared = np.minimum(squared, nearest_centers(rows, parts[-1])[1])
    return np.concatenate(parts)


def nearest_centers(
    rows: Rows, centers: Centers
) -> tuple[Int[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """The nearest centre of every row, and its squared distance."""
    lengths, factors = np.einsum("ij,ij->i", centers, centers), -2 * centers.T
    nearest, squared = np.empty(len(rows), int), np.empty(len(rows))
    buffer = np.empty((min(len(rows), ROWS_AT_ONCE), len(centers)), np.float32)
    for block in blocks(len(rows)):
        products = np.matmul(rows[block], factors, out=buffer[: len(rows[block])])
        products += lengths
        found = nearest[block] = np.argmin(products, axis=1)
        own = np.einsum("ij,ij->i", rows[block], rows[block])
        squared[block] = own + np.take_along_axis(products, found[:, None], axis=1)[:, 0]
    return nearest, np.maximum(squared, 0)


def blocks(n_rows: int) -> Iterator[slice]:
    return (slice(start, start + ROWS_AT_ONCE) for start in range(0, n_rows, ROWS_AT_ONCE))
