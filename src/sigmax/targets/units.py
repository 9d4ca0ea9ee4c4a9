"""Units of the target: standardised on the training rows, as it is or after a monotone map."""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from sigmax.compilation import compiled, padded_blocks
from sigmax.distributions import AbstractDistribution, Mapped, Mixture, MonotoneSpline
from sigmax.files import take_array
from sigmax.scaling import FARTHEST, Standardizer
from sigmax.targets.grid import TargetGrid

__all__ = ["TARGET_MAPS", "TargetUnits"]

TARGET_MAPS = ("none", "normal-scores")

LEVELS = np.concatenate([[0.002, 0.01], np.linspace(0.03, 0.97, 32), [0.99, 0.998]])
"""Shares of the targets below the knots of a map, at most."""

N_KNOTS = len(LEVELS) + 2

N_IN_TAIL = 4
"""Knots at either end whose slope goes on beyond the last of them."""


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
    grids: tuple[TargetGrid, ...] = ()
    """Of every output; none if no output has values that cannot be told apart."""

    @classmethod
    def fit(cls, y: np.ndarray, weight: np.ndarray, target_map: str = "none") -> "TargetUnits":
        """The units of targets (n, p), by one of the `TARGET_MAPS`."""
        scaling = Standardizer.fit(y, weight, constant_scale=1e-6)
        grids = tuple(TargetGrid.find(column) for column in y.T)
        grids = grids if any(grid.step for grid in grids) else ()
        if target_map == "none":
            return cls(scaling, grids=grids)
        knots = [normal_score_knots(column, weight) for column in y.T]
        x, scores = (np.stack(part, axis=1) for part in zip(*knots, strict=True))
        spline = MonotoneSpline.through(x, scores)
        own = Standardizer.fit(in_double("__call__", spline, y), weight)
        spline = MonotoneSpline(x, (scores - own.mean) / own.scale, spline.slope / own.scale)
        return cls(scaling, spline, grids)

    def wider(self, factor: float) -> "TargetUnits":
        """Units so many times as large, of a target without a map."""
        return replace(self, scaling=replace(self.scaling, scale=factor * self.scaling.scale))

    def with_values(self, y: np.ndarray) -> "TargetUnits":
        """The same units once it is known that targets ``y`` (n, p) occur, too."""
        grids = (grid.with_values(own) for grid, own in zip(self.grids, y.T, strict=False))
        return replace(self, grids=tuple(grids))

    @property
    def step(self) -> np.ndarray:
        """Of every output, the distance within which its values cannot be told apart."""
        if not self.grids:
            return np.zeros(len(self.scaling.scale))
        return np.array([grid.step for grid in self.grids])

    @property
    def target_map(self) -> str:
        """Which of the `TARGET_MAPS` this is."""
        return TARGET_MAPS[self.spline is not None]

    def __call__(self, y: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """What networks learn, by default in single precision."""
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

    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Values that networks learn, and how long a step of the target is there; 0 without one.

        Of shape (knots, outputs), the same with a map and without.
        """
        n_outputs = len(self.scaling.scale)
        step = self.step
        if self.spline is None:
            values = np.repeat(np.linspace(-1, 1, N_KNOTS)[:, None], n_outputs, axis=1)
            return values, np.repeat((step / self.scaling.scale)[None], N_KNOTS, axis=0)
        slope = np.exp(self.log_slope(np.asarray(self.spline.x)))
        return np.asarray(self.spline.y), step * slope

    def distribution(self, mixture: Mixture) -> AbstractDistribution:
        """What networks predict, as a density of y."""
        if self.spline is None:
            return mixture.affine(self.scaling.mean, self.scaling.scale)
        return Mapped(mixture, self.spline)

    def interval_ends(self, bounds: np.ndarray) -> np.ndarray:
        """Intervals (n, 2) or (n, p, 2) of the density as such of values: `TargetGrid.ends`."""
        parts = np.reshape(bounds, (len(bounds), -1, 2))
        ends = [grid.ends(parts[:, output]) for output, grid in enumerate(self.grids)]
        return np.stack(ends, axis=1).reshape(np.shape(bounds)) if ends else bounds

    def state(self) -> dict[str, np.ndarray]:
        """The arrays that a saved model keeps of it."""
        found = self.scaling.state("y")
        for output, grid in enumerate(self.grids):
            found[f"y.{output}.step"] = np.array(
                [grid.step, grid.is_full, grid.lowest, grid.highest]
            )
            found[f"y.{output}.shared"] = grid.values
        if self.spline is not None:
            parts = {"x": self.spline.x, "y": self.spline.y, "slope": self.spline.slope}
            found |= {f"map.{name}": np.asarray(part) for name, part in parts.items()}
        return found

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], n_outputs: int) -> "TargetUnits":
        """What `state` was taken from, refused if it is no increasing map of so many outputs."""
        scaling = Standardizer.from_state(arrays, "y", n_outputs)
        grids = ()
        if "y.0.step" in arrays:
            grids = tuple(read_grid(arrays, output) for output in range(n_outputs))
        if "map.x" not in arrays:
            return cls(scaling, grids=grids)
        shape = (N_KNOTS, n_outputs)
        x, y, slope = (take_array(arrays, f"map.{part}", shape) for part in ("x", "y", "slope"))
        if not ((np.diff(x, axis=0) > 0).all() and (np.diff(y, axis=0) > 0).all()):
            raise ValueError("the map of the target must increase from knot to knot")
        if not (slope > 0).all():
            raise ValueError("the map of the target must have positive slopes")
        return cls(scaling, MonotoneSpline(x, y, slope), grids)


def read_grid(arrays: dict[str, np.ndarray], output: int) -> TargetGrid:
    """A grid of `TargetUnits.state`, refused if it is none."""
    step, is_full, lowest, highest = take_array(arrays, f"y.{output}.step", (4,)).tolist()
    values = take_array(arrays, f"y.{output}.shared", arrays[f"y.{output}.shared"].shape[:1])
    if not (0 <= step < np.inf and is_full in (0.0, 1.0) and np.isfinite(values).all()):
        raise ValueError("the grid of the target must be a step and finite values")
    if is_full and not (len(values) == 1 and step > 0):
        raise ValueError("a grid must have one value and a step above 0")
    if not lowest < highest:
        raise ValueError("the least value of the target must be below the greatest")
    return TargetGrid(step, values, bool(is_full), lowest, highest)


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
