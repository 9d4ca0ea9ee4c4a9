"""Baselines in closed form: a linear model, and the marginal distribution of the target."""

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import optimize

from sigmax.distributions import Mixture, Normal, StudentT
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut, StoredRows
from sigmax.experts.leave_out import (
    LEAST_DF,
    SMALLEST,
    DuplicateGroups,
    inverse_blocks,
    total_density,
)
from sigmax.experts.rows import Rows, TrainingRows
from sigmax.features import Standardizer, Support, TargetUnits
from sigmax.inputs import Inputs
from sigmax.random import RandomKey

Numbers = NDArray[np.float64]
PENALTIES = np.logspace(-6, 6, 49)
"""Ratios of the noise variance to the prior variance of a coefficient, on standardised data."""
PRIOR_SHAPE, PRIOR_RATE = 1.0, 1e-12
"""Inverse-gamma prior of the noise variance, in units of the variance of y."""
LOG_NOISE, STEP = (-14.0, 2.0), 0.3
"""Bounds of the logarithm of the noise variance where errors are known; step of its curvature."""
MOST_CODES = 200
"""Categories of a column with a coefficient each; larger columns have statistics of y instead."""
FEW_ROWS = 30
"""Rows below which the marginal distribution has tails of a Student-t."""

N_QUANTILES = 99
LEAST_VARIANCE = 0.01
"""Variance of targets without known errors at least, as a share of that with them."""
LEVELS = np.append((np.arange(N_QUANTILES) + 0.5) / N_QUANTILES, [0.25, 0.75])
"""Levels of the quantiles of the marginal, and of the quartiles that its bandwidth follows from."""


@dataclass(frozen=True, kw_only=True)
class AbstractBaseline(AbstractExpert):
    """Expert of standardised targets, without bounds, outliers or repeated values."""

    def target(self, rows: TrainingRows) -> TargetUnits:
        """Standardised targets."""
        scaling, n_outputs = (
            Standardizer.fit(rows.y, rows.weight, constant_scale=1e-6),
            rows.y.shape[1],
        )
        return TargetUnits(scaling, None, (None,) * n_outputs, (Support(),) * n_outputs)


@final
class LinearFitted(AbstractFitted):
    """Posterior of the coefficients; their uncertainty is epistemic."""

    center: Float[np.ndarray, " columns"]
    """Weighted mean of the columns."""
    constant: Float[np.ndarray, " outputs"]
    """Weighted mean of the target."""
    coefficients: Float[np.ndarray, "columns outputs"]
    directions: Float[np.ndarray, "directions columns"]
    """Principal directions of the weighted columns."""
    eigenvalues: Float[np.ndarray, " directions"]
    """Sums of squares along them."""
    penalty: Float[np.ndarray, " outputs"]
    """Ratio of the noise variance to the prior variance of a coefficient."""
    noise: Float[np.ndarray, " outputs"]
    """Squared scale of the noise."""
    shape: float
    """Shape of the inverse-gamma posterior of the noise variance."""
    held_out: HeldOut
    """Leave-one-out densities, at the penalty given all rows."""

    @property
    def n_rows(self) -> float:
        """Sum of the weights of all rows."""
        return 2 * (self.shape - PRIOR_SHAPE) + 1

    def with_rows(self, new: StoredRows) -> "LinearFitted":
        """Posterior given more rows, with the same penalty."""
        known, added = self.n_rows, float(new.weight.sum())
        n_rows, Z, root = known + added, design(new.X), np.sqrt(new.weight)[:, None]
        share, step = added / n_rows, new.weight @ Z / added - self.center
        rise = new.weight @ new.y / added - self.constant
        # Rows around their means, and one for the distance of these means.
        between = math.sqrt(known * share)
        Z = np.vstack([root * (Z - self.center - step), between * step])
        y = np.vstack([root * (new.y - self.constant - rise), between * rise])
        gram = (self.directions.T * self.eigenvalues) @ self.directions
        products = gram @ self.coefficients + self.penalty * self.coefficients
        squares = 2 * (self.noise * self.shape - PRIOR_RATE)
        squares = squares + np.sum(self.coefficients * products, axis=0) + np.sum(y**2, axis=0)
        gram, products = gram + Z.T @ Z, products + Z.T @ y
        eigenvalues, vectors = np.linalg.eigh(gram)
        along = vectors.T @ products
        coefficients = vectors @ (along / (eigenvalues[:, None] + self.penalty))
        shape = PRIOR_SHAPE + (n_rows - 1) / 2
        loss = np.maximum(squares - np.sum(coefficients * products, axis=0), 0.0)
        return replace(
            self,
            center=self.center + share * step,
            constant=self.constant + share * rise,
            coefficients=coefficients,
            directions=vectors.T,
            eigenvalues=np.maximum(eigenvalues, 0.0),
            noise=(PRIOR_RATE + loss / 2) / shape,
            shape=shape,
        )

    def density(self, X: Inputs) -> Mixture:
        Z = design(X) - self.center
        along = (Z @ self.directions.T) ** 2
        across = np.maximum(np.sum(Z**2, axis=1) - along.sum(axis=1), 0.0)[:, None]
        spread = along @ (1 / (self.eigenvalues[:, None] + self.penalty))
        latent = self.noise * (spread + across / self.penalty + 1 / self.n_rows)
        noise = np.broadcast_to(self.noise, latent.shape)
        return total_density(
            (self.constant + Z @ self.coefficients)[None], latent[None], noise[None], 2 * self.shape
        )

    def check(self) -> None:
        """Raise ValueError unless variances are above 0."""
        if not (np.all(self.penalty > 0) and np.all(self.noise > 0) and self.shape > 0):
            raise ValueError("penalty, noise and shape must be above 0")


