"""Centres that stand for many rows."""

from typing import Any

import numpy as np

__all__ = ["k_means_centers"]

MANY_COORDINATES = 128
"""With more, far-apart first centres (k-means++) take a minute; random rows do."""


def k_means_centers(sample: np.ndarray, n_centers: int, seed: int) -> np.ndarray:
    """The centres of k-means on a sample of rows."""
    from sklearn.cluster import MiniBatchKMeans

    settings: dict[str, Any] = {"n_init": 1, "batch_size": 2048, "random_state": seed}
    if sample.shape[1] > MANY_COORDINATES:
        settings["init"] = "random"
    return np.asarray(MiniBatchKMeans(n_centers, **settings).fit(sample).cluster_centers_)
