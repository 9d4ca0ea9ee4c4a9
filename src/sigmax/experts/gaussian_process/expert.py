r"""Experts that fit one Gaussian process per output, on standardised data, in float64.

Hyper-parameters are those of largest evidence. With few rows, exact processes are averaged over
them. On standardised targets the model of row $i$ is then

$$y_i = s\,(c + \sqrt{1-\eta}\,f(x_i) + \sqrt{\eta / w_i}\,\varepsilon_i)$$

with a function $f$ of variance 1 and squared-exponential covariance, an unknown constant
$c \sim N(0, 1)$ and noise $\varepsilon_i \sim N(0, 1)$. The total variance $s^2$ has an
inverse-Gamma prior and is integrated out in closed form, which makes the evidence and the
predictions Student-t. The length-scales are log-normal a priori, the share $\eta$ of the noise
logit-normal; they are drawn from their posterior by importance sampling.

The noise may depend on x. Its variance is then $\sigma^2 e^{g(x)}$ with a function g that is a
Gaussian process itself: smooth, of mean 0 and of the standard deviation `LOG_NOISE_STD` a priori.
g is the sum of the few functions in which it varies most over the rows, with independent standard
Normal weights, which are further hyper-parameters. Far from all rows g is 0. Two models are
averaged over, with constant and with varying noise, each weighted by its evidence.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from scipy.stats import multivariate_t

from sigmax.compilation import bucket_size, by_blocks, compiled, pad_rows
from sigmax.distributions import Mixture
from sigmax.errors import InvalidDataError
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut
from sigmax.experts.gaussian_process.inference import (
    BLOCK,
    GPRows,
    Hyper,
    Inducing,
    Number,
    Posterior,
    Scalar,
    Values,
    exact_evidence,
    exact_left_out,
    exact_posterior,
    exact_system,
    noise_kernel,
    noise_log_density,
    predict_latent,
    predict_noise,
    quadratic_and_log_det,
    sparse_evidence,
    sparse_left_out,
    sparse_posterior,
)
from sigmax.experts.leave_out import DuplicateGroups, LeftOut, total_density
from sigmax.experts.rows import LARGEST_EXACT, Rows
from sigmax.extrapolation import k_means_centers
from sigmax.inputs import Inputs
from sigmax.random import RandomKey, named_generator
from sigmax.settings import COUNT, COUNT_OR_ZERO, FLAG, one_of, setting

# Search for the hyper-parameters of largest evidence.

Vector = Float[Values, " parameters"]
SEARCH_ROWS = 1000
"""Rows on which the starts are compared; the search goes on from the best with all rows."""
SMALLEST_JITTER, LARGEST_JITTER = 1e-8, 1e-2
BOUNDS = {"length_scale": (1e-2, 1e4), "variance": (1e-3, 1e4), "noise": (1e-6, 10.0)}
"""Bounds on standardised data; the noise has a lower one, for no measurement is exact."""


@final
class Found(NamedTuple):
    """Result of a search: hyper-parameters, their log evidence, and the number of iterations."""

    model: Any
    log_evidence: float
    n_iter: int


def slots(n: int, *, multiple: int = 1) -> int:
    """Padded number of rows: 64, or at most an eighth more than ``n``.

    Examples
    --------
    >>> slots(455), slots(460), slots(5000), slots(5000, multiple=512)
    (480, 480, 5120, 5120)
    """
    step = max(32, bucket_size(n) // 16)
    n = max(64, -(-n // step) * step)
    return n if n <= multiple else -(-n // multiple) * multiple


def pad(rows: GPRows, *, multiple: int = 1) -> GPRows:
    n_slots = slots(len(rows.y), multiple=multiple)
    return jax.tree.map(lambda leaf: pad_rows(np.asarray(leaf), n_slots), rows)


def starts(n: int, rows: GPRows, rng: np.random.Generator) -> Iterator[Hyper]:
    """Starts of the search: length-scales √d and noise 0.1, then random ones about that."""
    d, groups = rows.n_length_scales, rows.groups
    yield Hyper.create(np.full(d, d**0.5), 1.0, 0.1, groups)
    for _ in range(n - 1):
        length_scale = d**0.5 * np.exp(rng.normal(size=d))
        variance, noise = np.exp(0.5 * rng.normal()), 10 ** rng.uniform(-3, -0.3)
        yield Hyper.create(length_scale, variance, noise, groups)


def with_jitter(compute: Callable[[np.ndarray], Any], jitter: float = SMALLEST_JITTER):
    """Result of ``compute`` and the jitter: the smallest from ``jitter`` on without NaN."""
    while jitter <= LARGEST_JITTER * 1.01:
        result = jax.tree.map(np.asarray, compute(np.asarray(jitter)))
        if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result)):
            return result, jitter
        jitter *= 10
    raise InvalidDataError(
        "The covariance of the training rows has no Cholesky factor, even with"
        f" {LARGEST_JITTER:g} of its variance added to the diagonal: are values of `X` or `y`"
        " absurdly large?"
    )


def maximise(
    evidence: Callable[[np.ndarray, GPRows, np.ndarray], tuple[Number, Vector]],
    start: np.ndarray,
    bounds: np.ndarray,
    rows: GPRows,
    max_iter: int,
) -> Found:
    """Maximum found by L-BFGS-B from ``start``.

    The jitter never shrinks during the search. The objective is per row, as its tolerance is.
    """
    from scipy.optimize import minimize

    jitter, n_rows = SMALLEST_JITTER, np.sum(rows.weight > 0)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal jitter
        (value, slope), jitter = with_jitter(lambda j: evidence(theta, rows, j), jitter)
        return -float(value) / n_rows, -slope / n_rows

    start = np.clip(start, *bounds.T)
    if max_iter == 0:
        return Found(start, -loss(start)[0] * n_rows, 0)
    options = {"maxiter": max_iter, "ftol": 1e-7, "gtol": 1e-5}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return Found(found.x, -float(found.fun) * n_rows, int(found.nit))


def to_vector(hyper: Hyper) -> np.ndarray:
    return np.r_[hyper.log_length_scale, hyper.log_variance, hyper.log_noise]


def from_vector(theta: Any, groups: tuple[int, ...]) -> Hyper:
    parts = theta[:-2], theta[-2:-1].reshape(()), theta[-1:].reshape(())
    return Hyper(*parts, groups=groups)


def hyper_bounds(hyper: Hyper) -> np.ndarray:
    length_scale, variance, noise = np.log([*BOUNDS.values()])
    n_length_scales = len(hyper.log_length_scale)
    return np.vstack([np.tile(length_scale, (n_length_scales, 1)), variance, noise])


@compiled
def exact_objective(theta: Vector, rows: GPRows, jitter: Scalar) -> tuple[Number, Vector]:
    def evidence(theta):
        return exact_evidence(from_vector(theta, rows.groups), rows, jitter)

    return jax.value_and_grad(evidence)(theta)


@compiled
def sparse_objective(
    theta: Vector, data: tuple[GPRows, Float[Values, " points"]], jitter: Scalar
) -> tuple[Number, Vector]:
    """Bound and its gradient; inducing points come first in ``theta``."""
    rows, live = data
    n_coordinates = len(live) * rows.X.shape[1]

    def bound(theta):
        points = theta[:n_coordinates].reshape(len(live), -1)
        hyper = from_vector(theta[n_coordinates:], rows.groups)
        return sparse_evidence(Inducing(hyper, points, live), rows, jitter)

    return jax.value_and_grad(bound)(theta)


def exact_search(hyper: Hyper, rows: GPRows, max_iter: int) -> Found:
    """Hyper-parameters that maximise the marginal likelihood, searched from ``hyper``."""
    found = maximise(exact_objective, to_vector(hyper), hyper_bounds(hyper), pad(rows), max_iter)
    return found._replace(model=from_vector(found.model, rows.groups))


def sparse_search(inducing: Inducing, rows: GPRows, max_iter: int) -> Found:
    """Hyper-parameters and inducing points that maximise the bound, searched from ``inducing``."""
    shape, live = inducing.points.shape, np.asarray(inducing.live)
    anywhere = np.tile([-np.inf, np.inf], (inducing.points.size, 1))
    bounds = np.vstack([anywhere, hyper_bounds(inducing.hyper)])
    start = np.r_[np.ravel(inducing.points), to_vector(inducing.hyper)]

    def objective(theta: np.ndarray, rows: GPRows, jitter: np.ndarray):
        return sparse_objective(theta, (rows, live), jitter)

    found = maximise(objective, start, bounds, pad(rows, multiple=BLOCK), max_iter)
    points, hyper = np.split(found.model, [inducing.points.size])
    hyper = from_vector(hyper, rows.groups)
    return found._replace(model=Inducing(hyper, points.reshape(shape), live))


def best(found: list[Found]) -> Found:
    return max(found, key=lambda one: one.log_evidence)


def some_rows(rows: GPRows, n_rows: int, rng: np.random.Generator) -> GPRows:
    if len(rows.y) <= n_rows:
        return rows
    some = rng.choice(len(rows.y), n_rows, replace=False)
    return jax.tree.map(lambda leaf: leaf[some], rows)


# Averages over the hyper-parameters.

N_DRAWS = 32
"""Draws of the hyper-parameters that are mixed, with equal weights."""
N_PROPOSALS = 1024
PROPOSAL_DF = 5.0
LENGTH_SCALE_PRIOR = math.sqrt(2), math.sqrt(3)
"""Mean and standard deviation of log(ℓ / √d) (Hvarfner et al., 2024), on standardised columns."""
NOISE_PRIOR = -2.0, 2.0
"""Mean and standard deviation of logit(η): the noise has about 12 % of the variance."""
VARIANCE_PRIORS = {"wide": (0.25, 4.0), "sample": (5.0, 5.0)}
"""Shape and rate of the inverse-Gamma prior of s², in units of the sample variance. A sample of two
or three rows often has a far smaller variance than the population, hence the large rate and the
heavy tail of the first."""
OFFSET = 1.0
"""Prior variance of the constant, as a share of s²."""
NOISE_BOUNDS, WEIGHT_BOUNDS = (-14.0, 14.0), (-6.0, 6.0)
"""Bounds of logit(η), and of the weights of noise functions, in the search for modes."""
LOG_NOISE_STD = 2.0
"""Prior standard deviation of g: two of them are a factor of 55 on the variance."""
N_FUNCTIONS = 8
LEAST_SHARE = 0.01
"""Share of the variance of g below which a function is 0, so that their number is fixed."""
Theta = Float[Values, " parameters"]
"""Logarithms of the length-scales, logit(η), then the weights of the noise functions."""
Thetas = Float[Values, "draws parameters"]


def with_noise(rows: GPRows) -> GPRows:
    """Rows with the functions of varying noise, as coefficients of `noise_kernel` at the rows.

    Examples
    --------
    >>> X = np.linspace(-1.7, 1.7, 50)[:, None]
    >>> with jax.enable_x64(True):
    ...     rows = with_noise(GPRows(X, X[:, 0], np.ones(50)))
    ...     functions = np.asarray(noise_kernel(X, X, 1)) @ rows.noise_functions
    >>> functions.shape, np.any(functions, axis=0).sum()
    ((50, 8), np.int64(4))
    >>> bool(np.all(np.sum(functions**2, axis=1) <= LOG_NOISE_STD**2))
    True
    """
    n = len(rows.y)
    values, vectors = np.linalg.eigh(np.asarray(noise_kernel(rows.X, rows.X, rows.n_length_scales)))
    is_large = (values > LEAST_SHARE * n) & (np.arange(n, 0, -1) <= N_FUNCTIONS)
    found = LOG_NOISE_STD * vectors[:, is_large] / np.sqrt(values[is_large])
    found = np.pad(found, ((0, 0), (0, N_FUNCTIONS - found.shape[1])))
    return replace(rows, noise_functions=found)


def prior_of(rows: GPRows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the Normal prior of the vector of hyper-parameters."""
    d, m = rows.n_length_scales, rows.n_noise_functions
    length_scale = LENGTH_SCALE_PRIOR[0] + 0.5 * math.log(d)
    mean = np.r_[np.full(d, length_scale), NOISE_PRIOR[0], np.zeros(m)]
    return mean, np.r_[np.full(d, LENGTH_SCALE_PRIOR[1]), NOISE_PRIOR[1], np.ones(m)]