@final
class LinearFittedToErrors(AbstractFitted):
    """Posterior of the coefficients, given known errors of the training rows."""

    linear: LinearFitted
    df: float
    """Degrees of freedom of the noise variance."""
    held_out: HeldOut
    """Leave-one-out densities, without the errors of the rows themselves."""

    def with_rows(self, new: StoredRows) -> "LinearFittedToErrors":
        """Posterior given more rows without errors."""
        return replace(self, linear=self.linear.with_rows(new))

    def density(self, X: Inputs) -> Mixture:
        return with_df(self.linear.density(X), self.df)


def with_df(dist: Mixture, df: float) -> Mixture:
    """Density whose noise alone has an unknown variance: Welch and Satterthwaite's ``df``."""
    own: Any = dist.components
    share_of_noise = np.maximum(1 - np.asarray(dist.epistemic_share), 1e-3)
    return replace(dist, components=StudentT(own.mean, df / share_of_noise**2, own.scale))


@final
@dataclass(frozen=True, kw_only=True)
class Linear(AbstractBaseline):
    r"""Bayesian linear regression with a Student-t prediction.

    Coefficients have the prior $\beta \sim N(0, \sigma^2 / \lambda)$, the constant a flat one, the
    noise variance an inverse-gamma one; $\lambda$ maximises the marginal likelihood. With known
    errors $s_i$ so does $\sigma^2$: at a given one, a row has the weight
    $1 / (1 / w_i + s_i^2 / \sigma^2)$.
    """

    knows_errors = True

    def fit(
        self, rows: Rows, key: RandomKey, *, verbose: int = 0
    ) -> LinearFitted | LinearFittedToErrors:
        weight = rows.weight / rows.weight.mean()
        Z = design(rows.X)
        per_row = 1 / rows.weight * rows.weight.mean()
        total, constant, known, known_df = len(Z), np.zeros(rows.y.shape[1]), None, math.inf
        if rows.error is not None:
            known, known_df = noise_of_largest_evidence(Z, rows.y[:, 0], weight, rows.error)
            weight = 1 / (per_row + rows.error**2 / known)
            total, constant = weight.sum(), weight @ rows.y / weight.sum()
        center = weight @ Z / total
        root = np.sqrt(weight)[:, None]
        left, singular, directions = np.linalg.svd(root * (Z - center), full_matrices=False)
        eigenvalues, y = singular**2, root * (rows.y - constant)  # whose weighted mean is 0
        projected = singular[:, None] * (left.T @ y)
        shrunk = 1 / (eigenvalues[:, None] + PENALTIES)  # (directions, penalties)
        explained = np.einsum("kp,kl->lp", projected**2, shrunk)
        shape = PRIOR_SHAPE + (total - 1) / 2
        rate = PRIOR_RATE + np.maximum(np.sum(y**2, axis=0) - explained, 0.0) / 2
        fit = -shape * np.log(rate) if known is None else -rate / known
        evidence = np.sum(np.log(PENALTIES * shrunk), axis=0)[:, None] / 2 + fit
        best = np.argmax(evidence, axis=0)
        noise = np.take_along_axis(rate, best[None], axis=0)[0] / shape
        noise = noise if known is None else np.array([known])
        coefficients = directions.T @ (projected * shrunk[:, best])
        groups, df, left_out = DuplicateGroups.of(rows), 2 * shape, []
        factor = np.column_stack([left, root / math.sqrt(total)])
        for output, at in enumerate(best):
            share = np.append(eigenvalues * shrunk[:, at], 1.0)
            own = y[:, output]
            residual = own - factor @ (share * (factor.T @ own))
            error, diagonal = inverse_blocks(groups, factor, share, residual)
            own_df = np.maximum(df - groups.size, LEAST_DF)
            squares = groups.sum(residual * error) / noise[output]
            scale = (noise[output] * np.maximum(df - squares, SMALLEST * df) / own_df)[groups.label]
            latent = np.maximum(diagonal - 1, SMALLEST)
            mean = rows.y[:, output] - error / root[:, 0]
            if known is not None:
                scale, latent = np.full(len(Z), known), latent / weight / per_row
            left_out.append((mean, scale * latent * per_row, scale * per_row, own_df[groups.label]))
        parts = (np.stack(part, axis=-1)[None] for part in zip(*left_out, strict=True))
        held_out = total_density(*parts)
        if known is not None:
            held_out = with_df(held_out, known_df)
        fitted = LinearFitted(
            center=center,
            constant=constant,
            coefficients=coefficients,
            directions=directions,
            eigenvalues=eigenvalues,
            penalty=PENALTIES[best],
            noise=noise,
            shape=shape,
            held_out=HeldOut.of_rows(held_out, rows),
        )
        if known is None:
            return fitted
        return LinearFittedToErrors(linear=fitted, df=known_df, held_out=fitted.held_out)


