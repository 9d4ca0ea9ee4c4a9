"""Columns of categories: codes for embeddings, statistics of the target, coordinates of names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd

from sigmax.tables import MISSING, CategoryColumn

N_HASHES = 2048
N_COMPONENTS = 16
"""Coordinates of a name, at most."""


@final
@dataclass(frozen=True, eq=False)
class TextMap:
    """Character n-grams, hashed and weighted by rarity, on their principal directions."""

    directions: NDArray[np.float32]
    """Of shape (N_HASHES, components): what n-grams are multiplied by."""

    @classmethod
    def fit(cls, names: Sequence[str], weight: NDArray[np.float64]) -> "TextMap":
        """From the names of all levels and how often they stand in the table."""
        grams = count_grams(names)
        rarity = np.log((1 + len(names)) / (1 + np.asarray((grams > 0).sum(axis=0)).ravel())) + 1
        weighted = grams.multiply(rarity[None]).tocsr()
        root = np.sqrt(weight / weight.sum())
        n_components = min(N_COMPONENTS, len(names) - 1)
        _, _, rows = randomized_svd(
            weighted.multiply(root[:, None]).tocsr(), n_components, random_state=0
        )
        return cls((rarity[:, None] * rows.T).astype(np.float32))

    @property
    def n_components(self) -> int:
        return self.directions.shape[1]

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Coordinates of names, also of new ones."""
        return np.asarray(count_grams(names) @ self.directions, dtype=np.float32)


def count_grams(names: Sequence[str]) -> Any:
    """Hashed n-grams of names, every name of length 1."""
    vectorizer = HashingVectorizer(
        analyzer="char_wb", ngram_range=(2, 4), n_features=N_HASHES, alternate_sign=False
    )
    return vectorizer.transform(list(names))


MISMATCH = 1.0
"""Distance of two rows that differ in one category, in standard deviations of a number."""

MOST_LEVELS, FEWEST_LEVELS, MOST_CELLS = 200, 20, 2_000_000
"""Every level has a coordinate of its own in columns of at most so many levels, fewer where rows
are many: so many cells of coordinates are made for a column at most."""

RARE = 3
"""Categories of fewer rows share the embedding of new ones."""

NEW = 0
"""The code of levels that are new or rare."""

OFTEN_NEW = 0.05
"""With so large a share of rows that are alone in their level, a new level is nothing new."""

USUAL_NOVELTY = 0.5
"""Unseen categories are filled in only in columns where they are more unusual than this."""

LEAST_STD = 0.2
"""Statistics that differ less, in standard deviations of the target, are not blown up."""