def to_hyper(theta: Theta, rows: GPRows, log_scale: Scalar | float = 0.0) -> Hyper:
    """Hyper-parameters from their vector, with the total variance ``exp(log_scale)``."""
    d = rows.n_length_scales
    log_variance, log_noise = jax.nn.log_sigmoid(-theta[d]), jax.nn.log_sigmoid(theta[d])
    logs = theta[:d], log_variance + log_scale, log_noise + log_scale
    return Hyper(*logs, OFFSET, rows.groups)


def from_hyper(hyper: Hyper, rows: GPRows) -> np.ndarray:
    logit = hyper.log_noise - hyper.log_variance
    return np.r_[hyper.log_length_scale, logit, np.zeros(rows.n_noise_functions)]


def weighed(rows: GPRows, theta: Theta) -> GPRows:
    """Rows with their weights divided by the relative noise at each."""
    if rows.noise_functions is None:
        return rows
    kernel = noise_kernel(rows.X, rows.X, rows.n_length_scales)
    log_noise = kernel @ noise_coefficients(rows, theta)
    return replace(rows, weight=rows.weight * jnp.exp(-log_noise))


def noise_coefficients(rows: GPRows, theta: Theta) -> Float[Array, " rows"]:
    """Coefficients of `noise_kernel`, whose sum is the logarithm of the relative noise."""
    return jnp.asarray(rows.noise_functions) @ theta[rows.n_length_scales + 1 :]


