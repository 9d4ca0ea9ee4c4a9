"""From a user's table to network inputs and distance coordinates, and the schema to check against.

Nothing else in the package knows what a table looked like: `Table` reads it, `Features` learns from
the training rows how to turn any such table into `Inputs`.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sigmax.inputs import Inputs
from sigmax.scaling import Standardizer

__all__ = ["Features", "Table"]


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Rows as a user gives them, checked: today numbers, one column each."""

    numbers: NDArray[np.float64]

    @classmethod
    def read_training(cls, estimator: BaseEstimator, X: Any, y: Any) -> tuple["Table", NDArray]:
        """The rows to learn from and their targets; the estimator keeps the names of the columns.

        Raises
        ------
        ValueError
            If anything is not finite, or if there are fewer than two rows.
        """
        checks = {"y_numeric": True, "multi_output": True, "ensure_min_samples": 2}
        X, y = map(np.asarray, validate_data(estimator, X, y, dtype=np.float64, **checks))
        return cls(X), y.astype(np.float64)

    @classmethod
    def read(cls, estimator: BaseEstimator, X: Any) -> "Table":
        """Rows to predict, refused if their columns are not those that were learned from."""
        check_is_fitted(estimator)
        return cls(np.asarray(validate_data(estimator, X, dtype=np.float64, reset=False)))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "Table":
        return Table(self.numbers[rows])

    @property
    def values(self) -> NDArray[np.float64]:
        """One number for every cell: rows that are equal here are equal."""
        return self.numbers


@final
@dataclass(frozen=True, eq=False)
class Features:
    """What was learned about the columns of a table."""

    scaling: Standardizer

    @classmethod
    def fit(cls, table: Table, weight: NDArray[np.float64]) -> "Features":
        """Means and standard deviations of all columns, rows weighted."""
        return cls(Standardizer.fit(table.numbers, weight))

    def __call__(self, table: Table, dtype: Any = np.float32) -> Inputs:
        """The rows as networks and distances take them."""
        return Inputs(self.scaling(table.numbers, dtype))

    def blank(self, n_rows: int) -> Inputs:
        """Rows of the right shape and type, without content."""
        return Inputs(np.zeros((n_rows, len(self.scaling.mean)), dtype=np.float32))

    def state(self) -> dict[str, np.ndarray]:
        """All that a saved model needs of it."""
        return self.scaling.state("features")

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], n_columns: int) -> "Features":
        """What `state` was taken from, refused if it has more or fewer columns."""
        return cls(Standardizer.from_state(arrays, "features", n_columns))
