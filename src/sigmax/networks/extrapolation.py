"""The extrapolation gate: 0 on the data, 1 far from them."""

import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from sigmax.compilation import on_device

__all__ = ["NO_CENTER", "OFFSET", "ExtrapolationGate", "blend_factor"]

OFFSET = 6.9077
"""The paper's a / gamma: sigmoid(-6.9077) = 0.001."""

SMALLEST_MARGIN = 0.15
"""In standard deviations of a feature."""

ON_DATA = 0.98
"""Share of new rows within the margins of `ExtrapolationGate.shut_on_offsets`. Beyond them it takes
a third of the way to half open until the gate shows: more than 99 of 100 rows are on the data."""

NO_MARGIN = 1e30
"""Beyond all data; an infinite one would not survive a step of an optimiser."""

NO_CENTER = -1
"""``own_center`` of a row that is no inducing point."""


def blend_factor(
    gate: Float[Array, "rows 1"],
    prior_variance: float | Float[Array, "1 outputs"],
    variance: Float[Array | np.ndarray, "rows outputs"],
) -> Float[Array, "rows outputs"]:
    r"""The factor on scales that takes variances to $(1-\tilde\nu)\sigma^2 + \tilde\nu\eta$."""
    return jnp.sqrt(1 - gate + gate * prior_variance / variance)


