"""Nearest rows: exact by tree or brute force, approximate by faiss, chosen by size."""

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from sklearn.utils import check_array
from threadpoolctl import threadpool_limits

from sigmax.checks import check_choice, check_count
from sigmax.compilation import compiled, on_device
from sigmax.errors import InvalidDataError, MissingExtraError
from sigmax.random import draw_seed

__all__ = ["METHODS", "exact_neighbors", "import_faiss", "neighbor_graph"]

METHODS = ("auto", "exact", "approximate")

# Where one way overtakes the other, measured by `benchmarks/neighbors.py` on two cores with k = 50.
TREE_MAX_FEATURES = 8
"""Up to here a KD-tree beats brute force; with more features it has to look at most leaves."""
EXACT_MAX_ROWS = 100_000
"""Up to here brute force costs one to three times what HNSW does, and misses nothing."""
EXACT_MAX_ROWS_ON_DEVICE = 1_000_000
"""The same on an accelerator."""
DEVICE_MIN_PAIRS = 4 * 10**9
"""Fewer distances than this take less time on the host than compiling for the accelerator."""

DEVICE_MULTIPLE = 4096
"""Rows are padded to a multiple of this: data of nearly the same size share a program."""

HNSW = {"M": 32, "efConstruction": 40, "efSearch": 80}
"""Recall at k = 50, 90 features: 0.98 (100,000 rows) and 0.92 (500,000) in Gaussian clusters, 0.65
(100,000) if all features are independent, where faiss's IVF did no better."""

Smallest = Callable[[Any, int], Any]
"""Columns of the smallest values of every row, and how many are wanted."""

BUFFER_FLOATS = 2**26  # 256 MiB of float32 for squared distances, over all threads
ROWS_TO_CENTER = 2**14  # whose median stands for the bulk of all
SPARE = 16  # candidates beyond k, against rounding in the norm trick
GROUP = 32  # columns per group in the two-stage selection


def neighbor_graph(
    X: ArrayLike, k: int, *, method: str = "auto", random_state: Any = 0
) -> Int[np.ndarray, "n k"]:
    """The ``min(k, n)`` nearest rows of every row, itself first, then by Euclidean distance.

    Parameters
    ----------
    X
        Rows, already in the units in which distances make sense.
    k
        Neighbours per row, the row itself among them.
    method
        ``"exact"``; ``"approximate"`` (faiss HNSW: a few of the neighbours are only nearly the
        nearest, many of them if X has dozens of independent features, and with several threads
        not always the same ones); ``"auto"`` is exact up to 100,000 rows, a million on an
        accelerator, or any number of rows if there are few features.
    random_state
        Seeds the approximate search.

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
        method = "exact" if _exact_is_affordable(*rows.shape) else "approximate"
    if method == "exact":
        return _self_first(exact_neighbors(rows, rows, k)[0])
    return _self_first(_approximate_neighbors(rows, k, random_state))


def exact_neighbors(
    queries: ArrayLike, X: ArrayLike, k: int
) -> tuple[Int[np.ndarray, "n_queries k"], Float[np.ndarray, "n_queries k"]]:
    """Indices of the ``min(k, n)`` rows of ``X`` nearest to every query, and their distances.

    With many features candidates are picked in float32: neighbours much closer together than a
    three-hundredth of the spread of ``X`` may be taken one for the other.

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
    Q, rows = Q.astype(np.float32), rows.astype(np.float32)
    is_large = len(Q) * len(rows) >= DEVICE_MIN_PAIRS
    on_host = jax.default_backend() == "cpu" or not is_large
    indices, distances = (_brute_force if on_host else _brute_force_on_device)(Q, rows, k)
    return indices, distances * scale


def as_rows(name: str, X: ArrayLike) -> Float[np.ndarray, "n d"]:
    """``X`` as a finite float64 matrix, or an error that names it."""
    try:
        return check_array(X, dtype="float64", input_name=name)
    except ValueError as error:
        raise InvalidDataError(f"`{name}` cannot be used: {error}") from None


