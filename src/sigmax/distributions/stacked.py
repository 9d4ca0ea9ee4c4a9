"""The weighted mixture of the predictions of several experts, evaluated with NumPy and SciPy."""

# Arrays of NumPy where the base may have those of JAX: meant.
# pyright: reportIncompatibleMethodOverride=false

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, TypeAlias, final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import special

from sigmax.distributions.base import AbstractDistribution
from sigmax.distributions.mixture import Mixture
from sigmax.distributions.normal import Normal
from sigmax.distributions.student_t import StudentT
from sigmax.errors import InvalidArgumentError
from sigmax.values import AbstractValue

Numbers: TypeAlias = NDArray[np.float64]
NumbersToNumbers: TypeAlias = Callable[[Numbers], Numbers]

TOLERANCE, MAX_STEPS = 1e-9, 100
"""Error of a cdf at a quantile, at most, and iterations of its search."""

LEVELS, LEVEL_WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(32))
LEVELS = LEVELS + 0.5
"""Gauss rule on the probabilities, for moments of transformed components."""

GRID = np.sinh(np.linspace(-1, 1, 81) * np.arcsinh(60.0))
"""Points, in standard deviations from the mean, between which the cdf is integrated."""

FINE, REACH = np.sinh(np.linspace(-1, 1, 161) * np.arcsinh(60.0)), np.arcsinh(60.0)
"""Points, in the same unit, between which a cdf is interpolated, and the arcsinh of their end."""

TOLERANCE_OF_DRAWS = 1e-6
"""Error of a cdf at one of many quantiles, at most."""

MOST_MISSED = 0.01
"""Error of a cdf between every other of these points up to which it is interpolated."""

FARTHEST = 1e9
"""Standard deviations from the mean between which a quantile is searched for."""

GAUSS = 0.5 + np.array([-0.5, 0.5]) / math.sqrt(3)
"""Nodes of the two-point Gauss rule on each piece, of equal weights."""

MIDDLE, NARROW = np.array([0.5]), 0.06
"""Node of a piece of a rounded target that is narrower than this many standard deviations."""

MANY_ROWS, MOST_IN_TABLE = 100, 10_000
"""Rows from which on a cdf is read from a table, and entries of the table, at most."""

DRAWN_AT_ONCE = 2**20
"""Components of all rows and draws that are drawn from at once."""


@final
class PowerTransform(AbstractValue):
    """Box-Cox transform of a target, standardised, and continued by straight lines.

    Beyond the least and the greatest training target it goes on with its slope there, so that its
    inverse does not explode.

    Examples
    --------
    >>> y = np.exp(np.random.default_rng(0).normal(size=(1000, 1)))
    >>> transform = PowerTransform.fit(y)
    >>> bool(transform.power[0] < 0.5), bool(np.allclose(transform.inverse(transform(y)), y))
    (True, True)
    >>> PowerTransform.fit(np.random.default_rng(0).normal(size=(1000, 1))) is None
    True
    """

    power: Float[np.ndarray, "*outputs"]
    """Exponent; 0 is the logarithm, 1 a straight line."""
    origin: Float[np.ndarray, "*outputs"]
    """Number below all targets that is subtracted first."""
    ends: Float[np.ndarray, " 2 *outputs"]
    """Least and greatest training target."""
    mean: Float[np.ndarray, "*outputs"]
    std: Float[np.ndarray, "*outputs"]
    """Mean and standard deviation of the transformed training targets."""

    POWERS = (-0.5, 0.0, 1 / 3, 0.5)
    MARGIN = 0.05
    """Distance of the origin from the least target, as a share of their range."""
    SKEWED = 0.5
    """Absolute skewness from which a target is transformed, if a transform halves it."""

    @classmethod
    def fit(cls, y: Float[np.ndarray, "rows outputs"]) -> "PowerTransform | None":
        """Transform of least skewness for every output; None if no output is skewed."""
        ends = np.stack([y.min(axis=0), y.max(axis=0)])
        origin = ends[0] - cls.MARGIN * (ends[1] - ends[0]) - 1e-9
        skewness = np.abs(skewness_of(y))
        best, power = np.where(skewness >= cls.SKEWED, skewness / 2, -1.0), np.ones(y.shape[1])
        for tried in cls.POWERS:
            found = np.abs(skewness_of(box_cox(y - origin, np.full(y.shape[1], tried))))
            power = np.where(found < best, tried, power)
            best = np.minimum(best, found)
        if np.all(power == 1):
            return None
        moved = box_cox(y - origin, power)
        return cls(power, origin, ends, moved.mean(axis=0), moved.std(axis=0))

    def __call__(self, y: Numbers) -> Numbers:
        """Transformed targets; outputs are on the last axis."""
        inside = np.clip(y, *self.ends)
        moved = box_cox(inside - self.origin, self.power) + (y - inside) * self._slope(inside)
        return (moved - self.mean) / self.std

    def log_slope(self, y: Numbers) -> Numbers:
        """Logarithm of the derivative."""
        return np.log(self._slope(np.clip(y, *self.ends)) / self.std)

    def inverse(self, values: Numbers) -> Numbers:
        """Targets from transformed ones."""
        moved = values * self.std + self.mean
        inside = np.clip(moved, *box_cox(self.ends - self.origin, self.power))
        is_log = self.power == 0
        power = np.where(is_log, 1.0, self.power)
        root = np.maximum(power * inside + 1, 1e-300) ** (1 / power)
        y = self.origin + np.where(is_log, np.exp(np.where(is_log, inside, 0.0)), root)
        return y + (moved - inside) / self._slope(y)

    def _slope(self, y: Numbers) -> Numbers:
        return (y - self.origin) ** (self.power - 1)

    def check(self) -> None:
        """Raise ValueError unless the transform increases."""
        if not (np.all(self.std > 0) and np.all(self.origin < self.ends[0])):
            raise ValueError("the transform of the target must increase")


