"""Imputation of unknown cells by cells of similar training rows.

A cell is unknown if it is missing in a column that had no missing value in training, or if it holds
a category that no training row has. The prediction is then the average over possible values of the
cell given the other columns: the cells of the training rows that are nearest in the columns that
the unknown column depends on.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.distributions import Mixture, Stacked
from sigmax.tables import MISSING, CategoryColumn, Table

N_COMPLETIONS, N_SIMILAR = 16, 64
"""Number of completions of a row, and of donors from which they are chosen."""

LEAST_WEIGHT = 0.02
"""Smallest weight of a column; 1 is the weight of a column that determines the unknown one."""


@final
@dataclass(frozen=True, eq=False)
class Completion:
    """Completed rows: the first completion of every row, then the further ones."""

    table: Table
    choices: NDArray[np.intp] | None = None
    """Positions (completions, rows) in the table; None if all rows were complete."""
    log_weight: NDArray[np.float64] | None = None
    """Logarithm of the weight of each choice: equal weights, or all on the first one."""

    @property
    def n_rows(self) -> int:
        """Number of the given rows."""
        return len(self.table) if self.choices is None else self.choices.shape[1]

    def mixture(self, mixture: Mixture | Stacked) -> Mixture | Stacked:
        """Predictions of the given rows: mixtures over their completions."""
        if self.choices is None or self.log_weight is None:
            return mixture
        return mixture.over_choices(self.choices, self.log_weight)

    def average(self, values: NDArray[Any]) -> NDArray[Any]:
        """Average of values (..., rows) over the completions of every row."""
        if self.choices is None or self.log_weight is None:
            return values
        return np.sum(values[..., self.choices] * np.exp(self.log_weight), axis=-2)


def complete(
    table: Table,
    is_unknown: NDArray[np.bool_],
    donors: Table,
    coordinates: NDArray[np.floating],
    donor_coordinates: NDArray[np.floating],
    column_of: NDArray[np.intp],
) -> Completion:
    """Rows whose unknown cells are filled in by those of similar ``donors``.

    Rows with the same unknown columns are compared with the donors in the coordinates of all other
    columns, each weighted by the share of the unknown columns' variance that it explains: the
    largest squared correlation. The nearest donors are sorted by their value in the unknown column,
    and evenly spaced ones among them give their cells, those of one donor together. ``column_of``
    is the column of every coordinate, numbered as in ``is_unknown``, or -1 to ignore it.
    """
    from sklearn.neighbors import NearestNeighbors  # here: the import takes long

    incomplete = np.flatnonzero(is_unknown.any(axis=1))
    n, k = len(table), min(N_COMPLETIONS, len(donors))
    squared_correlation = correlations(donor_coordinates)
    chosen = np.empty((len(incomplete), k), dtype=np.intp)
    patterns, pattern_of = np.unique(is_unknown[incomplete], axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        own = np.flatnonzero(pattern_of.reshape(-1) == number)
        rows, is_unknown_here = incomplete[own], pattern[column_of] & (column_of >= 0)
        is_known = ~is_unknown_here & (column_of >= 0)
        explained = squared_correlation[:, is_unknown_here].max(axis=1, initial=0.0)
        weight = np.sqrt(np.maximum(explained, LEAST_WEIGHT)) * is_known
        n_similar = min(N_SIMILAR, len(donors))
        search: Any = NearestNeighbors(n_neighbors=n_similar, algorithm="brute")
        search.fit(donor_coordinates * weight)
        similar = search.kneighbors(coordinates[rows] * weight, return_distance=False)
        chosen[own] = spaced(similar, donor_coordinates[:, is_unknown_here], k)
    extra = n + np.arange(len(incomplete) * (k - 1)).reshape(k - 1, len(incomplete))
    choices = np.tile(np.arange(n), (k, 1))
    choices[1:, incomplete] = extra
    log_weight = np.full((k, n), -np.inf)
    log_weight[0] = 0.0
    log_weight[:, incomplete] = -np.log(k)
    rows = np.concatenate([np.arange(n), np.tile(incomplete, k - 1)])
    donor_of = np.zeros(len(rows), dtype=np.intp)
    donor_of[incomplete] = chosen[:, 0]
    donor_of[n:] = chosen[:, 1:].T.reshape(-1)
    return Completion(filled(table[rows], is_unknown[rows], donors[donor_of]), choices, log_weight)


def correlations(coordinates: NDArray[np.floating]) -> NDArray[np.float64]:
    """Squared correlations of all pairs of coordinates, minus the expectation by chance."""
    centered = np.asarray(coordinates, np.float64) - coordinates.mean(axis=0, dtype=np.float64)
    length = np.sqrt(np.sum(centered**2, axis=0))
    standard = centered / np.where(length > 0, length, 1.0)
    return np.maximum((standard.T @ standard) ** 2 - 2 / len(coordinates), 0.0)


def spaced(
    similar: NDArray[np.intp], coordinates: NDArray[np.floating], k: int
) -> NDArray[np.intp]:
    """``k`` of the ``similar`` donors (rows, donors), evenly spaced along the unknown coordinates.

    Several coordinates are projected to the direction in which the donors differ most.
    """
    if not coordinates.shape[1]:
        coordinates = np.zeros((len(coordinates), 1))
    centered = coordinates - coordinates.mean(axis=0)
    direction = np.linalg.svd(centered, full_matrices=False)[2][0]
    order = np.argsort((centered @ direction)[similar], axis=1, kind="stable")
    positions = ((np.arange(k) + 0.5) * similar.shape[1] / k).astype(np.intp)
    return np.take_along_axis(similar, order[:, positions], axis=1)


def filled(table: Table, is_unknown: NDArray[np.bool_], donors: Table) -> Table:
    """Rows whose unknown cells are taken from ``donors``, one for every row."""
    n_numbers, n_times = table.numbers.shape[1], table.times.shape[1]
    of_numbers, of_times, of_categories = np.split(
        is_unknown, [n_numbers, n_numbers + n_times], axis=1
    )
    # A donor's time is moved by the mean of how much later the row is in the times that both have.
    apart = table.times - donors.times
    known = ~np.isnan(apart)
    shift = np.where(known, apart, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    pairs = zip(table.categories, donors.categories, of_categories.T, strict=True)
    return replace(
        table,
        numbers=np.where(of_numbers, donors.numbers, table.numbers),
        times=np.where(of_times, donors.times + shift[:, None], table.times),
        categories=tuple(mixed_categories(*pair) for pair in pairs),
    )


def mixed_categories(
    own: CategoryColumn, other: CategoryColumn, is_other: NDArray[np.bool_]
) -> CategoryColumn:
    """Categories of ``own``, and of ``other`` where ``is_other``."""
    if not is_other.any():
        return own
    codes = np.where(other.codes == MISSING, MISSING, other.codes + len(own.names))
    codes = np.where(is_other, codes, own.codes).astype(np.int32)
    return CategoryColumn(codes, (*own.names, *other.names))
