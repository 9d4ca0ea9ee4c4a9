r"""Gaussian processes in closed form: evidence, posterior, and rows left out.

The prior has mean zero and covariance $s^2 \exp(-\frac12 \sum_d (x_d - x'_d)^2 / \ell_d^2)$, and
row $i$ of weight $w_i$ has noise variance $\sigma^2 / w_i$. Weight 0 is thus infinite noise, which
is how padded rows are left out: only $w_i / \sigma^2$ is ever used. An unknown constant may
be added to the function, which adds its variance to the covariance. Everything is in float64.
"""

import math
from typing import TypeAlias, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from sigmax.compilation import compiled
from sigmax.experts.leave_out import DuplicateGroups, LeftOut, leave_groups_out

BLOCK = 512
"""Rows per block of the sparse bound; longer data are a multiple of it."""
Values: TypeAlias = Array | np.ndarray
Scalar: TypeAlias = Float[Values, ""]
RowValues: TypeAlias = Float[Values, "rows features"]
PointValues: TypeAlias = Float[Values, "points features"]
Square: TypeAlias = Float[Array, "points points"]
Number: TypeAlias = Float[Array, ""]


@final
class GPRows(eqx.Module):
    """Standardised training rows with one target; weight 0 marks padding."""

    X: RowValues
    y: Float[Values, " rows"]
    weight: Float[Values, " rows"]
    noise_functions: Float[Values, "rows functions"] | None = None
    """Functions of which the logarithm of the noise is a sum; None if the noise is constant."""
    groups: tuple[int, ...] = eqx.field(static=True, default=())
    """Number of the length-scale of each coordinate; () for one each."""
    variance_prior: tuple[float, float] = eqx.field(static=True, default=(0.25, 4.0))
    """Shape and rate of the inverse-Gamma prior of the total variance."""

    @property
    def n_length_scales(self) -> int:
        return max(self.groups) + 1 if self.groups else self.X.shape[1]

    @property
    def n_noise_functions(self) -> int:
        return 0 if self.noise_functions is None else self.noise_functions.shape[1]


@final
class Hyper(eqx.Module):
    """Logarithms of the length-scales, the variance of the function and that of the noise."""

    log_length_scale: Float[Values, "*outputs length_scales"]
    log_variance: Float[Values, "*outputs"]
    log_noise: Float[Values, "*outputs"]
    offset: float = eqx.field(static=True, default=0.0)
    """Variance of the unknown constant, as a share of the function's and the noise's together."""
    groups: tuple[int, ...] = eqx.field(static=True, default=())
    """Number of the length-scale of each coordinate, see `GPRows`."""

    @classmethod
    def create(
        cls, length_scale: np.ndarray, variance: float, noise: float, groups: tuple[int, ...] = ()
    ) -> "Hyper":
        """Hyper-parameters from the values themselves."""
        logs = np.log(np.asarray(length_scale, float)), np.log(variance), np.log(noise)
        return cls(logs[0], np.asarray(logs[1]), np.asarray(logs[2]), groups=groups)

    @property
    def inverse_length_scale(self) -> Float[Array, " coordinates"]:
        """Inverse length-scale of every coordinate, for one output."""
        inverse = jnp.exp(-jnp.asarray(self.log_length_scale))
        return inverse[jnp.array(self.groups)] if self.groups else inverse

    @property
    def variance(self) -> Float[Array, "*outputs"]:
        """Prior variance of the function."""
        return jnp.exp(self.log_variance)

    @property
    def noise(self) -> Float[Array, "*outputs"]:
        """Variance of the noise on a row of weight 1."""
        return jnp.exp(self.log_noise)

    @property
    def offset_variance(self) -> Float[Array, "*outputs"]:
        return self.offset * (self.variance + self.noise)


@final
class Inducing(eqx.Module):
    """Hyper-parameters and inducing points; ``live`` is 0 for padding."""

    hyper: Hyper
    points: PointValues
    live: Float[Values, " points"]


@final
class Posterior(eqx.Module):
    r"""Mean and variance of the function, in terms of its covariance with some points.

    With coefficients $a$ and reduction $R$: mean $k(x, Z)\,a$, variance $k(x, x) - |R\,k(Z, x)|^2$.
    The points of an exact process are its rows, and $R^\top R$ is the inverse of their covariance.
    """

    hyper: Hyper
    points: Float[Values, "*outputs points features"]
    coefficients: Float[Values, "*outputs points"]
    reduction: Float[Values, "*outputs points points"]
    noise_coefficients: Float[Values, "*outputs points"] | None = None
    """Coefficients of `noise_kernel`, whose sum is the logarithm of the relative noise."""


