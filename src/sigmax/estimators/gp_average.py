r"""Exact Gaussian processes averaged over their hyper-parameters, for data of few rows.

On standardised targets the model of row $i$ is

$$y_i = s\,(c + \sqrt{1-\eta}\,f(x_i) + \sqrt{\eta / w_i}\,\varepsilon_i)$$

with a function $f$ of variance 1 and squared-exponential covariance, an unknown constant
$c \sim N(0, 1)$ and noise $\varepsilon_i \sim N(0, 1)$. The total variance $s^2$ has an
inverse-Gamma prior and is integrated out in closed form, which makes the evidence and the
predictions Student-t. The length-scales are log-normal a priori, the share $\eta$ of the noise
logit-normal; they are drawn from their posterior by importance sampling.

The noise may depend on x, by further hyper-parameters (`gp_noise`). Then two models are averaged
over, with noise that does and with noise that does not, each by its evidence.
"""

import math
from dataclasses import dataclass, replace
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from sigmax.compilation import compiled
from sigmax.estimators.gp_inference import (
    GPRows,
    Hyper,
    Posterior,
    Scalar,
    Values,
    exact_posterior,
    exact_system,
    noise_log_density,
    quadratic_and_log_det,
)
from sigmax.estimators.gp_noise import noise_kernel, with_noise
from sigmax.estimators.gp_search import (
    BOUNDS,
    SMALLEST_JITTER,
    Found,
    best,
    maximise,
    pad,
    with_jitter,
)

__all__ = [
    "averaged_df",
    "averaged_over_noise",
    "averaged_posterior",
    "importance_sample",
    "likelier_noise",
    "mode_search",
    "posteriors",
    "proposals_of",
]

N_DRAWS = 32
"""Hyper-parameters that are mixed, each with the same weight."""

N_PROPOSALS = 1024
PROPOSAL_DF = 5.0

LENGTH_SCALE_PRIOR = math.sqrt(2), math.sqrt(3)
"""Mean and standard deviation of log(ℓ / √d) (Hvarfner et al., 2024), on standardised columns."""

NOISE_PRIOR = -2.0, 2.0
"""Mean and standard deviation of logit(η): the noise has 12 % of the variance, give or take."""

VARIANCE_PRIORS = {"wide": (0.25, 4.0), "sample": (5.0, 5.0)}
"""Shape and rate of the inverse-Gamma prior of s², in units of the sample variance. A sample of two
or three rows often has a far smaller variance than the population, hence the large rate and the
heavy tail of the first."""

OFFSET = 1.0
"""Prior variance of the constant, as a share of s²."""

NOISE_BOUNDS = -14.0, 14.0
"""Between which logit(η) is searched for modes."""

WEIGHT_BOUNDS = -6.0, 6.0
"""Between which weights of functions of the noise are searched for modes."""

Theta = Float[Values, " parameters"]
"""The logarithms of the length-scales, logit(η), then the weights of functions of the noise."""


def averaged_df(n_rows: int, variance_prior: tuple[float, float]) -> float:
    """Degrees of freedom of the predictions: above 2, so that their variance is finite."""
    return 2 * variance_prior[0] + n_rows


def n_functions(rows: GPRows) -> int:
    """Functions that the logarithm of the noise is a sum of."""
    return 0 if rows.noise_functions is None else rows.noise_functions.shape[1]


