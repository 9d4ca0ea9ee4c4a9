r"""Gaussian processes in closed form: the evidence of hyper-parameters, and their posterior.

The prior has mean zero and covariance $s^2 \exp(-\frac12 \sum_d (x_d - x'_d)^2 / \ell_d^2)$, and
row $i$ of weight $w_i$ has noise variance $\sigma^2 / w_i$. Weight 0 is thus infinite noise, which
is how padded rows are left out: only $w_i / \sigma^2$ is ever used. An unknown constant may
be added to the function, which adds its variance to the covariance. Everything wants float64.
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

__all__ = [
    "GPRows",
    "Hyper",
    "Inducing",
    "Posterior",
    "exact_evidence",
    "exact_posterior",
    "predict_latent",
    "sparse_evidence",
    "sparse_posterior",
]

BLOCK = 512
"""Rows that the sparse bound looks at together; longer data are a multiple of it."""

Values: TypeAlias = Array | np.ndarray
Scalar: TypeAlias = Float[Values, ""]


@final
class GPRows(eqx.Module):
    """Standardised training rows with one target; weight 0 marks padding."""

    X: Float[Values, "rows features"]
    y: Float[Values, " rows"]
    weight: Float[Values, " rows"]
    noise_functions: Float[Values, "rows functions"] | None = None
    """Of which the logarithm of the noise is a sum (`gp_noise`); without, it is constant."""
    groups: tuple[int, ...] = eqx.field(static=True, default=())
    """Which length-scale each coordinate has, the last group none; () for one each."""
    variance_prior: tuple[float, float] = eqx.field(static=True, default=(0.25, 4.0))
    """Shape and rate of the inverse-Gamma prior of the total variance, where it is averaged over:
    `gp_average.VARIANCE_PRIORS`."""

    @property
    def n_length_scales(self) -> int:
        return max(self.groups) + 1 if self.groups else self.X.shape[1]


@final
class Hyper(eqx.Module):
    """Logarithms of the length-scales, the variance of the function and that of the noise."""

    log_length_scale: Float[Values, "*outputs features"]
    log_variance: Float[Values, "*outputs"]
    log_noise: Float[Values, "*outputs"]
    offset: float = eqx.field(static=True, default=0.0)
    """Variance of the unknown constant, as a share of the function's and the noise's together."""
    groups: tuple[int, ...] = eqx.field(static=True, default=())
    """As `GPRows` has them."""

    @classmethod
    def create(
        cls,
        length_scale: np.ndarray,
        variance: float,
        noise: float,
        groups: tuple[int, ...] = (),
    ) -> "Hyper":
        """From the values themselves."""
        logs = np.log(np.asarray(length_scale, float)), np.log(variance), np.log(noise)
        return cls(logs[0], np.asarray(logs[1]), np.asarray(logs[2]), groups=groups)

    @property
    def inverse_length_scale(self) -> Float[Array, " coordinates"]:
        """Of every coordinate, given the hyper-parameters of one output."""
        inverse = jnp.exp(-jnp.asarray(self.log_length_scale))
        if not self.groups:
            return inverse
        return inverse[jnp.array(self.groups)]

    @property
    def variance(self) -> Float[Array, "*outputs"]:
        """Of the function, a priori and anywhere."""
        return jnp.exp(self.log_variance)

    @property
    def noise(self) -> Float[Array, "*outputs"]:
        """Variance of the noise on a row of weight 1."""
        return jnp.exp(self.log_noise)

    @property
    def offset_variance(self) -> Float[Array, "*outputs"]:
        """Of the unknown constant."""
        return self.offset * (self.variance + self.noise)


@final
class Inducing(eqx.Module):
    """Hyper-parameters and the points that stand for the rows; ``live`` is 0 for padding."""

    hyper: Hyper
    points: Float[Values, "points features"]
    live: Float[Values, " points"]


@final
class Posterior(eqx.Module):
    r"""What prediction needs: the function's mean and variance from its covariance with the points.

    With coefficients $a$ and reduction $R$: mean $k(x, Z)\,a$, variance $k(x, x) - |R\,k(Z, x)|^2$.
    """

    hyper: Hyper
    points: Float[Values, "*outputs points features"]
    coefficients: Float[Values, "*outputs points"]
    reduction: Float[Values, "*outputs points points"]
    noise_coefficients: Float[Values, "*outputs points"] | None = None
    """Of `gp_noise.noise_kernel`, whose sum is the logarithm of the noise beside ``hyper``'s."""


