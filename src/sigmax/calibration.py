"""Recalibration of predictive distributions by a factor, and conformal intervals.

The conformal score of a calibration row is the absolute error of its predicted mean over its
predicted standard deviation. It is finite for any tails of y and of the density, so that one
outlier among many rows does not make intervals infinite, and it needs only these two numbers of a
model.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from sigmax.metrics import pit_histogram
from sigmax.settings import check_number
from sigmax.values import AnyArray, jax, jnp, lax

__all__ = ["ConformalScores", "best_scale_factor", "coverage_match", "pit_histogram"]

ROUNDING = 1e-12
"""Relative tolerance, as (n + 1) times a coverage such as 0.9 may be just above an integer."""

MOST_HALVINGS = 60


@final
@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Scores of calibration rows, and the model that predicted each of them.

    One model gives split conformal intervals. The models of several folds give CV+ intervals
    (Barber, Candès, Ramdas and Tibshirani 2021): the ends are quantiles of the means of all
    models, plus or minus the scores of the model's held-out rows times the model's standard
    deviation. Memory grows with the number of rows, not of pairs of rows.

    Examples
    --------
    >>> y, zero, one = np.arange(-9.0, 10.0)[:, None], np.zeros((19, 1)), np.ones((19, 1))
    >>> scores = ConformalScores.create(y, zero, one)
    >>> scores.interval(np.full((1, 1, 1), 5.0), np.full((1, 1, 1), 2.0), coverage=0.5)
    array([[[-5., 15.]]])
    """

    score: Float[np.ndarray, "rows outputs"]
    weight: Float[np.ndarray, " rows"]
    fold: Int[np.ndarray, " rows"]
    """Number of the model that was not trained on the row."""

    @classmethod
    def create(
        cls,
        y: Float[np.ndarray, "rows outputs"],
        mean: Float[np.ndarray, "rows outputs"],
        std: Float[np.ndarray, "rows outputs"],
        weight: Float[np.ndarray, " rows"] | None = None,
        fold: Int[np.ndarray, " rows"] | None = None,
    ) -> "ConformalScores":
        """Compute scores from predictions; without ``fold``, one model predicted all rows."""
        weight = np.ones(len(y)) if weight is None else weight
        fold = np.zeros(len(y), dtype=np.int64) if fold is None else fold
        return cls(over(np.abs(y - mean), std), weight, fold)

    def interval(
        self,
        mean: Float[np.ndarray, "models new outputs"],
        std: Float[np.ndarray, "models new outputs"],
        coverage: float = 0.9,
    ) -> Float[np.ndarray, "new outputs 2"]:
        """Compute intervals of new rows from the predictions of all models.

        The last axis has the lower and the upper end.
        """
        bounds = np.empty((*mean.shape[1:], 2))
        for output, scores in enumerate(self.score.T):
            own = [self.fold == k for k in range(len(mean))]
            of_models = [ranked(scores[rows], self.weight[rows]) for rows in own]
            center, spread = mean[:, :, output], std[:, :, output]
            lower = -upper_bound(-center, spread, of_models, coverage)
            upper = upper_bound(center, spread, of_models, coverage)
            # With a small coverage, models that disagree may swap the ends.
            bounds[:, output] = np.sort(np.stack([lower, upper], axis=-1), axis=-1)
        return bounds


Ranked = tuple[np.ndarray, np.ndarray]
"""Scores in ascending order, and their cumulative weights, starting with 0."""


def ranked(score: np.ndarray, weight: np.ndarray) -> Ranked:
    order = np.argsort(score, kind="stable")
    order = order[weight[order] > 0]
    return score[order], np.concatenate([[0.0], np.cumsum(weight[order])])


def upper_bound(
    mean: Float[np.ndarray, "models new"],
    std: Float[np.ndarray, "models new"],
    of_models: list[Ranked],
    coverage: float,
) -> Float[np.ndarray, " new"]:
    """Conformal quantile of each model's mean plus its scores times its std, by bisection."""
    coverage = check_number("coverage", coverage, above=0.0, below=1.0)
    n_rows = sum(len(score) for score, _ in of_models)
    total = sum(weights[-1] for _, weights in of_models)
    needed = coverage * (1 - ROUNDING) * (total + total / max(n_rows, 1))
    if not n_rows or needed > total:
        return np.full(mean.shape[1], np.inf)
    known = [(m, s, *own) for m, s, own in zip(mean, std, of_models, strict=True) if len(own[0])]
    alone = []
    for center, spread, score, weights in known:
        position = np.searchsorted(weights[1:], needed / total * weights[-1])
        quantile = np.append(score, np.inf)[position]
        with np.errstate(invalid="ignore"):
            is_infinite = np.isinf(spread) | np.isinf(quantile)
            alone.append(center + np.where(is_infinite, np.inf, quantile * spread))
    low, high = np.min(alone, axis=0), np.max(alone, axis=0)
    low = np.where(np.isinf(high), high, low)  # infinite if that of a single model is
    precision = ROUNDING * np.maximum(np.abs(low), np.abs(high))
    for _ in range(MOST_HALVINGS):
        is_open = low + precision < high
        if not is_open.any():
            break
        middle = np.where(is_open, low / 2 + high / 2, high)
        below = sum(
            weights[np.searchsorted(score, over(middle - center, spread), side="right")]
            for center, spread, score, weights in known
        )
        high = np.where(is_open & (below >= needed), middle, high)
        low = np.where(is_open & (below < needed), middle, low)
    return high


