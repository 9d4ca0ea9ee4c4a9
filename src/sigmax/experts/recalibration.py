"""Recalibration of ensembles on the rows that their members hold out: scales, tails, shrinkage."""

import math
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.stats import norm, t

from sigmax.calibration import best_scale_factor, coverage_match
from sigmax.compilation import compiled, on_device
from sigmax.experts.rows import Rows
from sigmax.networks import toward_prior
from sigmax.training import Fold, Stage, TrainingData, validate_members

ROWS_TO_DISAGREE_ON = 256
"""Held-out rows of each member at which all members are compared: a median needs no more."""

DF_BOUNDS = np.array([np.inf, 30.0, 12.0, 6.0, 4.0])
"""Bounds on the degrees of freedom that are tried. A variance of fewer than four means little."""

FLATTERED_ROWS = 200
"""Held-out rows also chose the checkpoints, so that scores on them are too good: with this number
of rows the logarithm of a factor below 1 is halved."""

LARGEST_FACTOR = 16.0
"""Largest factor on scales whose tails change, too: much of a scale may be due to the tails."""


@final
class Recalibration(eqx.Module):
    """Changes of the predictions of all members."""

    factor: Float[Array | np.ndarray, ""]
    """Factor on their scales."""
    most_df: Float[Array | np.ndarray, ""]
    """Bound on their degrees of freedom."""
    shrinkage: Float[Array | np.ndarray, ""]
    """Share by which they are moved to the mean and the variance of y."""

    @classmethod
    def none(cls) -> "Recalibration":
        return cls(*(np.asarray(value, np.float32) for value in (1.0, np.inf, 0.0)))

    def applied_to(self, dist: Any) -> Any:
        """Densities on the data as recalibrated members predict them."""
        return dist.with_tails(self.most_df).widen(self.factor)


def recalibrated(networks: Any, found: Recalibration) -> Any:
    """Members with the factor, the shrinkage and, if they have tails to bound, the bound."""
    names = [name for name in ("factor", "shrinkage", "most_df") if hasattr(networks, name)]
    values = [jnp.broadcast_to(getattr(found, name), networks.factor.shape) for name in names]
    return eqx.tree_at(lambda n: [getattr(n, name) for name in names], networks, values)


def held_out_densities(networks: Any, folds: Fold, data: TrainingData, stage: Stage) -> Any:
    """Density of every member at the rows that it holds out, by ``stage.predict``.

    By the compiled function that scored the members in ``stage``: nothing is compiled for it.
    Leaves (members, held out, ...) on the device; anything for padding.
    """
    return validate_members(networks, jax.tree.map(on_device, folds), data, stage.one_chunk())[1]


@compiled
def held_out_factor(dist: Any, folds: Fold, data: TrainingData) -> Float[Array, ""]:
    """Factor on all scales that makes the members' held-out rows likeliest, each on its own."""
    y = data.y[folds.group[:, None], folds.validation]
    parts = dist, y, folds.validation_weight
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parts)
    return best_scale_factor(*flat)


@final
class HeldOutPredictions(eqx.Module):
    """Predictions of members for rows that they hold out, and for some that others hold out."""

    dist: Any
    """Densities of every member at the rows that it holds out: leaves (members, held out, ...)."""
    y: Float[Array, "members held_out outputs"]
    weight: Float[Array, "members held_out"]
    """0 for padding."""
    of_all: Any
    """Densities of all members at some rows of every fold: leaves (folds, members, some, ...)."""
    is_row: Bool[Array, "folds some"]
    """False for padding."""

    def flat(self) -> tuple[Any, Float[Array, "rows outputs"], Float[Array, " rows"]]:
        """Densities, values and weights, one member after the other."""
        return jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (self.dist, self.y, self.weight)
        )


def held_out_predictions(
    networks: Any, folds: Fold, data: TrainingData, stage: Stage
) -> HeldOutPredictions:
    """`held_out_densities`, and densities of all members at some rows of every fold.

    To reuse the compiled function for rows that other members hold out, the folds are rotated
    among the members as often as there are members.
    """
    n_members = len(folds.group)

    def predict(shift: int) -> Any:
        moved = jax.tree.map(lambda leaf: np.roll(leaf, -shift, axis=0), folds)
        return jax.tree.map(np.asarray, held_out_densities(networks, moved, data, stage))

    own, *others = (predict(shift) for shift in range(n_members))
    fold, member = np.mgrid[:n_members, :n_members]

    def of_all(*leaves: np.ndarray) -> Array:
        some = np.stack([leaf[:, :ROWS_TO_DISAGREE_ON] for leaf in leaves])
        return on_device(some[(fold - member) % n_members, member])

    rows, weight = np.asarray(folds.validation), np.asarray(folds.validation_weight)
    y = np.asarray(data.y)[np.asarray(folds.group)[:, None], rows]
    return HeldOutPredictions(
        jax.tree.map(on_device, own),
        on_device(y),
        on_device(weight),
        jax.tree.map(of_all, own, *others),
        on_device(weight[:, :ROWS_TO_DISAGREE_ON] > 0),
    )