def _centered(*parts: np.ndarray) -> tuple[list[np.ndarray], float]:
    """The parts, the bulk of the last near 0 and nothing beyond 1, and the scale divided by.

    No square can then overflow, and float32 has enough digits.
    """
    rows = parts[-1]
    center = np.median(rows[:: -(-len(rows) // ROWS_TO_CENTER)], axis=0)
    moved = [part - center for part in parts]
    scale = max(max(part.max(), -part.min()) for part in moved) or 1.0
    for part in moved:
        part /= scale
    return moved, float(scale)


def _exact_is_affordable(n: int, d: int) -> bool:
    on_host = jax.default_backend() == "cpu"
    limit = EXACT_MAX_ROWS if on_host else EXACT_MAX_ROWS_ON_DEVICE
    return n <= limit or d <= TREE_MAX_FEATURES or find_spec("faiss") is None


def _self_first(indices: Int[np.ndarray, "n k"]) -> Int[np.ndarray, "n k"]:
    """Every row's own index moved to the front of its list, the last one dropped if it was missing.

    Among copies of one row the search returns any ``k``; without its own index a row could be in
    no list at all, and would then have no finite weight.
    """
    n, k = indices.shape
    own = np.arange(n, dtype=np.int32)[:, None]
    is_own = indices == own
    found_at = np.where(is_own.any(axis=1), is_own.argmax(axis=1), k - 1)[:, None]
    shifted = np.where(np.arange(1, k) <= found_at, indices[:, :-1], indices[:, 1:])
    return np.hstack([own, shifted])


def _padded(rows: np.ndarray, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows padded to a multiple, and their squared norms, infinite for padding."""
    n = len(rows)
    padded = np.pad(rows, ((0, -n % multiple), (0, 0)))
    squared_norms = np.full(len(padded), np.inf, np.float32)
    squared_norms[:n] = np.einsum("ij,ij->i", rows, rows)
    return padded, squared_norms


def _smallest(values: Any, count: int, xp: ModuleType, smallest: Smallest) -> Any:
    """Columns of the ``count`` smallest values of every row, in any order; NumPy or JAX.

    Of the groups of columns, the ``count`` with the smallest minima hold these values, so only
    those are looked at again; the groups are found in the same way. ``smallest`` looks at all.
    """
    n_groups = values.shape[1] // GROUP
    if n_groups < 2 * count or values.shape[1] % GROUP:
        return smallest(values, count)
    minima = values.reshape(len(values), GROUP, n_groups).min(axis=1)
    first_columns = _smallest(minima, count, xp, smallest)[:, None, :]
    columns = first_columns + n_groups * xp.arange(GROUP)[None, :, None]
    columns = columns.reshape(len(values), -1)
    best = smallest(xp.take_along_axis(values, columns, axis=1), count)
    return xp.take_along_axis(columns, best, axis=1)


def _select(
    squared: Any, queries: Any, rows: Any, sizes: tuple[int, int], xp: ModuleType, smallest
) -> tuple[Any, Any]:
    """The k nearest from one block of squared distances less the queries' norms; NumPy or JAX.

    The last ranking is by differences: the norm trick that filled ``squared`` rounds distances much
    smaller than the norms.
    """
    k, n_candidates = sizes
    columns = _smallest(squared, n_candidates, xp, smallest)
    squared_distances = ((rows[columns] - queries[:, None, :]) ** 2).sum(axis=2)
    order = xp.argsort(squared_distances, axis=1)[:, :k]
    nearest = xp.take_along_axis(squared_distances, order, axis=1)
    return xp.take_along_axis(columns, order, axis=1), xp.sqrt(nearest)


def _brute_force(queries: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """One block of queries per thread, each with one core and a buffer that it keeps."""
    n_candidates = min(k + SPARE, len(rows))
    padded, squared_norms = _padded(rows, GROUP if len(rows) >= 2 * GROUP * (k + SPARE) else 1)
    widest = max(len(padded), n_candidates * max(rows.shape[1], GROUP))
    n_threads = cpu_count()
    block = max(1, min(BUFFER_FLOATS // (n_threads * widest), -(-len(queries) // n_threads)))
    indices = np.empty((len(queries), k), np.int32)
    distances = np.empty((len(queries), k), np.float64)
    kept = threading.local()

    def smallest(values: np.ndarray, count: int) -> np.ndarray:
        return np.argpartition(values, count - 1, axis=1)[:, :count]

    def search(start: int) -> None:
        if not hasattr(kept, "buffer"):
            kept.buffer = np.empty((block, len(padded)), np.float32)
        part = queries[start : start + block]
        squared = np.matmul(-2 * part, padded.T, out=kept.buffer[: len(part)])
        squared += squared_norms
        sizes = (k, n_candidates)
        here = slice(start, start + block)
        indices[here], distances[here] = _select(squared, part, rows, sizes, np, smallest)

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(search, range(0, len(queries), block)))
    return indices, distances


def _brute_force_on_device(
    queries: np.ndarray, rows: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    n_candidates = min(k + SPARE, len(rows))
    padded, squared_norms = _padded(rows, DEVICE_MULTIPLE)
    block = min(len(queries), max(1, 4 * BUFFER_FLOATS // len(padded)))
    n_blocks = -(-len(queries) // block)
    parts = np.pad(queries, ((0, n_blocks * block - len(queries)), (0, 0)))
    device_rows, device_norms = on_device(padded), on_device(squared_norms)
    found = [
        _search_on_device(on_device(part), device_rows, device_norms, (k, n_candidates))
        for part in np.split(parts, n_blocks)
    ]
    indices, distances = (
        np.concatenate([np.asarray(part) for part in parts])[: len(queries)]
        for parts in zip(*found, strict=True)
    )
    return indices.astype(np.int32), distances.astype(np.float64)


@partial(compiled, is_tuned=True)
def _search_on_device(
    queries: Float[Array, "b d"],
    rows: Float[Array, "n d"],
    squared_norms: Float[Array, " n"],
    sizes: tuple[int, int],
) -> tuple[Int[Array, "b k"], Float[Array, "b k"]]:
    def smallest(values: Array, count: int) -> Array:
        return lax.top_k(-values, count)[1]

    products = jnp.matmul(queries, rows.T, precision=lax.Precision.HIGHEST)
    squared = squared_norms[None, :] - 2 * products
    return _select(squared, queries, rows, sizes, jnp, smallest)


def _approximate_neighbors(rows: np.ndarray, k: int, random_state: Any) -> Int[np.ndarray, "n k"]:
    """HNSW in faiss; rows whose walk reached fewer than ``k`` others are searched exactly."""
    faiss: Any = import_faiss()
    small = _centered(rows)[0][0].astype(np.float32)
    index = faiss.IndexHNSWFlat(rows.shape[1], HNSW["M"])
    seed = draw_seed(random_state)
    index.hnsw.rng = faiss.RandomGenerator(seed)
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
    """The package, or an error that says how to get it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of its generated bindings
            import faiss
    except ImportError:
        raise MissingExtraError(
            "`method='approximate'` needs faiss: `pip install faiss-cpu`, or use method='exact'."
        ) from None
    return faiss
