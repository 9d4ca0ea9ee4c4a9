"""Targets with values that many rows share: rounded numbers, counts, atoms such as zero rain."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["RepeatedValues", "fewest_in_atom", "repeat_probability"]

ATOM = 0.02
"""A value with at least this share of all rows is an atom."""

FEWEST_IN_ATOM = 5.0

NEAR_SHARE = 0.05
"""Rows near an atom, as a share of its own, up to which an interval end is taken to be the atom."""

SINGLE_PRECISION = 2.0**-20
"""Relative difference below which two values may be one value, rounded twice."""

SMALL_GAP = 1e-3
"""Two values are one if their difference is also below this share of usual differences."""


@final
@dataclass(frozen=True, eq=False)
class RepeatedValues:
    """Observed values of a target that repeat, each with the cell of numbers that stand for it."""

    values: NDArray[np.float64]
    """Least and greatest member of every value, (k, 2): equal but for errors of rounding."""
    cells: NDArray[np.float64]
    """Lower and upper edges, (k, 2): a density has the probability of a value in its cell."""
    is_rounded: bool
    """True if all values are repeated, False if these are atoms among other values."""

    @classmethod
    def find(cls, y: NDArray[np.float64]) -> "RepeatedValues | None":
        """Repeated values of targets; None if values hardly ever repeat.

        If values other than atoms are shared by two rows or more on average, the target is rounded:
        all values are kept, and their cells end half-way between them. Otherwise atoms are kept, if
        there are any. The cell of an atom has few other rows in it, compared with those of the
        atom.

        Examples
        --------
        >>> counts = RepeatedValues.find(np.array([0.0, 0.0, 1.0, 2.0, 2.0, 5.0, 1.0, 5.0]))
        >>> counts.cells[:, 0].tolist(), counts.is_rounded
        ([-0.5, 0.5, 1.5, 3.5], True)
        >>> RepeatedValues.find(np.random.default_rng(0).normal(size=100)) is None
        True
        """
        values, counts = np.unique(y, return_counts=True)
        if len(values) == 1:
            return None
        atoms = counts >= fewest_in_atom(len(y))
        n_others = len(y) - counts[atoms].sum()
        if 2 * np.sum(~atoms) <= n_others:
            return cls.rounded(values)
        if not atoms.any():
            return None
        return cls.of_atoms(values[atoms], counts[atoms], np.repeat(values[~atoms], counts[~atoms]))

    @classmethod
    def rounded(cls, y: NDArray[np.float64]) -> "RepeatedValues":
        """All values of a rounded target."""
        values = np.unique(y)
        gaps = np.diff(values)
        is_one = gaps < SINGLE_PRECISION * np.abs(values[1:])
        is_one &= gaps < SMALL_GAP * np.quantile(gaps, 0.75)
        first = np.flatnonzero(np.concatenate([[True], ~is_one]))
        last = np.append(first[1:], len(values)) - 1
        values = np.stack([values[first], values[last]], axis=1)
        middle = (values[:-1, 1] + values[1:, 0]) / 2
        outer = np.min(values[1:, 0] - values[:-1, 1]) / 2
        edges = np.concatenate([[values[0, 0] - outer], middle, [values[-1, 1] + outer]])
        return cls(values, np.stack([edges[:-1], edges[1:]], axis=1), True)

    @classmethod
    def of_atoms(
        cls, atoms: NDArray[np.float64], counts: NDArray[np.intp], others: NDArray[np.float64]
    ) -> "RepeatedValues":
        """Atoms among ``others``, the values of all rows that are not in an atom."""
        n_near = np.minimum(np.ceil(NEAR_SHARE * counts).astype(int), len(others))
        apart = np.diff(atoms, prepend=-np.inf, append=np.inf) / 2
        half = [
            min(np.partition(np.abs(others - atom), n - 1)[n - 1], *apart[k : k + 2])
            for k, (atom, n) in enumerate(zip(atoms, n_near, strict=True))
        ]
        cells = np.stack([atoms - half, atoms + half], axis=1)
        return cls(np.stack([atoms, atoms], axis=1), cells, False)

    def with_values(self, y: NDArray[np.float64]) -> "RepeatedValues":
        """The values of a rounded target once it is known that values ``y`` occur, too."""
        return RepeatedValues.rounded(np.append(self.values, y)) if self.is_rounded else self

    def half_cells(self) -> NDArray[np.float64]:
        """Distance of every value from the nearer edge of its cell."""
        return np.min(np.abs(self.cells - self.values), axis=1)

    def cell_widths(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Width of the symmetric cell of every target; 0 for one that is no repeated value."""
        index = self._nearest(y)
        is_own = (y >= self.values[index, 0]) & (y <= self.values[index, 1])
        return np.where(is_own, 2 * self.half_cells()[index], 0.0)

    def ends(self, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Interval of values from that of a density: last axis lower, upper.

        An end in the cell of a value is moved outwards to that value. An end of a rounded target
        that lies beyond a value by no more than the narrower half of the cell is moved to the value
        as well, as no value is left out by that. All other ends stay: between distant values, and
        beyond the observed ones, new values are possible.

        Examples
        --------
        >>> counts = RepeatedValues.rounded(np.array([0.0, 1.0, 2.0, 5.0]))
        >>> counts.ends(np.array([[0.4, 2.7], [0.6, 2.2], [-3.0, 4.0], [4.0, 9.0]]))
        array([[ 0. ,  2.7],
               [ 1. ,  2. ],
               [-3. ,  5. ],
               [ 4. ,  9. ]])
        >>> atom = np.array([0.0]), np.array([40])
        >>> rain = RepeatedValues.of_atoms(*atom, np.array([0.1, 0.3, 0.6]))
        >>> rain.ends(np.array([[0.05, 2.7], [-0.3, -0.04], [0.5, 0.9]]))
        array([[ 0. ,  2.7],
               [-0.3,  0. ],
               [ 0.5,  0.9]])
        """
        index = self._nearest(bounds)
        value = np.stack([self.values[index[..., 0], 0], self.values[index[..., 1], 1]], axis=-1)
        beyond = (value - bounds) * np.array([1.0, -1.0])
        in_cell = (bounds >= self.cells[index, 0]) & (bounds <= self.cells[index, 1])
        is_moved = in_cell & (beyond <= 0)
        if self.is_rounded:
            is_moved |= in_cell & (beyond <= (1 + SMALL_GAP) * self.half_cells()[index])
        return np.where(is_moved, value, bounds)

    def _nearest(self, y: NDArray[np.float64]) -> NDArray[np.intp]:
        """Index of the value nearest to every number."""
        return np.searchsorted((self.values[:-1, 1] + self.values[1:, 0]) / 2, y)


def fewest_in_atom(n_rows: int) -> float:
    """Number of rows from which a value is an atom of the distribution."""
    return max(ATOM * n_rows, FEWEST_IN_ATOM)


def repeat_probability(y: NDArray[np.floating]) -> float:
    """Probability that two rows have the same target.

    Examples
    --------
    >>> repeat_probability(np.array([0.0, 0.0, 1.0, 2.0])), repeat_probability(np.arange(4.0))
    (0.375, 0.25)
    """
    _, counts = np.unique(y, return_counts=True)
    return float(np.sum((counts / len(y)) ** 2))
