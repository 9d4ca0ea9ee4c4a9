"""The splits into training and test rows that published tables are made on."""

import numpy as np
from numpy.typing import NDArray

from sigmax.errors import InvalidArgumentError

__all__ = ["Split", "standard_splits"]

Split = tuple[NDArray[np.integer], NDArray[np.integer]]
"""The rows to train on, and the rows to test on."""


def standard_splits(n_rows: int, n_splits: int) -> list[Split]:
    """The 90/10 splits of Hernandez-Lobato and Adams (2015), as everyone since has used them.

    Fewer splits are the first of more.

    Examples
    --------
    >>> train, test = standard_splits(10, 20)[0]
    >>> train, test
    (array([2, 9, 6, 4, 0, 3, 1, 7, 8]), array([5]))
    """
    for name, value, least in (("n_rows", n_rows, 2), ("n_splits", n_splits, 1)):
        if value < least:
            raise InvalidArgumentError(f"`{name}` must be at least {least}, got {value!r}.")
    rng = np.random.RandomState(1)  # this very generator defines the splits
    n_train = (9 * n_rows + 5) // 10
    orders = (rng.permutation(n_rows) for _ in range(n_splits))
    return [(order[:n_train], order[n_train:]) for order in orders]