@compiled
def mixture_recalibration(found: HeldOutPredictions, may_narrow: bool = True) -> Recalibration:
    """Factor on the members' scales that suits their mixture, and the bound on their tails."""
    single = best_factor_and_tails(found)
    tailed = found.of_all.with_tails(single.most_df)
    factor = factor_of_mixture(jnp.asarray(single.factor), tailed, found.is_row)
    factor = trusted(factor, found.weight, may_narrow)
    return Recalibration(factor, single.most_df, single.shrinkage)


def best_factor_and_tails(found: HeldOutPredictions) -> Recalibration:
    """Recalibration that suits the rows that members hold out, each member on its own.

    The bound on the tails is the one that makes the rows likeliest, each bound with its likeliest
    factor. Where hundreds of rows contribute, a prediction is next to Normal, as if its variance
    were known; with noise that differs from row to row, or hardly any, it is not. The factor is the
    one by which intervals of 50, 80 and 90 % have their nominal coverage.
    """
    dist, y, weight = found.flat()
    bounds = jnp.asarray(DF_BOUNDS, y.dtype)
    scores = jax.vmap(lambda most_df: likeliest(dist.with_tails(most_df), y, weight)[1])(bounds)
    most_df = bounds[jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))]
    factor = covering_factor(dist.with_tails(most_df), y, weight)
    return Recalibration(factor, most_df, jnp.zeros(()))


def likeliest(
    dist: Any, y: Float[Array, "rows outputs"], weight: Float[Array, " rows"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Likeliest factor on all scales, and the log-likelihood with it."""
    factor = best_scale_factor(dist, y, weight, LARGEST_FACTOR)
    log_prob = jnp.sum(dist.widen(factor).log_prob(y), axis=1)
    return factor, jnp.sum(jnp.where(weight > 0, weight * log_prob, 0.0))


def covering_factor(
    dist: Any, y: Float[Array, "rows outputs"], weight: Float[Array, " rows"]
) -> Float[Array, ""]:
    """Factor on all scales by which intervals of held-out rows have their nominal coverage."""
    return best_scale_factor(dist, y, weight, LARGEST_FACTOR, coverage_match)


def factor_of_mixture(
    single: Float[Array, ""], of_all: Any, is_row: Bool[Array, "folds some"]
) -> Float[Array, ""]:
    """Factor on members' scales that suits their mixture, from the one that suits each member.

    At new rows a member's squared error is f² times its variance v, by that factor f. Let
    the members' means have the variance d. The mean of them errs by d less than one of them, and
    the mixture is wider than its members by d: they should have the variance f² v − 2 d. The
    factor has the median of d / v for all rows, and takes at most three quarters of f² away.
    ``of_all`` are the densities of all members at some rows: leaves (folds, members, some, ...).
    """
    means, variances = of_all.mean, of_all.variance
    if means.shape[1] == 1:
        return single
    ratio = jnp.var(means, axis=1, ddof=1) / jnp.mean(variances, axis=1)
    surplus = 2 * jnp.nanmedian(jnp.where(is_row[..., None], ratio, jnp.nan))
    return jnp.sqrt(jnp.maximum(single**2 - surplus, single**2 / 4))


def trusted(
    factor: Float[Array, ""], weight: Float[Array, "members held_out"], may_narrow: bool = True
) -> Float[Array, ""]:
    """Move a factor below 1 towards 1, the more the fewer rows it comes from, or all the way."""
    n_rows = jnp.sum(weight) ** 2 / jnp.sum(weight**2)
    kept = n_rows / (n_rows + FLATTERED_ROWS) if may_narrow else 0.0
    return jnp.where(factor < 1, factor**kept, factor)


# Few rows, each held out by several members.

SHRINKAGES = np.linspace(0.0, 1.0, 5)
"""Shares by which predictions may be moved to the mean and the variance of y."""

FEWEST_TO_TRUST = 6
"""With fewer rows than this, predictions are moved by at least a half."""


def recalibrate_few_rows(
    networks: Any, dist: Any, folds: Fold, data: TrainingData, rows: Rows
) -> Any:
    """Members recalibrated on their `held_out_densities`, and widened for the number of rows."""
    n_rows = rows.given.n_distinct
    shrinkages, bounds = few_rows_choices(n_rows)
    tried = (shrinkages, bounds) if hasattr(networks, "most_df") else (shrinkages,)
    found = cross_fitted_recalibration(dist, folds, data, networks.prior_variance, *tried)
    factor = found.factor * few_rows_factor(n_rows)
    factor = jnp.maximum(factor, 1.0) if rows.has_replicates else factor
    return recalibrated(networks, Recalibration(factor, found.most_df, found.shrinkage))


def few_rows_choices(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Shrinkages, and bounds on the degrees of freedom, that are tried with so few rows.

    Examples
    --------
    >>> few_rows_choices(3)
    (array([0.5 , 0.75, 1.  ]), array([4.]))
    >>> few_rows_choices(20)
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ]), array([12.,  6.,  4.]))
    """
    least = 0.5 if n_rows < FEWEST_TO_TRUST else 0.0
    most_df = max(n_rows - 1, DF_BOUNDS[-1])
    return SHRINKAGES[SHRINKAGES >= least], DF_BOUNDS[DF_BOUNDS <= most_df]


@compiled
def cross_fitted_recalibration(
    dist: Any,
    folds: Fold,
    data: TrainingData,
    prior_variance: float,
    shrinkages: Float[Array | np.ndarray, " shrinkages"],
    bounds: Float[Array | np.ndarray, " bounds"] | None = None,
) -> Recalibration:
    """Recalibration from few rows, each held out by several members.

    ``dist`` are the `held_out_densities`. Mixtures of the members that hold a row out are scored,
    as the mixture of all will be used. The likeliest of all combinations is taken: a bound on the
    degrees of freedom, a shrinkage (a network that has learned nothing from few rows is no better
    than the mean and the variance of y), and for each the best factor on the scales. Without
    ``bounds`` the tails are left as they are.
    """
    group, row, is_held_out = folds.group[0], folds.validation, folds.validation_weight > 0
    own_y = data.y[folds.group[:, None], row]
    count = jnp.zeros(data.n_slots).at[row].add(is_held_out)
    weight = jnp.where(count > 0, data.weight[group], 0.0)

    def fit(choice: tuple[Array, Array]) -> tuple[Array, Array]:
        bound, shrinkage = choice
        tailed = dist if bounds is None else dist.with_tails(bound)
        parts = tailed, own_y, row, is_held_out, count, shrinkage, prior_variance
        return likeliest(CrossFitted(*parts), data.y[group], weight)

    tried = jnp.full(1, jnp.inf) if bounds is None else jnp.asarray(bounds)
    grid = jnp.meshgrid(tried, jnp.asarray(shrinkages), indexing="ij")
    flat = [part.reshape(-1).astype(own_y.dtype) for part in grid]
    factors, scores = lax.map(fit, tuple(flat))
    best = jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))
    return Recalibration(factors[best], flat[0][best], flat[1][best])