def prior_of(rows: GPRows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the vector of hyper-parameters, a priori Normal."""
    d, m = rows.n_length_scales, n_functions(rows)
    length_scale = LENGTH_SCALE_PRIOR[0] + 0.5 * math.log(d)
    mean = np.r_[np.full(d, length_scale), NOISE_PRIOR[0], np.zeros(m)]
    return mean, np.r_[np.full(d, LENGTH_SCALE_PRIOR[1]), NOISE_PRIOR[1], np.ones(m)]


def to_hyper(theta: Theta, rows: GPRows, log_scale: Scalar | float = 0.0) -> Hyper:
    """With the total variance ``exp(log_scale)``."""
    d = rows.n_length_scales
    log_variance, log_noise = jax.nn.log_sigmoid(-theta[d]), jax.nn.log_sigmoid(theta[d])
    logs = theta[:d], log_variance + log_scale, log_noise + log_scale
    return Hyper(*logs, OFFSET, rows.groups)


def from_hyper(hyper: Hyper, rows: GPRows) -> np.ndarray:
    """With constant noise."""
    logit = hyper.log_noise - hyper.log_variance
    return np.r_[hyper.log_length_scale, logit, np.zeros(n_functions(rows))]


def weighed(rows: GPRows, theta: Theta) -> GPRows:
    """The rows with weights that are relative to the noise at each."""
    if rows.noise_functions is None:
        return rows
    kernel = noise_kernel(rows.X, rows.X, rows.n_length_scales)
    log_noise = kernel @ noise_coefficients(rows, theta)
    return replace(rows, weight=rows.weight * jnp.exp(-log_noise))


def noise_coefficients(rows: GPRows, theta: Theta) -> Float[Array, " rows"]:
    """Of `noise_kernel` at the rows, whose sum is the logarithm of the relative noise."""
    return jnp.asarray(rows.noise_functions) @ theta[rows.n_length_scales + 1 :]


def marginal_likelihood_and_scale(
    theta: Theta, rows: GPRows, jitter: Scalar
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The log evidence with s² integrated out, and the squared scale of the Student-t's."""
    hyper, rows = to_hyper(theta, rows), weighed(rows, theta)
    B, target, _ = exact_system(hyper, rows, jitter)
    quadratic, log_det = quadratic_and_log_det(B, target)
    shape, prior_rate = rows.variance_prior
    concentration = shape + 0.5 * jnp.sum(rows.weight > 0)
    rate = prior_rate + 0.5 * quadratic
    log_scales = (
        gammaln(concentration)
        - gammaln(shape)
        + shape * math.log(prior_rate)
        - concentration * jnp.log(rate)
    )
    evidence = noise_log_density(hyper, rows.weight) - 0.5 * log_det + log_scales
    return evidence, rate / concentration


def log_evidence(theta: Theta, rows: GPRows, jitter: Scalar) -> Float[Array, ""]:
    """Log marginal likelihood of the targets, with constant and total variance integrated out."""
    return marginal_likelihood_and_scale(theta, rows, jitter)[0]


def log_posterior(theta: Theta, rows: GPRows, jitter: Scalar) -> Float[Array, ""]:
    """Log evidence plus log prior density."""
    mean, std = prior_of(rows)
    log_prior = -0.5 * ((theta - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)
    return log_evidence(theta, rows, jitter) + jnp.sum(log_prior)


@compiled
def posterior_objective(
    theta: Theta, rows: GPRows, jitter: Scalar
) -> tuple[Float[Array, ""], Float[Array, " parameters"]]:
    """Log posterior density and its gradient."""
    return jax.value_and_grad(log_posterior)(theta, rows, jitter)


# Draws are dealt with one after the other: on few cores, XLA's thread pool can block for good on
# a batch of Cholesky factors, and a batch is no faster.
@compiled
def log_posteriors(
    thetas: Float[Values, "draws parameters"], rows: GPRows, jitter: Scalar
) -> Float[Array, " draws"]:
    return lax.map(lambda theta: log_posterior(theta, rows, jitter), jnp.asarray(thetas))


@compiled
def posteriors(
    thetas: Float[Values, "draws parameters"], rows: GPRows, jitter: Scalar
) -> Posterior:
    """The function given all rows under every draw, s² at the squared scale of its Student-t."""

    def posterior(theta):
        squared_scale = marginal_likelihood_and_scale(theta, rows, jitter)[1]
        hyper = to_hyper(theta, rows, jnp.log(squared_scale))
        found = exact_posterior(hyper, weighed(rows, theta), jitter)
        if rows.noise_functions is None:
            return found
        return replace(found, noise_coefficients=noise_coefficients(rows, theta))

    return lax.map(posterior, jnp.asarray(thetas))


def mode_search(hyper: Hyper, rows: GPRows, max_iter: int) -> Found:
    """A mode of the posterior density, uphill of ``hyper``; its model is a vector."""
    return climb(from_hyper(hyper, rows), rows, max_iter)


def climb(theta: np.ndarray, rows: GPRows, max_iter: int) -> Found:
    """A mode of the posterior density, uphill of ``theta``."""
    length_scale = np.tile(np.log(BOUNDS["length_scale"]), (rows.n_length_scales, 1))
    weight = np.tile(WEIGHT_BOUNDS, (n_functions(rows), 1))
    bounds = np.vstack([length_scale, NOISE_BOUNDS, weight])
    return maximise(posterior_objective, theta, bounds, pad(rows), max_iter)


@final
@dataclass(frozen=True)
class Proposal:
    """A Student-t density of vectors, Normal by default; ``root`` is a Cholesky factor."""

    mean: np.ndarray
    root: np.ndarray
    df: float = math.inf

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` independent draws."""
        z = rng.normal(size=(n, len(self.mean))) @ self.root.T
        if math.isfinite(self.df):
            z /= np.sqrt(rng.chisquare(self.df, size=(n, 1)) / self.df)
        return self.mean + z

    def log_prob(self, thetas: np.ndarray) -> np.ndarray:
        """Logarithm of the density at every row."""
        from scipy.linalg import solve_triangular

        k, df = len(self.mean), self.df
        z = solve_triangular(self.root, (thetas - self.mean).T, lower=True)
        squares, log_det = np.sum(z**2, axis=0), np.sum(np.log(np.diag(self.root)))
        if math.isinf(df):
            return -0.5 * (squares + k * math.log(2 * math.pi)) - log_det
        norm = math.lgamma((df + k) / 2) - math.lgamma(df / 2) - k / 2 * math.log(df * math.pi)
        return norm - log_det - (df + k) / 2 * np.log1p(squares / df)


def laplace_root(theta: np.ndarray, rows: GPRows, step: float = 1e-3) -> np.ndarray:
    """Cholesky factor of the covariance of the Laplace approximation at ``theta``.

    The Hessian is that of central differences of the gradient. No direction is wider than √2 times
    the prior, also where the density is flat or not concave.
    """
    moves = step * np.eye(len(theta))
    jitter = SMALLEST_JITTER
    slopes = []
    for point in (*(theta + moves), *(theta - moves)):
        (_, slope), jitter = with_jitter(
            lambda j, at=point: posterior_objective(at, rows, j), jitter
        )
        slopes.append(slope)
    forwards, backwards = np.split(np.array(slopes), 2)
    hessian = (backwards - forwards) / (2 * step)
    _, std = prior_of(rows)
    precision = 0.5 * (hessian + hessian.T) * np.outer(std, std)  # 1 is the prior's
    values, directions = np.linalg.eigh(precision)
    covariance = (directions / np.maximum(values, 0.5)) @ directions.T
    return np.linalg.cholesky(covariance * np.outer(std, std))


def proposals_of(modes: list[Found], rows: GPRows) -> list[Proposal]:
    """The prior and, at every distinct mode, the Laplace approximation and a wider Student-t.

    The Normal is what keeps the weights of many hyper-parameters even, the Student-t and the prior
    what keeps them bounded.
    """
    mean, std = prior_of(rows)
    distinct: list[np.ndarray] = []
    for mode in sorted(modes, key=lambda one: -one.log_evidence):
        if all(np.max(np.abs(mode.model - other) / std) > 0.05 for other in distinct):
            distinct.append(mode.model)
    proposals = [Proposal(mean, np.diag(std))]
    for theta in distinct:
        root = laplace_root(theta, rows)
        proposals += [Proposal(theta, root), Proposal(theta, root, PROPOSAL_DF)]
    return proposals


def importance_sample(
    proposals: list[Proposal], rows: GPRows, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Vectors of hyper-parameters, their weights in the posterior, and the log of its norm.

    Weights are truncated at √n times their mean (Ionides, 2008), so that one draw cannot stand for
    all where the proposals fit badly.
    """
    n_each = [len(part) for part in np.array_split(np.arange(N_PROPOSALS), len(proposals))]
    thetas = np.concatenate([p.sample(n, rng) for p, n in zip(proposals, n_each, strict=True)])
    log_shares = np.log(n_each) - math.log(N_PROPOSALS)
    log_probs = [p.log_prob(thetas) + s for p, s in zip(proposals, log_shares, strict=True)]
    log_weights = np.asarray(log_posteriors(thetas, rows, np.asarray(SMALLEST_JITTER)))
    log_weights = log_weights - np.logaddexp.reduce(log_probs, axis=0)
    log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    largest = float(log_weights.max())
    weights = np.exp(log_weights - largest)
    log_norm = largest + math.log(weights.mean())
    weights = np.minimum(weights, math.sqrt(N_PROPOSALS) * weights.mean())
    return thetas, weights / weights.sum(), log_norm


def averaged_posterior(
    modes: list[Found], rows: GPRows, rng: np.random.Generator
) -> tuple[Posterior, Found]:
    """The posteriors of `N_DRAWS` hyper-parameters, and the log of the evidence's average."""
    rows = pad(rows)
    thetas, weights, log_norm = importance_sample(proposals_of(modes, rows), rows, rng)
    thetas = resample(thetas, weights, rows, N_DRAWS, rng)
    found, _ = with_jitter(lambda jitter: posteriors(thetas, rows, jitter))
    return found, Found(thetas, log_norm, max(mode.n_iter for mode in modes))


def averaged_over_noise(
    modes: list[Found], rows: GPRows, max_iter: int, rng: np.random.Generator
) -> tuple[Posterior, Found]:
    """As `averaged_posterior`, with noise that is constant or depends on x.

    ``modes`` are those of constant noise. Either model has draws in proportion to its evidence.
    """
    noisy, noisy_modes = modes_of_noise(modes, rows, max_iter)
    rows, noisy = pad(rows), pad(noisy)
    constant = importance_sample(proposals_of(modes, rows), rows, rng)
    varying = importance_sample(proposals_of(noisy_modes, noisy), noisy, rng)
    total = np.logaddexp(constant[2], varying[2])
    n_varying = round(N_DRAWS * math.exp(varying[2] - total))
    thetas = resample(*constant[:2], rows, N_DRAWS - n_varying, rng)
    thetas = np.pad(thetas, ((0, 0), (0, n_functions(noisy))))
    thetas = np.concatenate([thetas, resample(*varying[:2], noisy, n_varying, rng)])
    found, _ = with_jitter(lambda jitter: posteriors(thetas, noisy, jitter))
    n_iter = max(mode.n_iter for mode in (*modes, *noisy_modes))
    return found, Found(thetas, float(total) - math.log(2), n_iter)


def modes_of_noise(modes: list[Found], rows: GPRows, max_iter: int) -> tuple[GPRows, list[Found]]:
    """The rows with functions of the noise, and modes of these: uphill of no effect, twice."""
    noisy = with_noise(rows)
    starts = [np.r_[best(modes).model, np.zeros(n_functions(noisy))], prior_of(noisy)[0]]
    return noisy, [climb(theta, noisy, max_iter) for theta in starts]


def likelier_noise(
    modes: list[Found], rows: GPRows, max_iter: int, rng: np.random.Generator
) -> tuple[Posterior, Found]:
    """The mode of constant or of varying noise, by the Laplace approximation of the evidence."""
    noisy, noisy_modes = modes_of_noise(modes, rows, max_iter)
    found = best([laplace_evidence(best(modes), rows), laplace_evidence(best(noisy_modes), noisy)])
    n_parameters = rows.n_length_scales + 1 + n_functions(noisy)
    theta = np.pad(found.model, (0, n_parameters - len(found.model)))
    padded = pad(noisy)
    posterior, _ = with_jitter(lambda jitter: posteriors(theta[None], padded, jitter))
    return posterior, found


def laplace_evidence(mode: Found, rows: GPRows) -> Found:
    """The mode, with the evidence of the model about it instead of the density there."""
    log_det = np.sum(np.log(np.diag(laplace_root(mode.model, pad(rows)))))
    log_volume = log_det + 0.5 * len(mode.model) * math.log(2 * math.pi)
    return mode._replace(log_evidence=mode.log_evidence + float(log_volume))


def resample(
    thetas: np.ndarray, weights: np.ndarray, rows: GPRows, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """``n_draws`` of the weighted vectors, as draws of equal weight, by systematic resampling.

    They are ordered along the direction in which they vary most, in units of the prior: the draws
    are then stratified in it, which is where predictions vary most, too.
    """
    _, std = prior_of(rows)
    centred = (thetas - weights @ thetas) / std
    directions = np.linalg.eigh((weights[:, None] * centred).T @ centred)[1]
    order = np.argsort(centred @ directions[:, -1])
    at = (np.arange(n_draws) + rng.uniform()) / n_draws
    chosen = np.searchsorted(np.cumsum(weights[order]), at)
    return thetas[order[np.minimum(chosen, len(order) - 1)]]
