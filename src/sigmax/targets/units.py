"""Units of the target: standardised on the training rows, as it is or after a monotone map."""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from sigmax.compilation import compiled, padded_blocks
from sigmax.distributions import AbstractDistribution, Bounded, Mapped, Mixture, MonotoneSpline
from sigmax.files import take_array
from sigmax.scaling import FARTHEST, Standardizer
from sigmax.targets.support import Support
from sigmax.targets.values import RepeatedValues

__all__ = ["TARGET_MAPS", "TargetUnits"]

TARGET_MAPS = ("none", "normal-scores")

LEVELS = np.concatenate([[0.002, 0.01], np.linspace(0.03, 0.97, 32), [0.99, 0.998]])
"""Shares of the targets below the knots of a map, at most."""

N_KNOTS = len(LEVELS) + 2

N_IN_TAIL = 4
"""Knots at either end whose slope goes on beyond the last of them."""

TRIMMED = 0.01
"""Share of the rows at either end without which the usual spread of a target is measured."""

HAS_OUTLIERS = 10.0
"""A target has outliers if its standard deviation exceeds its usual spread so many times."""

FARTHEST_LEARNED = 10.0
"""Outliers are learned as values so many times the usual spread from the usual mean."""


@final
@dataclass(frozen=True, eq=False)
class TargetUnits:
    """From y to numbers of mean 0 and variance 1 that networks learn, and back.

    Examples
    --------
    >>> y = np.exp(np.random.default_rng(0).normal(size=(1000, 1)))
    >>> units = TargetUnits.fit(y, np.ones(1000), "normal-scores")
    >>> bool(abs(np.mean(units(y) ** 3)) < 0.1), bool(np.allclose(units.restore(units(y)), y))
    (True, True)
    """

    scaling: Standardizer
    """Of y itself."""
    spline: MonotoneSpline | None = None
    """From y to what networks learn, where that is not the standardised y."""
    limits: np.ndarray | None = None
    """Beyond them, (p, 2), values are learned as these; None without outliers."""
    repeated: tuple[RepeatedValues | None, ...] = ()
    """Of every output; None for one whose values hardly ever repeat."""
    support: tuple[Support, ...] = ()
    """Of every output."""

    @classmethod
    def fit(
        cls,
        y: np.ndarray,
        weight: np.ndarray,
        target_map: str = "none",
        support: Any = (None, None),
    ) -> "TargetUnits":
        """The units of targets (n, p), by one of the `TARGET_MAPS`.

        ``support`` is "auto" or a pair of bounds, as estimators have it.
        """
        found = {
            "limits": outlier_limits(y),
            "repeated": tuple(RepeatedValues.find(column) for column in y.T),
            "support": tuple(Support.find(column, support) for column in y.T),
        }
        if found["limits"] is not None:
            y = np.clip(y, *found["limits"].T)
        scaling = Standardizer.fit(y, weight, constant_scale=1e-6)
        if target_map == "none":
            return cls(scaling, **found)
        knots = [normal_score_knots(column, weight) for column in y.T]
        x, scores = (np.stack(part, axis=1) for part in zip(*knots, strict=True))
        spline = MonotoneSpline.through(x, scores)
        own = Standardizer.fit(in_double("__call__", spline, y), weight)
        spline = MonotoneSpline(x, (scores - own.mean) / own.scale, spline.slope / own.scale)
        return cls(scaling, spline, **found)

    def wider(self, factor: float) -> "TargetUnits":
        """Units so many times as large, of a target without a map."""
        return replace(self, scaling=replace(self.scaling, scale=factor * self.scaling.scale))

    def with_values(self, y: np.ndarray) -> "TargetUnits":
        """The same units once it is known that targets ``y`` (n, p) occur, too."""
        repeated = (own and own.with_values(column) for own, column in self._columns(y))
        support = (own.with_values(column) for own, column in zip(self.support, y.T, strict=True))
        return replace(self, repeated=tuple(repeated), support=tuple(support))

    @property
    def target_map(self) -> str:
        """Which of the `TARGET_MAPS` this is."""
        return TARGET_MAPS[self.spline is not None]

    def __call__(self, y: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """What networks learn, by default in single precision."""
        if self.limits is not None:
            y = np.clip(y, *self.limits.T)
        if self.spline is None:
            return self.scaling(y, dtype)
        return np.clip(in_double("__call__", self.spline, y), -FARTHEST, FARTHEST).astype(dtype)

    def restore(self, values: np.ndarray) -> np.ndarray:
        """Values of what networks learn, in units of y; outputs are on the last axis."""
        if self.spline is None:
            return self.scaling.mean + self.scaling.scale * values
        return in_double("inverse", self.spline, values)

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """By how much a log-density in units of y exceeds that of what networks learn."""
        if self.spline is None:
            return np.broadcast_to(-np.log(self.scaling.scale), y.shape)
        return in_double("log_slope", self.spline, y)

    def distribution(self, mixture: Mixture) -> AbstractDistribution:
        """What networks predict, as a density of y."""
        if self.spline is None:
            dist = mixture.affine(self.scaling.mean, self.scaling.scale)
        else:
            dist = Mapped(mixture, self.spline)
        return self.bounded(dist)

    def bounded(self, dist: Mixture | Mapped) -> AbstractDistribution:
        """Densities of y, (n, p) or (n,), without what lies outside the support."""
        if not any(own.is_bounded for own in self.support):
            return dist
        bounds = np.array(self.support, np.float64)
        return Bounded.create(dist, *(bounds.T if len(dist.shape) > 1 else bounds[0]))

    def within_support(self, bounds: np.ndarray) -> np.ndarray:
        """Intervals (n, p, 2) without what lies outside the support."""
        support = np.array(self.support, np.float64)
        return np.clip(bounds, support[:, :1], support[:, 1:2])

    @property
    def has_repeated(self) -> bool:
        """True if the values of an output repeat."""
        return any(own is not None for own in self.repeated)

    def interval_ends(self, bounds: np.ndarray) -> np.ndarray:
        """Intervals (n, 2) or (n, p, 2) of the density as such of values: `RepeatedValues.ends`."""
        parts = np.reshape(bounds, (len(bounds), -1, 2))
        ends = [
            parts[:, output] if own is None else own.ends(parts[:, output])
            for output, own in enumerate(self.repeated)
        ]
        return np.stack(ends, axis=1).reshape(np.shape(bounds)) if ends else bounds

    def cell_widths(self, y: np.ndarray) -> np.ndarray:
        """Width of the cell of every target, (n,) or (n, p); 0 where values do not repeat."""
        widths = np.zeros((len(y), len(self.repeated)))
        for output, (own, column) in enumerate(self._columns(y.reshape(len(y), -1))):
            if own is not None:
                widths[:, output] = own.cell_widths(column)
        return widths.reshape(y.shape)

    def _columns(self, y: np.ndarray):
        return zip(self.repeated, y.T, strict=True)

    def state(self) -> dict[str, np.ndarray]:
        """The arrays that a saved model keeps of it."""
        found = self.scaling.state("y")
        found["y.support"] = np.array(self.support, np.float64)
        if self.limits is not None:
            found["y.limits"] = self.limits
        for output, own in enumerate(self.repeated):
            if own is not None:
                parts = [own.values, own.cells, np.full_like(own.cells[:, :1], own.is_rounded)]
                found[f"y.{output}.repeated"] = np.concatenate(parts, axis=1)
        if self.spline is not None:
            parts = {"x": self.spline.x, "y": self.spline.y, "slope": self.spline.slope}
            found |= {f"map.{name}": np.asarray(part) for name, part in parts.items()}
        return found

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], n_outputs: int) -> "TargetUnits":
        """What `state` was taken from, refused if it is no increasing map of so many outputs."""
        scaling = Standardizer.from_state(arrays, "y", n_outputs)
        found = {
            "limits": None if "y.limits" not in arrays else read_limits(arrays, n_outputs),
            "repeated": tuple(read_repeated(arrays, output) for output in range(n_outputs)),
            "support": read_support(arrays, n_outputs),
        }
        if "map.x" not in arrays:
            return cls(scaling, **found)
        shape = (N_KNOTS, n_outputs)
        x, y, slope = (take_array(arrays, f"map.{part}", shape) for part in ("x", "y", "slope"))
        if not ((np.diff(x, axis=0) > 0).all() and (np.diff(y, axis=0) > 0).all()):
            raise ValueError("the map of the target must increase from knot to knot")
        if not (slope > 0).all():
            raise ValueError("the map of the target must have positive slopes")
        return cls(scaling, MonotoneSpline(x, y, slope), **found)