def over(error: np.ndarray, std: np.ndarray) -> np.ndarray:
    """``error / std``, 0 for an error of 0 even if the standard deviation is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / std)


def few_rows_factor(n_rows: int | float) -> float:
    """Factor that accounts for the uncertainty of a scale estimated on few rows.

    It is the 95 % quantile of a Student-t with n - 1 degrees of freedom over that of a Normal.

    Examples
    --------
    >>> [round(few_rows_factor(n), 2) for n in (2, 3, 5, 10, 50)]
    [3.84, 1.78, 1.3, 1.11, 1.02]
    """
    return float(special.stdtrit(max(n_rows - 1, 1), 0.95) / special.ndtri(0.95))


FLATTERED_ROWS = 200
"""Held-out rows also chose the checkpoints, so that scores on them are too good: with this number
of rows the logarithm of a factor below 1 is halved."""


def factor_of_mixture(
    single: Float[AnyArray, ""],
    means: Float[AnyArray, "folds members some outputs"],
    variances: Float[AnyArray, "folds members some outputs"],
    is_row: Bool[AnyArray, "folds some"],
) -> Float[AnyArray, ""]:
    """Factor on members' scales that suits their mixture, from the one that suits each member.

    At new rows a member's squared error is f² times its variance v, by that factor f. Let
    the members' means have the variance d. The mean of them errs by d less than one of them, and
    the mixture is wider than its members by d: they should have the variance f² v − 2 d. The
    factor has the median of d / v for all rows, and takes at most three quarters of f² away.
    """
    if means.shape[1] == 1:
        return single
    ratio = jnp.var(means, axis=1, ddof=1) / jnp.mean(variances, axis=1)
    surplus = 2 * jnp.nanmedian(jnp.where(is_row[..., None], ratio, jnp.nan))
    return jnp.sqrt(jnp.maximum(single**2 - surplus, single**2 / 4))


def trusted(
    factor: Float[AnyArray, ""],
    weight: Float[AnyArray, "members held_out"],
    may_narrow: bool = True,
) -> Float[AnyArray, ""]:
    """Move a factor below 1 towards 1, the more the fewer rows it comes from, or all the way."""
    n_rows = jnp.sum(weight) ** 2 / jnp.sum(weight**2)
    kept = n_rows / (n_rows + FLATTERED_ROWS) if may_narrow else 0.0
    return jnp.where(factor < 1, factor**kept, factor)


GRID = np.linspace(-1, 1, 17)
NARROWER = 8.0 ** -np.arange(4)
"""Half widths of the grids relative to the first: the last has steps of less than 1e-3."""
LEVELS = (0.5, 0.8, 0.9)  # nominal coverages of the central intervals in `coverage_match`
BLUR = 0.02
"""Width of the sigmoid that replaces the step of a count, so that the criterion is smooth."""
Criterion = Callable[[Any, AnyArray, AnyArray], AnyArray]
"""Takes densities, values and weights; returns one number, higher is better."""


def total_log_likelihood(
    dist: Any, y: Float[AnyArray, " n *outputs"], weights: Float[AnyArray, " n *outputs"]
) -> Float[AnyArray, ""]:
    """Weighted sum of the log-densities."""
    return jnp.sum(jnp.where(weights > 0, weights * dist.log_prob(y), 0.0))


def coverage_match(
    dist: Any, y: Float[AnyArray, " n *outputs"], weights: Float[AnyArray, " n *outputs"]
) -> Float[AnyArray, ""]:
    """Agreement of the observed coverage of 50, 80 and 90 % intervals with the nominal one.

    Minus the sum of the squared differences: 0 is best.
    """
    centrality = jnp.abs(2 * dist.cdf(y) - 1)
    misfit = jnp.zeros(())
    for level in LEVELS:
        inside = jax.nn.sigmoid((level - centrality) / BLUR)
        covered = jnp.sum(jnp.where(weights > 0, weights * inside, 0.0)) / jnp.sum(weights)
        misfit = misfit + (covered - level) ** 2
    return -misfit


def best_scale_factor(
    dist: Any,
    y: Float[AnyArray, " n *outputs"],
    weight: Float[AnyArray, " n"],
    largest: float = 4.0,
    criterion: Criterion = total_log_likelihood,
) -> Float[AnyArray, ""]:
    """Best factor on all scales for validation values ``y``, to 1e-3.

    Pure JAX, to be compiled or vmapped by the caller. The criterion, by default the log-likelihood,
    is maximised on a grid of log factors that is refined three times around its best point: for a
    mixture it can have several peaks.

    Parameters
    ----------
    dist
        Densities of rows that were not used for training, with ``widen`` and ``log_prob``, or the
        method that the criterion needs.
    y
        Values of these rows.
    weight
        One weight per row, 0 for padding (whose densities are ignored). If all are 0, the factor
        is 1.
    largest
        Upper bound of the factor; its inverse is the lower bound.
    criterion
        `total_log_likelihood` or `coverage_match`.

    Examples
    --------
    >>> from sigmax.distributions import Normal
    >>> y = jnp.array([-2.0, 2.0])
    >>> best_scale_factor(Normal(jnp.zeros(2), jnp.ones(2)), y, jnp.ones(2)).round(2)
    Array(2., dtype=float32)
    """
    weights = jnp.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape)

    def score(log_factor):
        found = criterion(dist.widen(jnp.exp(log_factor)), y, weights)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    end = math.log(largest)

    def refine(best, half_width):
        grid = jnp.clip(best + half_width * jnp.asarray(GRID, y.dtype), -end, end)
        return grid[jnp.argmax(lax.map(score, grid))], None

    best, _ = lax.scan(refine, jnp.zeros((), y.dtype), jnp.asarray(end * NARROWER, y.dtype))
    return jnp.where(jnp.any(weight > 0), jnp.exp(best), 1.0)
