"""Density of one ensemble member: weighted Student-t components, and its trends beyond the data."""

import warnings
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from sigmax.compilation import on_device
from sigmax.distributions import StudentT
from sigmax.networks import blend_factor
from sigmax.networks.gate import MOST_ROWS, trees


@final
class WeightedStudentT(eqx.Module):
    """Student-t components along the last axis of all leaves, and the logarithms of their weights.

    Examples
    --------
    >>> components = StudentT(jnp.array([[-1.0, 3.0]]), jnp.full((1, 2), 6.0), jnp.ones((1, 2)))
    >>> dist = WeightedStudentT(components, jnp.log(jnp.array([[0.75, 0.25]])))
    >>> dist.mean, dist.variance
    (Array([0.], dtype=float32), Array([4.5], dtype=float32))
    """

    components: StudentT
    log_weight: Float[Array, "*batch components"]

    @property
    def mean(self) -> Float[Array, "*batch"]:
        """Weighted mean of the components' means."""
        return jnp.sum(jnp.exp(self.log_weight) * self.components.mean, axis=-1)

    @property
    def variance(self) -> Float[Array, "*batch"]:
        """Mean of the components' variances, plus the variance of their means."""
        spread = self.components.variance + (self.components.mean - self.mean[..., None]) ** 2
        return jnp.sum(jnp.exp(self.log_weight) * spread, axis=-1)

    def log_prob(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Logarithm of the density at ``y``."""
        y = jnp.broadcast_to(y[..., None], self.log_weight.shape)
        return logsumexp(self.log_weight + self.components.log_prob(y), axis=-1)

    def cdf(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """P(X ≤ y)."""
        y = jnp.broadcast_to(y[..., None], self.log_weight.shape)
        return jnp.sum(jnp.exp(self.log_weight) * self.components.cdf(y), axis=-1)

    def rough_crps(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """CRPS at ``y`` as if all components were Normal with their means and variances."""
        weight, mean = jnp.exp(self.log_weight), jnp.asarray(self.components.mean)
        variance = self.components.variance
        error = absolute_normal(mean - y[..., None], variance)
        apart = absolute_normal(
            mean[..., :, None] - mean[..., None, :],
            variance[..., :, None] + variance[..., None, :],
        )
        pairs = weight[..., :, None] * weight[..., None, :] * apart
        return jnp.sum(weight * error, axis=-1) - 0.5 * jnp.sum(pairs, axis=(-2, -1))

    def widen(self, factor: ArrayLike) -> "WeightedStudentT":
        """Every component widened by ``factor`` about its own mean."""
        components = self.components.widen(of_components(factor))
        return WeightedStudentT(components, self.log_weight)

    def with_tails(self, most_df: ArrayLike, share: ArrayLike = 1.0) -> "WeightedStudentT":
        """At most ``most_df`` degrees of freedom, by a share: `StudentT.with_tails`."""
        components = self.components.with_tails(most_df, of_components(share))
        return WeightedStudentT(components, self.log_weight)

    def moved(self, shift: ArrayLike, variance: ArrayLike) -> "WeightedStudentT":
        """Every component moved by ``shift``, and its variance larger by ``variance``."""
        growth = of_components(variance) / self.components.variance
        components = StudentT(
            self.components.mean + of_components(shift),
            self.components.df,
            self.components.scale * jnp.sqrt(1 + growth),
        )
        return WeightedStudentT(components, self.log_weight)

    def toward(
        self, prior_variance: float, share: ArrayLike, mean_share: ArrayLike | None = None
    ) -> "WeightedStudentT":
        """Mean moved to 0 and variance to ``prior_variance``, by a share between 0 and 1.

        All components shrink to the mean, and each takes on the variance: in the end they are one,
        up to their tails. The mean may be moved by another share than the variance.
        """
        mean_share = of_components(share if mean_share is None else mean_share)
        mean, share = self.mean[..., None], of_components(share)
        factor = blend_factor(share, prior_variance, self.components.variance)
        center = (1 - mean_share) * mean + jnp.sqrt(1 - share) * (self.components.mean - mean)
        components = StudentT(center, self.components.df, factor * self.components.scale)
        return WeightedStudentT(components, self.log_weight)


def absolute_normal(
    mean: Float[Array, "*shape"], variance: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """E|X| of a Normal X."""
    std = jnp.sqrt(variance)
    z = mean / std
    return std * (2 * norm.pdf(z) + z * (2 * norm.cdf(z) - 1))


def of_components(values: ArrayLike) -> Float[Array, "..."]:
    """Values of every density, broadcast over its components; one number stays one."""
    values = jnp.asarray(values)
    return values[..., None] if values.ndim else values


MOST_GROWTH = 1.5
"""Lengths beyond which the variance grows no further."""


@final
class Edges(eqx.Module):
    """Trend of the mean beyond the lowest and the highest value of every number.

    At a row beyond the range of the training data, the networks predict for the nearest row within
    it. The mean then moves by ``slope`` times the distance, up to a ``length``. The variance grows
    by the ``excess`` at the distance ``validated``, as the root of the distance before it and in
    proportion beyond, and by ``doubt``, the variance of the slope, times the squared distance.
    `fit_edges` estimates all of them.
    """

    slope: Float[Array | np.ndarray, "2 reals outputs"]
    excess: Float[Array | np.ndarray, "2 reals outputs"]
    doubt: Float[Array | np.ndarray, "2 reals outputs"]
    validated: Float[Array | np.ndarray, "2 reals"]
    length: Float[Array | np.ndarray, "2 reals"]
    fade: Float[Array | np.ndarray, ""]
    """Share by which the mean is moved to that of y where the gate is 1."""

    @classmethod
    def none(cls, n_reals: int, n_outputs: int) -> "Edges":
        """No trend, and the mean of y where the gate is 1."""
        zeros = on_device(np.zeros((2, n_reals, n_outputs)), np.float32)
        ones = on_device(np.ones((2, n_reals)), np.float32)
        return cls(zeros, zeros, zeros, ones, ones, on_device(1.0, np.float32))

    def __call__(
        self, beyond: Float[Array | np.ndarray, "rows reals"]
    ) -> tuple[Float[Array, "rows outputs"], Float[Array, "rows outputs"]]:
        """Changes of the mean and of the variance."""
        distance, length = jnp.stack([-beyond, beyond]), jnp.asarray(self.length)[:, None]
        near = jnp.clip(distance, 0.0, length)
        far = jnp.clip(distance, 0.0, MOST_GROWTH * length)
        far = far / jnp.asarray(self.validated)[:, None]
        growth = jnp.where(far < 1, jnp.sqrt(jnp.maximum(far, 1e-12)), far) * (far > 0)

        def total(distances: Array, rates: Array | np.ndarray) -> Float[Array, "rows outputs"]:
            """Sum over sides and numbers."""
            return jnp.einsum("srd,sdo->ro", distances, rates, precision=lax.Precision.HIGHEST)

        return total(near, self.slope), total(growth, self.excess) + total(near**2, self.doubt)

    def apply(
        self,
        dist: WeightedStudentT,
        gate: Float[Array, " rows"],
        beyond: Float[Array | np.ndarray, "rows reals"] | None,
        prior_variance: float,
    ) -> WeightedStudentT:
        """Predictions for rows within the range, as predictions for rows ``beyond`` it.

        The gate moves the variance to the prior's. It moves the mean later than that, and only by
        the share ``fade``.
        """
        opening = gate[:, None]
        dist = dist.toward(prior_variance, opening, mean_share=self.fade * opening**2)
        return dist if beyond is None else dist.moved(*self(beyond))


EDGE = 0.1
"""Share of the rows beyond either edge that a column is validated on."""

LATER = 0.25
"""The same for times: new rows are usually later."""

FEWEST_BEYOND = 8
"""Rows beyond an edge that are needed to estimate a trend there."""

MOST_COLUMNS = 6
"""Number of columns, the most relevant ones, for which a trend is estimated."""

MAY_CHANGE = 0.1
"""Standard deviation of a slope beyond the edge, as a share of the slope before it."""

LEAST_RELEVANCE = 0.2
"""Columns of less relevance have no trend."""


def fit_edges(
    coordinates: NDArray[np.floating],
    n_reals: int,
    y: NDArray[np.floating],
    relevance: NDArray[np.floating],
    times: NDArray[np.intp],
    rng: np.random.Generator,
) -> Edges:
    """Trends beyond the range of the training data, validated on the outermost rows.

    For every relevant number, two models learn from the rows within the central part of its range
    and predict the rows beyond either edge: a forest, which extrapolates as a constant, and a
    linear model with a forest of its residuals, which extrapolates with the slope of the linear
    one. The mixture with the least squared error gives the share of that slope. The squared error
    that remains, in excess of the forest's out-of-bag error, is the growth of the variance. All
    these rows together also give the share by which predictions beyond an edge are moved to the
    mean of y.

    Parameters
    ----------
    coordinates
        The first ``n_reals`` are numbers, for which trends are estimated.
    times
        Numbers with a trend whatever their relevance, which continues for longer.
    """
    n_outputs = y.shape[1]
    slope, excess, doubt = np.zeros((3, 2, n_reals, n_outputs))
    X, rows = np.asarray(coordinates, np.float64), rng.permutation(len(y))[:MOST_ROWS]
    lowest, highest = X[:, :n_reals].min(axis=0), X[:, :n_reals].max(axis=0)
    length = np.stack([highest - lowest] * 2)
    validated = np.ones((2, n_reals))
    X, y = X[rows], np.asarray(y, np.float64)[rows]
    ranked = [j for j in np.argsort(-relevance[:n_reals]) if relevance[j] > LEAST_RELEVANCE]
    columns = dict.fromkeys([*times.tolist(), *map(int, ranked)])
    predicted, actual = [np.empty((0, n_outputs))], [np.empty((0, n_outputs))]
    for j in list(columns)[:MOST_COLUMNS]:
        share = LATER if j in times else EDGE
        low, high = np.quantile(X[:, j], [share, 1 - share])
        if j not in times:
            length[:, j] = low - lowest[j], highest[j] - high
        sides = np.stack([low - X[:, j], X[:, j] - high])
        is_inner = (sides <= 0).all(axis=0)
        if is_inner.sum() < 4 * FEWEST_BEYOND or (sides > 0).sum() < FEWEST_BEYOND:
            continue
        inner, center = (X[is_inner], y[is_inner]), y[is_inner].mean(axis=0)
        constants, linears, noise, slopes = predict_beyond(*inner, X, int(rng.integers(2**31)))
        for side, distance in enumerate(sides):
            is_outer = distance > 0
            if is_outer.sum() < FEWEST_BEYOND:
                continue
            constant, linear = constants[is_outer], linears[is_outer]
            target, distance = y[is_outer], distance[is_outer]
            kept = projection(linear - constant, target - constant)
            squares = (target - constant - kept * (linear - constant)) ** 2
            slope[side, j] = kept * slopes[:, j] * (-1, 1)[side]
            excess[side, j] = np.maximum(squares.mean(axis=0) - noise, 0.0)
            validated[side, j] = distance.mean()
            error = squares.mean(axis=0) / np.sum(distance**2)
            doubt[side, j] = error + (MAY_CHANGE * slope[side, j]) ** 2
            predicted.append(constant - center)
            actual.append(target - center)
    fade = 1.0
    if len(predicted) > 1:
        fade = 1 - projection(np.concatenate(predicted), np.concatenate(actual))
    parts = (slope, excess, doubt, validated, length, np.array(fade))
    return Edges(*(part.astype(np.float32) for part in parts))


def predict_beyond(
    X: NDArray[np.float64], y: NDArray[np.float64], beyond: NDArray[np.float64], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Predictions of a forest, and of a linear model with a forest of its residuals.

    Also the mean squared out-of-bag error of the first forest by output, and the coefficients
    (outputs, columns) of the linear model.
    """
    forest = trees(seed, X.shape[1], bootstrap=True, oob_score=True)
    with warnings.catch_warnings():  # a row may be in the sample of every tree
        warnings.simplefilter("ignore")
        forest.fit(X, y.squeeze())
    linear = Ridge().fit(X, y)
    residuals = y - linear.predict(X).reshape(y.shape)
    of_residuals = trees(seed, X.shape[1]).fit(X, residuals.squeeze())
    noise = np.mean((y - forest.oob_prediction_.reshape(y.shape)) ** 2, axis=0)
    constant, trend, rest = (
        model.predict(beyond).reshape(len(beyond), -1) for model in (forest, linear, of_residuals)
    )
    return constant, trend + rest, noise, np.atleast_2d(linear.coef_)


def projection(predicted: NDArray[np.float64], actual: NDArray[np.float64]) -> float:
    """Factor from 0 to 1 on ``predicted`` that is nearest to ``actual``.

    Examples
    --------
    >>> projection(np.array([[1.0], [-2.0]]), np.array([[0.5], [-1.0]]))
    0.5
    """
    squares = np.sum(predicted**2)
    return float(np.clip(np.sum(predicted * actual) / squares, 0.0, 1.0)) if squares else 0.0
