"""Rows of a pool to label next, by what a model says about each or about all together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from sigmax.active_learning.clusters import choose_by_clusters
from sigmax.active_learning.joint import JointUncertainty, metric_coordinates
from sigmax.checks import check_choice, check_count, check_number
from sigmax.errors import InvalidArgumentError
from sigmax.neighbors import as_rows
from sigmax.random import make_key, named_generator
from sigmax.scaling import Standardizer

__all__ = ["ACQUISITIONS", "Acquisition", "Wishes", "choose"]

ACQUISITIONS = ("variance", "epistemic", "information", "joint-information", "clusters", "random")

OF_BATCHES = ("joint-information", "clusters")
"""Acquisitions that look at rows together."""

Acquisition = str | Callable[[Any, Any, np.random.Generator], Any]


@final
@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How rows are chosen, checked."""

    acquisition: Acquisition
    diversity: float | int = 0

    def __post_init__(self) -> None:
        if not callable(self.acquisition):
            check_choice("acquisition", self.acquisition, ACQUISITIONS)
        check_number("diversity", self.diversity, above=0, inclusive=True)
        if self.diversity and self.acquisition in OF_BATCHES:
            rule = f"0 with the acquisition {self.acquisition!r}, which keeps rows apart by itself"
            raise InvalidArgumentError(f"`diversity` must be {rule}, got {self.diversity!r}.")

    def take(
        self,
        model: Any,
        X_pool: Any,
        n: int,
        unit: Any,
        rng: np.random.Generator,
        cost: Any = None,
        budget: float | int | None = None,
    ) -> Int[np.ndarray, " chosen"]:
        """The rows that `choose` describes."""
        price = np.ones(len(X_pool)) if cost is None else check_cost(cost, len(X_pool))
        most = np.inf if budget is None else check_number("budget", budget, above=0)
        if not np.any(price <= most * (1 + 1e-12)):
            raise InvalidArgumentError(f"`budget` {most:g} is less than any row of the pool costs.")
        if self.acquisition == "joint-information":
            joint = JointUncertainty.of_model(model, X_pool)
            return joint.most_informative(n, price, most)[0]
        if self.acquisition == "clusters":
            weight = _sum_squares(_uncertainty(model, X_pool, "clusters")["epistemic"], unit)
            coordinates = metric_coordinates(model, X_pool)
            return choose_by_clusters(coordinates, weight, n, price, most, rng)
        scores = _scores(model, X_pool, self.acquisition, unit, rng)
        if cost is None and budget is None:
            return _take(scores, X_pool, n, self.diversity)
        if scores.min() < 0:
            raise InvalidArgumentError(
                f"`acquisition` must be at least 0 where rows have costs, got {scores.min():g}."
            )
        order = _take(
            scores / price, X_pool, len(X_pool) if not self.diversity else n, self.diversity
        )
        return affordable(order, price, most)[:n]


def choose(
    model: Any,
    X_pool: Any,
    n: int = 1,
    *,
    acquisition: Acquisition = "variance",
    diversity: float | int = 0,
    y_labelled: Any = None,
    cost: Any = None,
    budget: float | int | None = None,
    random_state: Any = None,
) -> Int[np.ndarray, " chosen"]:
    r"""The ``n`` rows of the pool to label next, as indices into it, most wanted first.

    Without ``diversity`` these are the rows with the highest scores, ties going to earlier rows.
    With it, rows are taken one by one, each time that with the highest

    $$\text{score} \cdot \left(1 - e^{-d^2 / 2 \ell^2}\right), \qquad \ell = \text{diversity},$$

    where $d$ is the distance to the nearest row taken so far (infinite at first): the root mean
    square over columns of the difference, each column in units of its standard deviation in the
    pool. A row at $d = 0$ is never taken.

    Parameters
    ----------
    model
        Fitted.
    X_pool : array-like of shape (n_pool, d)
    n
        How many rows, at most those of the pool.
    acquisition
        A name or a function, see above.
    diversity
        How far apart the chosen rows should be, in standard deviations per column: closer than
        this, a row counts for much less. Needs scores of at least 0.
    y_labelled : array-like of shape (n_labelled,) or (n_labelled, p)
        The labels so far: the units in which the outputs' variances are added up. Without them
        these are added as they are; with one output it makes no difference.
    cost : array-like of shape (n_pool,), optional
        What each label costs: rows are wanted by what they promise per cost.
    budget : float, optional
        What all labels together may cost: rows that do not fit in any more are passed over, so that
        there may be fewer than ``n``.
    random_state : int, RandomState, Generator or None
        Seeds ``"random"``, ``"clusters"`` and the ``rng`` of a function.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> model = GaussianProcessRegressor().fit([[0.0], [1.0], [5.0]], [0.0, 1.0, 2.0])
    >>> choose(model, [[0.5], [2.8], [2.9], [4.0]], 2)
    array([2, 1])
    >>> choose(model, [[0.5], [2.8], [2.9], [4.0]], 2, diversity=0.5)
    array([2, 3])
    """
    rng = named_generator(make_key(random_state), "choose")
    unit = 1.0 if y_labelled is None else _output_std(y_labelled)
    wishes = Wishes(acquisition=acquisition, diversity=diversity)
    n = check_count("n", n)
    if n > len(X_pool):
        raise InvalidArgumentError(f"`n` must be at most the pool's {len(X_pool)} rows, got {n}.")
    return wishes.take(model, X_pool, n, unit, rng, cost, budget)