def read_limits(arrays: dict[str, np.ndarray], n_outputs: int) -> np.ndarray:
    """Limits of `TargetUnits.state`."""
    limits = take_array(arrays, "y.limits", (n_outputs, 2))
    if not (limits[:, 0] < limits[:, 1]).all():
        raise ValueError("limits of the target must be a lower and an upper one")
    return limits


def read_support(arrays: dict[str, np.ndarray], n_outputs: int) -> tuple[Support, ...]:
    """Bounds of `TargetUnits.state`."""
    support = take_array(arrays, "y.support", (n_outputs, 2))
    if not (support[:, 0] < support[:, 1]).all():
        raise ValueError("the support of the target must be a lower and an upper bound")
    return tuple(Support(low, high) for low, high in support.tolist())


def read_repeated(arrays: dict[str, np.ndarray], output: int) -> RepeatedValues | None:
    """Repeated values of `TargetUnits.state`."""
    name = f"y.{output}.repeated"
    if name not in arrays:
        return None
    found = take_array(arrays, name, (len(arrays[name]), 5))
    values, cells, is_rounded = found[:, :2], found[:, 2:4], found[:, 4]
    order = np.stack([cells[:, 0], values[:, 0], values[:, 1], cells[:, 1]], axis=1)
    is_sorted = (np.diff(order.reshape(-1)) >= 0).all() and np.isfinite(found).all()
    if not (len(found) and is_sorted and np.isin(is_rounded, is_rounded[0]).all()):
        raise ValueError("repeated values of the target must increase, each within its cell")
    return RepeatedValues(values, cells, bool(is_rounded[0]))


