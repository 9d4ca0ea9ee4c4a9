r"""Active learning: which rows to label next.

Models need ``predict_dist(X)``, as all of sigmax, or ``predict(X, return_std=True)``, as
scikit-learn's Gaussian process and pipelines that end in one. `choose` selects the next rows, and
`expected_gain` predicts when to stop.

An acquisition gives each row of the pool a score; rows with high scores are labelled first. By
name:

``"variance"``
    Total predictive variance, including noise, as in the paper.
``"epistemic"``
    Epistemic variance, which more data would reduce.
``"information"``
    Log of the ratio of total to aleatoric standard deviation: for a Normal, the expected
    information gain of a label.
``"joint-information"``
    Information gain of the whole batch, greedily: a row similar to one already selected adds
    little. See `JointUncertainty`.
``"random"``
    A uniform random number: the baseline for the others.

With several outputs the score of a row is the sum of theirs, with variances in units of each
output's variance in the labelled rows. Custom acquisitions are functions
``(model, X_pool, rng) -> scores (n,)``.

Joint uncertainty: the function value $f(x)$ behind a prediction has an epistemic covariance
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

from sigmax.distributions import Bounded, Mixture, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import LocalRegressor
from sigmax.features import Standardizer
from sigmax.random import make_key, named_generator
from sigmax.settings import check_choice, check_count

__all__ = ["ACQUISITIONS", "JointUncertainty", "choose", "expected_gain"]

ACQUISITIONS = ("variance", "epistemic", "information", "joint-information", "random")

Acquisition = str | Callable[[Any, Any, np.random.Generator], Any]

LEAST_NOISE = 1e-6  # as a share of the variance: labels without noise have infinite information


def choose(
    model: Any,
    X_pool: Any,
    n: int = 1,
    *,
    acquisition: Acquisition = "variance",
    y_labelled: Any = None,
    random_state: Any = None,
) -> Int[np.ndarray, " chosen"]:
    """Select the pool rows to label next.

    Parameters
    ----------
    model
        Fitted model.
    X_pool : array-like of shape (n_pool, d)
    n : int
        Number of rows, at most that of the pool.
    acquisition : str or function
        Name or function, see above.
    y_labelled : array-like of shape (n_labelled,) or (n_labelled, p)
        Labels so far. With several outputs, the variances are added in units of the standard
        deviations of these labels, or in their own units without labels.
    random_state : int, RandomState, Generator or None
        Seed of ``"random"`` and of the ``rng`` of a function.

    Returns
    -------
    array of shape (n,)
        Indices into the pool, the best first; of equal rows, the earlier one is first.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> model = GaussianProcessRegressor().fit([[0.0], [1.0], [5.0]], [0.0, 1.0, 2.0])
    >>> choose(model, [[0.5], [2.8], [2.9], [4.0]], 2)
    array([2, 1])
    """
    rng = named_generator(make_key(random_state), "choose")
    unit: Any = 1.0
    if y_labelled is not None:
        labels = np.asarray(y_labelled, np.float64).reshape(len(y_labelled), -1)
        unit = Standardizer.fit(labels, np.ones(len(labels))).scale
    if not callable(acquisition):
        check_choice("acquisition", acquisition, ACQUISITIONS)
    n = check_count("n", n)
    if n > len(X_pool):
        raise InvalidArgumentError(f"`n` must be at most the pool's {len(X_pool)} rows, got {n}.")
    if acquisition == "joint-information":
        return JointUncertainty.of_model(model, X_pool).most_informative(n)[0]
    scores = _scores(model, X_pool, acquisition, unit, rng)
    return np.argsort(-scores, kind="stable")[:n]


def _scores(
    model: Any, X_pool: Any, acquisition: Acquisition, unit: Any, rng: np.random.Generator
) -> Float[np.ndarray, " n_pool"]:
    """Score of each pool row; ``unit`` is a standard deviation, one or one per output."""
    if acquisition == "random":
        return rng.random(len(X_pool))
    if callable(acquisition):
        scores = np.asarray(acquisition(model, X_pool, rng), np.float64)
        if scores.shape != (len(X_pool),):
            rule = f"one score per row, shape {(len(X_pool),)}"
            raise InvalidArgumentError(f"`acquisition` must give {rule}, got {scores.shape}.")
    elif acquisition == "variance" and hasattr(model, "predict_dist"):
        scores = _sum_squares(model.predict_dist(X_pool).std, unit)
    elif acquisition == "variance":
        predict: Any = getattr(model, "predict", None)
        try:
            _, std = predict(X_pool, return_std=True)
        except TypeError as error:
            rule = "a model with `predict_dist(X)` or `predict(X, return_std=True)`"
            message = f"`acquisition` 'variance' needs {rule}, got {type(model).__name__}."
            raise InvalidArgumentError(message) from error
        scores = _sum_squares(std, unit)
    else:
        name, rule = type(model).__name__, "a model with `predict_uncertainty(X)`"
        if not hasattr(model, "predict_uncertainty"):
            raise InvalidArgumentError(f"`acquisition` {acquisition!r} needs {rule}, got {name}.")
        parts = model.predict_uncertainty(X_pool)
        if not np.any(parts["epistemic"] > 0):
            rule = "epistemic uncertainty, as an ensemble of several members has"
            raise InvalidArgumentError(
                f"`acquisition` {acquisition!r} needs {rule}, got a {name} without."
            )
        if acquisition == "epistemic":
            scores = _sum_squares(parts["epistemic"], unit)
        else:
            with np.errstate(divide="ignore", invalid="ignore"):  # checked below
                gains = np.log(parts["total"] / parts["aleatoric"])
            scores = gains.reshape(len(gains), -1).sum(axis=1)
    if not np.all(np.isfinite(scores)):
        n_bad = np.sum(~np.isfinite(scores))
        raise InvalidArgumentError(
            f"`acquisition` must be finite, got {n_bad} scores that are not."
        )
    return scores


def _sum_squares(std: np.ndarray, unit: Any) -> Float[np.ndarray, " n_pool"]:
    """Variances in units of each output, summed over outputs, from std (n,) or (n, p)."""
    table = np.asarray(std, np.float64).reshape(len(std), -1)
    if np.size(unit) not in (1, table.shape[1]):
        rule = f"as many outputs as the model, {table.shape[1]}"
        raise InvalidArgumentError(f"`y_labelled` must have {rule}, got {np.size(unit)}.")
    return ((table / unit) ** 2).sum(axis=1)


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
        """Create from a covariance matrix.

        Parameters
        ----------
        covariance : array of shape (n, n)
        noise : array of shape (n,)
            Noise variance of each label.

        Returns
        -------
        JointUncertainty
        """
        variance = np.diag(covariance)[:, None].astype(np.float64)
        floor = LEAST_NOISE * np.maximum(variance, 1e-300)
        noise = np.maximum(noise[:, None].astype(np.float64), floor)
        return cls(variance, noise, lambda row: covariance[:, row : row + 1])

    @classmethod
    def of_model(cls, model: Any, X: Any) -> "JointUncertainty":
        """Create from an ensemble, or a model with ``predict(X, return_cov=True)``.

        Parameters
        ----------
        model
            Fitted model.
        X : array-like of shape (n, d)

        Returns
        -------
        JointUncertainty
        """
        if not hasattr(model, "predict_dist"):
            try:
                _, covariance = model.predict(X, return_cov=True)
            except (AttributeError, TypeError) as error:
                raise _unsupported(model) from error
            if np.ndim(covariance) != 2:
                raise InvalidArgumentError(
                    "The covariance of several outputs is not supported. Fit one model per output."
                )
            alpha = getattr(model, "alpha", 0.0)  # of scikit-learn: the noise variance
            noise = np.full(len(X), float(alpha) if np.ndim(alpha) == 0 else 0.0)
            return cls.of_matrix(np.asarray(covariance, np.float64), noise)
        dist: Any = model.predict_dist(X).dist
        mixture = dist.base if isinstance(dist, Bounded) else dist
        if not isinstance(mixture, Mixture):
            raise _unsupported(model)
        of_members, known = _deviations(mixture), Predictive(mixture)
        shape = len(X), -1
        total = known.variance.reshape(shape)
        epistemic = known.epistemic_variance.reshape(shape)
        variance, coordinates, own = np.sum(of_members**2, axis=0), None, np.zeros(0)
        if isinstance(model, LocalRegressor):  # otherwise the correlation of the rest is unknown
            fitted: Any = model.model_.fitted
            coordinates = fitted.coordinates(model.model_.encode(model.read(X)))
            own = np.sqrt(np.maximum(epistemic - variance, 0.0))
            variance = variance + own**2
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
        """Compute the information of labels, and the variance that remains after them.

        Parameters
        ----------
        rows : array of int
            Rows to label, in order.

        Returns
        -------
        gains : array of shape (len(rows),)
            Information gain in nats of each label, given earlier ones.
        variance : array of shape (n, p)
            Remaining epistemic variance of all rows.
        """
        return self._label(rows)[1:]

    def most_informative(
        self, n: int
    ) -> tuple[Int[np.ndarray, " chosen"], Float[np.ndarray, " chosen"]]:
        """Select rows greedily by information gain.

        Parameters
        ----------
        n : int
            Number of rows.

        Returns
        -------
        rows : array of shape (n,)
        gains : array of shape (n,)
            Information gain in nats of each label, given earlier ones.
        """
        return self._label([None] * n)[:2]

    def _label(self, rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, None for the most informative one, their gains, and the variance left.

        The columns of a Cholesky factor of the covariance, row by row.
        """
        variance, factor, taken, gains = self.variance.copy(), [], [], []
        for row in rows:
            gain = 0.5 * np.log1p(variance / self.noise).sum(axis=1)
            if row is None:
                gain[taken] = -np.inf
                row = np.argmax(gain)
            taken.append(int(row))
            gains.append(float(gain[row]))
            left = self.column(taken[-1]) - sum(known * known[row] for known in factor)
            factor.append(left / np.sqrt(variance[row] + self.noise[row]))
            variance = np.maximum(variance - factor[-1] ** 2, 0.0)
        return np.array(taken), np.array(gains), variance


