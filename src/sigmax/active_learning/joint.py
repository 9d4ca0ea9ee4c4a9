r"""Joint epistemic uncertainty of many rows, for batches without redundant rows.

The function value $f(x)$ behind a prediction has an epistemic covariance
$k(x, x') = \operatorname{Cov}(f(x), f(x'))$: that of the means of the ensemble members and, for
`LocalRegressor`, each member's uncertainty about its own mean, correlated by its kernel. A label
has additional noise of the aleatoric variance $d(x)$. The information of the labels of a batch $B$
about $f$ is

$$I(f; y_B) = \tfrac12 \log\det\left(I + D_B^{-1/2} K_{BB} D_B^{-1/2}\right),$$

as if all were Normal; this is BatchBALD's score (Kirsch, van Amersfoort and Gal 2019) for
regression. It is monotone and submodular: greedy selection reaches at least 63 % of the optimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from sigmax.distributions import Bounded, Mapped, Mixture, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import LocalRegressor
from sigmax.experts.local import LocalFitted
from sigmax.inputs import Standardizer
from sigmax.neighbors import as_rows

LEAST_NOISE = 1e-6
"""Least noise as a share of the variance: labels without noise have infinite information."""


@final
@dataclass(frozen=True, eq=False)
class JointUncertainty:
    """Epistemic covariance of some rows, a column at a time, and the noise of their labels.

    Examples
    --------
    >>> covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    >>> rows = JointUncertainty.of_matrix(covariance, np.full(3, 0.1))
    >>> rows.most_informative(2)[0]  # the second row duplicates the first
    array([0, 2])
    """

    variance: Float[np.ndarray, "rows outputs"]
    """Epistemic variance."""
    noise: Float[np.ndarray, "rows outputs"]
    """Aleatoric variance."""
    column: Callable[[int], Float[np.ndarray, "rows outputs"]]
    """Covariance of all rows with one of them."""

    @classmethod
    def of_matrix(
        cls, covariance: Float[np.ndarray, "rows rows"], noise: Float[np.ndarray, " rows"]
    ) -> "JointUncertainty":
        """Create from a covariance matrix."""
        variance = np.diag(covariance)[:, None].astype(np.float64)
        floor = LEAST_NOISE * np.maximum(variance, 1e-300)
        noise = np.maximum(noise[:, None].astype(np.float64), floor)
        return cls(variance, noise, lambda row: covariance[:, row : row + 1])

    @classmethod
    def of_model(cls, model: Any, X: Any) -> "JointUncertainty":
        """Create from an ensemble, or a model with ``predict(X, return_cov=True)``."""
        if not hasattr(model, "predict_dist"):
            return cls.of_matrix(*_given_covariance(model, X))
        dist: Any = model.predict_dist(X).dist
        dist = dist.base if isinstance(dist, Bounded) else dist
        mixture = dist.base if isinstance(dist, Mapped) else dist
        if not isinstance(mixture, Mixture):
            raise _unsupported(model)
        of_members, known = _deviations(mixture), Predictive(mixture)
        shape = len(X), -1
        total, epistemic = (
            part.reshape(shape) for part in (known.variance, known.epistemic_variance)
        )
        own = np.sqrt(np.maximum(epistemic - np.sum(of_members**2, axis=0), 0.0))
        coordinates = _member_coordinates(model, X)
        if coordinates is None:  # nothing says how it is correlated
            own = np.zeros_like(own)
        variance = np.sum(of_members**2, axis=0) + own**2
        if not np.any(variance > 0):
            raise _unsupported(model)

        def column(row: int) -> np.ndarray:
            found = np.einsum("mnp,mp->np", of_members, of_members[:, row])
            if coordinates is None:
                return found
            squared = np.sum((coordinates - coordinates[:, row : row + 1]) ** 2, axis=2)
            alike = np.exp(-0.5 * squared).mean(axis=0)
            return found + alike[:, None] * own * own[row]

        noise = np.maximum(total - variance, LEAST_NOISE * total)
        return cls(variance, noise, column)

    def condition(
        self, rows: Int[np.ndarray, " chosen"]
    ) -> tuple[Float[np.ndarray, " chosen"], Float[np.ndarray, "rows outputs"]]:
        """Information gain of each row's label given those before it, and the remaining variance.

        In nats, summed over outputs.
        """
        state, gains = _Conditioned(self), []
        for row in rows:
            gains.append(float(state.gains()[row]))
            state.add(int(row))
        return np.array(gains), state.variance

    def most_informative(
        self, n: int, cost: Float[np.ndarray, " rows"] | None = None, budget: float = np.inf
    ) -> tuple[Int[np.ndarray, " chosen"], Float[np.ndarray, " chosen"]]:
        """Greedy selection of up to ``n`` rows by information gain per cost, and their gains."""
        price = np.ones(len(self.variance)) if cost is None else cost
        state, taken, gains = _Conditioned(self), [], []
        is_open = np.ones(len(price), dtype=bool)
        for _ in range(n):
            is_open &= price <= budget * (1 + 1e-12)
            if not is_open.any():
                break
            gain = state.gains()
            row = int(np.argmax(np.where(is_open, gain / price, -np.inf)))
            taken.append(row)
            gains.append(float(gain[row]))
            is_open[row] = False
            budget -= price[row]
            state.add(row)
        return np.array(taken, dtype=int), np.array(gains)


@final
class _Conditioned:
    """Variances of rows given the labels of some: a Cholesky factor, row by row."""

    def __init__(self, joint: JointUncertainty):
        self.joint, self.variance = joint, joint.variance.copy()
        self.factor: list[np.ndarray] = []

    def gains(self) -> Float[np.ndarray, " rows"]:
        return 0.5 * np.log1p(self.variance / self.joint.noise).sum(axis=1)

    def add(self, row: int) -> None:
        left = self.joint.column(row) - sum(known * known[row] for known in self.factor)
        scale = np.sqrt(self.variance[row] + self.joint.noise[row])
        self.factor.append(left / scale)
        self.variance = np.maximum(self.variance - self.factor[-1] ** 2, 0.0)


def expected_gain(model: Any, X_pool: Any, chosen: Any) -> float:
    """Expected relative reduction of the pool's mean predictive variance by the chosen labels.

    The variance includes noise and is that of the model before it has the labels; several outputs
    are averaged. When the gain of a round is small, it is time to stop: the remaining variance is
    noise, or cannot be learned by this model.
    """
    joint = JointUncertainty.of_model(model, X_pool)
    return gain_of(joint, np.asarray(chosen, dtype=int))


def gain_of(joint: JointUncertainty, chosen: Int[np.ndarray, " chosen"]) -> float:
    """Expected relative reduction of the mean variance."""
    _, left = joint.condition(chosen)
    total = (joint.variance + joint.noise).mean(axis=0)
    return float(np.mean((joint.variance - left).mean(axis=0) / total))


def metric_coordinates(model: Any, X: Any) -> Float[np.ndarray, "rows coordinates"]:
    """Coordinates in which rows that are similar to the model are close.

    For `LocalRegressor` the squared distance is the mean of those in the metrics of the ensemble
    members; for other models columns are standardised.
    """
    coordinates = _member_coordinates(model, X)
    if coordinates is None:
        rows = as_rows("X_pool", X)
        return Standardizer.fit(rows, np.ones(len(rows)))(rows, np.float64)
    return np.concatenate(list(coordinates / np.sqrt(len(coordinates))), axis=1)


def _member_coordinates(model: Any, X: Any) -> Float[np.ndarray, "members rows metric"] | None:
    """Rows in the metric of each ensemble member, None for models without one."""
    if not isinstance(model, LocalRegressor):
        return None
    fitted = model.model_.fitted
    assert isinstance(fitted, LocalFitted)
    return fitted.coordinates(model.model_.encode(model.read(X)))


def _deviations(mixture: Mixture) -> Float[np.ndarray, "members rows outputs"]:
    """Deviations of the members' means from the ensemble mean, times the root of their weights."""
    means = np.asarray(mixture.components.mean, np.float64)
    shape = mixture.n_members, mixture.n_parts, means.shape[1], -1
    means = means.reshape(shape)
    if mixture.log_weight is None:
        weight = np.full(means.shape, 1 / (mixture.n_members * mixture.n_parts))
    else:
        weight = np.exp(np.asarray(mixture.log_weight, np.float64)).reshape(shape)
    of_member = weight.sum(axis=1)
    mean = (weight * means).sum(axis=1) / of_member
    center = (of_member * mean).sum(axis=0) / of_member.sum(axis=0)
    return np.sqrt(of_member) * (mean - center)


def _given_covariance(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Covariance that a model predicts, and its noise variance ``alpha``."""
    try:
        _, covariance = model.predict(X, return_cov=True)
    except (AttributeError, TypeError) as error:
        raise _unsupported(model) from error
    covariance = np.asarray(covariance, np.float64)
    if covariance.ndim != 2:
        raise InvalidArgumentError(
            "The covariance of several outputs is not supported. Fit one model per output."
        )
    alpha = getattr(model, "alpha", 0.0)
    return covariance, np.full(len(covariance), float(alpha) if np.ndim(alpha) == 0 else 0.0)


def _unsupported(model: Any) -> InvalidArgumentError:
    rule = "an ensemble of several members, or a model with `predict(X, return_cov=True)`"
    return InvalidArgumentError(f"Joint uncertainty needs {rule}, got {type(model).__name__}.")
