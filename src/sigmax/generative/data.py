"""The rows on the device, and which of them each model learns from."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sigmax.estimators.folds import split_large_groups
from sigmax.neighbors import neighbor_graph
from sigmax.random import named_generator
from sigmax.training import Graph

__all__ = ["GenerativeData", "ModelRows", "split_rows"]

LARGEST_HOLD_OUT = 4096
"""More held-out rows than this say nothing new about which snapshot is best."""

FEATURES_FOR_NEIGHBORS = 32
"""Principal components by which neighbours are searched where there are more features."""


@final
class GenerativeData(eqx.Module):
    """The rows of every data set, and their neighbour lists (of one row where none are needed)."""

    X: Float[Array, "sets rows features"]
    graph: Graph

    @classmethod
    def create(cls, sets: Sequence[np.ndarray], k: int) -> "GenerativeData":
        """All data sets on the device, with lists of ``k`` neighbours."""
        lists = [search_neighbors(X, k) for X in sets]
        return cls(jnp.asarray(np.stack(sets)), Graph.create(lists, len(sets[0])))

    @property
    def n_rows(self) -> int:
        return self.X.shape[1]


@final
class ModelRows(eqx.Module):
    """What one model learns from and what it is judged on."""

    group: Int[Array, "*members"]
    """The number of the model: each stops on its own."""
    data_set: Int[Array, "*members"]
    learned: Int[Array, "*members learned"]
    """Rows to learn from."""
    held_out: Int[Array, "*members held_out"]
    """Rows to choose the best snapshot by."""

    @classmethod
    def create(
        cls, data_sets: Sequence[int], splits: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> "ModelRows":
        """From the data set of every model and what `split_rows` gave for it."""
        learned, held_out = map(np.stack, zip(*splits, strict=True))
        parts = np.arange(len(data_sets)), np.asarray(data_sets), learned, held_out
        return cls(*(jnp.asarray(part, dtype=jnp.int32) for part in parts))

    def take(
        self, data: GenerativeData, picks: Int[Array, "*picks"]
    ) -> Float[Array, "*picks features"]:
        """Some of the rows to learn from."""
        return data.X[self.data_set, self.learned[picks]]


def search_neighbors(X: np.ndarray, k: int) -> np.ndarray:
    """Lists of near rows, each row first in its own."""
    if k == 1:
        return np.arange(len(X), dtype=np.int32)[:, None]
    if X.shape[1] > 2 * FEATURES_FOR_NEIGHBORS:
        from sklearn.decomposition import PCA

        n_components = min(FEATURES_FOR_NEIGHBORS, *X.shape)
        X = PCA(n_components, svd_solver="randomized", random_state=0).fit_transform(X)
    return neighbor_graph(X, k)


def split_rows(
    n_rows: int, labels: np.ndarray | None, share: float, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and a ``share`` of the rows to choose the best snapshot by.

    Their numbers depend on that of the rows alone, so that models can be trained together. Rows of
    one of the ``labels`` are held out together: a copy to learn from would tell a model what it is
    judged by. A label with more rows than are held out counts as so many single rows.
    """
    n_held_out = min(round(share * n_rows), LARGEST_HOLD_OUT, n_rows - 2)
    if labels is None or n_held_out <= 0:
        return np.arange(n_rows), np.empty(0, dtype=int)
    shuffled = named_generator(key, "held out").permutation(n_rows)
    is_held_out = fill_up(split_large_groups(labels, n_held_out)[shuffled], n_held_out)
    # Where labels do not add up to the number, some rows are scored twice and some are not used.
    learned = shuffled[~is_held_out][: n_rows - n_held_out]
    return np.sort(learned), np.sort(np.resize(shuffled[is_held_out], n_held_out))


def fill_up(labels: np.ndarray, n_wanted: int) -> np.ndarray:
    """Which rows are taken if labels are taken whole, in their order, as long as they fit."""
    _, first, labels, counts = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    is_taken, n_left = np.zeros(len(counts), dtype=bool), n_wanted
    for label in np.argsort(first):
        if counts[label] <= n_left:
            is_taken[label], n_left = True, n_left - counts[label]
        if not n_left:
            break
    return is_taken[labels]