def expected_gain(model: Any, X_pool: Any, chosen: Any) -> float:
    """Compute the expected relative reduction of the pool's mean variance by labels.

    The variance includes noise, and is that of the model before it has the labels; several outputs
    are averaged. Stop when the gain of a round is small: the remaining variance is noise, or this
    model cannot learn it.

    Parameters
    ----------
    model
        Fitted ensemble, or a model with ``predict(X, return_cov=True)``.
    X_pool : array-like of shape (n_pool, d)
    chosen : array of int
        Indices of the rows to label.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> model = GaussianProcessRegressor().fit([[0.0], [1.0], [5.0]], [0.0, 1.0, 2.0])
    >>> X_pool = [[0.5], [2.8], [2.9], [4.0]]
    >>> bool(expected_gain(model, X_pool, [2]) > expected_gain(model, X_pool, [0]))
    True
    """
    joint = JointUncertainty.of_model(model, X_pool)
    _, left = joint.condition(np.asarray(chosen, dtype=int))
    total = (joint.variance + joint.noise).mean(axis=0)
    return float(np.mean((joint.variance - left).mean(axis=0) / total))


def _deviations(mixture: Mixture) -> Float[np.ndarray, "members rows outputs"]:
    """Deviations of the members' means from the ensemble mean, times the root of their weights."""
    means = np.asarray(mixture.components.mean, np.float64)
    weight = np.full(means.shape, 1 / (mixture.n_members * mixture.n_parts))
    if mixture.log_weight is not None:
        weight = np.exp(np.asarray(mixture.log_weight, np.float64))
    shape = mixture.n_members, mixture.n_parts, means.shape[1], -1
    means, weight = means.reshape(shape), weight.reshape(shape)
    of_member = weight.sum(axis=1)
    mean = (weight * means).sum(axis=1) / of_member
    center = (of_member * mean).sum(axis=0) / of_member.sum(axis=0)
    return np.sqrt(of_member) * (mean - center)


def _unsupported(model: Any) -> InvalidArgumentError:
    rule = "an ensemble of several members, or a model with `predict(X, return_cov=True)`"
    return InvalidArgumentError(f"Joint uncertainty needs {rule}, got {type(model).__name__}.")
