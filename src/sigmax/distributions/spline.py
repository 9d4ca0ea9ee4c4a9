"""Monotone rational splines with exact inverses."""

from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@final
class Knots(NamedTuple):
    """Knot of each value."""

    x: Any
    y: Any
    slope: Any


@final
class MonotoneSpline(eqx.Module):
    r"""Increasing spline, smooth between its knots and linear beyond them.

    Between two knots it is a ratio of quadratics (Gregory and Delbourgo 1982): increasing for all
    positive slopes, with a continuous derivative; its inverse is the root of a quadratic. The first
    axis of all leaves is that of the knots; further axes are those of several outputs, each with
    its own spline.

    Examples
    --------
    >>> spline = MonotoneSpline.through(np.array([0.0, 1.0, 4.0]), np.array([-1.0, 0.0, 1.0]))
    >>> y = np.array([-10.0, 0.3, 2.0, 7.0])
    >>> np.asarray(spline(y)).round(3)
    array([-11.   ,  -0.665,   0.4  ,   2.   ], dtype=float32)
    >>> np.allclose(spline.inverse(spline(y)), y)
    True
    """

    x: Float[Array | np.ndarray, " knots *outputs"]
    y: Float[Array | np.ndarray, " knots *outputs"]
    slope: Float[Array | np.ndarray, " knots *outputs"]

    @classmethod
    def through(cls, x: np.ndarray, y: np.ndarray) -> "MonotoneSpline":
        """Create from increasing knots; inner slopes are harmonic means of the secants."""
        secant = np.diff(y, axis=0) / np.diff(x, axis=0)
        inner = 2 * secant[1:] * secant[:-1] / (secant[1:] + secant[:-1])
        return cls(x, y, np.concatenate([secant[:1], inner, secant[-1:]]))

    def check(self) -> None:
        """Raise ValueError unless the spline increases from knot to knot."""
        if not ((np.diff(self.x, axis=0) > 0).all() and (np.diff(self.y, axis=0) > 0).all()):
            raise ValueError("a monotone spline must increase from knot to knot")
        if not (np.asarray(self.slope) > 0).all():
            raise ValueError("a monotone spline must have positive slopes")

    def __call__(self, x: Float[Array | np.ndarray, "*batch"]) -> Float[Array, "*batch"]:
        """Value at ``x``."""
        x = jnp.asarray(x)
        left, right = self._ends(x, self.x)
        width, height = right.x - left.x, right.y - left.y
        secant = height / width
        share = jnp.clip((x - left.x) / width, 0.0, 1.0)
        product = share * (1 - share)
        above = height * (secant * share**2 + left.slope * product)
        inside = left.y + above / (secant + (left.slope + right.slope - 2 * secant) * product)
        return inside + self._beyond(x, self.x, self.slope)

    def inverse(self, y: Float[Array | np.ndarray, "*batch"]) -> Float[Array, "*batch"]:
        """Value of x at which the spline is ``y``."""
        y = jnp.asarray(y)
        left, right = self._ends(y, self.y)
        width, height = right.x - left.x, right.y - left.y
        secant = height / width
        rise = jnp.clip(y - left.y, 0.0, height)
        bend = rise * (left.slope + right.slope - 2 * secant)
        a, b, c = height * (secant - left.slope) + bend, height * left.slope - bend, -secant * rise
        root = jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0))
        share = jnp.clip(2 * c / jnp.where(b + root > 0, -b - root, -1.0), 0.0, 1.0)
        return left.x + share * width + self._beyond(y, self.y, 1 / self.slope)

    def log_slope(self, x: Float[Array | np.ndarray, "*batch"]) -> Float[Array, "*batch"]:
        """Logarithm of the derivative at ``x``."""
        x = jnp.asarray(x)
        left, right = self._ends(x, self.x)
        width = right.x - left.x
        secant = (right.y - left.y) / width
        share = jnp.clip((x - left.x) / width, 0.0, 1.0)
        product = share * (1 - share)
        above = right.slope * share**2 + 2 * secant * product + left.slope * (1 - share) ** 2
        below = secant + (left.slope + right.slope - 2 * secant) * product
        return 2 * jnp.log(secant / below) + jnp.log(above)

    def _ends(self, values, knots) -> tuple[Knots, Knots]:
        """Knots on both sides of each value; the first or last two for values beyond them."""
        inner = jnp.asarray(knots)[1:-1]
        n_axes = values.ndim - (inner.ndim - 1)
        inner = inner.reshape(len(inner), *[1] * n_axes, *inner.shape[1:])
        index = jnp.sum(values[None] >= inner, axis=0)

        def take(leaf, index):
            leaf = jnp.asarray(leaf)
            spread = leaf.reshape(len(leaf), *[1] * n_axes, *leaf.shape[1:])
            shape = (len(leaf), *values.shape)
            return jnp.take_along_axis(jnp.broadcast_to(spread, shape), index[None], axis=0)[0]

        leaves = self.x, self.y, self.slope
        left = Knots(*(take(leaf, index) for leaf in leaves))
        return left, Knots(*(take(leaf, index + 1) for leaf in leaves))

    @staticmethod
    def _beyond(values, knots, slope):
        """Contribution of the linear tails to each value."""

        def end(leaf, index):
            return jnp.broadcast_to(jnp.asarray(leaf)[index], values.shape)

        lower = jnp.minimum(values - end(knots, 0), 0.0)
        upper = jnp.maximum(values - end(knots, -1), 0.0)
        return lower * end(slope, 0) + upper * end(slope, -1)