def covariance(hyper: Hyper, X: RowValues, Z: PointValues) -> Float[Array, "rows points"]:
    scale = hyper.inverse_length_scale[None, :]
    smooth = hyper.variance * jnp.exp(-0.5 * squared_distance(X * scale, Z * scale))
    return smooth + hyper.offset_variance if hyper.offset else smooth


def squared_distance(X: RowValues, Z: PointValues) -> Float[Array, "rows points"]:
    """Squared distances of all pairs of rows, by matrix products."""
    squares = jnp.sum(X**2, axis=1)[:, None] + jnp.sum(Z**2, axis=1)[None, :]
    return jnp.maximum(squares - 2 * jnp.asarray(X) @ jnp.asarray(Z).T, 0.0)


def noise_kernel(X: RowValues, Z: PointValues, d: int) -> Float[Array, "rows points"]:
    """Kernel of log relative noise: a squared exponential of length-scale √d."""
    return jnp.exp(-0.5 * squared_distance(X, Z) / d)


@jax.custom_vjp
def quadratic_and_log_det(B: Square, r: Float[Array, " points"]) -> tuple[Number, Number]:
    """``r B⁻¹ r`` and ``log |B|``, with an explicit gradient, which is faster than autodiff."""
    return quadratic_forwards(B, r)[0]


def quadratic_forwards(B, r):
    factor = jnp.linalg.cholesky(B)
    solved = cho_solve((factor, True), r)
    return (r @ solved, 2 * jnp.sum(jnp.log(jnp.diag(factor)))), (factor, solved)


def quadratic_backwards(saved, slopes):
    factor, solved = saved
    inverse = cho_solve((factor, True), jnp.eye(len(solved)))
    return slopes[1] * inverse - slopes[0] * jnp.outer(solved, solved), 2 * slopes[0] * solved


quadratic_and_log_det.defvjp(quadratic_forwards, quadratic_backwards)


def noise_log_density(hyper: Hyper, weight: Float[Values, " rows"]) -> Number:
    """Sum over true rows of -½ log(2π noise / weight)."""
    log_precision = jnp.log(jnp.where(weight > 0, weight, 1.0)) - hyper.log_noise
    return 0.5 * jnp.sum(jnp.where(weight > 0, log_precision - math.log(2 * math.pi), 0.0))


def exact_system(
    hyper: Hyper, rows: GPRows, jitter: Scalar
) -> tuple[Float[Array, "rows rows"], Float[Array, " rows"], Float[Array, " rows"]]:
    """B = I + R (K + jitter) R and R y, with R the roots of the rows' precisions."""
    eye = jnp.eye(len(rows.y))
    is_row = rows.weight > 0
    root = jnp.where(is_row, jnp.sqrt(jnp.where(is_row, rows.weight, 1.0)), 0.0)  # or nan slopes
    root = root * jnp.exp(-0.5 * hyper.log_noise)
    K = covariance(hyper, rows.X, rows.X) + jitter * hyper.variance * eye
    return eye + root[:, None] * K * root[None, :], root * rows.y, root


def exact_evidence(hyper: Hyper, rows: GPRows, jitter: Scalar) -> Number:
    """Log marginal likelihood of the targets; ``jitter`` is a share of the variance."""
    B, target, _ = exact_system(hyper, rows, jitter)
    quadratic, log_det = quadratic_and_log_det(B, target)
    return noise_log_density(hyper, rows.weight) - 0.5 * (quadratic + log_det)


@compiled
def exact_posterior(hyper: Hyper, rows: GPRows, jitter: Scalar) -> Posterior:
    """Posterior of the function given all rows, which are its points."""
    B, target, root = exact_system(hyper, rows, jitter)
    factor = jnp.linalg.cholesky(B)
    reduction = solve_triangular(factor, jnp.diag(root), lower=True)
    coefficients = root * cho_solve((factor, True), target)
    return Posterior(hyper, jnp.asarray(rows.X), coefficients, reduction)