def evidence_and_scale(theta: Theta, rows: GPRows, jitter: Scalar) -> tuple[Number, Number]:
    """Log evidence with s² integrated out, and the squared scale of the Student-t densities."""
    hyper, rows = to_hyper(theta, rows), weighed(rows, theta)
    B, target, _ = exact_system(hyper, rows, jitter)
    quadratic, log_det = quadratic_and_log_det(B, target)
    shape, prior_rate = rows.variance_prior
    concentration = shape + 0.5 * jnp.sum(rows.weight > 0)
    rate = prior_rate + 0.5 * quadratic
    log_rates = shape * math.log(prior_rate) - concentration * jnp.log(rate)
    log_scales = gammaln(concentration) - gammaln(shape) + log_rates
    evidence = noise_log_density(hyper, rows.weight) - 0.5 * log_det + log_scales
    return evidence, rate / concentration


def log_posterior(theta: Theta, rows: GPRows, jitter: Scalar) -> Number:
    mean, std = prior_of(rows)
    log_prior = -0.5 * ((theta - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)
    return evidence_and_scale(theta, rows, jitter)[0] + jnp.sum(log_prior)


@compiled
def posterior_objective(theta: Theta, rows: GPRows, jitter: Scalar) -> tuple[Number, Theta]:
    return jax.value_and_grad(log_posterior)(theta, rows, jitter)


# One draw after the other: on few cores, XLA's thread pool can block forever on a batch of Cholesky
# factors, and a batch is no faster.
@compiled
def log_posteriors(thetas: Thetas, rows: GPRows, jitter: Scalar) -> Float[Array, " draws"]:
    return lax.map(lambda theta: log_posterior(theta, rows, jitter), jnp.asarray(thetas))


@compiled
def posteriors(thetas: Thetas, rows: GPRows, jitter: Scalar) -> Posterior:
    """Posterior of the function under every draw, with s² at the squared scale of its Student-t."""

    def posterior(theta):
        squared_scale = evidence_and_scale(theta, rows, jitter)[1]
        hyper = to_hyper(theta, rows, jnp.log(squared_scale))
        found = exact_posterior(hyper, weighed(rows, theta), jitter)
        if rows.noise_functions is None:
            return found
        return replace(found, noise_coefficients=noise_coefficients(rows, theta))

    return lax.map(posterior, jnp.asarray(thetas))


def mode_search(theta: np.ndarray, rows: GPRows, max_iter: int) -> Found:
    """Mode of the posterior density of hyper-parameters, searched from ``theta``."""
    length_scale = np.tile(np.log(BOUNDS["length_scale"]), (rows.n_length_scales, 1))
    weight = np.tile(WEIGHT_BOUNDS, (rows.n_noise_functions, 1))
    bounds = np.vstack([length_scale, NOISE_BOUNDS, weight])
    return maximise(posterior_objective, theta, bounds, pad(rows), max_iter)


@final
@dataclass(frozen=True)
class Proposal:
    """Student-t density of vectors, Normal by default; ``root`` is a Cholesky factor."""

    mean: np.ndarray
    root: np.ndarray
    df: float = math.inf

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.normal(size=(n, len(self.mean))) @ self.root.T
        if math.isfinite(self.df):
            z /= np.sqrt(rng.chisquare(self.df, size=(n, 1)) / self.df)
        return self.mean + z

    def log_prob(self, thetas: np.ndarray) -> np.ndarray:
        density: Any = multivariate_t(self.mean, self.root @ self.root.T, self.df)  # pyright: ignore
        return density.logpdf(thetas)


def laplace_root(theta: np.ndarray, rows: GPRows) -> np.ndarray:
    """Cholesky factor of the covariance of the Laplace approximation at ``theta``.

    The Hessian is estimated by central differences of the gradient. No direction is wider than √2
    times the prior, also where the density is flat or not concave.
    """
    step, jitter, slopes = 1e-3, SMALLEST_JITTER, []
    moves = step * np.eye(len(theta))
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
    """Prior and, at every distinct mode, the Laplace approximation and a wider Student-t.

    The Normal keeps the weights of many hyper-parameters even, the Student-t and the prior keep
    them bounded.
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

    Weights are truncated at √n times their mean (Ionides, 2008), so that one draw cannot dominate
    where the proposals fit badly.
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
    models: list[tuple[GPRows, list[Found]]], rng: np.random.Generator
) -> tuple[Posterior, Found, float]:
    """Posteriors of `N_DRAWS` hyper-parameters, log of the average evidence, and jitter.

    ``models`` are rows and modes of constant noise, and of varying noise if that is averaged over,
    too. Draws are shared out in proportion to the evidence.
    """
    padded, thetas = [pad(rows) for rows, _ in models], []
    samples = [
        importance_sample(proposals_of(modes, rows), rows, rng)
        for rows, (_, modes) in zip(padded, models, strict=True)
    ]
    total = float(np.logaddexp.reduce([log_norm for *_, log_norm in samples]))
    n_last = round(N_DRAWS * math.exp(samples[-1][2] - total))
    n_each = [N_DRAWS - n_last, n_last][-len(models) :]
    for (draws, weights, _), rows, n in zip(samples, padded, n_each, strict=True):
        missing = padded[-1].n_noise_functions - rows.n_noise_functions
        thetas.append(np.pad(resample(draws, weights, rows, n, rng), ((0, 0), (0, missing))))
    joined = np.concatenate(thetas)
    posterior, jitter = with_jitter(lambda jitter: posteriors(joined, padded[-1], jitter))
    n_iter = max(mode.n_iter for _, modes in models for mode in modes)
    return posterior, Found(joined, total - math.log(len(models)), n_iter), jitter


def likelier_noise(models: list[tuple[GPRows, list[Found]]]) -> tuple[Posterior, Found, float]:
    """Mode of constant or of varying noise, by the Laplace approximation of the evidence."""
    ends = []
    for rows, modes in models:  # the evidence in place of the density at the mode
        mode = best(modes)
        log_det = np.sum(np.log(np.diag(laplace_root(mode.model, pad(rows)))))
        log_volume = float(log_det + 0.5 * len(mode.model) * math.log(2 * math.pi))
        ends.append(mode._replace(log_evidence=mode.log_evidence + log_volume))
    found = best(ends)
    noisy = models[-1][0]
    n_parameters = noisy.n_length_scales + 1 + noisy.n_noise_functions
    theta = np.pad(found.model, (0, n_parameters - len(found.model)))
    padded = pad(noisy)
    posterior, jitter = with_jitter(lambda jitter: posteriors(theta[None], padded, jitter))
    return posterior, found, jitter


def resample(
    thetas: np.ndarray, weights: np.ndarray, rows: GPRows, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw ``n_draws`` of the weighted vectors with equal weights, by systematic resampling.

    They are ordered along the direction in which they vary most, in units of the prior, so that
    draws are stratified in it.
    """
    _, std = prior_of(rows)
    centred = (thetas - weights @ thetas) / std
    directions = np.linalg.eigh((weights[:, None] * centred).T @ centred)[1]
    order = np.argsort(centred @ directions[:, -1])
    at = (np.arange(n_draws) + rng.uniform()) / n_draws
    chosen = np.searchsorted(np.cumsum(weights[order]), at)
    return thetas[order[np.minimum(chosen, len(order) - 1)]]


# The expert and its fitted value.

LARGEST_VARYING = 1000
"""Rows that an exact process with varying noise takes at most."""
LARGEST_AVERAGED, LARGEST_WIDE, ROWS_PER_LENGTH_SCALE = 200, 500, 10
"""Numbers of rows up to which hyper-parameters are averaged over; more rows determine them well
enough, except in tables of many columns."""
SPARSE_ROWS, POLISH_ITER = 5000, 10
"""With more rows than this, inducing points are trained on so many, then polished on all."""
ROWS_PER_CALL, AVERAGED_ROWS_PER_CALL = 2048, 512


def largest_averaged(n_length_scales: int) -> int:
    """Largest number of rows with which hyper-parameters are averaged over.

    Examples
    --------
    >>> largest_averaged(8), largest_averaged(30), largest_averaged(100)
    (200, 300, 500)
    """
    return max(LARGEST_AVERAGED, min(LARGEST_WIDE, ROWS_PER_LENGTH_SCALE * n_length_scales))


@final
class GPFitted(AbstractFitted):
    """Fitted Gaussian processes.

    The density is Normal, or the mixture of the Student-t densities of all draws of the
    hyper-parameters. Uncertainty of the function and of the hyper-parameters is epistemic.
    """

    posterior: Posterior
    """Posterior of every output under every draw of the hyper-parameters: leaves (outputs, draws,
    ...)."""
    df: float
    """Degrees of freedom of the Student-t densities; infinite where they are Normal."""
    log_evidence: Float[np.ndarray, " outputs"]
    """Log marginal likelihood of every output, or the log of its average over the prior of the
    hyper-parameters; of a sparse process a lower bound of it."""
    n_iter: int
    """L-BFGS iterations of the last search, the largest number of any output."""
    held_out: HeldOut
    """Leave-one-out densities in closed form, at the hyper-parameters given all rows."""

    def coordinates(self, X: Inputs) -> Float[np.ndarray, "rows coordinates"]:
        """Coordinates of rows before they are divided by length-scales, in double precision."""
        return np.asarray(X.coordinates, np.float64)

    @property
    def log_length_scale(self) -> Float[np.ndarray, "outputs length_scales"]:
        """Logarithms of the length-scales of standardised columns, averaged over the draws."""
        return np.mean(self.posterior.hyper.log_length_scale, axis=1)

    def latent(self, X: Inputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance of the function, and variance of the noise: (draws, rows, outputs).

        They are in transformed units. Where hyper-parameters are averaged over, variances are the
        squared scales of Student-t densities.
        """
        n_outputs, n_draws = np.shape(self.posterior.hyper.log_noise)
        processes = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.posterior)
        rows_per_call = ROWS_PER_CALL if n_draws == 1 else AVERAGED_ROWS_PER_CALL

        def predict(X: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            parts = *predict_latent(processes, X), predict_noise(processes, X)
            return jax.tree.map(np.asarray, parts)

        with jax.enable_x64(True):
            found = by_blocks(predict, self.coordinates(X), axis=1, rows_per_call=rows_per_call)
        shape = n_outputs, n_draws, len(X)
        mean, latent, noise = (part.reshape(shape).transpose(1, 2, 0) for part in found)
        return mean, latent, noise

    def density(self, X: Inputs) -> Mixture:
        return total_density(*self.latent(X), self.df)

    def prediction_shape(self, X: Inputs) -> tuple[int, ...]:
        """Shape of the predictions, given that `check` has compared all arrays."""
        n_coordinates = np.shape(self.posterior.points)[-1]
        if self.coordinates(X).shape[1] != n_coordinates:
            raise ValueError(f"the process has {n_coordinates} coordinates, not those of the rows")
        return len(X), len(self.log_evidence)

    def check(self) -> None:
        posterior, hyper = self.posterior, self.posterior.hyper
        n_draws, m, c = np.shape(posterior.points)[-3:]
        d = max(hyper.groups) + 1 if hyper.groups else c
        shapes = {"log_length_scale": (d,), "log_variance": (), "log_noise": ()}
        shapes |= {"points": (m, c), "coefficients": (m,), "reduction": (m, m)}
        if posterior.noise_coefficients is not None:
            shapes["noise_coefficients"] = (m,)
        for name, shape in shapes.items():
            found = np.shape(getattr(hyper if name.startswith("log") else posterior, name))
            expected = len(self.log_evidence), n_draws, *shape
            if found != expected:
                raise ValueError(f"{name} has the shape {found}, not {expected}")
        if hyper.groups and len(hyper.groups) != c:
            raise ValueError(f"groups has {len(hyper.groups)} entries for {c} coordinates")
        if not self.df > 0:
            raise ValueError(f"df must be above 0, got {self.df}")


Inferred = tuple[Posterior, Found, LeftOut]
"""Processes of one output, leaves (draws, ...), the last search, leave-one-out densities."""


@dataclass(frozen=True, kw_only=True)
class AbstractGaussianProcess(AbstractExpert):
    """Settings and steps that exact and sparse processes share.

    Few rows hardly determine hyper-parameters, and those of largest evidence then give
    overconfident predictions: they are averaged over. For more rows a final class infers the
    posterior of one output.
    """

    n_restarts: int = setting(
        3, COUNT, "Number of starts of the optimiser; the best result is used."
    )
    max_iter: int = setting(
        100, COUNT_OR_ZERO, "Largest number of L-BFGS iterations; 0 uses the first start unchanged."
    )
    average: bool = setting(True, FLAG, "True to average over the hyper-parameters with few rows.")
    noise: str = "constant"
    variance_prior: str = "wide"

    def check_size(self, n_rows: int) -> None:
        """Raise InvalidDataError if there are too many rows."""

    def averages(self, rows: GPRows) -> bool:
        is_few = len(rows.y) <= largest_averaged(rows.n_length_scales)
        return self.noise == "varying" or (self.average and is_few)

    def df(self, rows: GPRows) -> float:
        """Degrees of freedom: above 2, so that variances are finite, and infinite if Normal."""
        return 2 * rows.variance_prior[0] + len(rows.y) if self.averages(rows) else math.inf

    @abstractmethod
    def infer(self, rows: GPRows, groups: DuplicateGroups, rng: np.random.Generator) -> Inferred:
        """Infer the process of one output at the hyper-parameters of largest evidence."""

    def infer_average(
        self, rows: GPRows, groups: DuplicateGroups, rng: np.random.Generator
    ) -> Inferred:
        """Infer the processes of one output, one for every draw of the hyper-parameters."""
        thetas = [from_hyper(start, rows) for start in starts(self.n_restarts, rows, rng)]
        models = [(rows, [mode_search(theta, rows, self.max_iter) for theta in thetas])]
        if self.noise == "varying":  # from constant noise, and from the prior mean
            noisy, constant = with_noise(rows), best(models[0][1]).model
            thetas = [np.r_[constant, np.zeros(noisy.n_noise_functions)], prior_of(noisy)[0]]
            models.append((noisy, [mode_search(theta, noisy, self.max_iter) for theta in thetas]))
        if self.noise == "constant" or len(rows.y) <= largest_averaged(rows.n_length_scales):
            posterior, found, jitter = averaged_posterior(models, rng)
        else:
            posterior, found, jitter = likelier_noise(models)
        return posterior, found, exact_left_out(posterior, rows, jitter, groups, self.df(rows))

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> GPFitted:
        """Fit one process per output. A ``verbose`` above 0 shows a progress bar."""
        from rich.progress import track
        from threadpoolctl import threadpool_limits

        self.check_size(len(rows))
        X, weight = np.asarray(rows.X.coordinates, np.float64), rows.weight / rows.weight.mean()
        is_plain, prior = rows.features.schema.is_plain, VARIANCE_PRIORS[self.variance_prior]
        scales = () if is_plain else rows.features.length_scale_groups()
        targets = [
            GPRows(X, y, weight, groups=scales, variance_prior=prior)
            for y in np.ascontiguousarray(rows.y.T)
        ]
        groups, inferred = DuplicateGroups.of(rows), []
        # On busy cores, threads that wait for each other slow a Cholesky factor down 70-fold.
        with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
            shown = track(targets, "Gaussian process of every output", disable=verbose == 0)
            for output, target in enumerate(shown):
                rng = named_generator(key, f"output {output}")
                infer = self.infer_average if self.averages(target) else self.infer
                inferred.append(infer(target, groups, rng))
        posteriors, found, left_out = zip(*inferred, strict=True)
        parts = (np.stack(part, axis=-1) for part in zip(*left_out, strict=True))
        return GPFitted(
            posterior=jax.tree.map(lambda *leaves: np.stack(leaves), *posteriors),
            df=self.df(targets[0]),
            log_evidence=np.array([one.log_evidence for one in found]),
            n_iter=max(one.n_iter for one in found),
            held_out=HeldOut.of_rows(total_density(*parts), rows),
        )


@final
@dataclass(frozen=True, kw_only=True)
class GaussianProcess(AbstractGaussianProcess):
    """Exact Gaussian process."""

    noise: str = setting(
        "constant",
        one_of(("constant", "varying")),
        """"varying" averages over constant noise and noise whose logarithm is a smooth function of
        x, weighted by evidence; with many rows it takes the likelier one. It implies `average`.""",
    )
    variance_prior: str = setting(
        "wide",
        one_of(VARIANCE_PRIORS),
        """Prior of the total variance in averaging: far larger than that of the sample, or near
        it.""",
    )

    def check_size(self, n_rows: int) -> None:
        name, most, other = "GPRegressor", LARGEST_EXACT, "SparseGPRegressor"
        if self.noise == "varying":
            name, most, other = "GPRegressor(noise='varying')", LARGEST_VARYING, "LocalRegressor"
        if n_rows > most:
            raise InvalidDataError(f"{name} takes at most {most} rows, got {n_rows}: use {other}.")

    def infer(self, rows, groups, rng) -> Inferred:
        some = some_rows(rows, SEARCH_ROWS, rng)
        hypers = starts(self.n_restarts, some, rng)
        found = best([exact_search(hyper, some, self.max_iter) for hyper in hypers])
        if len(rows.y) > SEARCH_ROWS:
            found = exact_search(found.model, rows, self.max_iter)
        padded = pad(rows)
        posterior, jitter = with_jitter(lambda j: exact_posterior(found.model, padded, j))
        posterior = jax.tree.map(lambda leaf: leaf[None], posterior)
        return posterior, found, exact_left_out(posterior, rows, jitter, groups, math.inf)


@final
@dataclass(frozen=True, kw_only=True)
class SparseGaussianProcess(AbstractGaussianProcess):
    """Gaussian process with inducing points (Titsias, 2009).

    Its leave-one-out densities are approximate: inducing points stay where all rows placed them.
    """

    n_inducing: int = setting(
        500, COUNT, "Number of inducing points, at most one per distinct row."
    )

    def averages(self, rows: GPRows) -> bool:
        return super().averages(rows) and len(np.unique(rows.X, axis=0)) <= self.n_inducing

    def infer(self, rows, groups, rng) -> Inferred:
        some = some_rows(rows, SEARCH_ROWS, rng)
        hypers = starts(self.n_restarts, some, rng)
        ends = [exact_search(hyper, some, self.max_iter) for hyper in hypers]
        points, X = np.unique(rows.X, axis=0), np.asarray(rows.X)
        if len(points) > self.n_inducing:  # centres of k-means on a sample
            seed = int(rng.integers(2**31))
            sample = X[rng.choice(len(X), min(len(X), 100 * self.n_inducing), replace=False)]
            points = k_means_centers(sample, self.n_inducing, seed)
        n_slots = slots(len(points))
        live, points = pad_rows(np.ones(len(points)), n_slots), pad_rows(points, n_slots)
        some = some_rows(rows, SPARSE_ROWS, rng)
        # Compared by the bound: an exact process may rely on details that inducing points miss.
        hypers = [*starts(1, rows, rng), *(end.model for end in ends)]
        ends = [sparse_search(Inducing(hyper, points, live), some, 0) for hyper in hypers]
        found = sparse_search(best(ends).model, some, self.max_iter)
        if len(rows.y) > SPARSE_ROWS:
            found = sparse_search(found.model, rows, min(self.max_iter, POLISH_ITER))
        padded = pad(rows, multiple=BLOCK)
        posterior, jitter = with_jitter(lambda j: sparse_posterior(found.model, padded, j))
        posterior = jax.tree.map(lambda leaf: leaf[None], posterior)
        return posterior, found, sparse_left_out(found.model, padded, jitter, groups)


EXACT_PRESETS = {"default": GaussianProcess()}
SPARSE_PRESETS = {"default": SparseGaussianProcess()}
