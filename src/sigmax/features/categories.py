"""A column of categories as codes for an embedding, numbers for networks, and coordinates."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.features.statistics import cross_fitted_statistics, level_statistics
from sigmax.features.texts import TextMap
from sigmax.files import take_array
from sigmax.tables import GAP, Levels

__all__ = ["CategoryMap", "EncodedCategory"]

MISMATCH = 1.0
"""Distance of two rows that differ in one category, in standard deviations of a number."""

MOST_LEVELS, FEWEST_LEVELS, MOST_CELLS = 200, 20, 2_000_000
"""Every level has a coordinate of its own in columns of at most so many levels, fewer where rows
are many: so many cells of coordinates are made for a column at most."""

RARE = 3
"""Levels of fewer rows share the embedding of new ones."""

NEW = 0
"""The code of levels that are new or rare."""

OFTEN_NEW = 0.05
"""With so large a share of rows that are alone in their level, a new level is nothing new."""

USUAL_NOVELTY = 0.5
"""Unseen categories are filled in only in columns where they are more unusual than this."""

LEAST_STD = 0.2
"""Statistics that differ less, in standard deviations of the target, are not blown up."""


def most_levels(n_rows: int) -> int:
    """Columns of more levels are seen by statistics of the target and the letters of their names.

    Examples
    --------
    >>> most_levels(1000), most_levels(50_000), most_levels(1_000_000)
    (200, 40, 20)
    """
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
    has_gaps: bool
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
        levels: Levels,
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
        entry = np.where(levels.codes == GAP, n_levels, levels.codes).astype(np.int32)
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

    def __call__(self, levels: Levels) -> EncodedCategory:
        """Rows of the column."""
        n_levels = len(self.names)
        entry = levels.among(self.names, unknown=n_levels + 1)
        entry = np.where(entry == GAP, n_levels, entry).astype(np.int32)
        is_new = entry == n_levels + 1
        statistics, letters = self.statistics[entry], self.letters[entry]
        if self.text is None:
            coordinates = corners(entry, n_levels + self.has_gaps)
        else:
            if is_new.any():
                codes, place = np.unique(levels.codes[is_new], return_inverse=True)
                names = [levels.names[code] for code in codes]
                letters[is_new] = self.letter_scales[0] * self.text(names)[place]
            coordinates = np.concatenate([statistics, self.letter_scales[1] * letters], axis=1)
        return EncodedCategory(self.codes[entry], statistics, letters, coordinates)

    def is_unknown(self, levels: Levels) -> NDArray[np.bool_]:
        """Rows of which nothing was learned: missing where none was, or an unseen category.

        Where unseen categories are usual in the training rows, they were learned from.
        """
        entry = levels.among(self.names, unknown=len(self.names))
        is_unseen = (entry == len(self.names)) & (self.novelty > USUAL_NOVELTY)
        return is_unseen | ((entry == GAP) & (not self.has_gaps))

    def state(self, name: str) -> dict[str, np.ndarray]:
        """The arrays that a saved model keeps of it, under names that begin with ``name``."""
        arrays = {
            f"{name}.codes": self.codes,
            f"{name}.novelty": np.array([self.novelty]),
        }
        if self.text is not None:
            arrays[f"{name}.statistics"] = self.statistics
            arrays[f"{name}.letters"] = self.letters
            arrays[f"{name}.directions"] = self.text.directions
            arrays[f"{name}.letter_scales"] = self.letter_scales
        return arrays

    @classmethod
    def from_state(
        cls,
        arrays: dict[str, np.ndarray],
        name: str,
        names: tuple[str, ...],
        has_gaps: bool,
        n_outputs: int,
    ) -> "CategoryMap":
        """What `state` was taken from, refused if it does not fit the levels."""
        n_entries, single = len(names) + 2, np.dtype(np.float32)
        codes = take_array(arrays, f"{name}.codes", (n_entries,), np.dtype(np.int32))
        known = (names, has_gaps, codes, float(take_array(arrays, f"{name}.novelty", ())))
        if f"{name}.directions" not in arrays:
            none = np.zeros((n_entries, 0), dtype=np.float32)
            return cls(*known, none, none, None, np.ones(2, dtype=np.float32))
        text = TextMap.from_directions(arrays[f"{name}.directions"])
        shapes = {
            "statistics": (n_entries, 2 * n_outputs),
            "letters": (n_entries, text.n_components),
            "letter_scales": (2,),
        }
        statistics, letters, scales = (
            take_array(arrays, f"{name}.{part}", shape, single) for part, shape in shapes.items()
        )
        return cls(*known, statistics, letters, text, scales)


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
