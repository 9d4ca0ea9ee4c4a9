"""Nearest rows: exact by tree or brute force, approximate by faiss, selected by size."""

import warnings
from functools import partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from joblib import cpu_count
from numpy.typing import ArrayLike
from scipy.spatial import KDTree
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array

from sigmax.compilation import compiled, on_device
from sigmax.errors import InvalidDataError, MissingExtraError
from sigmax.random import draw_seed
from sigmax.settings import check_choice, check_count

__all__ = ["METHODS", "exact_neighbors", "import_faiss", "neighbor_graph", "neighborhoods"]

METHODS = ("auto", "exact", "approximate")

# Crossover points, measured by `benchmarks/neighbors.py` on two cores with k = 50.
TREE_MAX_FEATURES = 8
"""Largest number of features for a KD-tree; with more it visits most leaves."""
EXACT_MAX_ROWS = 100_000
"""Largest number of rows for brute force, up to which it is at most 3 times slower than HNSW."""
EXACT_MAX_ROWS_ON_DEVICE = 1_000_000  # the same on an accelerator
DEVICE_MIN_PAIRS = 4 * 10**9
"""Smallest number of distances for the accelerator; fewer take less time than compilation."""
DEVICE_MULTIPLE = 4096
"""Rows are padded to a multiple of this: data of nearly the same size share a compiled function."""
DEVICE_FLOATS = 2**28  # squared distances that the accelerator holds at a time: 1 GiB of float32
SPARE = 16  # candidates beyond k on the accelerator, against rounding of squared distances
GROUP = 32  # columns per group in the two-stage selection on the accelerator
ROWS_TO_CENTER = 2**14  # rows whose median is the center

HNSW = {"M": 32, "efConstruction": 40, "efSearch": 80}
"""Recall at k = 50, 90 features: 0.98 (100,000 rows) and 0.92 (500,000) in Gaussian clusters, 0.65
(100,000) if all features are independent, where faiss's IVF was no better."""


def neighbor_graph(
    X: ArrayLike, k: int, *, method: str = "auto", random_state: Any = 0
) -> Int[np.ndarray, "n k"]:
    """Indices of the ``min(k, n)`` nearest rows of each row: itself, then by Euclidean distance.

    Parameters
    ----------
    X
        Rows, scaled so that Euclidean distances are meaningful.
    k
        Neighbours per row, including the row itself.
    method
        ``"exact"``; ``"approximate"`` (faiss HNSW: misses a few of the nearest rows, many of them
        if X has dozens of independent features, and with several threads not always the same ones;
        exact if faiss, the extra ``sigmax[large]``, is not installed); ``"auto"`` is exact up to
        100,000 rows, a million on an accelerator, or any number of rows if there are few features.
    random_state
        Seed of the approximate search.

    Examples
    --------
    >>> neighbor_graph([[0.0], [1.0], [1.0], [-0.5]], 2)
    array([[0, 3],
           [1, 2],
           [2, 1],
           [3, 0]], dtype=int32)
    """
    rows = as_rows("X", X)
    k = min(check_count("k", k), len(rows))
    method = check_choice("method", method, METHODS)
    if method == "auto":
        limit = EXACT_MAX_ROWS if jax.default_backend() == "cpu" else EXACT_MAX_ROWS_ON_DEVICE
        is_affordable = len(rows) <= limit or rows.shape[1] <= TREE_MAX_FEATURES
        method = "exact" if is_affordable else "approximate"
    if method == "exact" or find_spec("faiss") is None:
        return _self_first(exact_neighbors(rows, rows, k)[0])
    return _self_first(_approximate_neighbors(rows, k, random_state))


def exact_neighbors(
    queries: ArrayLike, X: ArrayLike, k: int
) -> tuple[Int[np.ndarray, "n_queries k"], Float[np.ndarray, "n_queries k"]]:
    """Indices of the ``min(k, n)`` rows of ``X`` nearest to every query, and their distances.

    Examples
    --------
    >>> indices, distances = exact_neighbors([[0.9]], [[0.0], [1.0], [5.0]], 2)
    >>> indices, distances.round(2)
    (array([[1, 0]], dtype=int32), array([[0.1, 0.9]]))
    """
    Q, rows = as_rows("queries", queries), as_rows("X", X)
    if Q.shape[1] != rows.shape[1]:
        raise InvalidDataError(
            f"`queries` must have the {rows.shape[1]} columns of `X`, got {Q.shape[1]}."
        )
    k = min(check_count("k", k), len(rows))
    (Q, rows), scale = _centered(Q, rows)
    if rows.shape[1] <= TREE_MAX_FEATURES:
        distances, indices = KDTree(rows).query(Q, k, workers=cpu_count())
        shape = (len(Q), k)  # also for k = 1, which the tree returns as a vector
        return np.asarray(indices, np.int32).reshape(shape), scale * np.reshape(distances, shape)
    if jax.default_backend() == "cpu" or len(Q) * len(rows) < DEVICE_MIN_PAIRS:
        search: Any = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows)
        distances, indices = search.kneighbors(Q)
        return indices.astype(np.int32), distances * scale
    indices, distances = _search_on_device(Q.astype(np.float32), rows.astype(np.float32), k)
    return indices, distances * scale


def as_rows(name: str, X: ArrayLike) -> Float[np.ndarray, "n d"]:
    """Convert ``X`` to a finite float64 matrix; errors name the argument."""
    try:
        return check_array(X, dtype="float64", input_name=name)
    except ValueError as error:
        raise InvalidDataError(f"`{name}` cannot be used: {error}") from None


