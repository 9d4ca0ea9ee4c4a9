"""Search for the hyper-parameters of Gaussian processes that maximise the evidence."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

import jax
import numpy as np
from jaxtyping import Float

from sigmax.compilation import bucket_size, compiled, pad_rows
from sigmax.errors import InvalidDataError
from sigmax.experts.gaussian_process.inference import (
    BLOCK,
    GPRows,
    Hyper,
    Inducing,
    Number,
    Scalar,
    Values,
    exact_evidence,
    sparse_evidence,
)

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
    """Rows, padded with rows of weight 0 to the size of `slots`."""
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
    """Evidence and its gradient with respect to the vector of hyper-parameters."""

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


def search_from_starts(
    n_starts: int,
    rows: GPRows,
    max_iter: int,
    rng: np.random.Generator,
    advance: Callable[[str], None],
) -> list[Found]:
    """Results of the search from every start, on at most `SEARCH_ROWS` rows."""
    rows, found = some_rows(rows, SEARCH_ROWS, rng), []
    for number, start in enumerate(starts(n_starts, rows, rng), 1):
        advance(f"start {number} of {n_starts}")
        found.append(exact_search(start, rows, max_iter))
    return found


def best(found: list[Found]) -> Found:
    """Result of largest evidence."""
    return max(found, key=lambda one: one.log_evidence)


def some_rows(rows: GPRows, n_rows: int, rng: np.random.Generator) -> GPRows:
    """Random sample of at most ``n_rows`` rows."""
    if len(rows.y) <= n_rows:
        return rows
    some = rng.choice(len(rows.y), n_rows, replace=False)
    return jax.tree.map(lambda leaf: leaf[some], rows)
