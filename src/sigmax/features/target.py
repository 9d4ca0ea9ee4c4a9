"""Targets: standardised for experts and back, with their support and their repeated values."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from sigmax.distributions import AbstractDistribution, Bounded, Mixture, Stacked
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.settings import Rule

Numbers = NDArray[np.float64]

ATOM = 0.02
"""A value with at least this share of all rows is an atom."""

FEWEST_IN_ATOM = 5.0

SPECIAL = 0.1
"""A value of a rounded target with more than this share of all rows may be an atom."""

NEAR_SHARE = 0.05
"""Maximum number of other rows in the cell of an atom, as a share of the atom's rows."""

SINGLE_PRECISION = 2.0**-20
"""Relative difference below which two values may differ by rounding only."""

MOST_VALUES = 256
"""Maximum number of repeated values with discrete probabilities."""

SMALL_DIFFERENCE = 1e-3
"""Share of the usual difference of values below which two values are equal."""


@final
@dataclass(frozen=True, eq=False)
class RepeatedValues:
    """Repeated values of a target, each with the interval, its cell, that is rounded to it."""

    values: Numbers
    """Smallest and largest target of every value, (k, 2): equal except for rounding errors."""
    cells: Numbers
    """Lower and upper edges, (k, 2): the probability of a value is that of its cell."""
    is_rounded: bool
    """True if the target is rounded, False if the values are atoms among other values."""

    @classmethod
    def find(cls, y: Numbers, declared: tuple[float, ...] = ()) -> "RepeatedValues | None":
        """Repeated values of targets; None if values hardly ever repeat.

        Values ``declared`` as atoms are atoms, however few rows they have.

        If values other than atoms are shared by two rows or more on average, or no two values are
        nearer to each other than two atoms are, as with counts, the target is rounded: all values
        are kept, and their cells end half-way between them. Otherwise atoms are kept, if there are
        any. The cell of an atom contains few other rows.

        Examples
        --------
        >>> counts = RepeatedValues.find(np.array([0.0, 0.0, 1.0, 2.0, 2.0, 5.0, 1.0, 5.0]))
        >>> counts.cells[:, 0].tolist(), counts.is_rounded
        ([-0.5, 0.5, 1.5, 3.5], True)
        >>> RepeatedValues.find(np.random.default_rng(0).normal(size=100)) is None
        True
        """
        values, counts = np.unique(y, return_counts=True)
        if not np.isin(declared, values).all():
            text = f"`atoms` must be values of the target, got {declared!r}."
            raise InvalidArgumentError(text)
        if len(values) == 1:
            return None
        atoms = (counts >= fewest_in_atom(len(y))) | np.isin(values, declared)
        n_others = len(y) - counts[atoms].sum()
        is_grid = atoms.sum() > 1 and (
            np.diff(values).min() >= (1 - SMALL_DIFFERENCE) * np.diff(values[atoms]).min()
        )
        if is_grid or 2 * np.sum(~atoms) <= n_others:
            return cls.rounded(values)
        if not atoms.any():
            return None
        return cls.of_atoms(values[atoms], counts[atoms], np.repeat(values[~atoms], counts[~atoms]))

    @classmethod
    def rounded(cls, y: Numbers) -> "RepeatedValues":
        values = np.unique(y)
        differences = np.diff(values)
        is_one = differences < SINGLE_PRECISION * np.abs(values[1:])
        is_one &= differences < SMALL_DIFFERENCE * np.quantile(differences, 0.75)
        first = np.flatnonzero(np.concatenate([[True], ~is_one]))
        last = np.append(first[1:], len(values)) - 1
        values = np.stack([values[first], values[last]], axis=1)
        middle = (values[:-1, 1] + values[1:, 0]) / 2
        outer = np.min(values[1:, 0] - values[:-1, 1]) / 2
        edges = np.concatenate([[values[0, 0] - outer], middle, [values[-1, 1] + outer]])
        return cls(values, np.stack([edges[:-1], edges[1:]], axis=1), True)

    @classmethod
    def of_atoms(
        cls, atoms: Numbers, counts: NDArray[np.intp], others: Numbers
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

    def check(self) -> None:
        """Raise ValueError unless values increase, each within its cell."""
        order = np.stack([self.cells[:, 0], *self.values.T, self.cells[:, 1]], axis=1)
        if not (len(order) and np.isfinite(order).all() and (np.diff(order.ravel()) >= 0).all()):
            raise ValueError("repeated values of the target must increase, each within its cell")

    def with_values(self, y: Numbers) -> "RepeatedValues":
        """Values of a rounded target, extended by new values ``y``."""
        return RepeatedValues.rounded(np.append(self.values, y)) if self.is_rounded else self

    def half_cells(self) -> Numbers:
        """Distance of every value from the nearer edge of its cell."""
        return np.min(np.abs(self.cells - self.values), axis=1)

    def cell_widths(self, y: Numbers) -> Numbers:
        """Width of the symmetric cell of each target; 0 if it is not a repeated value."""
        index = self._nearest(y)
        is_own = (y >= self.values[index, 0]) & (y <= self.values[index, 1])
        return np.where(is_own, 2 * self.half_cells()[index], 0.0)

    def ends(self, bounds: Numbers) -> Numbers:
        """Interval of values from that of a density: last axis lower, upper.

        An end in the cell of a value is moved outwards to that value. An end of a rounded target
        that exceeds a value by at most the narrower half of the cell is also moved to the value,
        which excludes no value. All other ends stay: between distant values, and
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
            is_moved |= in_cell & (beyond <= (1 + SMALL_DIFFERENCE) * self.half_cells()[index])
        return np.where(is_moved, value, bounds)

    def atoms(self, y: Numbers, weight: Numbers) -> Numbers:
        """Values with a special share of rows with targets ``y``.

        These are atoms with five times as many rows as any other value, and of a rounded target the
        values with more than a tenth of the rows and twice as many as either neighbour.

        Examples
        --------
        >>> y = np.repeat([0.0, 1.0, 2.0, 3.0], [40, 15, 20, 9])
        >>> RepeatedValues.rounded(y).atoms(y, np.ones(len(y)))
        array([0.])
        """
        values, index = self.values.mean(axis=1), self._nearest(y)
        is_own = (y >= self.cells[index, 0]) & (y <= self.cells[index, 1])
        count = np.bincount(index[is_own], weight[is_own], len(values))
        if self.is_rounded:
            neighbor = np.maximum(np.append(0, count[:-1]), np.append(count[1:], 0))
            return values[(count > SPECIAL * weight.sum()) & (count >= 2 * neighbor)]
        others = np.bincount(np.unique(y[~is_own], return_inverse=True)[1], weight[~is_own])
        return values[count > 5 * others.max(initial=0)]

    def _nearest(self, y: Numbers) -> NDArray[np.intp]:
        """Index of the value nearest to every number."""
        return np.searchsorted((self.values[:-1, 1] + self.values[1:, 0]) / 2, y)


def fewest_in_atom(n_rows: int) -> float:
    """Number of rows from which a value is an atom of the distribution."""
    return max(ATOM * n_rows, FEWEST_IN_ATOM)


MANY_NEAR = 8
"""Number of rows near 0 from which the support is assumed to be nonnegative."""

FEWEST_POSITIVE = 10
"""Number of rows below which a support is never assumed: all may be positive by chance."""

NEAR = 0.1
"""Values below this share of the median are near 0."""


@final
class Support(NamedTuple):
    """Smallest and largest possible value of one output; infinite without a bound."""

    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def find(cls, y: Numbers, declared: Any = "auto") -> "Support":
        """Support of targets: as declared, or 0 to infinity if no value can be negative.

        No value can be negative if none is, and there is an atom at 0, a skewed distribution (the
        95 % quantile, mirrored at the median, would be negative) or many values near 0.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> Support.find(rng.exponential(size=100)).low, Support.find(rng.normal(9, 1, 100)).low
        (0.0, -inf)
        """
        low, high = (0.0 if is_positive(y) else -np.inf, np.inf) if declared == "auto" else declared
        low, high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
        beyond = np.sum((y < low) | (y > high))
        if beyond:
            raise InvalidDataError(
                f"`y` must lie within `support` ({low:g}, {high:g}): {beyond} of {len(y)} values do"
                " not. Correct them, or give a wider `support`."
            )
        return cls(low, high)

    def with_values(self, y: Numbers) -> "Support":
        """Support without the bounds that new values ``y`` violate."""
        low = self.low if y.min() >= self.low else -np.inf
        return Support(low, self.high if y.max() <= self.high else np.inf)


def is_positive(y: Numbers) -> bool:
    """True if no value is negative and the distribution has a bound at 0, see `Support.find`."""
    if len(y) < FEWEST_POSITIVE or y.min() < 0 or y.max() == y.min():
        return False
    median, high = np.quantile(y, [0.5, 0.95])
    has_atom = np.sum(y == 0) >= fewest_in_atom(len(y))
    return bool(has_atom or high > 2 * median or np.sum(y < NEAR * median) >= MANY_NEAR)


def check_support(name: str, support: Any) -> Any:
    """Check the setting: "auto", or a pair of bounds of which either may be None."""
    rule = '"auto", or a pair (low, high) of numbers or None with low < high'
    if isinstance(support, str) and support == "auto":
        return support
    try:
        low, high = (None if bound is None else float(bound) for bound in support)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"`{name}` must be {rule}, got {support!r}.") from None
    if not (-np.inf if low is None else low) < (np.inf if high is None else high):
        raise InvalidArgumentError(f"`{name}` must be {rule}, got {support!r}.")
    return low, high


SUPPORT = (
    "auto",
    Rule('"auto" or (low, high)', check_support),
    """Least and greatest possible value of y, of which either may be None: densities and intervals
    end there. "auto" is (0, None) if no y is negative and many are near 0 or the distribution is
    skewed, and otherwise no bound.""",
)


FARTHEST = 1e5
"""Limit to which standardised values are clipped, against overflow."""

COLUMNS_AT_ONCE = 8


@final
@dataclass(frozen=True)
class Standardizer:
    """Standardisation ``(values - mean) / scale`` of columns."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(
        cls, values: np.ndarray, weight: np.ndarray, *, constant_scale: float | None = None
    ) -> "Standardizer":
        """Weighted mean and standard deviation of every column, without missing values (NaN).

        The scale of a constant column is 1 or, with ``constant_scale``, that share of its absolute
        value, so that the spread of a constant target is small in its units.

        Examples
        --------
        >>> standard = Standardizer.fit(np.array([[1.0], [3.0]]), np.ones(2))
        >>> standard(np.array([[5.0]]))
        array([[3.]], dtype=float32)
        """
        of_rows = weight / weight.sum()
        mean, scale = np.empty(values.shape[1]), np.empty(values.shape[1])
        for j, column in enumerate(columns_of(values)):
            share, is_empty = of_rows, np.isnan(column)
            if is_empty.any():
                column, share = column[~is_empty], weight[~is_empty] / weight[~is_empty].sum()
            largest = float(np.max(np.abs(column), initial=0.0))
            unit = largest if largest > 0 else 1.0  # squares of 1e200 overflow
            center = share @ (column / unit)
            std = np.sqrt(share @ (column / unit - center) ** 2)
            varies = std > 8 * np.finfo(float).eps
            constant = 1.0 if constant_scale is None else constant_scale * unit
            mean[j], scale[j] = center * unit, std * unit if varies else constant
        return cls(mean, scale)

    def __call__(self, values: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        standard = values - self.mean
        standard /= self.scale
        return np.clip(standard, -FARTHEST, FARTHEST, out=standard).astype(dtype)

    def check(self) -> None:
        """Raise ValueError unless means are finite and scales are finite and above 0."""
        if not (np.isfinite(self.mean).all() and np.isfinite(self.scale).all()):
            raise ValueError("means and scales must be finite")
        if self.mean.shape != self.scale.shape or not (self.scale > 0).all():
            raise ValueError("scales must be above 0, one for every mean")


def columns_of(values: np.ndarray) -> Iterator[np.ndarray]:
    """Columns of a matrix, copied in blocks, which is faster than one by one."""
    for first in range(0, values.shape[1], COLUMNS_AT_ONCE):
        yield from np.ascontiguousarray(values[:, first : first + COLUMNS_AT_ONCE].T)


TRIMMED = 0.01
"""Share of rows trimmed at either end for the trimmed standard deviation of a target."""

HAS_OUTLIERS = 10.0
"""Ratio of the standard deviation to the trimmed one from which a target has outliers."""

FARTHEST_LEARNED = 10.0
"""Clipping distance of outliers from the trimmed mean, in trimmed standard deviations."""


@final
@dataclass(frozen=True, eq=False)
class TargetUnits:
    """Standardised targets, of mean 0 and variance 1, and back.

    Examples
    --------
    >>> units = TargetUnits.fit(np.array([[1.0], [3.0]]), np.ones(2))
    >>> units(np.array([[5.0]])), units.restore(np.array([[3.0]]))
    (array([[3.]], dtype=float32), array([[5.]]))
    """

    scaling: Standardizer
    """Mean and standard deviation of y."""
    limits: np.ndarray | None = None
    """Limits (p, 2) to which y is clipped; None without outliers."""
    repeated: tuple[RepeatedValues | None, ...] = ()
    """Repeated values of each output; None if values hardly ever repeat."""
    support: tuple[Support, ...] = ()

    @classmethod
    def fit(
        cls,
        y: np.ndarray,
        weight: np.ndarray,
        support: Any = (None, None),
        atoms: tuple[float, ...] = (),
    ) -> "TargetUnits":
        """Units of targets (n, p); ``support`` is "auto" or bounds, ``atoms`` are declared."""
        if atoms and y.shape[1] > 1:
            raise InvalidArgumentError("`atoms` need a single target: fit one model per output.")
        found = {
            "limits": outlier_limits(y),
            "repeated": tuple(RepeatedValues.find(column, atoms) for column in y.T),
            "support": tuple(Support.find(column, support) for column in y.T),
        }
        if found["limits"] is not None:
            y = np.clip(y, *found["limits"].T)
        return cls(Standardizer.fit(y, weight, constant_scale=1e-6), **found)

    def with_values(self, y: np.ndarray) -> "TargetUnits":
        """Transform whose repeated values and support include new targets ``y`` (n, p)."""
        repeated = (
            own and own.with_values(column) for own, column in zip(self.repeated, y.T, strict=True)
        )
        support = (own.with_values(column) for own, column in zip(self.support, y.T, strict=True))
        return replace(self, repeated=tuple(repeated), support=tuple(support))

    def __call__(self, y: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        return self.scaling(y if self.limits is None else np.clip(y, *self.limits.T), dtype)

    def restore(self, values: np.ndarray) -> np.ndarray:
        """Values in units of y; outputs are on the last axis."""
        return self.scaling.mean + self.scaling.scale * values

    def distribution(self, mixture: Mixture | Stacked, atoms: Any = ()) -> AbstractDistribution:
        """Distribution of y from that of the standardised y.

        If there are many repeated values, only ``atoms`` have probabilities.
        """
        dist = mixture.affine(self.scaling.mean, self.scaling.scale)
        own = self.repeated[0] if len(self.repeated) == 1 else None
        if isinstance(dist, Stacked) and own is not None:
            values = own.values.mean(axis=1)
            kept = np.isin(values, values if len(values) <= MOST_VALUES else atoms)
            if kept.any():
                dist = dist.discrete(values[kept], own.cells[kept])
        return self.bounded(dist)

    def bounded(self, dist: Mixture | Stacked) -> AbstractDistribution:
        """Clip distributions of y, (n, p) or (n,), to the support."""
        bounds = np.array(self.support, np.float64)
        if not np.isfinite(bounds).any():
            return dist
        if isinstance(dist, Stacked):
            return dist.bounded(*bounds.T)
        return Bounded.create(dist, *(bounds.T if len(dist.shape) > 1 else bounds[0]))

    def within_support(self, bounds: np.ndarray) -> np.ndarray:
        support = np.array(self.support, np.float64)
        return np.clip(bounds, support[:, :1], support[:, 1:2])

    def interval_ends(self, bounds: np.ndarray) -> np.ndarray:
        """Move the ends of intervals (n, 2) or (n, p, 2) to values, see `RepeatedValues.ends`."""
        parts = np.reshape(bounds, (len(bounds), -1, 2))
        ends = [
            parts[:, output] if own is None else own.ends(parts[:, output])
            for output, own in enumerate(self.repeated)
        ]
        return np.stack(ends, axis=1).reshape(np.shape(bounds)) if ends else bounds

    def cell_widths(self, y: np.ndarray) -> np.ndarray:
        """Width of the cell of each target, (n,) or (n, p); 0 where values do not repeat."""
        widths, columns = np.zeros((len(y), len(self.repeated))), y.reshape(len(y), -1)
        for output, own in enumerate(self.repeated):
            if own is not None:
                widths[:, output] = own.cell_widths(columns[:, output])
        return widths.reshape(y.shape)

    def check(self) -> None:
        """Raise ValueError unless all bounds are in order."""
        if self.limits is not None and not (self.limits[:, 0] < self.limits[:, 1]).all():
            raise ValueError("limits of the target must be a lower and an upper limit")
        if not all(own.low < own.high for own in self.support):
            raise ValueError("the support of the target must be a lower and an upper bound")


def outlier_limits(y: np.ndarray) -> np.ndarray | None:
    """Limits (p, 2) to which targets (n, p) are clipped; None if no output has outliers.

    Examples
    --------
    >>> y = np.append(np.random.default_rng(0).normal(size=500), 1e9)[:, None]
    >>> outlier_limits(y[:-1]) is None, bool(abs(outlier_limits(y)).max() < 12)
    (True, True)
    """
    n_cut = max(1, int(TRIMMED * len(y)))
    if len(y) < 4 * n_cut:
        return None
    usual = np.sort(y, axis=0)[n_cut:-n_cut]
    unit = np.maximum(np.abs(y).max(axis=0), 1e-300)  # squares of 1e200 overflow
    mean, spread = unit * np.mean(usual / unit, axis=0), unit * np.std(usual / unit, axis=0)
    is_far = unit * np.std(y / unit, axis=0) > HAS_OUTLIERS * spread
    is_far &= usual[0] < usual[-1]
    if not is_far.any():
        return None
    reach = np.where(is_far, FARTHEST_LEARNED * spread, np.inf)
    return np.stack([mean - reach, mean + reach], axis=1)
