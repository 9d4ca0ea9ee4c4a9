"""Columns of categories: codes for embeddings, statistics of the target, coordinates of names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd

from sigmax.tables import MISSING, CategoryColumn

Numbers = NDArray[np.float64]
Labels = NDArray[np.int_]

N_HASHES = 2048
N_COMPONENTS = 16
"""Maximum number of coordinates of a name."""
MISMATCH = 1.0
"""Distance of two rows that differ in one category, in standard deviations of a number."""
MOST_ONE_HOT, FEWEST_ONE_HOT, MOST_CELLS = 200, 20, 2_000_000
"""Bounds of `most_categories`, and the maximum number of one-hot cells of a column."""
RARE = 3
"""Categories with fewer rows share the embedding of unseen ones."""
NEW = 0
"""Code of unseen and of rare categories."""
OFTEN_NEW = 0.05
"""Share of rows that are alone in their category from which unseen categories are usual."""
USUAL_NOVELTY = 0.5
"""Unseen categories are completed only in columns whose novelty is larger."""
LEAST_STD = 0.2
"""Minimum scale of statistics, in standard deviations of the target."""
N_FOLDS = 5


@final
@dataclass(frozen=True, eq=False)
class TextMap:
    """Character n-grams, hashed and weighted by rarity, on their principal directions."""

    directions: NDArray[np.float32]
    """Matrix (N_HASHES, components) by which counts of n-grams are multiplied."""

    @classmethod
    def fit(cls, names: Sequence[str], weight: Numbers) -> "TextMap":
        """Principal directions of the names of all categories, weighted by their frequency."""
        grams = count_grams(names)
        rarity = np.log((1 + len(names)) / (1 + np.asarray((grams > 0).sum(axis=0)).ravel())) + 1
        weighted = grams.multiply(rarity[None]).tocsr()
        root = np.sqrt(weight / weight.sum())
        n_components = min(N_COMPONENTS, len(names) - 1)
        _, _, rows = randomized_svd(
            weighted.multiply(root[:, None]).tocsr(), n_components, random_state=0
        )
        return cls((rarity[:, None] * rows.T).astype(np.float32))

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray(count_grams(names) @ self.directions, dtype=np.float32)


def count_grams(names: Sequence[str]) -> Any:
    """Hashed n-grams of names, normalised to length 1."""
    vectorizer = HashingVectorizer(
        analyzer="char_wb", ngram_range=(2, 4), n_features=N_HASHES, alternate_sign=False
    )
    return vectorizer.transform(list(names))


def most_categories(n_rows: int) -> int:
    return int(np.clip(MOST_CELLS // n_rows, FEWEST_ONE_HOT, MOST_ONE_HOT))


@final
@dataclass(frozen=True, eq=False)
class EncodedCategory:
    codes: NDArray[np.int32]
    statistics: NDArray[np.float32]
    """Statistics of the target in the category; no columns if there are few categories."""
    letters: NDArray[np.float32]
    """Coordinates of the name; no columns if there are few categories."""
    coordinates: NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class CategoryMap:
    """Encoding of one column; every category, missing values and unseen categories have an entry.

    Few categories are corners of a simplex, all `MISMATCH` apart. Many categories are close to each
    other if the target has similar statistics and the names are similar.
    """

    names: tuple[str, ...]
    has_missing: bool
    codes: NDArray[np.int32]
    novelty: float
    """1 if no training row is alone in its category, 0 if many are."""
    statistics: NDArray[np.float32]
    letters: NDArray[np.float32]
    text: TextMap | None
    """Encoder of names; None in a column of few categories."""
    letter_scales: NDArray[np.float32]
    """Factors of the coordinates of names for networks, and from these for distances."""

    @property
    def n_codes(self) -> int:
        return int(self.codes.max()) + 1

    @classmethod
    def fit(
        cls, column: CategoryColumn, y: Numbers, weight: Numbers, groups: Labels
    ) -> tuple["CategoryMap", EncodedCategory]:
        """Encoding, and the training rows with statistics that leave out their own target.

        ``y`` holds standardised targets (rows, outputs); duplicate rows share a label of
        ``groups``.
        """
        n_categories = len(column.names)
        entry = np.where(column.codes == MISSING, n_categories, column.codes).astype(np.int32)
        count = np.bincount(entry, minlength=n_categories + 2)
        is_kept = count >= RARE
        codes = np.where(is_kept, np.cumsum(is_kept), NEW).astype(np.int32)
        share_alone = np.sum(count[:n_categories] == 1) / len(entry)
        novelty = max(0.0, 1 - float(share_alone) / OFTEN_NEW)
        known = (column.names, bool(count[n_categories]), codes, novelty)
        if n_categories <= most_categories(len(entry)):
            none = np.zeros((n_categories + 2, 0), dtype=np.float32)
            found = cls(*known, none, none, None, np.ones(2, dtype=np.float32))
            return found, found(column)
        known_statistics = category_statistics(entry, n_categories + 1, y, weight)
        own = cross_fitted_statistics(entry, n_categories + 1, y, weight, groups)
        # If every category is rare, statistics without the own target hardly differ.
        scale = np.maximum(own.std(axis=0), known_statistics[entry].std(axis=0))
        center, scale = own.mean(axis=0), np.maximum(scale, LEAST_STD)
        statistics, own = (
            ((found - center) / scale).astype(np.float32) for found in (known_statistics, own)
        )
        share = np.bincount(entry, weight, minlength=n_categories + 2) / weight.sum()
        text = TextMap.fit(column.names, np.maximum(share[:n_categories], 1e-12))
        letters = np.zeros((n_categories + 2, text.directions.shape[1]), dtype=np.float32)
        letters[:n_categories] = text(column.names)
        variance = share @ (letters - share @ letters) ** 2 + 1e-12
        for_networks = 1 / np.sqrt(variance.max())
        for_distances = MISMATCH * np.sqrt(variance.max() / (2 * variance.sum()))
        scales = np.array([for_networks, for_distances], dtype=np.float32)
        found = cls(*known, statistics, scales[0] * letters, text, scales)
        rows = found(column)
        coordinates = np.concatenate([own, rows.coordinates[:, own.shape[1] :]], axis=1)
        return found, replace(rows, statistics=own, coordinates=coordinates)

    def __call__(self, column: CategoryColumn) -> EncodedCategory:
        n_categories = len(self.names)
        entry = column.among(self.names, unknown=n_categories + 1)
        entry = np.where(entry == MISSING, n_categories, entry).astype(np.int32)
        is_new = entry == n_categories + 1
        statistics, letters = self.statistics[entry], self.letters[entry]
        if self.text is None:
            n_corners = n_categories + self.has_missing  # entries beyond are at the origin
            rows = np.flatnonzero(entry < n_corners)
            coordinates = np.zeros((len(entry), n_corners), dtype=np.float32)
            coordinates[rows, entry[rows]] = MISMATCH / np.sqrt(2)
        else:
            if is_new.any():
                codes, position = np.unique(column.codes[is_new], return_inverse=True)
                names = [column.names[code] for code in codes]
                letters[is_new] = self.letter_scales[0] * self.text(names)[position]
            coordinates = np.concatenate([statistics, self.letter_scales[1] * letters], axis=1)
        return EncodedCategory(self.codes[entry], statistics, letters, coordinates)

    def is_unknown(self, column: CategoryColumn) -> NDArray[np.bool_]:
        """True for unseen categories, unless they are usual, and for a first missing value."""
        entry = column.among(self.names, unknown=len(self.names))
        is_unseen = (entry == len(self.names)) & (self.novelty > USUAL_NOVELTY)
        return is_unseen | ((entry == MISSING) & (not self.has_missing))


def category_statistics(
    codes: NDArray[np.int32], n_categories: int, y: Numbers, weight: Numbers
) -> Numbers:
    """Means, then logarithms of standard deviations, of ``y`` (rows, outputs) in each category.

    The mean is shrunk by k rows at the mean of all rows, where k is the variance within categories
    divided by that between them. The variance is shrunk by two rows of the usual variance, and
    includes that of the mean. The last row is that of a category without rows.
    """
    count = np.bincount(codes, weight, minlength=n_categories + 1)
    columns = []
    for target in y.T:
        total = max(weight.sum(), 1e-12)
        center = weight @ target / total
        variance = weight @ (target - center) ** 2 / total + 1e-6
        sums = np.bincount(codes, weight * (target - center), minlength=n_categories + 1)
        raw = sums / np.maximum(count, 1e-12)
        residual = target - center - raw[codes]
        squares = np.bincount(codes, weight * residual**2, minlength=n_categories + 1)
        n_seen = max(int(np.sum(count > 0)), 1)
        n_repeated = len(target) - n_seen
        within = squares.sum() / total * len(target) / n_repeated if n_repeated else variance / 2
        between = max(variance - within, 0.01 * variance)
        k = np.clip(within / between, 0.5, 100.0)
        mean = sums / (count + k)
        own = (squares + 2 * within) / (count + 2)
        spread = own + between * k / (count + k)  # plus the variance of the mean
        columns.append((center + mean, 0.5 * np.log(spread + 1e-3 * variance)))
    return np.column_stack([means for means, _ in columns] + [logs for _, logs in columns])


def cross_fitted_statistics(
    codes: NDArray[np.int32], n_categories: int, y: Numbers, weight: Numbers, groups: Labels
) -> Numbers:
    """Statistics of every row from the rows of other folds; duplicates share a fold."""
    fold = groups % N_FOLDS
    found = np.empty((len(codes), 2 * y.shape[1]))
    for k in np.unique(fold):
        own = fold == k
        statistics = category_statistics(codes[~own], n_categories, y[~own], weight[~own])
        found[own] = statistics[codes[own]]
    return found
