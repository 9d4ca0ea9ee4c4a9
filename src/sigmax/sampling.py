"""Locality sampling: batches of neighbourhoods, with weights that keep every sum unbiased.

A batch takes ``n_primary`` rows without replacement, then ``n_secondary`` of each one's ``k``
neighbours without replacement. A row in many neighbour lists is drawn often and has a small weight.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32
from numpy.typing import ArrayLike
from scipy.stats import hypergeom
from sklearn.preprocessing import StandardScaler

from sigmax.errors import InvalidArgumentError
from sigmax.neighbors import METHODS, as_rows, neighbor_graph
from sigmax.random import make_generator
from sigmax.settings import check_choice, check_count, check_flag

__all__ = [
    "LocalitySampler",
    "draw_batches",
    "expected_count",
    "expected_counts",
    "horvitz_thompson",
    "inclusion_probabilities",
    "neighbor_counts",
]


SPARSE_WALK = 8  # rows per primary row beyond which a chunk of batches draws with replacement


def neighbor_counts(neighbors: Int[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """Count the neighbour lists that contain each row.

    Parameters
    ----------
    neighbors : array of shape (n, k)
        Neighbour list of every row.

    Returns
    -------
    array of shape (n,)
        The numbers $R_j$.

    Examples
    --------
    >>> neighbor_counts(np.array([[0, 1], [1, 0], [2, 1], [3, 1]]))
    array([2, 4, 1, 1])
    """
    return np.bincount(neighbors.ravel(), minlength=len(neighbors))


def expected_counts(
    neighbors: Int[np.ndarray, "n k"] | Int[np.ndarray, " n"], n_primary: int, n_secondary: int
) -> Float[np.ndarray, " n"]:
    r"""Compute the expected number of occurrences of each row in a batch with repeats.

    It is $n_\text{primary} n_\text{secondary} R_j / (n k)$.

    Parameters
    ----------
    neighbors : array of shape (n, k) or (n,)
        Neighbour list of every row, or the counts $R_j$, which sum to $n k$.
    n_primary, n_secondary : int
        Neighbourhoods per batch, and rows drawn from each.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> expected_counts(np.array([[0, 1], [1, 0], [2, 1], [3, 1]]), 1, 1)
    array([0.25 , 0.5  , 0.125, 0.125])
    """
    counts = neighbor_counts(neighbors) if neighbors.ndim == 2 else neighbors
    return expected_count(counts, len(counts), counts.sum() / len(counts), n_primary, n_secondary)


def expected_count(
    counts: Any, n_rows: Any, n_neighbors: Any, n_primary: int, n_secondary: int
) -> Any:
    r"""Expected count $n_\text{primary} n_\text{secondary} R_j / (n k)$ of NumPy or JAX arrays."""
    return n_primary * n_secondary / n_neighbors * counts / n_rows


def inclusion_probabilities(
    counts: Int[np.ndarray, " n"], n_rows: int, k: int, n_primary: int, n_secondary: int
) -> Float[np.ndarray, " n"]:
    r"""Compute the probability that each row is in a batch at least once.

    Row $j$ is in the lists of $h$ of the primary rows with hypergeometric probability, and is left
    out of each of these lists with probability $1 - n_\text{secondary} / k$, so
    $\pi_j = \sum_h \text{Hyp}(h; n, R_j, n_\text{primary}) (1 - (1 - n_\text{secondary} / k)^h)$.

    Parameters
    ----------
    counts : array of shape (n,)
        The counts $R_j$ of `neighbor_counts`.
    n_rows, k : int
        Number of rows, and size of a neighbourhood.
    n_primary, n_secondary : int
        Neighbourhoods per batch, and rows drawn from each.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> inclusion_probabilities(np.array([2, 4, 1, 1]), 4, 2, n_primary=2, n_secondary=1)
    array([0.45833333, 0.75      , 0.25      , 0.25      ])
    """
    values, where = np.unique(counts, return_inverse=True)
    n_hits = np.arange(1, n_primary + 1)
    chance = hypergeom.pmf(n_hits[None, :], n_rows, values[:, None], n_primary)
    drawn = 1 - (1 - n_secondary / k) ** n_hits
    return (chance @ drawn)[where]


def horvitz_thompson(expected: Any) -> Any:
    """Compute Horvitz-Thompson weights.

    Parameters
    ----------
    expected : array
        Expected counts or inclusion probabilities; 0 for padding.

    Returns
    -------
    array
        1 over ``expected``, or 0 for padding.

    Examples
    --------
    >>> horvitz_thompson(np.array([0.25, 0.5, 0.0]))
    array([4., 2., 0.])
    """
    xp = np if isinstance(expected, np.ndarray) else jnp
    return xp.where(expected > 0, 1.0 / xp.where(expected > 0, expected, 1.0), 0.0)


def draw_batches(
    key: PRNGKeyArray,
    n_batches: int,
    neighbors: Int[Array, "n_rows_padded k"],
    n_rows: Int[Array, ""],
    n_primary: int,
    n_secondary: int,
) -> Int[Array, "{n_batches} {n_primary*n_secondary}"]:
    """Draw the rows of many batches at once, neighbourhood by neighbourhood, with repeats.

    For compiled loops: shapes depend only on the settings and the padded size. Primary rows follow
    a random order of the rows, which starts again at its end. With ``n_primary <= n_rows`` they are
    distinct within a batch, and every batch is a uniform draw. If all batches together contain only
    few of the rows, primary rows are drawn with replacement. In both cases the expected counts are
    the same: the weight of each row is ``horvitz_thompson(expected_counts(...))``. Lists that are
    drawn as a whole (``n_secondary == k``) keep their order.

    Parameters
    ----------
    key
        Key of JAX.
    n_batches : int
    neighbors : array of shape (n_rows_padded, k)
        Neighbour list of every row.
    n_rows : scalar array
        Number of rows without padding.
    n_primary, n_secondary : int
        Neighbourhoods per batch, and rows drawn from each.

    Returns
    -------
    array of shape (n_batches, n_primary * n_secondary)
        Row numbers.

    Examples
    --------
    >>> neighbors = jnp.array([[0, 1], [1, 0], [2, 1]])
    >>> draw_batches(jax.random.key(0), 5, neighbors, jnp.array(3), 1, 2).shape
    (5, 2)
    """
    n_rows_padded, k = neighbors.shape
    n_sets, n_draws = n_batches * n_primary, min(n_secondary, k - n_secondary)
    is_sparse = SPARSE_WALK * n_sets < n_rows_padded
    n_first = n_sets if is_sparse else n_rows_padded
    bits = jax.random.bits(key, (n_first + n_sets * n_draws,))  # a second call compiles slowly
    if is_sparse:
        primary = _below(n_rows.astype(jnp.uint32), bits[:n_first])
    else:
        primary = random_order(bits[:n_first], n_rows)[jnp.arange(n_sets) % n_rows]
    lists = neighbors[primary]
    if n_draws:
        chosen = random_subsets(bits[n_first:].reshape(n_sets, n_draws), k, n_secondary)
        lists = jnp.take_along_axis(lists, chosen, axis=1, mode="clip")
    return lists.reshape(n_batches, n_primary * n_secondary)


def random_order(
    bits: UInt32[Array, " n_rows_padded"], n_rows: Int[Array, ""]
) -> Int[Array, " n_rows_padded"]:
    """Random order of the first ``n_rows`` rows, the padding after them."""
    is_row = jnp.arange(len(bits)) < n_rows
    largest = np.uint32(2**32 - 1)  # the sort is stable: rows with this number precede padding
    return jnp.argsort(jnp.where(is_row, bits, largest), stable=True)


def random_subsets(
    bits: UInt32[Array, "n_sets n_draws"], k: int, size: int
) -> Int[Array, "n_sets {size}"]:
    """Uniform subsets of ``range(k)`` by Floyd's method, or complements of smaller ones.

    Each needs ``min(size, k - size)`` random numbers; the rounding error is of order ``k / 2**32``.
    """
    n_draws = bits.shape[1]
    last = jnp.arange(k - n_draws, k)  # draw i is from 0..last[i], and is last[i] if it was taken
    draws = _below((last + 1).astype(jnp.uint32)[None], bits)

    def draw(i, taken):
        repeated = jnp.any(taken == draws[:, i][:, None], axis=1)
        return taken.at[:, i].set(jnp.where(repeated, last[i], draws[:, i]))

    chosen = lax.fori_loop(0, n_draws, draw, jnp.full_like(draws, -1))
    return chosen if size == n_draws else _complement(chosen, size)


def _below(bound: UInt32[Array, "..."], bits: UInt32[Array, "..."]) -> Int[Array, "..."]:
    """``floor(bits * bound / 2**32)``: uniform below ``bound``, in 32-bit arithmetic."""
    high, low = bits >> 16, bits & 0xFFFF
    bound_high, bound_low = bound >> 16, bound & 0xFFFF
    cross, crossed = high * bound_low, low * bound_high
    carry = ((cross & 0xFFFF) + (crossed & 0xFFFF) + (low * bound_low >> 16)) >> 16
    return (high * bound_high + (cross >> 16) + (crossed >> 16) + carry).astype(jnp.int32)


def _complement(dropped: Int[Array, "m r"], size: int) -> Int[Array, "m {size}"]:
    """Remaining numbers in order: the p-th is p plus the count of dropped ones before it."""
    rank = jnp.sum(dropped[:, :, None] > dropped[:, None, :], axis=2, dtype=jnp.int32)
    kept_before = dropped - rank
    position = jnp.arange(size, dtype=jnp.int32)
    is_before = kept_before[:, None, :] <= position[None, :, None]
    return position[None] + jnp.sum(is_before, axis=2, dtype=jnp.int32)


@final
class LocalitySampler:
    """Endless locality batches ``(indices, weights)`` for training loops in any framework.

    Over many batches the weights of every row average to 1, so the weighted sum of a batch divided
    by the number of rows (never by the batch size) is an unbiased estimate of the mean over all
    rows.

    Parameters
    ----------
    n_primary, n_secondary, n_neighbors : int
        Neighbourhoods per batch, rows drawn from each, and size of a neighbourhood; reduced if the
        data are smaller.
    design : "counts" or "set"
        "counts" keeps repeated rows, so all batches have the same size; "set" removes them.
    standardize : bool
        True to divide the columns by their standard deviation before Euclidean distances are
        computed; constant columns are ignored. False uses ``X`` as given.
    method : str
        Neighbour search; see `sigmax.neighbors.neighbor_graph`.
    random_state : int, RandomState, Generator or None
        With an int, every ``iter`` repeats the same batches.

    Attributes
    ----------
    neighbors_, counts_, weights_, n_rows_
        Neighbour lists, number of lists with each row, weight of each row, and number of rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> sampler = LocalitySampler(n_neighbors=10, n_secondary=8, random_state=0).fit(X)
    >>> indices, weights = next(iter(sampler))
    >>> indices.shape, bool((weights == sampler.weights_[indices]).all())
    ((24,), True)
    """

    neighbors_: Int[np.ndarray, "n k"]
    counts_: Int[np.ndarray, " n"]
    weights_: Float[np.ndarray, " n"]
    n_rows_: int

    def __init__(
        self,
        n_primary=3,
        n_secondary=40,
        n_neighbors=50,
        *,
        design="counts",
        standardize=True,
        method="auto",
        random_state=None,
    ):
        self.n_primary = check_count("n_primary", n_primary)
        self.n_secondary = check_count("n_secondary", n_secondary)
        self.n_neighbors = check_count("n_neighbors", n_neighbors)
        self.design = check_choice("design", design, ("counts", "set"))
        self.standardize = check_flag("standardize", standardize)
        self.method = check_choice("method", method, METHODS)
        self.random_state = random_state
        make_generator(deepcopy(random_state))  # an error here rather than in the loop

    def fit(self, X: ArrayLike) -> "LocalitySampler":
        """Find the neighbours of the rows of ``X`` and compute their weights.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        self
        """
        rows = as_rows("X", X)
        if self.standardize:
            peak = np.abs(rows).max(axis=0)  # divided out first, so that no square overflows
            rows = StandardScaler().fit_transform(rows / np.where(peak > 0, peak, 1))
        seed = self.random_state if isinstance(self.random_state, int) else 0
        self.neighbors_ = neighbor_graph(
            rows, self.n_neighbors, method=self.method, random_state=seed
        )
        self.counts_ = neighbor_counts(self.neighbors_)
        self.n_rows_ = len(self.neighbors_)
        m, n, k = self._sizes()
        if self.design == "counts":
            expected = expected_counts(self.counts_, m, n)
        else:
            expected = inclusion_probabilities(self.counts_, self.n_rows_, k, m, n)
        self.weights_ = horvitz_thompson(expected)
        return self

    def __iter__(self) -> Iterator[tuple[Int[np.ndarray, " b"], Float[np.ndarray, " b"]]]:
        return self.batches(self.random_state)

    def batches(
        self, random_state: Any
    ) -> Iterator[tuple[Int[np.ndarray, " b"], Float[np.ndarray, " b"]]]:
        """Return endless batches with another seed, such as that of an epoch or a process.

        Parameters
        ----------
        random_state : int, RandomState, Generator or None

        Returns
        -------
        iterator of (indices, weights)
        """
        if not hasattr(self, "neighbors_"):
            raise InvalidArgumentError("The sampler has no rows yet: call `fit(X)` first.")
        rng = make_generator(random_state)
        return iter(lambda: self._batch(rng), None)

    def __repr__(self) -> str:
        names = ("n_primary", "n_secondary", "n_neighbors", "design", "standardize", "method")
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in (*names, "random_state"))
        fitted = f" on {self.n_rows_} rows" if hasattr(self, "n_rows_") else ""
        return f"LocalitySampler({settings}){fitted}"

    def _batch(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        m, n, _ = self._sizes()
        primary = rng.choice(self.n_rows_, m, replace=False, shuffle=False)
        drawn = rng.permuted(self.neighbors_[primary], axis=1)[:, :n].ravel()
        indices = (drawn if self.design == "counts" else np.unique(drawn)).astype(np.int64)
        return indices, self.weights_[indices]

    def _sizes(self) -> tuple[int, int, int]:
        """``n_primary``, ``n_secondary`` and ``n_neighbors`` as reduced to the data."""
        n_rows, k = self.neighbors_.shape
        return min(self.n_primary, n_rows), min(self.n_secondary, k), k
