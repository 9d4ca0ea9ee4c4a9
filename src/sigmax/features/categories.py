"""A column of categories as codes for an embedding, numbers for networks, and coordinates."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.features.statistics import cross_fitted_statistics, level_statistics
from sigmax.features.texts import TextMap
from sigmax.files import take_array
from sigmax.tables import Levels

__all__ = ["CategoryMap", "EncodedCategory"]

MISMATCH = 0.7
"""Distance of two rows that differ in one category, in standard deviations of a number."""

MANY_LEVELS = 40
"""Columns of more levels are seen by statistics of the target and by the letters of their names."""

RARE = 3
"""Levels of fewer rows share the embedding of new ones."""

ONE_HOT = 0.0
USE_STATS = True
USE_TEXT = True
NEW = 0
"""The code of levels that are new or rare."""

OFTEN_NEW = 0.05
"""With so many rows that are alone in their level, a new level is nothing new."""


@final
@dataclass(frozen=True, eq=False)
class EncodedCategory:
    """Some rows of one column."""

    codes: NDArray[np.int32]
    extras: NDArray[np.float32]
    coordinates: NDArray[np.float32]
    is_new: NDArray[np.bool_]
    """Levels, or gaps, that no training row has."""


@final
@dataclass(frozen=True, eq=False)
class CategoryMap:
    """What was learned about one column: an entry for every level, for gaps, and for new levels."""

    names: tuple[str, ...]
    codes: NDArray[np.int32]
    extras: NDArray[np.float32]
    coordinates: NDArray[np.float32]
    has_gaps: bool
    novelty: float
    """How unusual a new level is: 1 if training rows have none, 0 if many are of their own kind."""
    text: TextMap | None
    text_scales: NDArray[np.float32]
    """What the coordinates of a name are multiplied by, for networks and for distances."""

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
        n_levels, rows = len(levels.names), levels.codes
        entry = np.where(rows < 0, n_levels, rows)  # gaps come after the levels, new levels last
        count = np.bincount(entry, minlength=n_levels + 2)
        has_gaps = bool(count[n_levels])
        kept = count >= min(RARE, max(1, len(rows) // 20))
        kept[n_levels + 1] = False
        codes = np.where(kept, np.cumsum(kept), NEW).astype(np.int32)
        novelty = max(0.0, 1 - np.sum(count[:n_levels] == 1) / (OFTEN_NEW * len(rows)))
        if n_levels <= MANY_LEVELS:
            n_dimensions = n_levels + has_gaps
            corners = np.zeros((n_levels + 2, n_dimensions), dtype=np.float32)
            corners[:n_dimensions] = np.eye(n_dimensions) * MISMATCH / np.sqrt(2)
            none = np.zeros((n_levels + 2, 0), dtype=np.float32)
            if ONE_HOT:
                none = corners * np.float32(ONE_HOT / MISMATCH * np.sqrt(2))
            found = cls(
                levels.names, codes, none, corners, has_gaps, novelty, None, np.ones(2, np.float32)
            )
            return found, found(levels)
        return cls.fit_many(levels, codes, has_gaps, novelty, y, weight, groups)

    @classmethod
    def fit_many(
        cls,
        levels: Levels,
        codes: NDArray[np.int32],
        has_gaps: bool,
        novelty: float,
        y: NDArray[np.float64],
        weight: NDArray[np.float64],
        groups: NDArray[np.int_],
    ) -> tuple["CategoryMap", EncodedCategory]:
        """A column of many levels."""
        n_levels, rows = len(levels.names), levels.codes
        entry = np.where(rows < 0, n_levels, rows)
        own = cross_fitted_statistics(entry.astype(np.int32), n_levels + 1, y, weight, groups)
        center, scale = own.mean(axis=0), np.maximum(own.std(axis=0), 1e-3)
        known = level_statistics(entry.astype(np.int32), n_levels + 1, y, weight)
        statistics = ((known - center) / scale).astype(np.float32)
        own = ((own - center) / scale).astype(np.float32)

        share = np.bincount(entry, weight, minlength=n_levels + 2) / weight.sum()
        text = TextMap.fit(levels.names, np.maximum(share[:n_levels], 1e-12))
        letters = np.zeros((n_levels + 2, text.directions.shape[1]), dtype=np.float32)
        letters[:n_levels] = text(levels.names)
        variance = share @ (letters - share @ letters) ** 2
        scales = 1 / np.sqrt(np.array([variance.max(), 2 * variance.sum()]) + 1e-12)
        scales = (scales * [1.0, MISMATCH]).astype(np.float32)
        if not USE_TEXT:
            scales = scales * np.float32(0)
        if not USE_STATS:
            statistics = statistics * np.float32(0)
            own = own * np.float32(0)
        found = cls(
            levels.names,
            codes,
            np.concatenate([statistics, scales[0] * letters], axis=1),
            np.concatenate([statistics, scales[1] * letters], axis=1),
            has_gaps,
            novelty,
            text,
            scales,
        )
        rows_seen = found(levels)
        extras, coordinates = rows_seen.extras.copy(), rows_seen.coordinates.copy()
        extras[:, : own.shape[1]] = own
        coordinates[:, : own.shape[1]] = own
        return found, replace(rows_seen, extras=extras, coordinates=coordinates)

    def __call__(self, levels: Levels) -> EncodedCategory:
        """Rows of the column."""
        n_levels = len(self.names)
        among = levels.among(self.names, unknown=n_levels + 1)
        entry = np.where(among < 0, n_levels, among)
        extras, coordinates = self.extras[entry], self.coordinates[entry]
        is_new = entry == n_levels + 1
        if self.text is not None and is_new.any():
            new = np.unique(levels.codes[is_new])
            letters = self.text([levels.names[code] for code in new])
            place = np.searchsorted(new, levels.codes[is_new])
            n_letters = letters.shape[1]
            extras[is_new, -n_letters:] = self.text_scales[0] * letters[place]
            coordinates[is_new, -n_letters:] = self.text_scales[1] * letters[place]
        if not self.has_gaps:
            is_new = is_new | (entry == n_levels)
        return EncodedCategory(self.codes[entry], extras, coordinates, is_new)

    def state(self, name: str) -> dict[str, np.ndarray]:
        """The arrays that a saved model keeps of it, under names that begin with ``name``."""
        arrays = {
            f"{name}.codes": self.codes,
            f"{name}.extras": self.extras,
            f"{name}.coordinates": self.coordinates,
            f"{name}.novelty": np.float64(self.novelty),
            f"{name}.text_scales": self.text_scales,
        }
        if self.text is not None:
            arrays[f"{name}.text"] = self.text.directions
        return {key: np.asarray(array) for key, array in arrays.items()}

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], name: str, names: tuple[str, ...], has_gaps: bool
    ) -> "CategoryMap":
        """What `state` was taken from, refused if it does not fit the levels."""
        n_entries = len(names) + 2
        parts = {part: arrays[f"{name}.{part}"] for part in ("extras", "coordinates")}
        for part, array in parts.items():
            take_array(
                arrays, f"{name}.{part}", (n_entries, *array.shape[1:]), np.dtype(np.float32)
            )
        text = arrays.get(f"{name}.text")
        return cls(
            names,
            take_array(arrays, f"{name}.codes", (n_entries,), np.dtype(np.int32)),
            parts["extras"],
            parts["coordinates"],
            has_gaps,
            float(take_array(arrays, f"{name}.novelty", ())),
            None if text is None else TextMap(text),
            take_array(arrays, f"{name}.text_scales", (2,), np.dtype(np.float32)),
        )