def box_cox(y: Numbers, power: Float[np.ndarray, "*outputs"]) -> Numbers:
    """(y^power - 1) / power, or the logarithm."""
    safe = np.where(power == 0, 1.0, power)
    return np.where(power == 0, np.log(y), (y**safe - 1) / safe)


def skewness_of(y: Float[np.ndarray, "rows outputs"]) -> Float[np.ndarray, " outputs"]:
    centered = y - y.mean(axis=0)
    return np.mean(centered**3, axis=0) / np.maximum(np.mean(centered**2, axis=0) ** 1.5, 1e-300)


@final
class ExpertPart(AbstractValue):
    """Prediction of one expert: a mixture of Normal or Student-t components, maybe transformed."""

    mixture: Mixture
    """Components with leaves of NumPy, (components, rows, outputs)."""
    transform: PowerTransform | None = None
    """From the target to the units of the components."""

    @cached_property
    def weight(self) -> Numbers:
        shape, log_weight = self.mixture.components.shape, self.mixture.log_weight
        return np.full(shape, 1 / shape[0]) if log_weight is None else np.exp(log_weight)

    @cached_property
    def scale(self) -> Numbers:
        return np.asarray(self.mixture.components.unit)

    @cached_property
    def df(self) -> Numbers | None:
        """Degrees of freedom; None for Normal components."""
        components = self.mixture.components
        return np.asarray(components.df) if isinstance(components, StudentT) else None

    def standardized(self, y: Numbers) -> Numbers:
        """``y`` in units of every component, which are on a new axis before those of the rows."""
        values = y if self.transform is None else self.transform(y)
        mean = self.mixture.components.mean
        return (np.expand_dims(values, -mean.ndim) - mean) / self.scale

    def density(self, y: Numbers) -> Numbers:
        z, df = self.standardized(y), self.df
        if df is None:
            shape = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        else:
            gammas = special.gammaln((df + 1) / 2) - special.gammaln(df / 2)
            log_shape = gammas - 0.5 * np.log(df * np.pi) - (df + 1) / 2 * np.log1p(z**2 / df)
            shape = np.exp(log_shape)
        found = np.sum(self.weight * shape / self.scale, axis=-self.weight.ndim)
        return found if self.transform is None else found * np.exp(self.transform.log_slope(y))

    def cdf(self, y: Numbers) -> Numbers:
        z, df = self.standardized(y), self.df
        levels = special.ndtr(z) if df is None else special.stdtr(df, z)
        return np.sum(self.weight * levels, axis=-self.weight.ndim)

    def rough_cdf(self, y: Numbers) -> Numbers:
        """`cdf` to 1e-6, for integrals and draws: from a table, if there is one."""
        if self._table is None:
            return self.cdf(y)
        points, levels = self._table
        if self.df is not None:
            found = np.interp(self.standardized(y), points, levels[0])
            return np.sum(self.weight * found, axis=-self.weight.ndim)
        values = y if self.transform is None else self.transform(y)
        if self.weight.ndim == 2:  # without an axis of outputs
            return np.interp(values, points, levels[0])
        found = [np.interp(values[..., i], points, own) for i, own in enumerate(levels)]
        return np.stack(found, axis=-1)

    @cached_property
    def _table(self) -> tuple[Numbers, Numbers] | None:
        """Points and the cdf there of every output; None if there are few rows, or they differ.

        Rows may share all components, which are Normal, as those of `Marginal`, or they may share
        the degrees of freedom: then it is the standard Student-t.
        """
        mean, df = np.asarray(self.mixture.components.mean), self.df
        if mean.shape[1] < MANY_ROWS:
            return None
        if df is not None:
            return t_table(float(df.flat[0])) if df.min() == df.max() else None
        parts = mean, self.scale, self.weight
        if not all(np.all(part == part[:, :1]) for part in parts):
            return None
        center, scale, weight = (part[:, 0].reshape(len(part), -1, 1) for part in parts)
        low, high = np.min(center - 8 * scale), np.max(center + 8 * scale)
        n_points = 50 * (high - low) / np.min(scale)
        if n_points > MOST_IN_TABLE:
            return None
        points = np.linspace(low, high, math.ceil(n_points))
        return points, np.sum(weight * special.ndtr((points - center) / scale), axis=0)

    def draw(self, rng: np.random.Generator, n: int) -> Numbers:
        """``n`` draws along a new first axis."""
        component, df = draw_index(rng, self.weight, n), self.df
        mean, scale = (
            np.take_along_axis(np.asarray(part), component, axis=0)
            for part in (self.mixture.components.mean, self.scale)
        )
        if df is None:
            z = rng.standard_normal(component.shape)
        else:
            z = rng.standard_t(np.take_along_axis(df, component, axis=0))
        values = mean + scale * z
        return values if self.transform is None else self.transform.inverse(values)

    def quantiles(self, q: Numbers | float) -> Numbers:
        df = self.df
        if df is None:
            z = special.ndtri(q)
        else:
            z = special.stdtrit(df.flat[0] if df.min() == df.max() else df, q)
        found = self.mixture.components.mean + self.scale * z
        return found if self.transform is None else self.transform.inverse(found)

    def moments(self, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
        """Mean and variance of every component, moved into the bounds ``low`` and ``high``."""
        mean, df = np.asarray(self.mixture.components.mean), self.df
        if self.transform is None and np.isinf(low).all() and np.isinf(high).all():
            factor = 1.0 if df is None else np.where(df > 2, df / np.maximum(df - 2, 1e-9), np.inf)
            return mean, factor * self.scale**2
        if self.transform is None and df is None:
            return clipped_moments(mean, self.scale, low, high)
        total, squares = np.zeros_like(mean), np.zeros_like(mean)
        for level, weight in zip(LEVELS, LEVEL_WEIGHTS, strict=True):
            values = np.clip(self.quantiles(level), low, high)
            total += weight * values
            squares += weight * values**2
        return total, np.maximum(squares - total**2, 0.0)

    def measured(self, std: Numbers) -> "ExpertPart":
        """Prediction of a measurement with one more Normal error, of standard deviation ``std``.

        Variances add up. A Student-t plus a Normal error is taken as a Student-t with the degrees
        of freedom of Welch and Satterthwaite.
        """
        own, scale, df = self.mixture, self.scale, self.df
        mean = np.asarray(own.components.mean)
        if self.transform is not None:
            raise InvalidArgumentError(
                "`y_error` cannot be added to predictions of a transformed target: fit with"
                " `y_error`, 0 if the training rows have no errors."
            )
        if df is None:
            components, before = Normal(mean, np.hypot(scale, std)), scale**2
            after = components.std**2
        else:
            wider, before = df * (1 + (std / scale) ** 2) ** 2, scale**2 * inflation(df)
            after = before + std**2
            components = StudentT(mean, wider, np.sqrt(after / inflation(wider)))
        share = None if own.epistemic_share is None else own.epistemic_share * before / after
        return ExpertPart(Mixture(components, share, own.log_weight, own.n_parts), self.transform)

    def summary(self, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Mean, variance, and the part of it that is uncertainty about the mean."""
        means, variances = self.moments(low, high)
        weight, n_members = self.weight, self.mixture.n_members
        mean = np.sum(weight * means, axis=0)
        variance = np.sum(weight * (variances + (means - mean) ** 2), axis=0)
        by_member = weight.reshape(n_members, -1, *mean.shape)
        total = np.maximum(by_member.sum(axis=1), 1e-300)
        member_means = np.sum(by_member * means.reshape(by_member.shape), axis=1) / total
        epistemic = np.sum(total * (member_means - mean) ** 2, axis=0)
        if self.mixture.epistemic_share is not None:
            epistemic = epistemic + np.sum(weight * self.mixture.epistemic_share * variances, 0)
        return mean, variance, np.minimum(epistemic, variance)


@lru_cache(maxsize=16)
def t_table(df: float) -> tuple[Numbers, Numbers]:
    """Points and cdf of a standard Student-t, for linear interpolation to 1e-6."""
    points = np.sinh(np.linspace(-14.5, 14.5, 6001))
    return points, special.stdtr(df, points)[None]


def inflation(df: Numbers) -> Numbers:
    """Variance of a Student-t over its squared scale; 1 where there is none."""
    return np.where(df > 2, df / np.maximum(df - 2, 1e-9), 1.0)


def clipped_moments(
    mean: Numbers, std: Numbers, low: Numbers, high: Numbers
) -> tuple[Numbers, Numbers]:
    """Mean and variance of Normal variables that are moved into bounds, in closed form."""
    a, b = (np.clip((end - mean) / std, -40, 40) for end in (low, high))
    below, above = special.ndtr(a), special.ndtr(-b)
    at_a, at_b = (np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) for z in (a, b))
    center = a * below + b * above + at_a - at_b  # in standard deviations from the mean
    squares = a**2 * below + b**2 * above + (1 - below - above) + a * at_a - b * at_b
    return mean + std * center, std**2 * np.maximum(squares - center**2, 0.0)


@final
class Units(AbstractValue):
    """From standardised targets to those of the user: ``shift + scale * x``, within bounds."""

    shift: Float[np.ndarray, "*outputs"]
    scale: Float[np.ndarray, "*outputs"]
    low: Float[np.ndarray, "*outputs"]
    high: Float[np.ndarray, "*outputs"]
    """Least and greatest possible value, in the units of the user."""
    values: Float[np.ndarray, " values *outputs"] | None = None
    cells: Float[np.ndarray, " values ends *outputs"] | None = None
    """Values of positive probability, and the edges of the cells whose probability each of them
    has; of a single output, in the units of the user, None if there are none."""

    @classmethod
    def standard(cls, n_outputs: int) -> "Units":
        """Standardised targets without bounds."""
        infinite = np.full(n_outputs, np.inf)
        return cls(np.zeros(n_outputs), np.ones(n_outputs), -infinite, infinite)

    def cell_of(self, y: Numbers) -> tuple[Any, Numbers, Numbers, Numbers]:
        """True where ``y`` lies in a cell, the value of the cell and its edges."""
        if self.values is None or self.cells is None:
            return np.zeros(y.shape, bool), y, y, y
        values, edges = self.values.reshape(-1), self.cells.reshape(-1, 2)
        index = np.searchsorted(edges[:, 1], y, side="right").clip(0, len(values) - 1)
        low, high = edges[index, 0], edges[index, 1]
        return (y >= low) & (y < high), values[index], low, high

    def to_values(self, y: Numbers) -> Numbers:
        """Numbers within bounds, those in a cell moved to its value."""
        is_inside, value, _, _ = self.cell_of(y)
        return np.clip(np.where(is_inside, value, y), self.low, self.high)


def bernstein(u: Numbers, n_terms: int) -> Numbers:
    """Probabilities of 0 to n - 1 successes in n - 1 trials of probability ``u``, on a new axis.

    Times n they are the densities of Beta(k + 1, n - k), whose equal mixture is uniform.

    Examples
    --------
    >>> bernstein(np.array(0.5), 3)
    array([0.25, 0.5 , 0.25])
    """
    k = np.arange(n_terms).reshape(-1, *[1] * np.ndim(u))
    powers = [np.cumprod(np.where(k > 0, factor, 1.0), axis=0) for factor in (u, 1 - u)]
    return special.binom(n_terms - 1, k) * powers[0] * powers[1][::-1]


@final
class Stacked(AbstractDistribution):
    r"""The mixture of the predictions of several experts, weighted at every row, and calibrated.

    With weights $c_k$ of a ``calibration`` the cdf is $H(F(y))$, where F is that of the mixture and
    H the mixture of Beta(k + 1, n - k) with these weights, for k below n.

    Densities, probabilities and quantiles are exact; the CRPS is an integral of the cdf, to 1e-3 of
    the standard deviation, and so are moments with a calibration, but the mean of nearly noise-free
    targets to 5e-2 of it. Levels of outputs that are drawn together are exact to 1e-6. Everything
    is evaluated with NumPy and SciPy: nothing is compiled.

    Examples
    --------
    >>> from sigmax.distributions import Normal
    >>> parts = [Mixture(Normal(np.full((1, 1, 1), m), np.ones((1, 1, 1)))) for m in (0.0, 2.0)]
    >>> weight = np.full((2, 1, 1), 0.5)
    >>> dist = Stacked(tuple(map(ExpertPart, parts)), np.log(weight), Units.standard(1))
    >>> float(dist.mean[0, 0]), float(dist.variance[0, 0]), float(dist.epistemic_variance[0, 0])
    (1.0, 2.0, 1.0)
    """

    parts: tuple[ExpertPart, ...]
    log_weight: Float[np.ndarray, " experts *batch"]
    """Logarithm of the weight of every expert."""
    units: Units
    """Units of all results; the parts are standardised."""
    calibration: Float[np.ndarray, " terms *batch"] | None = None
    """Weights of the terms of H, which sum to 1; None for the mixture itself."""

    @property
    def n_members(self) -> int:
        """Number of experts."""
        return len(self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.log_weight.shape[1:]

    @cached_property
    def weight(self) -> Numbers:
        return np.exp(self.log_weight)

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        """Least and greatest possible value, standardised."""
        units = self.units
        ends = ((end - units.shift) / units.scale for end in (units.low, units.high))
        low, high = (np.asarray(end) for end in ends)
        return low, high

    @property
    def mean(self) -> Numbers:
        return self.units.shift + self.units.scale * self.summary[0]

    @property
    def variance(self) -> Numbers:
        return self.units.scale**2 * self.summary[1]

    @property
    def std(self) -> Numbers:
        return np.sqrt(self.variance)

    @property
    def epistemic_variance(self) -> Numbers:
        """Disagreement of the experts, and the uncertainty of each about its mean."""
        return self.units.scale**2 * self.summary[2]

    @property
    def aleatoric_variance(self) -> Numbers:
        _, variance, epistemic = self.summary
        return self.units.scale**2 * (variance - epistemic)

    @cached_property
    def summary(self) -> tuple[Numbers, Numbers, Numbers]:
        """Mean, variance and its epistemic part, standardised."""
        summaries = (part.summary(*self.bounds) for part in self.parts)
        means, variances, epistemic = (np.stack(part) for part in zip(*summaries, strict=True))
        weight = self.weight
        mean = np.sum(weight * means, axis=0)
        disagreement = np.sum(weight * (means - mean) ** 2, axis=0)
        variance = np.sum(weight * variances, axis=0) + disagreement
        epistemic = np.sum(weight * epistemic, axis=0) + disagreement
        if self.calibration is None:
            return mean, variance, epistemic
        spread = np.sqrt(np.where(np.isfinite(variance), variance, 1.0))
        grid = mean + spread * GRID.reshape(-1, *[1] * len(self.shape))
        grid = np.clip(grid, *self.bounds)
        level = np.stack([self._mixture_cdf(x) for x in grid])
        lost = level - self._calibrated(level)
        first = np.trapezoid(lost, grid, axis=0)
        second = np.trapezoid(2 * (grid - mean) * lost, grid, axis=0)
        calibrated = np.maximum(variance + second - first**2, 0.0)
        share = np.divide(epistemic, variance, where=variance > 0, out=np.zeros_like(variance))
        return mean + first, calibrated, np.where(np.isfinite(variance), share, 0.5) * calibrated

    @property
    def mean_difference(self) -> Numbers:
        return 2 * self._integrate(lambda cdf, _: cdf * (1 - cdf), self.mean)

    def log_prob(self, y: Numbers) -> Numbers:
        """Logarithm of the density at ``y``; -infinity beyond the bounds.

        Within a cell it is the probability of the cell over its width.
        """
        y = np.broadcast_to(y, self.shape)
        density = self._density(self._standardized(y)) / self.units.scale
        is_inside, _, low, high = self.units.cell_of(y)
        if np.any(is_inside):
            mass = self._cdf(self._standardized(high)) - self._cdf(self._standardized(low))
            average = np.maximum(mass, 1e-300) / np.where(is_inside, high - low, 1.0)
            density = np.where(is_inside, average, density)
        is_possible = (y >= self.units.low) & (y <= self.units.high)
        return np.where(is_possible, np.log(density), -np.inf)

    def cdf(self, y: Numbers) -> Numbers:
        return self._stepped(self._cdf, np.broadcast_to(y, self.shape))

    def _stepped(self, cdf: NumbersToNumbers, y: Numbers) -> Numbers:
        """The cdf at ``y`` from the one of standardised numbers: constant in cells, with bounds."""
        is_inside, value, low, high = self.units.cell_of(y)
        end = np.where(is_inside, np.where(y >= value, high, low), y)
        found = np.where(y < self.units.low, 0.0, cdf(self._standardized(end)))
        return np.where(y >= self.units.high, 1.0, found)

    def _standardized(self, y: Numbers) -> Numbers:
        return (np.broadcast_to(y, self.shape) - self.units.shift) / self.units.scale

    def _density(self, x: Numbers) -> Numbers:
        found = self._mixture_density(x)
        if self.calibration is None:
            return found
        return np.maximum(found * self._slope(self._mixture_cdf(x)), 1e-300)

    def _cdf(self, x: Numbers) -> Numbers:
        return self._calibrated(self._mixture_cdf(x))

    def _mixture_density(self, x: Numbers) -> Numbers:
        parts = zip(self.weight, self.parts, strict=True)
        return np.maximum(sum(weight * part.density(x) for weight, part in parts), 1e-300)

    def _rough_cdf(self, x: Numbers) -> Numbers:
        """`_mixture_cdf` to 1e-6, see `ExpertPart.rough_cdf`."""
        parts = zip(self.weight, self.parts, strict=True)
        return np.clip(sum(weight * part.rough_cdf(x) for weight, part in parts), 0.0, 1.0)

    def _mixture_cdf(self, x: Numbers) -> Numbers:
        parts = zip(self.weight, self.parts, strict=True)
        return np.clip(sum(weight * part.cdf(x) for weight, part in parts), 0.0, 1.0)

    def _calibrated(self, level: Numbers) -> Numbers:
        """H: calibrated probabilities of those of the mixture."""
        if self.calibration is None:
            return level
        values = np.concatenate([np.zeros((1, *self.shape)), np.cumsum(self.calibration, axis=0)])
        values = values.reshape(len(values), *[1] * (level.ndim - len(self.shape)), *self.shape)
        return np.clip(np.sum(values * bernstein(level, len(values)), axis=0), 0.0, 1.0)

    def _slope(self, level: Numbers) -> Numbers:
        """Derivative of H."""
        assert self.calibration is not None
        n_terms = len(self.calibration)
        weight = self.calibration.reshape(
            n_terms, *[1] * (level.ndim - len(self.shape)), *self.shape
        )
        return n_terms * np.sum(weight * bernstein(level, n_terms), axis=0)

    def _uncalibrated(self, level: Numbers) -> Numbers:
        """Inverse of H."""
        if self.calibration is None:
            return level
        ends = np.zeros(level.shape), np.ones(level.shape)
        return solve(self._calibrated, self._slope, level, level, *ends, TOLERANCE / 8)

    def solve_quantile(self, q: Numbers) -> Numbers:
        """Quantile by Newton's method and bisection, between the quantiles of the components."""
        q = self._uncalibrated(np.broadcast_to(q, self.shape))
        ends = [part.quantiles(q) for part in self.parts]
        lower = np.min([end.min(axis=0) for end in ends], axis=0)
        upper = np.max([end.max(axis=0) for end in ends], axis=0)
        middles = zip(self.weight, ends, strict=True)
        x = np.clip(sum(weight * end.mean(axis=0) for weight, end in middles), lower, upper)
        x = solve(self._mixture_cdf, self._mixture_density, q, x, lower, upper)
        return self.units.to_values(self.units.shift + self.units.scale * x)

    def quantiles(self, q: Numbers) -> Numbers:
        """Quantiles at many levels (n, *batch), searched for between `FINE` points."""
        mean, variance, _ = self.summary
        spread = np.sqrt(np.where(np.isfinite(variance), variance, 1.0))
        fine = np.concatenate([[-FARTHEST], FINE, [FARTHEST]]).reshape(-1, *[1] * len(self.shape))
        points = mean + spread * fine
        level = np.stack([self._rough_cdf(x) for x in points])
        level[0], level[-1] = 0.0, 1.0
        score = special.ndtri(level.clip(1e-15, 1 - 1e-15))
        size = max(1, DRAWN_AT_ONCE // sum(part.weight.size for part in self.parts))
        found = []
        for own in map(self._uncalibrated, np.split(q, range(size, len(q), size))):
            after = np.sum(level[:, None] <= own, axis=0).clip(1, len(level) - 1)
            (low, lower), (high, upper) = (
                [np.take_along_axis(part, at, axis=0) for part in (score, points)]
                for at in (after - 1, after)
            )
            share = (special.ndtri(own) - low) / np.maximum(high - low, 1e-9)
            x = lower + share.clip(0, 1) * (upper - lower)  # a straight line if it is Normal
            solved = self._rough_cdf, self._mixture_density, own, x, lower, upper
            found.append(solve(*solved, tolerance=TOLERANCE_OF_DRAWS))
        return self.units.to_values(self.units.shift + self.units.scale * np.concatenate(found))

    def quantile(self, q: Any) -> Numbers:
        """The value below which a share ``q`` lies; ``q``: one number, or one per element."""
        return self.solve_quantile(np.asarray(q, float))

    def interval(self, coverage: Any) -> Numbers:
        """Central interval that holds a share ``coverage``: (lower, upper) on a new last axis."""
        tail = (1 - np.asarray(coverage)) / 2
        return np.stack([self.quantile(tail), self.quantile(1 - tail)], axis=-1)

    def absolute_error(self, y: Numbers) -> Numbers:
        return self._integrate(lambda cdf, is_below: np.where(is_below, cdf, 1 - cdf), y)

    def crps(self, y: Numbers, step: int = 1) -> Numbers:
        """Continuous ranked probability score: the integral of (F − step at y)².

        A ``step`` above 1 integrates on so many times fewer points.
        """
        return self._integrate(lambda cdf, is_below: np.where(is_below, cdf, 1 - cdf) ** 2, y, step)

    def _integrate(self, function: Any, y: Numbers, step: int = 1) -> Numbers:
        """∫ function(F(t), t < y) dt; the cdf is interpolated if there are many cells."""
        units, at = self.units, np.broadcast_to(y, self.shape)
        grid = GRID[::step].reshape(-1, *[1] * len(self.shape))
        spread = np.where(np.isfinite(self.std), self.std, units.scale)
        cuts = [np.clip(self.mean + spread * grid, units.low, units.high), at[None]]
        narrow, cdf = 0.0, lambda x: self._calibrated(self._rough_cdf(x))
        if units.values is not None and units.cells is not None:  # the cdf is constant in a cell
            ends = np.unique(np.concatenate([units.values.reshape(-1), units.cells.reshape(-1)]))
            ends, narrow = ends.reshape(-1, *[1] * len(self.shape)), NARROW * spread
            cuts.append(np.broadcast_to(ends, (len(ends), *self.shape)))
            if len(units.values) > len(GRID):
                cdf = interpolated(cdf, *self.summary[:2])
        cuts, total = np.sort(np.concatenate(cuts), axis=0), np.zeros(self.shape)
        for first, second in pairwise(cuts):
            nodes = MIDDLE if np.all(second - first < narrow) else GAUSS
            for node in nodes:
                t = first + node * (second - first)
                total += (second - first) / len(nodes) * function(self._stepped(cdf, t), t < at)
        return total

    def sample(self, key: Any, n: int) -> Numbers:
        """``n`` independent draws along a new first axis; ``key`` is a generator of NumPy."""
        size = sum(part.weight.size for part in self.parts)
        at_once = max(1, DRAWN_AT_ONCE // max(size, 1))
        sizes = [min(at_once, n - first) for first in range(0, n, at_once)]
        draws = np.concatenate([self._draw(key, size) for size in sizes])
        return self.units.to_values(self.units.shift + self.units.scale * draws)

    def _draw(self, rng: np.random.Generator, n: int) -> Numbers:
        """Standardised draws: those of the mixture are accepted by the density of H."""
        draws = np.empty((n, *self.shape))
        is_missing = np.ones(draws.shape, dtype=bool)
        while is_missing.any():
            drawn, chosen = np.empty_like(draws), draw_index(rng, self.weight, n)
            for expert, part in enumerate(self.parts):
                np.copyto(drawn, part.draw(rng, n), where=chosen == expert)
            is_taken = is_missing.copy()
            if self.calibration is not None:
                terms = bernstein(self._mixture_cdf(drawn), len(self.calibration))
                density = np.sum(self.calibration[:, None] * terms, axis=0)
                largest = self.calibration.max(axis=0)  # no less than the density: terms sum to 1
                is_taken &= ~(rng.random(draws.shape) * largest >= density)  # NaN is taken, too
            draws[is_taken] = drawn[is_taken]
            is_missing &= ~is_taken
        return draws

    def affine(self, shift: Any, scale: Any) -> "Stacked":
        own = self.units

        def moved(part: Any) -> Any:
            return None if part is None else np.asarray(shift + scale * part, float)

        units = Units(
            shift=moved(own.shift),
            scale=np.asarray(scale * own.scale, float),
            low=moved(own.low),
            high=moved(own.high),
            values=moved(own.values),
            cells=moved(own.cells),
        )
        return replace(self, units=units)

    def bounded(self, low: Any, high: Any) -> "Stacked":
        """The distribution moved into bounds; all probability beyond a bound becomes its own."""
        shape = np.shape(self.units.shift)
        low, high = (np.broadcast_to(np.asarray(end, float), shape) for end in (low, high))
        return replace(self, units=replace(self.units, low=low, high=high))

    @property
    def continuous(self) -> "Stacked":
        """The distribution whose probability is spread over cells, instead of at their values."""
        return replace(self, units=replace(self.units, values=None, cells=None))

    def discrete(self, values: Any, cells: Any) -> "Stacked":
        """The distribution with the probability of cells (k, 2) at values (k,), of one output."""
        values, cells = (np.asarray(part, float)[..., None] for part in (values, cells))
        return replace(self, units=replace(self.units, values=values, cells=cells))

    def widen(self, factor: Any) -> "Stacked":
        parts = tuple(ExpertPart(part.mixture.widen(factor), part.transform) for part in self.parts)
        return replace(self, parts=parts)

    def measured(self, std: Numbers) -> "Stacked":
        """Distribution of a measurement with one more error, see `ExpertPart.measured`.

        ``std`` is standardised; probabilities are calibrated as before.
        """
        return replace(self, parts=tuple(part.measured(std) for part in self.parts))

    def over_choices(self, choices: np.ndarray, log_weight: np.ndarray) -> "Stacked":
        """Mixtures of the densities of several rows, as `Mixture.over_choices`."""
        joint = self.log_weight[:, choices] + log_weight[..., None]  # experts, choices, rows, p
        total = np.maximum(special.logsumexp(joint, axis=1), -700.0)
        of_choices = (joint - total[:, None])[..., 0]  # outputs share their weights
        parts = tuple(
            ExpertPart(part.mixture.over_choices(choices, own), part.transform)
            for part, own in zip(self.parts, of_choices, strict=True)
        )
        own = self.calibration
        if own is not None:
            own = np.sum(own[:, choices] * np.exp(log_weight)[..., None], axis=1)
        return Stacked(parts, total, self.units, own)


def solve(
    function: NumbersToNumbers,
    slope: NumbersToNumbers,
    value: Numbers,
    x: Numbers,
    lower: Numbers,
    upper: Numbers,
    tolerance: float = TOLERANCE,
) -> Numbers:
    """Solve function(x) = value for an increasing function, by Newton's method and bisection."""
    last = np.full(x.shape, np.inf)
    for _ in range(MAX_STEPS):
        error = function(x) - value
        lower, upper = np.where(error < 0, x, lower), np.where(error > 0, x, upper)
        done = (np.abs(error) <= tolerance) | (upper - lower <= 1e-13 * (1 + np.abs(x)))
        if done.all():
            break
        newton = x - error / np.maximum(slope(x), 1e-300)
        trusted = (newton > lower) & (newton < upper) & (np.abs(error) < np.abs(last) / 2)
        x = np.where(done, x, np.where(trusted, newton, (lower + upper) / 2))
        last = error
    return x


def interpolated(cdf: NumbersToNumbers, mean: Numbers, variance: Numbers) -> NumbersToNumbers:
    """The cdf of numbers of this mean and variance, by cubic polynomials between `FINE` points.

    It is the cdf itself if polynomials between every other point miss one of the others, as they do
    where components are narrow. Slopes are limited so that it increases.
    """
    spread = np.sqrt(np.where(np.isfinite(variance), variance, 1.0))
    level = np.stack([cdf(mean + spread * point) for point in FINE])
    near, far = level[2:-4:2] + level[4:-2:2], level[:-6:2] + level[6::2]
    missed = np.max(np.abs(level[3:-3:2] - (9 * near - far) / 16))
    if not (missed <= MOST_MISSED and np.all(spread > 0)):
        return cdf
    slope, rise = np.gradient(level, axis=0), np.diff(level, axis=0)
    slope[2:-2] = (8 * (level[3:-1] - level[1:-3]) - level[4:] + level[:-4]) / 12
    slope[1:-1] = np.clip(slope[1:-1], 0.0, 3 * np.minimum(rise[:-1], rise[1:]))

    def found(x: Numbers) -> Numbers:
        place = (np.arcsinh((x - mean) / spread) / REACH + 1) / 2 * (len(FINE) - 1)
        place = place.clip(0, len(FINE) - 1)[None]
        left = np.minimum(np.nan_to_num(place).astype(int), len(FINE) - 2)
        low, high, before, after = (
            np.take_along_axis(part, at, axis=0)[0]
            for part in (level, slope)
            for at in (left, left + 1)
        )
        share = (place - left)[0]
        bend = (1 - share) * before - share * after
        return low + share * ((3 - 2 * share) * share * (high - low) + (1 - share) * bend)

    return found


def draw_index(rng: np.random.Generator, weight: Numbers, n: int) -> np.ndarray:
    """``n`` positions on the first axis, drawn with probabilities ``weight``."""
    total = np.cumsum(weight, axis=0)
    drawn = rng.random((n, *weight.shape[1:])) * total[-1]
    return np.sum(total[:, None] <= drawn, axis=0).clip(0, len(weight) - 1)
