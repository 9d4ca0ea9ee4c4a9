"""Search for the nearest training rows in the learned metrics, by cells of k-means (faiss)."""

from dataclasses import dataclass, replace
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sigmax.neighbors import import_faiss

__all__ = ["NearestRows"]

CELLS_PER_ROOT = 4
"""So many cells, times the root of the number of rows."""

ROWS_PER_CELL_TO_LEARN = 40
"""Of the sample that the cells are found by."""


@final
@dataclass(frozen=True, eq=False)
class NearestRows:
    """One index per member; each looks into the cells around a metric for the k nearest rows."""

    indexes: tuple[Any, ...]
    k: int = 64
    n_cells: int = 16
    """How many cells are looked into."""

    @classmethod
    def build(cls, coordinates: Float[Array, "members rows metric"]) -> "NearestRows":
        """Indexes of rows by their coordinates, as each member sees them."""
        return cls(tuple(build_index(np.asarray(rows)) for rows in coordinates))

    def with_size(self, k: int, n_cells: int) -> "NearestRows":
        """The same indexes, searched for other indices."""
        return replace(self, k=k, n_cells=n_cells)

    def __call__(
        self, coordinates: Float[Array, "members queries metric"]
    ) -> tuple[Float[Array, "members queries k"], Int[Array, "members queries k"]]:
        """Squared distances to the nearest rows, and their indices; infinite where none is left."""
        squared, indices = [], []
        for index, queries in zip(self.indexes, coordinates, strict=True):
            index.nprobe = self.n_cells
            found = index.search(np.asarray(queries), self.k)
            is_missing = found[1] < 0
            squared.append(np.where(is_missing, np.float32(np.inf), found[0]))
            indices.append(np.where(is_missing, 0, found[1]).astype(np.int32))
        return jnp.asarray(np.stack(squared)), jnp.asarray(np.stack(indices))


def build_index(rows: Float[np.ndarray, "rows metric"]) -> Any:
    """Cells of k-means on a sample, and every row in its cell."""
    faiss: Any = import_faiss()
    n_cells = round(CELLS_PER_ROOT * len(rows) ** 0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], n_cells)
    every = max(1, len(rows) // (ROWS_PER_CELL_TO_LEARN * n_cells))
    index.cp.niter, index.cp.min_points_per_centroid = 10, 1
    index.train(np.ascontiguousarray(rows[::every]))
    index.add(rows)
    return index