def covariance(
    hyper: Hyper, X: Float[Values, "rows features"], Z: Float[Values, "points features"]
) -> Float[Array, "rows points"]:
    """Between the function at ``X`` and at ``Z``; matrix products, forwards and backwards."""
    scale = hyper.inverse_length_scale[None, :]
    X, Z = X * scale, Z * scale
    squares = jnp.sum(X**2, axis=1)[:, None] + jnp.sum(Z**2, axis=1)[None, :]
    squared_distance = jnp.maximum(squares - 2 * X @ Z.T, 0.0)
    smooth = hyper.variance * jnp.exp(-0.5 * squared_distance)
    return smooth + hyper.offset_variance if hyper.offset else smooth


@jax.custom_vjp
def quadratic_and_log_det(
    B: Float[Array, "n n"], r: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """``r B⁻¹ r`` and ``log |B|``, with the gradient written down: faster than autodiff."""
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


def noise_log_density(hyper: Hyper, weight: Float[Values, " rows"]) -> Float[Array, ""]:
    """The sum over true rows of -½ log(2π noise / weight)."""
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


def exact_evidence(hyper: Hyper, rows: GPRows, jitter: Scalar) -> Float[Array, ""]:
    """Log marginal likelihood of the targets; ``jitter`` is a share of the variance."""
    B, target, _ = exact_system(hyper, rows, jitter)
    quadratic, log_det = quadratic_and_log_det(B, target)
    return noise_log_density(hyper, rows.weight) - 0.5 * (quadratic + log_det)


@compiled
def exact_posterior(hyper: Hyper, rows: GPRows, jitter: Scalar) -> Posterior:
    """The function given all rows: its points are the rows themselves."""
    B, target, root = exact_system(hyper, rows, jitter)
    factor = jnp.linalg.cholesky(B)
    reduction = solve_triangular(factor, jnp.diag(root), lower=True)
    coefficients = root * cho_solve((factor, True), target)
    return Posterior(hyper, jnp.asarray(rows.X), coefficients, reduction)


@jax.custom_vjp
def project(
    factor: Float[Array, "points points"], inducing: Inducing, rows: GPRows
) -> tuple[Float[Array, "points points"], Float[Array, " points"]]:
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
) -> tuple[Float[Array, "points points"], Float[Array, "points points"], Float[Array, " points"]]:
    """Cholesky factor of the points' covariance, and what `project` makes of the rows."""
    hyper, live = inducing.hyper, inducing.live
    K = covariance(hyper, inducing.points, inducing.points) * live[:, None] * live[None, :]
    diagonal = jnp.where(live > 0, jitter * hyper.variance, 1.0)
    factor = jnp.linalg.cholesky(K + jnp.diag(diagonal))
    return factor, *project(factor, inducing, rows)


def sparse_evidence(inducing: Inducing, rows: GPRows, jitter: Scalar) -> Float[Array, ""]:
    """The bound of Titsias (2009) on the log marginal likelihood, the optimal q(u) put in."""
    hyper = inducing.hyper
    _, gram, projected = sparse_system(inducing, rows, jitter)
    B = jnp.eye(len(gram)) + gram / hyper.noise
    quadratic, log_det = quadratic_and_log_det(B, projected / hyper.noise)
    unexplained = hyper.variance * jnp.sum(rows.weight) - jnp.trace(gram)
    misfit = (jnp.sum(rows.weight * rows.y**2) + unexplained) / hyper.noise - quadratic
    return noise_log_density(hyper, rows.weight) - 0.5 * (misfit + log_det)


@compiled
def sparse_posterior(inducing: Inducing, rows: GPRows, jitter: Scalar) -> Posterior:
    """The function given the optimal q(u); with B = I + U a Uᵀ, I - B⁻¹ is U a/(1 + a) Uᵀ."""
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
    posterior: Posterior, X: Float[Values, "rows features"]
) -> tuple[Float[Array, "outputs rows"], Float[Array, "outputs rows"]]:
    """Mean and variance of every output's function at ``X``, noise not included."""

    def predict(posterior, X):
        K = covariance(posterior.hyper, X, posterior.points)
        explained = jnp.sum((K @ posterior.reduction.T) ** 2, axis=1)
        hyper = posterior.hyper
        prior = hyper.variance + hyper.offset_variance if hyper.offset else hyper.variance
        return K @ posterior.coefficients, jnp.maximum(prior - explained, 0.0)

    return jax.vmap(predict, in_axes=(0, None))(posterior, X)