def most_levels(n_rows: int) -> int:
    """Columns of more levels are seen by statistics of the target and the letters of their names."""
    return int(np.clip(MOST_CELLS // n_rows, FEWEST_LEVELS, MOST_LEVELS))


@final
@dataclass(frozen=True, eq=False)
class EncodedCategory:
    """Some rows of one column."""

    codes: NDArray[np.int32]
    statistics: NDArray[np.float32]
    """Of the target, at this level; none in columns of few levels."""
    letters: NDArray[np.float32]
    """Where the name of the level stands among all names; none in columns of few levels."""
    coordinates: NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class CategoryMap:
    """What was learned about one column; every level, gaps and new levels have an entry.

    In a column of few levels each is a corner of a simplex: all are `MISMATCH` apart. In a column
    of many, levels are near each other where the target behaves alike and names are alike.
    """

    names: tuple[str, ...]
    has_missing: bool
    codes: NDArray[np.int32]
    novelty: float
    """How unusual a new level is: 1 if training rows have none, 0 if many are of their own kind."""
    statistics: NDArray[np.float32]
    letters: NDArray[np.float32]
    text: TextMap | None
    """None in a column of few levels."""
    letter_scales: NDArray[np.float32]
    """What coordinates of names are multiplied by for networks, and these for distances."""

    @property
    def n_codes(self) -> int:
        return int(self.codes.max()) + 1

    @classmethod
    def fit(
        cls,
        levels: CategoryColumn,
        y: NDArray[np.float64],
        weight: NDArray[np.float64],
        groups: NDArray[np.int_],
    ) -> tuple["CategoryMap", EncodedCategory]:
        """The map, and the training rows with statistics from which their own target is left out.

        Parameters
        ----------
        y
            Targets (rows, outputs) in standardised units.
        groups
            A label for every row; copies share one.
        """
        n_levels = len(levels.names)
        entry = np.where(levels.codes == MISSING, n_levels, levels.codes).astype(np.int32)
        count = np.bincount(entry, minlength=n_levels + 2)
        is_kept = count >= RARE
        codes = np.where(is_kept, np.cumsum(is_kept), NEW).astype(np.int32)
        share_alone = np.sum(count[:n_levels] == 1) / len(entry)
        novelty = max(0.0, 1 - float(share_alone) / OFTEN_NEW)
        known = (levels.names, bool(count[n_levels]), codes, novelty)
        if n_levels <= most_levels(len(entry)):
            none = np.zeros((n_levels + 2, 0), dtype=np.float32)
            found = cls(*known, none, none, None, np.ones(2, dtype=np.float32))
            return found, found(levels)
        statistics, own = standardised_statistics(entry, n_levels + 1, y, weight, groups)
        share = np.bincount(entry, weight, minlength=n_levels + 2) / weight.sum()
        text = TextMap.fit(levels.names, np.maximum(share[:n_levels], 1e-12))
        letters = np.zeros((n_levels + 2, text.n_components), dtype=np.float32)
        letters[:n_levels] = text(levels.names)
        variance = share @ (letters - share @ letters) ** 2 + 1e-12
        for_networks = 1 / np.sqrt(variance.max())
        for_distances = MISMATCH * np.sqrt(variance.max() / (2 * variance.sum()))
        scales = np.array([for_networks, for_distances], dtype=np.float32)
        found = cls(*known, statistics, scales[0] * letters, text, scales)
        rows = found(levels)
        coordinates = np.concatenate([own, rows.coordinates[:, own.shape[1] :]], axis=1)
        return found, replace(rows, statistics=own, coordinates=coordinates)

    def __call__(self, levels: CategoryColumn) -> EncodedCategory:
        """Rows of the column."""
        n_levels = len(self.names)
        entry = levels.among(self.names, unknown=n_levels + 1)
        entry = np.where(entry == MISSING, n_levels, entry).astype(np.int32)
        is_new = entry == n_levels + 1
        statistics, letters = self.statistics[entry], self.letters[entry]
        if self.text is None:
            coordinates = corners(entry, n_levels + self.has_missing)
        else:
            if is_new.any():
                codes, place = np.unique(levels.codes[is_new], return_inverse=True)
                names = [levels.names[code] for code in codes]
                letters[is_new] = self.letter_scales[0] * self.text(names)[place]
            coordinates = np.concatenate([statistics, self.letter_scales[1] * letters], axis=1)
        return EncodedCategory(self.codes[entry], statistics, letters, coordinates)

    def is_unknown(self, levels: CategoryColumn) -> NDArray[np.bool_]:
        """Rows of which nothing was learned: missing where none was, or an unseen category.

        Where unseen categories are usual in the training rows, they were learned from.
        """
        entry = levels.among(self.names, unknown=len(self.names))
        is_unseen = (entry == len(self.names)) & (self.novelty > USUAL_NOVELTY)
        return is_unseen | ((entry == MISSING) & (not self.has_missing))


def corners(entry: NDArray[np.int32], n_corners: int) -> NDArray[np.float32]:
    """Corners of a simplex of edges `MISMATCH`; entries beyond them are at its foot, the origin."""
    found = np.zeros((len(entry), n_corners), dtype=np.float32)
    rows = np.flatnonzero(entry < n_corners)
    found[rows, entry[rows]] = MISMATCH / np.sqrt(2)
    return found


def standardised_statistics(
    entry: NDArray[np.int32],
    n_levels: int,
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    groups: NDArray[np.int_],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Statistics of every level and, cross-fitted, of every row, in units of the rows' spread."""
    known = level_statistics(entry, n_levels, y, weight)
    own = cross_fitted_statistics(entry, n_levels, y, weight, groups)
    # Where every level is rare, what rows see without their own target hardly differs.
    scale = np.maximum(np.maximum(own.std(axis=0), known[entry].std(axis=0)), LEAST_STD)
    center = own.mean(axis=0)
    statistics, rows = (((found - center) / scale).astype(np.float32) for found in (known, own))
    return statistics, rows


N_FOLDS = 5


def level_statistics(
    codes: NDArray[np.int32], n_levels: int, y: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean and logarithm of the standard deviation of ``y`` at every level, shrunk to all rows'.

    A level's mean is that of its rows and of k more at the mean of all, where k is the variance
    within levels over that between them. Its variance is that of its rows and of two more of the
    usual variance, and that of its mean. The last row is that of a level without rows.

    Parameters
    ----------
    codes
        Categories of the rows, in ``range(n_levels)``; others are left out.
    y
        Targets (rows, outputs) in standardised units.

    Returns
    -------
    statistics : array of shape (n_levels + 1, 2 * outputs)
        Means, then logarithms of standard deviations.
    """
    known = (codes >= 0) & (codes < n_levels)
    codes, y, weight = codes[known], y[known], weight[known]
    count = np.bincount(codes, weight, minlength=n_levels + 1)
    columns = []
    for target in y.T:
        total = max(weight.sum(), 1e-12)
        center = weight @ target / total
        variance = weight @ (target - center) ** 2 / total + 1e-6
        sums = np.bincount(codes, weight * (target - center), minlength=n_levels + 1)
        raw = sums / np.maximum(count, 1e-12)
        residual = target - center - raw[codes]
        squares = np.bincount(codes, weight * residual**2, minlength=n_levels + 1)
        n_levels_seen = max(int(np.sum(count > 0)), 1)
        n_repeated = len(target) - n_levels_seen
        within = squares.sum() / total * len(target) / n_repeated if n_repeated else variance / 2
        between = max(variance - within, 0.01 * variance)
        k = np.clip(within / between, 0.5, 100.0)
        mean = sums / (count + k)
        own = (squares + 2 * within) / (count + 2)
        spread = own + between * k / (count + k)  # and how little is known about the mean
        columns.append((center + mean, 0.5 * np.log(spread + 1e-3 * variance)))
    return np.column_stack([means for means, _ in columns] + [logs for _, logs in columns])


def cross_fitted_statistics(
    codes: NDArray[np.int32],
    n_levels: int,
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    groups: NDArray[np.int_],
) -> NDArray[np.float64]:
    """Every row's statistics from rows of other folds, so that no row sees its own target.

    Rows of one group (copies of each other) share a fold.
    """
    fold = groups % N_FOLDS
    found = np.empty((len(codes), 2 * y.shape[1]))
    for k in range(N_FOLDS):
        own = fold == k
        if not own.any():
            continue
        if own.all():
            statistics = level_statistics(codes[:0], n_levels, y[:0], weight[:0])
        else:
            statistics = level_statistics(codes[~own], n_levels, y[~own], weight[~own])
        found[own] = statistics[np.where(codes[own] < 0, n_levels, codes[own])]
    return found