@jax.custom_vjp
def project(
    factor: Square, inducing: Inducing, rows: GPRows
) -> tuple[Square, Float[Array, " points"]]:
    """V W Vᵀ and V W y with V = factor⁻¹ k(Z, X) and W the rows' weights, block by block.

    The gradient needs no product of the size of V but one: with respect to k(Z, X) it is a
    fixed matrix times k(Z, X), and the part that belongs to ``factor`` follows from the results.
    """
    return project_forwards(factor, inducing, rows)[0]


def cross_covariance(inducing: Inducing, block: GPRows) -> Float[Array, "points block"]:
    return covariance(inducing.hyper, inducing.points, block.X) * inducing.live[:, None]


def in_blocks(rows: GPRows) -> GPRows:
    size = min(BLOCK, len(rows.y))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), rows)


def project_forwards(factor, inducing, rows):
    whiten = solve_triangular(factor, jnp.eye(len(factor)), lower=True)

    def add(total, block):
        root = jnp.sqrt(block.weight)
        V = whiten @ cross_covariance(inducing, block) * root[None, :]
        return (total[0] + V @ V.T, total[1] + V @ (root * block.y)), None

    zeros = jnp.zeros_like(factor), jnp.zeros_like(factor[0])
    total, _ = lax.scan(add, zeros, in_blocks(rows))
    return total, (whiten, total, inducing, rows)


def project_backwards(saved, slopes):
    whiten, (gram, projected), inducing, rows = saved
    gram_slope, slope = slopes[0] + slopes[0].T, slopes[1]
    matrix, vector = whiten.T @ gram_slope @ whiten, whiten.T @ slope

    def add(total, block):
        K, pull = jax.vjp(lambda inducing: cross_covariance(inducing, block), inducing)
        K_slope = (matrix @ K) * block.weight[None, :]
        (change,) = pull(K_slope + jnp.outer(vector, block.weight * block.y))
        return jax.tree.map(jnp.add, total, change), None

    total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, inducing), in_blocks(rows))
    factor_slope = -jnp.tril(whiten.T @ (gram_slope @ gram + jnp.outer(slope, projected)))
    return factor_slope, total, None


project.defvjp(project_forwards, project_backwards)


def sparse_system(
    inducing: Inducing, rows: GPRows, jitter: Scalar
) -> tuple[Square, Square, Float[Array, " points"]]:
    """Cholesky factor of the points' covariance, and the rows after `project`."""
    hyper, live = inducing.hyper, inducing.live
    K = covariance(hyper, inducing.points, inducing.points) * live[:, None] * live[None, :]
    diagonal = jnp.where(live > 0, jitter * hyper.variance, 1.0)
    factor = jnp.linalg.cholesky(K + jnp.diag(diagonal))
    return factor, *project(factor, inducing, rows)


def sparse_evidence(inducing: Inducing, rows: GPRows, jitter: Scalar) -> Number:
    """Bound of Titsias (2009) on the log marginal likelihood, at the optimal q(u)."""
    hyper = inducing.hyper
    _, gram, projected = sparse_system(inducing, rows, jitter)
    B = jnp.eye(len(gram)) + gram / hyper.noise
    quadratic, log_det = quadratic_and_log_det(B, projected / hyper.noise)
    unexplained = hyper.variance * jnp.sum(rows.weight) - jnp.trace(gram)
    misfit = (jnp.sum(rows.weight * rows.y**2) + unexplained) / hyper.noise - quadratic
    return noise_log_density(hyper, rows.weight) - 0.5 * (misfit + log_det)


@compiled
def sparse_posterior(inducing: Inducing, rows: GPRows, jitter: Scalar) -> Posterior:
    """Posterior given the optimal q(u); with B = I + U a Uᵀ, I - B⁻¹ is U a/(1 + a) Uᵀ."""
    factor, gram, projected = sparse_system(inducing, rows, jitter)
    noise = inducing.hyper.noise
    strength, directions = jnp.linalg.eigh(gram / noise)
    strength = jnp.maximum(strength, 0.0)
    shrunk = directions @ (directions.T @ projected / (1 + strength)) / noise
    coefficients = solve_triangular(factor, shrunk, lower=True, trans=1) * inducing.live
    root = jnp.sqrt(strength / (1 + strength))[:, None] * directions.T
    reduction = solve_triangular(factor, root.T, lower=True, trans=1).T * inducing.live[None, :]
    return Posterior(inducing.hyper, jnp.asarray(inducing.points), coefficients, reduction)


