r"""What a model knows about many rows at once, so that a batch does not ask the same thing twice.

The function value $f(x)$ behind a prediction has an epistemic covariance
$k(x, x') = \operatorname{Cov}(f(x), f(x'))$: that of the members' means and, of `LocalRegressor`,
each member's uncertainty about its own mean, which is as correlated as its kernel says. A label has
noise on top, of the aleatoric variance $d(x)$. What the labels of a batch $B$ tell about $f$ is

$$I(f; y_B) = \tfrac12 \log\det\left(I + D_B^{-1/2} K_{BB} D_B^{-1/2}\right),$$

as if all were Normal; BatchBALD's score (Kirsch, van Amersfoort and Gal 2019) for regression. It is
monotone and submodular: taking the row of the largest gain, one after the other, has at least 63 %
of what the best batch has.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from sigmax.distributions import Bounded, Mapped, Mixture, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import LocalRegressor
from sigmax.estimators.blocks import by_blocks
from sigmax.estimators.local_predictor import ROWS_AT_ONCE, embed_members
from sigmax.neighbors import as_rows
from sigmax.scaling import Standardizer

__all__ = ["JointUncertainty", "expected_gain", "metric_coordinates"]

LEAST_NOISE = 1e-6
"""Of the variance of a row: labels without noise would tell infinitely much."""


@final
@dataclass(frozen=True, eq=False)
class JointUncertainty:
    """Epistemic covariance of some rows, a column at a time, and the noise of their labels.

    Examples
    --------
    >>> covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    >>> rows = JointUncertainty.of_matrix(covariance, np.full(3, 0.1))
    >>> rows.most_informative(2)[0]  # the second row is a copy of the first
    array([0, 2])
    """

    variance: Float[np.ndarray, "rows outputs"]
    """Epistemic."""
    noise: Float[np.ndarray, "rows outputs"]
    """Aleatoric variance."""
    column: Callable[[int], Float[np.ndarray, "rows outputs"]]
    """The covariance of all rows with one of them."""

    @classmethod
    def of_matrix(
        cls, covariance: Float[np.ndarray, "rows rows"], noise: Float[np.ndarray, " rows"]
    ) -> "JointUncertainty":
        """From a covariance matrix."""
        variance = np.diag(covariance)[:, None].astype(np.float64)
        floor = LEAST_NOISE * np.maximum(variance, 1e-300)
        noise = np.maximum(noise[:, None].astype(np.float64), floor)
        return cls(variance, noise, lambda row: covariance[:, row : row + 1])

    @classmethod
    def of_model(cls, model: Any, X: Any) -> "JointUncertainty":
        """From a model with members, or with ``predict(X, return_cov=True)`` as scikit-learn's."""
        if not hasattr(model, "predict_dist"):
            return cls.of_matrix(*_given_covariance(model, X))
        dist: Any = model.predict_dist(X).dist
        dist = dist.base if isinstance(dist, Bounded) else dist
        mixture = dist.base if isinstance(dist, Mapped) else dist
        if not isinstance(mixture, Mixture):
            raise _refusal(model)
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
            raise _refusal(model)

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
        """What the label of each row tells beside those before it, and the variance that is left.

        In nats; several outputs add up.
        """
        state, gains = _Conditioned(self), []
        for row in rows:
            gains.append(float(state.gains()[row]))
            state.add(int(row))
        return np.array(gains), state.variance

    def most_informative(
        self, n: int, cost: Float[np.ndarray, " rows"] | None = None, budget: float = np.inf
    ) -> tuple[Int[np.ndarray, " chosen"], Float[np.ndarray, " chosen"]]:
        """Up to ``n`` rows, each telling most per cost beside those before it, and their gains."""
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
    """The variances of rows once the labels of some are known: a Cholesky factor, row by row."""

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
    """By what share the labels of the chosen rows would lower the variance of the pool's rows.

    Of the mean predictive variance, noise included, as the model sees it before it has the labels;
    of several outputs, on average. When the gain of a round is small, it is time to stop: what is
    left is noise, or nothing that this model could learn.
    """
    joint = JointUncertainty.of_model(model, X_pool)
    return gain_of(joint, np.asarray(chosen, dtype=int))


def gain_of(joint: JointUncertainty, chosen: Int[np.ndarray, " chosen"]) -> float:
    """What `expected_gain` returns."""
    _, left = joint.condition(chosen)
    total = (joint.variance + joint.noise).mean(axis=0)
    return float(np.mean((joint.variance - left).mean(axis=0) / total))


def metric_coordinates(model: Any, X: Any) -> Float[np.ndarray, "rows coordinates"]:
    """Coordinates in which near rows are alike to the model.

    Of `LocalRegressor` the squared distance is the mean of those in the members' metrics; of others
    columns are in units of their standard deviation.
    """
    coordinates = _member_coordinates(model, X)
    if coordinates is None:
        rows = as_rows("X_pool", X)
        return Standardizer.fit(rows, np.ones(len(rows)))(rows, np.float64)
    return np.concatenate(list(coordinates / np.sqrt(len(coordinates))), axis=1)


def _member_coordinates(model: Any, X: Any) -> Float[np.ndarray, "members rows metric"] | None:
    """Rows in the metric of every member, where there is one."""
    if not isinstance(model, LocalRegressor):
        return None
    embed = partial(embed_members, model.predictor_.networks)
    embedded, _ = by_blocks(embed, model._inputs(X), axis=1, rows_per_call=ROWS_AT_ONCE)
    return embedded.coordinates


def _deviations(mixture: Mixture) -> Float[np.ndarray, "members rows outputs"]:
    """Members' means less that of all, times the root of their weights."""
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
    """The covariance that a model gives itself, and the noise that it was told."""
    try:
        _, covariance = model.predict(X, return_cov=True)
    except (AttributeError, TypeError) as error:
        raise _refusal(model) from error
    covariance = np.asarray(covariance, np.float64)
    if covariance.ndim != 2:
        raise InvalidArgumentError("A covariance of several outputs cannot be used; fit one.")
    alpha = getattr(model, "alpha", 0.0)
    return covariance, np.full(len(covariance), float(alpha) if np.ndim(alpha) == 0 else 0.0)


def _refusal(model: Any) -> InvalidArgumentError:
    rule = "a model with several members, or with `predict(X, return_cov=True)`"
    return InvalidArgumentError(
        f"What rows have in common needs {rule}, got {type(model).__name__}."
    )
