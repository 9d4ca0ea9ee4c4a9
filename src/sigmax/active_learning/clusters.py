"""One row from every cluster of the rows that a model knows least about."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

__all__ = ["choose_by_clusters"]

ROWS_PER_CLUSTER = 50
"""The most wanted rows that clusters are made of, for every row to choose, and at least:"""
FEWEST_ROWS = 1000


def choose_by_clusters(
    coordinates: Float[np.ndarray, "pool metric"],
    weight: Float[np.ndarray, " pool"],
    n: int,
    price: Float[np.ndarray, " pool"],
    budget: float,
    rng: np.random.Generator,
) -> Int[np.ndarray, " chosen"]:
    """Up to ``n`` rows: of every cluster the one nearest to its centre, the heaviest cluster first.

    Rows count by weight per price. Of a large pool only the most wanted rows are looked at (as
    Zhdanov 2019 does). Equal rows are one place: where there are fewer places than rows to choose,
    the most wanted of the others follow.
    """
    from sklearn.cluster import KMeans

    worth = weight / price
    order = np.argsort(-worth, kind="stable")
    order = order[price[order] <= budget * (1 + 1e-12)]
    order = order[: max(FEWEST_ROWS, ROWS_PER_CLUSTER * n)]
    rows, counts = coordinates[order], np.maximum(worth[order], 1e-12 * worth.max() + 1e-300)
    n_clusters = min(n, len(np.unique(rows, axis=0)))
    settings: Any = {"n_init": 1, "random_state": int(rng.integers(2**31))}
    found: Any = KMeans(n_clusters, **settings)
    found.fit(rows, sample_weight=counts / counts.mean())
    squared = np.sum((rows - found.cluster_centers_[found.labels_]) ** 2, axis=1)
    clusters = []
    for label in np.unique(found.labels_):
        own = np.flatnonzero(found.labels_ == label)
        clusters.append((counts[own].sum(), own[np.argmin(squared[own])]))
    first = [order[row] for _, row in sorted(clusters, key=lambda pair: (-pair[0], pair[1]))]
    rest = order[~np.isin(order, first)]
    taken, left = [], budget * (1 + 1e-12)
    for row in np.concatenate([first, rest]).astype(int):
        if len(taken) < n and price[row] <= left:
            taken.append(row)
            left -= price[row]
    return np.array(taken, dtype=int)