@final
class ExtrapolationGate(eqx.Module):
    r"""How far from the data: $\tilde\nu(\delta) = (\nu(\delta) - \nu(0)) / (1 - \nu(0))$.

    $\delta$ is the Euclidean distance to the nearest inducing point, less a margin within which a
    row still counts as on the data, and $\nu(\delta) = \text{sigmoid}(\delta/\gamma - 6.9077)$.
    Subtracting $\nu(0) = 0.001$ takes away the floor that it would put under every variance. The
    paper has no margin; without one, a gate wide enough to open anywhere is never quite shut
    between the training rows, where a thousandth of Var(y) can exceed the noise.

    Euclidean distances grow with the number of features, and a step along one of many hardly
    changes them. So the gate also opens by the largest offset from that inducing point along any
    one axis, with a margin and a scale of its own: by the larger of the two.
    """

    inducing_points: Float[Array, "centers features"]
    """In coordinates times their relevance."""
    relevance: Float[Array, " features"]
    """Of every coordinate, from 0 to 1: distances see the coordinates multiplied by it."""
    log_scale: Float[Array, ""]
    margin: Float[Array, ""]
    axis_scale: Float[Array, ""]
    axis_margin: Float[Array, ""]
    """Infinite where single axes do not count, as in the paper."""
    is_used: Bool[Array, " centers"]

    @classmethod
    def create(
        cls,
        centers: np.ndarray,
        n_slots: int,
        *,
        scale: float,
        margin: float = 0.0,
        relevance: np.ndarray | None = None,
    ) -> "ExtrapolationGate":
        """A gate around ``centers``, padded to ``n_slots`` so that its shape does not follow N.

        The centres are in coordinates times their ``relevance``, which is 1 by default.
        """
        padding = n_slots - len(centers)
        relevance = np.ones(centers.shape[1]) if relevance is None else relevance
        return cls(
            on_device(np.pad(centers, ((0, padding), (0, 0))), np.float32),
            on_device(relevance, np.float32),
            on_device(math.log(scale), np.float32),
            on_device(margin, np.float32),
            on_device(1.0, np.float32),
            on_device(NO_MARGIN, np.float32),
            on_device(np.arange(n_slots) < len(centers)),
        )

    @property
    def scale(self) -> Float[Array, ""]:
        """The paper's gamma."""
        return jnp.exp(self.log_scale)

    def nearest(
        self, x: Float[Array, "rows features"], own_center: Int[Array, " rows"]
    ) -> Int[Array, " rows"]:
        """The nearest inducing point other than the row's own.

        On small data every training row is an inducing point; with its own one counted, no
        training row would be any distance from the data and nothing could be learned from them.
        """
        x, centers = x * lax.stop_gradient(self.relevance)[None], self.inducing_points
        squared = jnp.sum(x**2, axis=1)[:, None] - 2 * x @ centers.T
        squared = squared + jnp.sum(centers**2, axis=1)[None]
        slots = jnp.arange(len(centers))
        excluded = ~self.is_used[None] | (slots[None] == own_center[:, None])
        squared = lax.stop_gradient(jnp.where(excluded, jnp.inf, squared))
        is_nearest = squared <= jnp.min(squared, axis=1)[:, None]
        return jnp.min(jnp.where(is_nearest, slots[None], len(slots) - 1), axis=1)  # argmin

    def offset(
        self, x: Float[Array, "rows features"], own_center: Int[Array, " rows"]
    ) -> Float[Array, "rows features"]:
        """Where each row is, seen from the nearest inducing point other than its own.

        In coordinates times their relevance.
        """
        relevance = lax.stop_gradient(self.relevance)[None]
        return x * relevance - self.inducing_points[self.nearest(x, own_center)]

    def distance(
        self, x: Float[Array, "rows features"], own_center: Int[Array, " rows"]
    ) -> Float[Array, " rows"]:
        """Distance to the nearest inducing point other than the row's own."""
        return length(self.offset(x, own_center))

    def __call__(
        self, x: Float[Array, "rows features"], own_center: Int[Array, " rows"]
    ) -> Float[Array, " rows"]:
        at_zero = 1 / (1 + math.exp(OFFSET))
        offset = self.offset(x, own_center)
        beyond = jnp.maximum(length(offset) - lax.stop_gradient(self.margin), 0) / self.scale
        margin, scale = lax.stop_gradient((self.axis_margin, self.axis_scale))
        along_axis = (jnp.max(jnp.abs(offset), axis=1) - margin) / scale
        opening = jax.nn.sigmoid(jnp.maximum(beyond, along_axis) - OFFSET)
        return jnp.clip((opening - at_zero) / (1 - at_zero), 0, 1)  # or it may round to above 1

    def shut_on(
        self, distances: Float[Array, " rows"], on_data: float | Float[Array, ""] = 0.99
    ) -> "ExtrapolationGate":
        """The gate that is shut on the data, and open soon beyond them.

        ``distances`` are those of rows that are no inducing points themselves, nan for padding.
        Their quantile ``on_data`` is how far a new row may well lie from the others: the margin. At
        twice that distance the gate is half open, at three times it is open. However dense the
        data, the margin is never below `SMALLEST_MARGIN`, or the gate would slam where a feature
        has hardly moved.
        """
        margin = jnp.maximum(jnp.nanquantile(distances, on_data), SMALLEST_MARGIN)
        return eqx.tree_at(
            lambda g: (g.log_scale, g.margin), self, (jnp.log(margin / OFFSET), margin)
        )

    def shut_on_offsets(self, offsets: Float[Array, "rows features"]) -> "ExtrapolationGate":
        """The gate that is shut on the data, and open soon beyond them in any direction.

        ``offsets`` are those of rows that are no inducing points themselves, nan for padding. Along
        an axis, the margin is a quantile of the largest offsets of these rows. The more features,
        the less they differ from row to row: the gate is half open as far beyond the margin as the
        median is below that quantile. Few rows tell it badly, worst where distances are steps of a
        design: the margins are its upper limit, a standard error of the share above it.
        """
        is_row = ~jnp.isnan(offsets[:, 0])
        error = jnp.sqrt(ON_DATA * (1 - ON_DATA) / jnp.sum(is_row))
        share = jnp.minimum(ON_DATA + error, 1)
        largest = jnp.max(jnp.abs(offsets), axis=1)  # of nan, a compiled maximum may be -inf
        largest = jnp.where(is_row, largest, jnp.nan)
        margin = jnp.maximum(jnp.nanquantile(largest, share), SMALLEST_MARGIN)
        median, usual = jnp.nanquantile(largest, jnp.array([0.5, ON_DATA]))
        scale = jnp.maximum(usual - median, SMALLEST_MARGIN) / OFFSET
        by_distance = self.shut_on(length(offsets), share)
        return eqx.tree_at(lambda g: (g.axis_scale, g.axis_margin), by_distance, (scale, margin))


def length(offset: Float[Array, "rows features"]) -> Float[Array, " rows"]:
    """The Euclidean length, whose gradient is finite at 0."""
    return jnp.sqrt(jnp.sum(offset**2, axis=1) + 1e-12)