@compiled
def predict_latent(
    posterior: Posterior, X: RowValues
) -> tuple[Float[Array, "outputs rows"], Float[Array, "outputs rows"]]:
    """Mean and variance of every output's function at ``X``, noise not included."""

    def predict(posterior, X):
        K = covariance(posterior.hyper, X, posterior.points)
        explained = jnp.sum((K @ posterior.reduction.T) ** 2, axis=1)
        prior = posterior.hyper.variance + posterior.hyper.offset_variance
        return K @ posterior.coefficients, jnp.maximum(prior - explained, 0.0)

    return jax.vmap(predict, in_axes=(0, None))(posterior, X)


@compiled
def predict_noise(posterior: Posterior, X: RowValues) -> Float[Array, "outputs rows"]:
    """Variance of the noise of every output at ``X``."""

    def predict(posterior, X):
        log_noise = jnp.full(len(X), posterior.hyper.log_noise)
        if posterior.noise_coefficients is not None:
            d = len(posterior.hyper.log_length_scale)
            log_noise += noise_kernel(X, posterior.points, d) @ posterior.noise_coefficients
        return jnp.exp(log_noise)

    return jax.vmap(predict, in_axes=(0, None))(posterior, X)


def exact_left_out(
    posterior: Posterior, rows: GPRows, jitter: float, groups: DuplicateGroups, df: float
) -> LeftOut:
    """Densities of the rows of an exact process, each left out with its duplicates.

    ``posterior`` has a first axis of draws of the hyper-parameters, and may have padded rows. The
    jitter is noise of the rows, but not of their densities.
    """
    n = len(rows.y)
    noise = np.asarray(predict_noise(posterior, rows.X)) / np.asarray(rows.weight)
    noisier = noise + jitter * np.exp(np.asarray(posterior.hyper.log_variance))[:, None]
    # One draw after the other, or copies would take several times the memory.
    precision = [np.sum(groups.sum(one[:, :n]) ** 2, axis=0) for one in posterior.reduction]
    residual = groups.sum(np.asarray(posterior.coefficients)[:, :n])
    y = np.asarray(rows.y)
    found = leave_groups_out(groups, y, noisier, np.stack(precision), residual, df)
    return found._replace(noise=found.noise * noise / noisier)


@compiled
def sparse_at_rows(
    inducing: Inducing, rows: GPRows, jitter: Scalar
) -> tuple[Float[Array, " rows"], Float[Array, " rows"], Float[Array, " rows"]]:
    """Function of the inducing values at the rows: mean, prior and posterior variance."""
    factor, gram, projected = sparse_system(inducing, rows, jitter)
    noise = inducing.hyper.noise
    root = jnp.linalg.cholesky(jnp.eye(len(gram)) + gram / noise)
    coefficients = cho_solve((root, True), projected) / noise

    def at(block):
        V = solve_triangular(factor, cross_covariance(inducing, block), lower=True)
        U = solve_triangular(root, V, lower=True)
        return coefficients @ V, jnp.sum(V**2, axis=0), jnp.sum(U**2, axis=0)

    mean, prior, posterior = lax.map(at, in_blocks(rows))
    return mean.reshape(-1), prior.reshape(-1), posterior.reshape(-1)


def sparse_left_out(
    inducing: Inducing, rows: GPRows, jitter: float, groups: DuplicateGroups
) -> LeftOut:
    """Densities of the rows of a sparse process, each left out with its duplicates.

    The inducing points stay, although they were placed with these rows: an approximation. Given
    these points it is exact.
    """
    n = len(groups.label)
    at_rows = sparse_at_rows(inducing, rows, np.asarray(jitter))
    mean, prior, posterior = (np.asarray(part)[None, :n] for part in at_rows)
    y, hyper = np.asarray(rows.y)[:n], inducing.hyper
    noise = np.exp(hyper.log_noise) / np.asarray(rows.weight)[None, :n]
    # With posterior variance h at a group whose precisions sum to P, its precision is P (1 - h P).
    total = groups.sum(1 / noise)
    precision = total * (1 - total * groups.sum(posterior) / groups.size)
    found = leave_groups_out(groups, y, noise, precision, groups.sum((y - mean) / noise))
    return found._replace(latent=found.latent + np.maximum(np.exp(hyper.log_variance) - prior, 0.0))