def noise_of_largest_evidence(
    Z: Numbers,
    y: Float[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
    error: Float[np.ndarray, " rows"],
) -> tuple[float, float]:
    """Noise variance of the linear model given known errors, and its degrees of freedom.

    These are twice the curvature of the logarithm of the evidence, as for a known function.
    """

    def loss(log_noise: float) -> float:
        noise = math.exp(log_noise)
        own = 1 / (1 / weight + error**2 / noise)
        root = np.sqrt(own)
        centered = y - own @ y / own.sum()
        left, singular, _ = np.linalg.svd(
            root[:, None] * (Z - own @ Z / own.sum()), full_matrices=False
        )
        shrunk = 1 / (singular[:, None] ** 2 + PENALTIES)
        explained = (singular * (left.T @ (root * centered))) ** 2 @ shrunk
        rate = PRIOR_RATE + np.maximum(own @ centered**2 - explained, 0.0) / 2
        evidence = np.sum(np.log(PENALTIES * shrunk), axis=0) / 2 - rate / noise
        free = np.sum(np.log(own)) / 2 - math.log(own.sum()) / 2
        return (PRIOR_SHAPE + (len(y) - 1) / 2) * log_noise - free - evidence.max()

    found: Any = optimize.minimize_scalar(loss, bounds=LOG_NOISE, method="bounded")
    best = float(found.x)
    curvature = (loss(best + STEP) - 2 * loss(best) + loss(best - STEP)) / STEP**2
    return math.exp(best), max(2 * curvature, LEAST_DF)


@final
class MarginalFitted(AbstractFitted):
    """Smoothed histogram of the target."""

    quantiles: Float[np.ndarray, "quantiles outputs"]
    widths: Float[np.ndarray, "quantiles outputs"]
    """Standard deviation of the Normal at every quantile."""
    n_rows: float
    """Sum of the weights of all rows."""
    held_out: HeldOut
    """Leave-one-out densities."""

    def with_rows(self, new: StoredRows) -> "MarginalFitted":
        """Histogram of the known quantiles and more targets."""
        weight = np.append(np.full(N_QUANTILES, self.n_rows / N_QUANTILES), new.weight)
        parts = [
            smoothed_histogram(
                np.quantile(np.append(own, y), LEVELS, weights=weight, method="inverted_cdf"),
                int(weight.sum()),
            )
            for own, y in zip(self.quantiles.T, new.y.T, strict=True)
        ]
        quantiles, widths = (np.stack(part, axis=-1) for part in zip(*parts, strict=True))
        return replace(self, quantiles=quantiles, widths=widths, n_rows=float(weight.sum()))

    def density(self, X: Inputs) -> Mixture:
        parts = self.quantiles, self.widths
        quantiles, widths = (np.repeat(part[:, None], len(X), axis=1) for part in parts)
        return histogram(quantiles, widths, np.asarray(self.n_rows))

    def check(self) -> None:
        """Raise ValueError unless widths are above 0."""
        if self.quantiles.shape != self.widths.shape or not np.all(self.widths > 0):
            raise ValueError("widths must be above 0, one for every quantile")


@final
@dataclass(frozen=True, kw_only=True)
class Marginal(AbstractBaseline):
    """Density of the training targets, the same for every row.

    It is a smoothed histogram: a Normal at each of 99 quantiles, as wide as their distance, but no
    narrower than Silverman's bandwidth, and with fewer than 30 rows a Student-t instead, because
    the scale is uncertain. Targets with known errors are moved towards the mean, so
    that all have the variance that the target has without errors.
    """

    knows_errors = True

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> MarginalFitted:
        if rows.error is not None:
            added = rows.error[:, None] ** 2
            weight = rows.weight[:, None] / (1 + added) ** 2
            own = max(float(np.average(rows.y**2 - added, weights=weight)), LEAST_VARIANCE)
            rows = replace(rows, y=rows.y * np.sqrt(own / (own + added)))
        parts = [
            smoothed_histogram(
                np.quantile(column, LEVELS, weights=rows.weight, method="inverted_cdf"), len(rows)
            )
            for column in rows.y.T
        ]
        quantiles, widths = (np.stack(part, axis=-1) for part in zip(*parts, strict=True))
        some = rows.scored
        groups, left_out = DuplicateGroups.of(rows), []
        n_left = np.maximum(len(rows) - groups.size[groups.label[some]], 1)
        for column in rows.y.T:
            found = quantiles_without_groups(
                column, rows.weight, groups, np.unique(groups.label[some])
            )
            left_out.append(smoothed_histogram(found[:, groups.label[some]], n_left))
        of_rows = (np.stack(part, axis=-1) for part in zip(*left_out, strict=True))
        held_out = HeldOut.of_rows(histogram(*of_rows, n_rows=n_left[:, None]), rows, some)
        return MarginalFitted(
            quantiles=quantiles, widths=widths, n_rows=float(len(rows)), held_out=held_out
        )


def smoothed_histogram(
    found: Float[np.ndarray, "levels ..."], n_rows: int | NDArray[np.intp]
) -> tuple[Numbers, Numbers]:
    """Means and widths of Normal densities, from quantiles at the `LEVELS` of so many rows."""
    quantiles, (low, high) = found[:N_QUANTILES], found[N_QUANTILES:]
    iqr = (high - low) / 1.34
    spread = np.where(iqr > 0, np.minimum(iqr, 1.0), 1.0)  # y has a standard deviation of 1
    bandwidth = 0.9 * spread * np.asarray(n_rows, float) ** -0.2
    return quantiles, np.maximum(np.gradient(quantiles, axis=0), bandwidth)


def histogram(quantiles: Numbers, widths: Numbers, n_rows: NDArray) -> Mixture:
    """Mixture of components at the quantiles of so many rows, Student-t ones if there are few."""
    components: Any = Normal(quantiles, widths)
    if np.min(n_rows) < FEW_ROWS:
        df = np.broadcast_to(np.maximum(n_rows - 1.0, LEAST_DF), quantiles.shape)
        components = StudentT(quantiles, df.copy(), widths)
    return Mixture(components, n_parts=len(quantiles))


def quantiles_without_groups(
    y: Float[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
    groups: DuplicateGroups,
    chosen: NDArray[np.intp],
) -> Float[np.ndarray, "levels groups"]:
    """Weighted quantiles at the `LEVELS` without the rows of each of the ``chosen`` groups.

    All rows are sorted once. Up to the first row left out, the cumulative weights of the others are
    those of all rows; after every further one they are smaller by its weight.
    """
    order = np.argsort(y, kind="stable")
    ranked, cumulative, rank = y[order], np.cumsum(weight[order]), np.argsort(order)
    found = np.zeros((len(LEVELS), len(groups.first)))
    ends = np.append(groups.first, len(y))
    for group in chosen:
        position = np.sort(rank[groups.order[ends[group] : ends[group + 1]]])
        removed = np.cumsum(weight[order[position]])
        wanted = LEVELS * (cumulative[-1] - removed[-1])
        n_passed = np.searchsorted(cumulative[position] - removed, wanted)
        at = np.searchsorted(cumulative, wanted + np.append(0.0, removed)[n_passed])
        found[:, group] = ranked[np.minimum(at, len(y) - 1)]
    return found


def design(X: Inputs) -> Numbers:
    """Columns that a linear model weighs: numbers, flags, and one-hot categories.

    Unseen categories have no indicator, nor have columns with many categories.
    """
    parts = [X.numbers] if X.extras is None else [X.numbers, X.extras]
    if X.codes is not None:
        parts += [
            np.asarray(X.codes)[:, [j]] == np.arange(1, n_codes)
            for j, n_codes in enumerate(X.n_codes)
            if n_codes <= MOST_CODES
        ]
    return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)