def _centered(*parts: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Parts minus the median of the last one, scaled to [-1, 1] against overflow, and the scale."""
    rows = parts[-1]
    center = np.median(rows[:: -(-len(rows) // ROWS_TO_CENTER)], axis=0)
    moved = [part - center for part in parts]
    scale = max(max(part.max(), -part.min()) for part in moved) or 1.0
    for part in moved:
        part /= scale
    return moved, float(scale)


def _self_first(indices: Int[np.ndarray, "n k"]) -> Int[np.ndarray, "n k"]:
    """Move each row's own index to the front of its list; drop the last one if it was missing.

    Among duplicates of a row the search returns any ``k``; without its own index a row could be in
    no list at all, and would then have no finite weight.
    """
    n, k = indices.shape
    own = np.arange(n, dtype=np.int32)[:, None]
    is_own = indices == own
    found_at = np.where(is_own.any(axis=1), is_own.argmax(axis=1), k - 1)[:, None]
    shifted = np.where(np.arange(1, k) <= found_at, indices[:, :-1], indices[:, 1:])
    return np.hstack([own, shifted])


def _search_on_device(
    queries: np.ndarray, rows: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Brute force on the accelerator in float32, in blocks of queries."""
    n = len(rows)
    padded = np.pad(rows, ((0, -n % DEVICE_MULTIPLE), (0, 0)))
    squared_norms = np.full(len(padded), np.inf, np.float32)  # infinite for padding
    squared_norms[:n] = np.einsum("ij,ij->i", rows, rows)
    block = min(len(queries), max(1, DEVICE_FLOATS // len(padded)))
    n_blocks = -(-len(queries) // block)
    parts = np.pad(queries, ((0, n_blocks * block - len(queries)), (0, 0)))
    device_rows, device_norms = on_device(padded), on_device(squared_norms)
    sizes = k, min(k + SPARE, n)
    found = [
        _search_block(on_device(part), device_rows, device_norms, sizes)
        for part in np.split(parts, n_blocks)
    ]
    indices, distances = (
        np.concatenate([np.asarray(part) for part in parts])[: len(queries)]
        for parts in zip(*found, strict=True)
    )
    return indices.astype(np.int32), distances.astype(np.float64)


@partial(compiled, is_tuned=True)
def _search_block(
    queries: Float[Array, "b d"],
    rows: Float[Array, "n d"],
    squared_norms: Float[Array, " n"],
    sizes: tuple[int, int],
) -> tuple[Int[Array, "b k"], Float[Array, "b k"]]:
    """Candidates by norms and products, ranked by differences, which round less."""
    k, n_candidates = sizes
    products = jnp.matmul(queries, rows.T, precision=lax.Precision.HIGHEST)
    columns = _smallest(squared_norms[None, :] - 2 * products, n_candidates)
    squared_distances = ((rows[columns] - queries[:, None, :]) ** 2).sum(axis=2)
    order = jnp.argsort(squared_distances, axis=1)[:, :k]
    nearest = jnp.take_along_axis(squared_distances, order, axis=1)
    return jnp.take_along_axis(columns, order, axis=1), jnp.sqrt(nearest)


def _smallest(values: Float[Array, "b n"], count: int) -> Int[Array, "b count"]:
    """Columns of the ``count`` smallest values of each row, in any order.

    The ``count`` groups of columns with the smallest minima contain these values, so that only
    those are searched; the groups are found in the same way.
    """
    n_groups = values.shape[1] // GROUP
    if n_groups < 2 * count or values.shape[1] % GROUP:
        return lax.top_k(-values, count)[1]
    minima = values.reshape(len(values), GROUP, n_groups).min(axis=1)
    first_columns = _smallest(minima, count)[:, None, :]
    columns = first_columns + n_groups * jnp.arange(GROUP)[None, :, None]
    columns = columns.reshape(len(values), -1)
    best = lax.top_k(-jnp.take_along_axis(values, columns, axis=1), count)[1]
    return jnp.take_along_axis(columns, best, axis=1)


def _approximate_neighbors(rows: np.ndarray, k: int, random_state: Any) -> Int[np.ndarray, "n k"]:
    """HNSW in faiss; rows with fewer than ``k`` results are searched exactly."""
    faiss: Any = import_faiss()
    small = _centered(rows)[0][0].astype(np.float32)
    index = faiss.IndexHNSWFlat(rows.shape[1], HNSW["M"])
    index.hnsw.rng = faiss.RandomGenerator(draw_seed(random_state))
    index.hnsw.efConstruction = HNSW["efConstruction"]
    index.add(small)
    index.hnsw.efSearch = max(HNSW["efSearch"], k + k // 2)
    indices = np.empty((len(small), k), np.int32)
    for start in range(0, len(small), 2**16):
        indices[start : start + 2**16] = index.search(small[start : start + 2**16], k)[1]
    short = np.flatnonzero((indices < 0).any(axis=1))
    if len(short):
        indices[short] = exact_neighbors(rows[short], rows, k)[0]
    return indices


def import_faiss() -> ModuleType:
    with MissingExtraError.unless_imported("faiss is missing", "large"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its generated bindings
        import faiss
    return faiss


def neighborhoods(X: np.ndarray, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Graphs that stages name: single rows, and neighbourhoods of these sizes."""
    graphs = {"single": np.arange(len(X))[:, None]}
    if sizes:
        graph = neighbor_graph(X, max(sizes.values()))
        graphs |= {name: graph[:, :k] for name, k in sizes.items()}
    return graphs