@final
class CrossFitted(eqx.Module):
    """Mixture, for every row, of the members that hold it out; as a density of all rows.

    It is to those rows what the mixture of all members is to new ones. Members are widened first,
    then moved to the prior.
    """

    dist: Any
    """Densities of every member at the rows that it holds out: leaves (members, held out, ...)."""
    y: Float[Array, "members held_out outputs"]
    row: Int[Array, "members held_out"]
    is_held_out: Bool[Array, "members held_out"]
    """False for padding."""
    count: Float[Array, " slots"]
    """Number of members that hold each row out."""
    shrinkage: Float[Array, ""]
    prior_variance: float

    def widen(self, factor: Float[Array, ""]) -> "CrossFitted":
        return eqx.tree_at(lambda c: c.dist, self, self.dist.widen(factor))

    def log_prob(self, y: Float[Array, "slots outputs"]) -> Float[Array, "slots outputs"]:
        """Log-density of every row at its own y; anything where no member holds it out."""
        log_prob = toward_prior(self.dist, self.shrinkage, self.prior_variance).log_prob(self.y)
        log_prob = jnp.where(self.is_held_out[..., None], log_prob, -jnp.inf)
        largest = jnp.full_like(y, -jnp.inf).at[self.row].max(log_prob)
        largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
        total = jnp.zeros_like(y).at[self.row].add(jnp.exp(log_prob - largest[self.row]))
        return largest + jnp.log(total / self.count[:, None])


def few_rows_factor(n_rows: int | float) -> float:
    """Factor on a scale that was estimated from so few rows.

    It is the 95 % quantile of a Student-t with n - 1 degrees of freedom over that of a Normal.

    Examples
    --------
    >>> [round(few_rows_factor(n), 2) for n in (2, 3, 5, 10, 50)]
    [3.84, 1.78, 1.3, 1.11, 1.02]
    """
    return float(t.ppf(0.95, max(n_rows - 1, 1)) / norm.ppf(0.95))


def few_rows_spread(n_rows: int) -> float:
    """Spread of a new value, over the standard deviation of ``n_rows`` known ones.

    The error of their mean and the missing degree of freedom of their variance are in it.

    Examples
    --------
    >>> [round(few_rows_spread(n), 2) for n in (2, 3, 5, 10, 50)]
    [6.65, 2.51, 1.59, 1.23, 1.04]
    """
    n_rows = max(n_rows, 2)
    return few_rows_factor(n_rows) * math.sqrt((n_rows + 1) / (n_rows - 1))
