"""Categories of one column as whole numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.tables.cells import is_gap, level_names

__all__ = ["GAP", "Levels"]

GAP = -1
"""The code of a gap."""


@final
@dataclass(frozen=True, eq=False)
class Levels:
    """A column of categories: every row's position in a sorted list of names, -1 for a gap.

    Examples
    --------
    >>> column = Levels.of(np.array(["b", None, "a", "b"], dtype=object))
    >>> column.codes, column.names
    (array([ 1, -1,  0,  1], dtype=int32), ('a', 'b'))
    """

    codes: NDArray[np.int32]
    names: tuple[str, ...]

    @classmethod
    def of(cls, cells: NDArray[Any]) -> "Levels":
        """Levels of cells of any type."""
        try:
            codes, found = pd.factorize(cells)
        except TypeError:  # cells that cannot be hashed
            codes, found = pd.factorize(np.array([str(cell) for cell in cells], dtype=object))
        found = np.asarray(found, dtype=object)
        is_level = np.array([not is_gap(cell) for cell in found], dtype=bool)
        texts = np.array(level_names(found[is_level]), dtype=str)
        names, positions = np.unique(texts, return_inverse=True)
        lookup = np.full(len(found) + 1, GAP, dtype=np.int32)  # the last is that of no cell at all
        lookup[np.flatnonzero(is_level)] = positions
        return cls(lookup[codes], tuple(names.tolist()))

    def __getitem__(self, rows: Any) -> "Levels":
        return replace(self, codes=self.codes[rows])

    def among(self, names: Sequence[str], unknown: int) -> NDArray[np.int32]:
        """Positions in another list of names, ``unknown`` for names that are not in it."""
        position = {name: i for i, name in enumerate(names)}
        lookup = [position.get(name, unknown) for name in self.names]
        return np.array([*lookup, GAP], dtype=np.int32)[self.codes]