def _scores(
    model: Any, X_pool: Any, acquisition: Acquisition, unit: Any, rng: np.random.Generator
) -> Float[np.ndarray, " n_pool"]:
    """One number per row of the pool; ``unit`` is a std, one or one per output."""
    if acquisition == "random":
        return rng.random(len(X_pool))
    if callable(acquisition):
        scores = np.asarray(acquisition(model, X_pool, rng), np.float64)
        if scores.shape != (len(X_pool),):
            rule = f"one score per row, shape {(len(X_pool),)}"
            raise InvalidArgumentError(f"`acquisition` must give {rule}, got {scores.shape}.")
    elif acquisition == "variance":
        scores = _sum_squares(_total_std(model, X_pool), unit)
    else:
        parts = _uncertainty(model, X_pool, acquisition)
        if acquisition == "epistemic":
            scores = _sum_squares(parts["epistemic"], unit)
        else:
            with np.errstate(divide="ignore", invalid="ignore"):  # refused below
                gains = np.log(parts["total"] / parts["aleatoric"])
            scores = gains.reshape(len(gains), -1).sum(axis=1)
    if not np.all(np.isfinite(scores)):
        n_odd = np.sum(~np.isfinite(scores))
        raise InvalidArgumentError(
            f"`acquisition` must be finite, got {n_odd} scores that are not."
        )
    return scores


def _total_std(model: Any, X_pool: Any) -> np.ndarray:
    """Predictive standard deviations (n,) or (n, p) of any model that has them."""
    if hasattr(model, "predict_dist"):
        return model.predict_dist(X_pool).std
    rule = "a model with `predict_dist(X)` or `predict(X, return_std=True)`"
    refusal = f"`acquisition` 'variance' needs {rule}, got {type(model).__name__}."
    if not hasattr(model, "predict"):
        raise InvalidArgumentError(refusal)
    try:
        _, std = model.predict(X_pool, return_std=True)
    except TypeError as error:
        raise InvalidArgumentError(refusal) from error
    return np.asarray(std)


def _uncertainty(model: Any, X_pool: Any, acquisition: Acquisition) -> dict[str, np.ndarray]:
    """The parts of the uncertainty, refused where nothing is epistemic."""
    name = type(model).__name__
    if not hasattr(model, "predict_uncertainty"):
        rule = "a model with `predict_uncertainty(X)`"
        raise InvalidArgumentError(f"`acquisition` {acquisition!r} needs {rule}, got {name}.")
    parts = model.predict_uncertainty(X_pool)
    if not np.any(parts["epistemic"] > 0):
        rule = "epistemic uncertainty, as several members have"
        raise InvalidArgumentError(
            f"`acquisition` {acquisition!r} needs {rule}, got a {name} without."
        )
    return parts


def _sum_squares(std: np.ndarray, unit: Any) -> Float[np.ndarray, " n_pool"]:
    """Variances in units of each output, summed over outputs, from std (n,) or (n, p)."""
    table = np.asarray(std, np.float64).reshape(len(std), -1)
    if np.size(unit) not in (1, table.shape[1]):
        rule = f"as many outputs as the model, {table.shape[1]}"
        raise InvalidArgumentError(f"`y_labelled` must have {rule}, got {np.size(unit)}.")
    return ((table / unit) ** 2).sum(axis=1)


def _output_std(y: Any) -> Float[np.ndarray, " p"]:
    """The standard deviation of each output, 1 where it never varies."""
    table = np.asarray(y, np.float64).reshape(len(y), -1)
    return Standardizer.fit(table, np.ones(len(table))).scale


def _take(
    scores: Float[np.ndarray, " n_pool"], X_pool: Any, n: int, diversity: float | int
) -> Int[np.ndarray, " n"]:
    """The rows that `choose` describes, given their scores."""
    if diversity == 0:
        return np.argsort(-scores, kind="stable")[:n]
    if scores.min() < 0:
        raise InvalidArgumentError(
            f"`acquisition` must be at least 0 where `diversity` is above, got {scores.min():g}."
        )
    rows = as_rows("X_pool", X_pool)
    rows = Standardizer.fit(rows, np.ones(len(rows)))(rows).astype(np.float64)
    nearest = np.full(len(rows), np.inf)
    taken = []
    for _ in range(n):
        if not np.any(nearest > 0):
            rule = f"at least {n} different rows where `diversity` is above 0"
            raise InvalidArgumentError(f"The pool must hold {rule}, got {len(taken)}.")
        worth = scores * -np.expm1(-0.5 * (nearest / diversity) ** 2)
        taken.append(int(np.argmax(np.where(nearest > 0, worth, -1.0))))
        distance = np.sqrt(np.mean((rows - rows[taken[-1]]) ** 2, axis=1))
        nearest = np.minimum(nearest, distance)
    return np.array(taken)


def check_cost(cost: Any, n_rows: int) -> Float[np.ndarray, " n_rows"]:
    """Costs as numbers, refused unless there is one above 0 for every row."""
    found = np.asarray(cost, np.float64)
    if found.shape != (n_rows,) or not np.all((found > 0) & np.isfinite(found)):
        raise InvalidArgumentError(f"`cost` must be one number above 0 for each of {n_rows} rows.")
    return found


def affordable(
    order: Int[np.ndarray, " rows"], price: Float[np.ndarray, " pool"], budget: float
) -> Int[np.ndarray, " chosen"]:
    """The rows that can be had one after the other, those passed over that no longer fit.

    Examples
    --------
    >>> affordable(np.array([2, 0, 1]), np.array([3.0, 1.0, 2.0]), 3.5)
    array([2, 1])
    """
    taken, left = [], budget * (1 + 1e-12)
    for row in order:
        if price[row] <= left:
            taken.append(int(row))
            left -= price[row]
    return np.array(taken, dtype=int)
