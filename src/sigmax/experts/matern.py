r"""Gaussian process with a Matérn and a linear covariance, and noise that varies with x.

On standardised rows and targets, with a length-scale $\ell$ of every column or group of
coordinates, $r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2$ and $t = \sqrt5\, r$,

$$k(x, x') = s_f^2 (1 + t + t^2/3) e^{-t} + s_l^2 (1 + x^\top x' / G), \qquad
\text{Var}(\varepsilon_i) = \sigma^2 g(x_i) / w_i + s_i^2$$

with the standard deviation $s_i$ of the known error of a row, 0 if none is given.

The hyper-parameters maximise the evidence times weak log-normal priors; the gradient is analytic,
so that nothing is compiled. The relative noise $g$ is a kernel smoother of the logarithms of the
squared leave-one-out residuals, which are taken twice: the second time of the function at the
first estimate. Scale and tails of the predictions are those that suit the
leave-one-out residuals best. With many rows, the function is the one that some of them determine
(Snelson and Ghahramani 2006): its weights have a closed posterior, and rows are left out as in a
linear model.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import linalg, optimize
from scipy.linalg import get_lapack_funcs
from threadpoolctl import threadpool_limits

from sigmax.distributions import Mixture, StudentT
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut, StoredRows
from sigmax.experts.leave_out import DuplicateGroups, inverse_blocks
from sigmax.experts.rows import Rows
from sigmax.inputs import Inputs
from sigmax.random import RandomKey, named_generator
from sigmax.settings import COUNT, setting

JITTER = 1e-6
BOUNDS = {"signal": (-9.0, 4.0), "noise": (-14.0, 2.0), "linear": (-9.0, 4.0)}
BOUNDS |= {"length": (-4.0, 9.0)}
"""Bounds of the logarithms of variances and length-scales."""

STARTS = ((0.0, -2.0, -2.0, 0.3), (0.0, -0.5, -1.0, 1.0))
"""Starts of the search: log variances, and log(ℓ / √G)."""

PRIOR_MEAN, PRIOR_STD = np.array([0.0, -2.0, -1.0]), np.array([2.0, 3.0, 3.0])
LENGTH_MEAN, LENGTH_STD = 0.5, math.sqrt(2)
"""Normal priors of the same."""

BANDWIDTHS = (0.05, 0.15, 0.3, 0.6, 1.2, 2.5)
"""Bandwidths of the noise smoother that are tried, in length-scales."""

N_FOLDS = 5
"""Folds that few rows are predicted in, each with hyper-parameters of its own."""

PSEUDO_ROWS, FEWEST_VARYING = 5.0, 30
"""Rows at the average noise that the smoother adds; with fewer rows the noise is constant."""

NOISE_ROUNDS = 2
"""Estimates of the noise, each from the residuals of the function at the noise before it."""

DFS, FACTORS = (3.0, 5.0, 10.0, 30.0, 200.0), np.linspace(0.75, 1.3, 12)
"""Degrees of freedom and factors on the scale of predictions that are tried."""

Matrix = Float[np.ndarray, "_ _"]
Vector = Float[np.ndarray, " _"]


@final
@dataclass(frozen=True, eq=False)
class Covariance:
    """Covariance of rows as a function of the vector of hyper-parameters.

    The vector has the logarithms of $s_f^2$, $\\sigma^2$, $s_l^2$ and of all length-scales.
    """

    group: Int[np.ndarray, " coordinates"]
    """Length-scale of every coordinate, numbered from 0."""

    @property
    def n_groups(self) -> int:
        """Number of length-scales."""
        return int(self.group.max()) + 1 if len(self.group) else 1

    def scaled(self, theta: Vector, X: Matrix) -> Matrix:
        """Rows in units of the length-scales."""
        return X * np.exp(-theta[3:])[self.group]

    def matern(self, theta: Vector, A: Matrix, B: Matrix) -> tuple[Matrix, Matrix]:
        """√5 times the distances of rows, and the exponential of minus these."""
        A, B = self.scaled(theta, A), self.scaled(theta, B)
        squared = np.sum(A**2, axis=1)[:, None] + np.sum(B**2, axis=1) - 2 * A @ B.T
        t = np.sqrt(5 * np.maximum(squared, 0))
        return t, np.exp(-t)

    def linear(self, A: Matrix, B: Matrix) -> Matrix:
        return 1 + A @ B.T / self.n_groups

    def __call__(self, theta: Vector, A: Matrix, B: Matrix) -> Matrix:
        """Covariance of the function at the rows of ``A`` and ``B``."""
        t, decay = self.matern(theta, A, B)
        smooth = np.exp(theta[0]) * (1 + t + t**2 / 3) * decay
        return smooth + np.exp(theta[2]) * self.linear(A, B)

    def variance(self, theta: Vector, X: Matrix) -> Vector:
        """Variance of the function at every row."""
        linear = 1 + np.sum(X**2, axis=1) / self.n_groups
        return np.exp(theta[0]) + np.exp(theta[2]) * linear

    def loss(
        self, theta: Vector, X: Matrix, y: Vector, weight: Vector, known: Vector | float = 0.0
    ) -> tuple[float, Vector]:
        """Negative log posterior density of the hyper-parameters, and its gradient.

        ``known`` are the variances of known errors.
        """
        (t, decay), linear = self.matern(theta, X, X), self.linear(X, X)
        signal, noise, slope = np.exp(theta[:3])
        smooth = signal * (1 + t + t**2 / 3) * decay
        total = smooth + slope * linear
        total[np.diag_indices(len(X))] += (noise + JITTER) / weight + known
        try:
            root = linalg.cholesky(total, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse, _ = get_lapack_funcs(("potri",), (root,))[0](root, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        solved = inverse @ y
        outer = np.outer(solved, solved) - inverse
        # The derivative by log ℓ of a pair is `pull` times its squared distance along the group.
        pull, scaled = outer * (signal * 5 / 3 * (1 + t) * decay), self.scaled(theta, X)
        along = 2 * (pull.sum(axis=1) @ scaled**2 - np.sum(scaled * (pull @ scaled), axis=0))
        gradient = -0.5 * np.concatenate(
            [
                [np.sum(outer * smooth)],
                [noise * np.sum(np.diag(outer) / weight)],
                [slope * np.sum(outer * linear)],
                np.bincount(self.group, along, minlength=self.n_groups),
            ]
        )
        z = (theta[:3] - PRIOR_MEAN) / PRIOR_STD
        center = LENGTH_MEAN + 0.5 * math.log(self.n_groups)
        z_length = (theta[3:] - center) / LENGTH_STD
        loss = 0.5 * y @ solved + np.sum(np.log(np.diag(root)))
        loss += 0.5 * (np.sum(z**2) + np.sum(z_length**2))
        return loss, gradient + np.concatenate([z / PRIOR_STD, z_length / LENGTH_STD])

    def search(
        self, starts: list[Vector], rows: tuple[Matrix, Vector, Vector, Vector], max_iter: int
    ) -> Vector:
        """Hyper-parameters of largest posterior density from several starts, by L-BFGS-B."""
        length = [BOUNDS["length"]] * self.n_groups
        bounds = [BOUNDS["signal"], BOUNDS["noise"], BOUNDS["linear"], *length]
        options = {"maxiter": max_iter, "ftol": 1e-7}
        found = [
            optimize.minimize(
                self.loss, start, rows, "L-BFGS-B", True, bounds=bounds, options=options
            )
            for start in starts
        ]
        return min(found, key=lambda one: one.fun).x

    def starts(self) -> list[Vector]:
        """Hyper-parameters from which the search starts."""
        length = 0.5 * math.log(self.n_groups)
        return [np.r_[start[:3], np.full(self.n_groups, start[3] + length)] for start in STARTS]


@final
class FunctionPosterior(NamedTuple):
    """FunctionPosterior of the function: what predictions need, and rows without their group."""

    weights: Vector
    """Weights of the covariances with the inducing points in the mean."""
    reduction: Matrix
    """Matrix of the quadratic form of these covariances that the variance is reduced by."""
    mean: Vector
    """Mean of the function at every row given the rows of other groups."""
    latent: Vector
    """Its variance."""

    def at(
        self, covariance: "Covariance", theta: Vector, X: Matrix, points: Matrix
    ) -> tuple[Vector, Vector]:
        """Mean and variance of the function at new rows."""
        across = covariance(theta, X, points)
        reduced = np.sum((across @ self.reduction) * across, axis=1)
        return across @ self.weights, np.maximum(covariance.variance(theta, X) - reduced, 1e-9)


def infer(
    covariance: "Covariance",
    theta: Vector,
    X: Matrix,
    y: Vector,
    noise: Vector,
    is_point: Bool[np.ndarray, " rows"],
    groups: DuplicateGroups | None = None,
) -> FunctionPosterior:
    """FunctionPosterior of the function; without ``groups`` no row is left out."""
    noise = noise + JITTER
    if is_point.all():
        total = covariance(theta, X, X)
        total[np.diag_indices(len(X))] += noise
        root = linalg.cholesky(total, lower=True, overwrite_a=True, check_finite=False)
        inverse = linalg.cho_solve((root, True), np.eye(len(X)), check_finite=False)
        weights = inverse @ y
        if groups is None:
            return FunctionPosterior(weights, inverse, y, noise)
        error, variance = weights / np.diag(inverse), 1 / np.diag(inverse)
        for rows in groups.several():
            block = np.linalg.inv(inverse[np.ix_(rows, rows)])
            error[rows], variance[rows] = block @ weights[rows], np.diag(block)
        return FunctionPosterior(weights, inverse, y - error, np.maximum(variance - noise, 1e-9))
    points, eye = X[is_point], np.eye(is_point.sum())
    root = linalg.cholesky(covariance(theta, points, points) + JITTER * eye, lower=True)
    basis = linalg.solve_triangular(root, covariance(theta, points, X), lower=True)
    total = noise + np.maximum(covariance.variance(theta, X) - np.sum(basis**2, axis=0), 0)
    inner = linalg.cholesky(eye + (basis / total) @ basis.T, lower=True)
    along = linalg.solve_triangular(inner, basis, lower=True)
    of_basis = linalg.solve_triangular(inner, along @ (y / total), lower=True, trans=1)
    weights = linalg.solve_triangular(root, of_basis, lower=True, trans=1)
    shrunk = linalg.solve_triangular(inner, eye, lower=True)
    back = linalg.solve_triangular(root, eye - shrunk.T @ shrunk, lower=True, trans=1)
    reduction = linalg.solve_triangular(root, back.T, lower=True, trans=1)
    if groups is None:
        return FunctionPosterior(weights, reduction, y, noise)
    unit = np.sqrt(total)
    residual = (y - basis.T @ of_basis) / unit
    error, diagonal = inverse_blocks(groups, (along / unit).T, np.ones(len(eye)), residual)
    latent = np.maximum(total * diagonal - noise, 1e-9)
    return FunctionPosterior(weights, reduction, y - unit * error, latent)


@final
class MaternFitted(AbstractFitted):
    """Fitted Gaussian processes, one for every output."""

    X: Float[np.ndarray, "rows coordinates"]
    """Coordinates of the rows that predictions rest on."""
    y: Float[np.ndarray, "rows outputs"]
    weight: Float[np.ndarray, " rows"]
    is_point: Bool[np.ndarray, " rows"]
    """Rows that determine the function: all of them, or inducing points."""
    group: Int[np.ndarray, " coordinates"]
    """Length-scale of every coordinate, numbered from 0."""
    theta: Float[np.ndarray, "outputs parameters"]
    """Logarithms of the variances and length-scales of every output."""
    log_noise: Float[np.ndarray, "points outputs"]
    """Logarithms of squared residuals of these rows less their mean, which are smoothed over."""
    relative_noise: Float[np.ndarray, "rows outputs"]
    """Relative noise of the rows, smoothed without their own residuals, and known errors."""
    bandwidth: Float[np.ndarray, " outputs"]
    """Bandwidth of this smoother in length-scales; infinite where the noise is constant."""
    factor: Float[np.ndarray, " outputs"]
    """Factor on the scales of predictions."""
    df: Float[np.ndarray, " outputs"]
    held_out: HeldOut
    """Densities without each row, in closed form, at the hyper-parameters given all rows."""

    @cached_property
    def posteriors(self) -> list[FunctionPosterior]:
        """FunctionPosterior of every output."""
        with threadpool_limits(1, user_api="blas"):
            return [
                infer(
                    Covariance(self.group),
                    self.theta[output],
                    self.X,
                    y,
                    np.exp(self.theta[output, 1]) * self.relative_noise[:, output] / self.weight,
                    self.is_point,
                )
                for output, y in enumerate(self.y.T)
            ]

    def noise(self, X: Matrix, output: int) -> Vector:
        """Variance of the noise at rows of weight 1, without `JITTER`."""
        theta, bandwidth = self.theta[output], self.bandwidth[output]
        if np.isinf(bandwidth):
            return np.full(len(X), np.exp(theta[1]))
        points = self.X[self.is_point], self.log_noise[:, output]
        return np.exp(theta[1] + smoothed(Covariance(self.group), theta, X, *points, bandwidth))

    def with_rows(self, new: StoredRows) -> "MaternFitted":
        """Processes given more rows, each with the noise that is predicted for it."""
        X, outputs = coordinates(new.X), range(len(self.theta))
        noise = [np.log(self.noise(X, output)) - self.theta[output, 1] for output in outputs]
        log_noise = np.stack(noise, axis=-1)
        return replace(
            self,
            X=np.concatenate([self.X, X]),
            y=np.concatenate([self.y, new.y]),
            weight=np.append(self.weight, new.weight),
            is_point=np.append(self.is_point, np.ones(len(X), dtype=bool)),
            log_noise=np.concatenate([self.log_noise, log_noise]),
            relative_noise=np.concatenate([self.relative_noise, np.exp(log_noise)]),
        )

    def density(self, X: Inputs) -> Mixture:
        rows, covariance, parts = coordinates(X), Covariance(self.group), []
        for output, own in enumerate(self.posteriors):
            theta = self.theta[output]
            found = own.at(covariance, theta, rows, self.X[self.is_point])
            parts.append((*found, self.noise(rows, output)))
        mean, latent, noise = (np.stack(part, axis=-1)[None] for part in zip(*parts, strict=True))
        return student_t(mean, latent, noise, self.factor, self.df)

    def check(self) -> None:
        """Raise ValueError unless the arrays fit each other and scales are above 0."""
        n_groups = Covariance(self.group).n_groups
        if self.theta.shape[1] != 3 + n_groups or self.X.shape[1] != len(self.group):
            raise ValueError("hyper-parameters do not fit the coordinates")
        if not (np.all(self.factor > 0) and np.all(self.df > 2) and np.all(self.bandwidth > 0)):
            raise ValueError("factor, df and bandwidth must be above 0")


def coordinates(X: Inputs) -> Matrix:
    return np.asarray(X.coordinates, np.float64)


def smoothed(
    covariance: Covariance,
    theta: Vector,
    X: Matrix,
    points: Matrix,
    values: Vector,
    bandwidth: float,
    group: Int[np.ndarray, " rows"] | None = None,
) -> Vector:
    """Averages of values of mean 0 at ``points`` about the rows of ``X``, with a Normal kernel.

    With the ``group`` of every row, and the points being the rows, each row leaves its group out.
    """
    t, _ = covariance.matern(theta, X, points)
    kernel = np.exp(-0.1 * (t / bandwidth) ** 2)
    if group is not None:
        kernel[group[:, None] == group] = 0.0
    return kernel @ values / (kernel.sum(axis=1) + PSEUDO_ROWS)


def student_t(mean, latent, noise, factor, df) -> Mixture:
    """Densities of measurements, whose scales are multiplied by ``factor``."""
    total = latent + noise
    components = StudentT(mean, np.broadcast_to(df, mean.shape).copy(), factor * np.sqrt(total))
    return Mixture(components, latent / total)


@final
@dataclass(frozen=True, kw_only=True)
class MaternProcess(AbstractExpert):
    """Gaussian process with a Matérn and a linear covariance."""

    knows_errors = True

    n_search: int = setting(400, COUNT, "Rows on which hyper-parameters are searched, at most.")
    n_polish: int = setting(1000, COUNT, "Rows on which the search goes on for a few iterations.")
    n_exact: int = setting(2000, COUNT, "Rows with which the process is exact, at most.")
    n_points: int = setting(1000, COUNT, "Inducing points with more rows than that.")
    max_iter: int = setting(60, COUNT, "Iterations of the search, at most.")

    POLISH_ITER, REFIT_ITER = 8, 20

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> MaternFitted:
        """Fit one process per output, to random rows if there are too many."""
        X, scored = coordinates(rows.X)[rows.scored], rows.scored
        group = np.arange(X.shape[1])
        if not rows.features.schema.is_plain:
            group = np.asarray(rows.features.length_scale_groups())
        rng = named_generator(key, "rows")
        order = rng.permutation(len(X))
        is_point = np.ones(len(X), dtype=bool)
        if len(X) > self.n_exact:
            is_point[order[self.n_points :]] = False
        y, weight = rows.y[scored], rows.weight[scored] / rows.weight.mean()
        known = np.zeros(len(X)) if rows.error is None else rows.error[scored] ** 2
        groups = DuplicateGroups.create(rows.given.duplicate_group[scored])
        with threadpool_limits(1, user_api="blas"):
            found = [
                self.fit_output(X, column, weight, known, group, is_point, order, groups)
                for column in np.ascontiguousarray(y.T)
            ]
        theta, log_noise, relative, bandwidth, factor, df, left_out = zip(*found, strict=True)
        mean, latent, noise = (
            np.stack(part, axis=-1)[None] for part in zip(*left_out, strict=True)
        )
        return MaternFitted(
            X=X,
            y=y,
            weight=weight,
            is_point=is_point,
            group=group,
            theta=np.stack(theta),
            log_noise=np.stack(log_noise, axis=-1),
            relative_noise=np.stack(relative, axis=-1),
            bandwidth=np.array(bandwidth),
            factor=np.array(factor),
            df=np.array(df),
            held_out=HeldOut.of_rows(
                student_t(mean, latent, noise, np.array(factor), np.array(df)), rows, scored
            ),
        )

    def fit_output(self, X, y, weight, known, group, is_point, order, groups):
        """Parameters of one output, and predictions of rows without their groups."""
        covariance = Covariance(group)

        def taken(some) -> tuple[Matrix, Vector, Vector, Vector]:
            return X[some], y[some], weight[some], known[some]

        theta = covariance.search(covariance.starts(), taken(order[: self.n_search]), self.max_iter)
        if len(X) > self.n_search:
            theta = covariance.search([theta], taken(order[: self.n_polish]), self.POLISH_ITER)

        def leave_out(relative: Vector) -> tuple[Vector, Vector, Vector]:
            """Mean, latent and noise variance of every row without its group."""
            noise = np.exp(theta[1]) * relative / weight
            found = infer(covariance, theta, X, y, noise + known, is_point, groups)
            return found.mean, found.latent, noise

        relative, bandwidth, log_noise = np.ones(len(X)), np.inf, np.zeros(is_point.sum())
        mean, latent, noise = leave_out(relative)
        for _ in range(NOISE_ROUNDS if len(X) >= FEWEST_VARYING else 0):
            total = latent + noise + known
            values = np.log(((y - mean) ** 2 / total + 1e-3) * relative)[is_point]
            share = ((latent + noise) / total)[is_point]  # of the residual that tells the noise
            values = share * (values - np.average(values, weights=share))
            points = X[is_point], values
            tried = [
                smoothed(covariance, theta, points[0], *points, h, groups.label[is_point])
                for h in BANDWIDTHS
            ]
            errors = [np.mean((values - own) ** 2) for own in tried]
            if min(errors) >= np.mean(values**2):
                break
            best = int(np.argmin(errors))
            bandwidth, log_noise, relative = BANDWIDTHS[best], values, np.ones(len(X))
            if not is_point.all():
                relative = np.exp(smoothed(covariance, theta, X, *points, bandwidth))
            relative[is_point] = np.exp(tried[best])
            mean, latent, noise = leave_out(relative)
        if len(groups.size) <= self.n_search:
            for held_out in groups.folds(order, N_FOLDS):
                kept = ~held_out
                some = order[kept[order]][: self.n_search]
                own = covariance.search([theta], taken(some), self.REFIT_ITER)
                relevant = np.exp(own[1]) * relative / weight
                total = (relevant + known)[kept]
                found = infer(covariance, own, X[kept], y[kept], total, is_point[kept])
                points = X[kept & is_point]
                mean[held_out], latent[held_out] = found.at(covariance, own, X[held_out], points)
                noise[held_out] = relevant[held_out]
        factor, df = best_scale_and_tails(y - mean, np.sqrt(latent + noise), weight, known)
        relative = relative + known * weight / np.exp(theta[1])
        return theta, log_noise, relative, bandwidth, factor, df, (mean, latent, noise)


def best_scale_and_tails(
    error: Vector, scale: Vector, weight: Vector, known: Vector
) -> tuple[float, float]:
    """Factor on the scales and degrees of freedom of largest likelihood, shrunk for few rows.

    The grid is centred on the root mean square of the standardised errors. With few rows, whose
    leave-one-out errors are slightly too small, the factor is taken towards 1. ``known`` variances
    of measurement errors have no factor; rows count by the share of the others.
    """
    n, weight = len(error), weight * (scale**2 / (scale**2 + known))
    root = np.sqrt(np.average((error / np.hypot(scale, np.sqrt(known))) ** 2, weights=weight))
    start = max(root ** (n / (n + 50)), 0.8)
    best, found = -np.inf, (1.0, DFS[0])
    for df in DFS[: max(1, np.searchsorted(DFS, n))]:  # fewer than rows
        for factor in start * FACTORS:
            total = np.hypot(factor * scale, np.sqrt(known))
            own = student_t_log_density(error / total, df) - np.log(total)
            score = np.average(own, weights=weight) - 0.5 / n * abs(math.log(df / 20))
            if score > best:
                best, found = score, (float(factor), df)
    return found


def student_t_log_density(z: Vector, df: float) -> Vector:
    """Log density of the standard Student-t."""
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    return constant - (df + 1) / 2 * np.log1p(z**2 / df)
