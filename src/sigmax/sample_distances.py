"""Distances between two samples.

All functions take two arrays of rows with the same columns, in the units of these columns.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from sigmax.errors import InvalidDataError
from sigmax.settings import check_count, check_number

__all__ = ["energy_distance", "share_off_data", "sliced_wasserstein"]

BLOCK = 1 << 22  # distances in memory at a time: 32 MiB of float64


def energy_distance(a: ArrayLike, b: ArrayLike) -> float:
    r"""Energy distance of two samples, in its root form.

    $\sqrt{2 E\|A - B\| - E\|A - A'\| - E\|B - B'\|}$ with Euclidean distances and means over all
    pairs, including those of a row with itself: the exact distance of the two empirical
    distributions. With one column it equals ``scipy.stats.energy_distance``. For two samples of n
    rows from one distribution it is not 0 but about $\sqrt{2 E\|A - A'\| / n}$.

    Examples
    --------
    >>> energy_distance([[0.0], [1.0]], [[0.0], [1.0]])
    0.0
    >>> round(energy_distance([[0.0, 0.0]], [[3.0, 4.0]]), 4)  # the root of twice 5
    3.1623
    """
    A, B = two_samples(a, b)
    squared = 2 * mean_distance(A, B) - mean_distance(A, A) - mean_distance(B, B)
    return float(np.sqrt(max(squared, 0.0)))


def mean_distance(A: NDArray, B: NDArray) -> float:
    """Mean Euclidean distance of all pairs, in blocks of rows."""
    n_block = max(1, BLOCK // len(B))
    total = sum(cdist(A[i : i + n_block], B).sum() for i in range(0, len(A), n_block))
    return float(total / (len(A) * len(B)))


def sliced_wasserstein(
    a: ArrayLike, b: ArrayLike, *, n_directions: int = 200, order: int = 1, random_state=None
) -> float:
    r"""Sliced Wasserstein distance: mean transport distance along random directions.

    $(E_\theta W_p^p(\theta^T A, \theta^T B))^{1/p}$ with $\theta$ uniform on the sphere and $p$ the
    ``order``; along each direction the distance of the empirical distributions is exact. The
    default, $p = 1$, is less sensitive to outliers. ``random_state`` is an int, RandomState,
    Generator or None.

    Examples
    --------
    >>> sliced_wasserstein([[0.0], [1.0]], [[2.0], [3.0]])  # one column: W1 itself
    2.0
    """
    from sigmax.random import make_generator  # imported here because it imports JAX

    A, B = two_samples(a, b)
    n_directions, order = check_count("n_directions", n_directions), check_count("order", order)
    rng = make_generator(random_state)
    directions = rng.standard_normal((A.shape[1], n_directions))
    directions /= np.linalg.norm(directions, axis=0)
    # Both quantile functions are steps: between these levels neither changes.
    levels = np.union1d(np.arange(1, len(A) + 1) / len(A), np.arange(1, len(B) + 1) / len(B))
    weights = np.diff(levels, prepend=0.0)
    middle = levels - weights / 2
    rows_a, rows_b = (middle * len(A)).astype(int), (middle * len(B)).astype(int)
    costs = [
        weights @ np.abs(np.sort(A @ along)[rows_a] - np.sort(B @ along)[rows_b]) ** order
        for along in directions.T
    ]
    return float(np.mean(costs) ** (1 / order))


def share_off_data(
    samples: ArrayLike, reference: ArrayLike, fresh: ArrayLike, *, level: float = 0.999
) -> float:
    """Share of ``samples`` that are farther from the data than other data are.

    The distance of a row is that to the nearest row of ``reference``, a large sample of the data.
    A row counts if its distance is above the ``level`` quantile of the distances of ``fresh`` data,
    which are not in the reference. For a sample of the data the share is about ``1 - level``.

    Examples
    --------
    >>> line = np.linspace(0, 1, 101)[:, None]
    >>> share_off_data([[0.501], [5.0]], line, line + 0.002)
    0.5
    """
    level = check_number("level", level, above=0.0, below=1.0)
    samples, reference = two_samples(samples, reference, names=("samples", "reference"))
    fresh, _ = two_samples(fresh, reference, names=("fresh", "reference"))
    tree = KDTree(reference)
    largest = np.quantile(tree.query(fresh)[0], level)
    return float(np.mean(tree.query(samples)[0] > largest))


def two_samples(
    a: ArrayLike, b: ArrayLike, *, names: tuple[str, str] = ("a", "b")
) -> tuple[NDArray, NDArray]:
    """Two finite tables with the same columns; errors name the argument."""
    tables = []
    for name, values in zip(names, (a, b), strict=True):
        table = np.asarray(values, dtype=np.float64)
        if table.ndim != 2 or not table.size:
            raise InvalidDataError(f"`{name}` must have shape (n, d), got {table.shape}.")
        if not np.isfinite(table).all():
            raise InvalidDataError(f"`{name}` must be finite, got NaN or infinite values.")
        tables.append(table)
    A, B = tables
    if A.shape[1] != B.shape[1]:
        rule = f"the {B.shape[1]} columns of `{names[1]}`"
        raise InvalidDataError(f"`{names[0]}` must have {rule}, got {A.shape[1]}.")
    return A, B