def outlier_limits(y: np.ndarray) -> np.ndarray | None:
    """Limits (p, 2) of what is learned of targets (n, p); None if no output has outliers.

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


def in_double(name: str, spline: MonotoneSpline, values: np.ndarray) -> np.ndarray:
    """A function of a spline in double precision, whatever JAX is set to; outputs come last.

    In blocks of a few sizes, so that another number of rows compiles nothing and needs no memory.
    """
    import jax

    rows = np.asarray(values, np.float64).reshape(-1, values.shape[-1])
    parts = []
    with jax.enable_x64(True):
        for n_true, block in padded_blocks(len(rows)):
            parts.append(np.asarray(evaluate(name, spline, rows[block]))[:n_true])
    return np.concatenate(parts).reshape(values.shape)


@compiled
def evaluate(name: str, spline: MonotoneSpline, values: Any):
    return getattr(spline, name)(values)


def normal_score_knots(y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of y, and the same quantiles of a standard Normal.

    Equal quantiles are one knot, in the middle of their levels. The outermost knots continue the
    slope of the last few, so that the lines beyond neither compress nor stretch what is rare.
    """
    from scipy.special import ndtri

    order = np.argsort(y)
    level = np.cumsum(weight[order])
    level = (level - weight[order] / 2) / level[-1]
    values = np.interp(LEVELS, level, y[order])
    largest = np.abs(y).max()
    least = max(1e-6 * (np.ptp(y) or largest or 1.0), 16 * np.finfo(float).eps * largest)
    group = np.cumsum(np.diff(values, prepend=values[0]) > least)
    x = np.array([values[group == g].mean() for g in range(group[-1] + 1)])
    scores = ndtri([LEVELS[group == g].mean() for g in range(group[-1] + 1)])
    if len(x) == 1:  # hardly any value but one
        x, scores = np.array([x[0] - least, x[0] + least]), np.array([-1.0, 1.0])
    last = min(N_IN_TAIL, len(x)) - 1
    slopes = (
        (scores[last] - scores[0]) / (x[last] - x[0]),
        (scores[-1] - scores[-1 - last]) / (x[-1] - x[-1 - last]),
    )
    step = max(np.ptp(x), least)
    n_more = N_KNOTS - len(x)
    below = 1 + np.arange(n_more // 2)[::-1]
    above = 1 + np.arange(n_more - n_more // 2)
    x_all = np.concatenate([x[0] - step * below, x, x[-1] + step * above])
    scores_all = np.concatenate(
        [scores[0] - slopes[0] * step * below, scores, scores[-1] + slopes[1] * step * above]
    )
    return x_all, scores_all
