r"""Active learning: which rows to label next.

Models need ``predict_dist(X)``, as all of sigmax, or ``predict(X, return_std=True)``, as
scikit-learn's Gaussian process and pipelines that end in one. `choose` selects the next rows,
`active_learning_rounds` simulates active learning where all labels are known, `expected_gain`
predicts when to stop, and `split_for_active_learning` is the paper's split for a simulation.

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
``"clusters"``
    One row from each of ``n`` clusters of k-means in the learned metric (other models: in
    standardised columns), rows weighted by their epistemic variance.
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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils import _safe_indexing

from sigmax.checks import check_choice, check_count, check_number
from sigmax.distributions import Bounded, Mixture, Predictive
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.estimators import LocalRegressor
from sigmax.experts.local import LocalFitted
from sigmax.inputs import Standardizer
from sigmax.neighbors import as_rows
from sigmax.random import make_key, named_generator

__all__ = [
    "ACQUISITIONS",
    "JointUncertainty",
    "Round",
    "active_learning_rounds",
    "choose",
    "expected_gain",
    "split_for_active_learning",
]

ACQUISITIONS = ("variance", "epistemic", "information", "joint-information", "clusters", "random")

Acquisition = str | Callable[[Any, Any, np.random.Generator], Any]

ROWS_PER_CLUSTER, FEWEST_CLUSTERED_ROWS = 50, 1000  # rows with the highest scores

LEAST_NOISE = 1e-6  # as a share of the variance: labels without noise have infinite information


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
    r"""Select the ``n`` pool rows to label next, as indices into the pool, the best first.

    Without ``diversity`` these are the rows with the highest scores; of ties, the earlier rows.
    With it, rows are taken one by one, each time the one with the highest

    $$\text{score} \cdot \left(1 - e^{-d^2 / 2 \ell^2}\right), \qquad \ell = \text{diversity},$$

    where $d$ is the distance to the nearest row taken so far (infinite at first): the root mean
    square of the difference over columns, each in units of its standard deviation in the pool. A
    row at $d = 0$ is never taken.

    Parameters
    ----------
    model
        Fitted model.
    X_pool : array-like of shape (n_pool, d)
    n
        Number of rows, at most that of the pool.
    acquisition
        Name or function, see above.
    diversity
        Distance of the selected rows, in standard deviations per column, below which the score of
        a row is reduced. Scores must be at least 0.
    y_labelled : array-like of shape (n_labelled,) or (n_labelled, p)
        Labels so far: the variances of several outputs are added in units of their standard
        deviations, or as they are without labels. With one output it makes no difference.
    cost : array-like of shape (n_pool,), optional
        Cost of each label: rows are selected by their score per cost.
    budget : float, optional
        Limit of the total cost: rows that exceed it are skipped, so that there may be fewer than
        ``n``.
    random_state : int, RandomState, Generator or None
        Seed of ``"random"``, of ``"clusters"`` and of the ``rng`` of a function.

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
    _check_acquisition(acquisition, diversity)
    n = check_count("n", n)
    if n > len(X_pool):
        raise InvalidArgumentError(f"`n` must be at most the pool's {len(X_pool)} rows, got {n}.")
    return _select(model, X_pool, n, acquisition, diversity, unit, rng, cost, budget)


def _check_acquisition(acquisition: Acquisition, diversity: float | int) -> None:
    if not callable(acquisition):
        check_choice("acquisition", acquisition, ACQUISITIONS)
    check_number("diversity", diversity, above=0, inclusive=True)
    if diversity and acquisition in ("joint-information", "clusters"):
        rule = f"0 with the acquisition {acquisition!r}, which keeps rows apart by itself"
        raise InvalidArgumentError(f"`diversity` must be {rule}, got {diversity!r}.")


def _select(
    model: Any,
    X_pool: Any,
    n: int,
    acquisition: Acquisition,
    diversity: float | int,
    unit: Any,
    rng: np.random.Generator,
    cost: Any,
    budget: float | int | None,
) -> Int[np.ndarray, " chosen"]:
    """Select rows as `choose` describes."""
    price = np.ones(len(X_pool)) if cost is None else _check_cost(cost, len(X_pool))
    most = np.inf if budget is None else check_number("budget", budget, above=0)
    if not np.any(price <= most * (1 + 1e-12)):
        raise InvalidArgumentError(f"`budget` {most:g} is less than any row of the pool costs.")
    if acquisition == "joint-information":
        return JointUncertainty.of_model(model, X_pool).most_informative(n, price, most)[0]
    if acquisition == "clusters":
        weight = _sum_squares(_uncertainty(model, X_pool, "clusters")["epistemic"], unit)
        coordinates = _metric_coordinates(model, X_pool)
        return _select_by_clusters(coordinates, weight, n, price, most, rng)
    scores = _scores(model, X_pool, acquisition, unit, rng)
    if cost is None and budget is None:
        return _select_by_scores(scores, X_pool, n, diversity)
    if scores.min() < 0:
        raise InvalidArgumentError(
            f"`acquisition` must be at least 0 where rows have costs, got {scores.min():g}."
        )
    n_ordered = n if diversity else len(X_pool)
    order = _select_by_scores(scores / price, X_pool, n_ordered, diversity)
    return _affordable(order, price, most)[:n]


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
        parts = _uncertainty(model, X_pool, acquisition)
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


def _uncertainty(model: Any, X_pool: Any, acquisition: Acquisition) -> dict[str, np.ndarray]:
    """Parts of the uncertainty; an error if none of it is epistemic."""
    name = type(model).__name__
    if not hasattr(model, "predict_uncertainty"):
        rule = "a model with `predict_uncertainty(X)`"
        raise InvalidArgumentError(f"`acquisition` {acquisition!r} needs {rule}, got {name}.")
    parts = model.predict_uncertainty(X_pool)
    if not np.any(parts["epistemic"] > 0):
        rule = "epistemic uncertainty, as an ensemble of several members has"
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
    """Standard deviation of each output, 1 where it is constant."""
    table = np.asarray(y, np.float64).reshape(len(y), -1)
    return Standardizer.fit(table, np.ones(len(table))).scale


def _select_by_scores(
    scores: Float[np.ndarray, " n_pool"], X_pool: Any, n: int, diversity: float | int
) -> Int[np.ndarray, " n"]:
    """Select rows by scores and diversity, as `choose` describes."""
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


def _check_cost(cost: Any, n_rows: int) -> Float[np.ndarray, " n_rows"]:
    found = np.asarray(cost, np.float64)
    if found.shape != (n_rows,) or not np.all((found > 0) & np.isfinite(found)):
        raise InvalidArgumentError(f"`cost` must be one number above 0 for each of {n_rows} rows.")
    return found


def _affordable(
    order: Int[np.ndarray, " rows"], price: Float[np.ndarray, " pool"], budget: float
) -> Int[np.ndarray, " chosen"]:
    """Rows that fit in the budget one after the other; others are skipped."""
    taken, left = [], budget * (1 + 1e-12)
    for row in order:
        if price[row] <= left:
            taken.append(int(row))
            left -= price[row]
    return np.array(taken, dtype=int)


def _select_by_clusters(
    coordinates: Float[np.ndarray, "pool metric"],
    weight: Float[np.ndarray, " pool"],
    n: int,
    price: Float[np.ndarray, " pool"],
    budget: float,
    rng: np.random.Generator,
) -> Int[np.ndarray, " chosen"]:
    """Select the row nearest to the centre of each cluster, the heaviest cluster first.

    Rows are weighted by score per cost. Of a large pool only the rows with the highest scores are
    clustered (as in Zhdanov 2019). If there are fewer distinct rows than rows to choose, the others
    with the highest scores follow.
    """
    worth = weight / price
    order = np.argsort(-worth, kind="stable")
    order = order[price[order] <= budget * (1 + 1e-12)]
    order = order[: max(FEWEST_CLUSTERED_ROWS, ROWS_PER_CLUSTER * n)]
    rows, counts = coordinates[order], np.maximum(worth[order], 1e-12 * worth.max() + 1e-300)
    n_clusters = min(n, len(np.unique(rows, axis=0)))
    settings: Any = {"n_init": 1, "random_state": int(rng.integers(2**31))}
    found: Any = KMeans(n_clusters, **settings)
    found.fit(rows, sample_weight=counts / counts.mean())
    squared = np.sum((rows - found.cluster_centers_[found.labels_]) ** 2, axis=1)
    clusters = []
    for label in np.unique(found.labels_):
        own = np.flatnonzero(found.labels_ == label)
        clusters.append((counts[own].sum(), own[np.argmin(squared[own])]))
    first = [order[row] for _, row in sorted(clusters, key=lambda pair: (-pair[0], pair[1]))]
    rest = order[~np.isin(order, first)]
    return _affordable(np.concatenate([first, rest]).astype(int), price, budget)[:n]


@final
@dataclass(frozen=True, eq=False)
class Round:
    """Round of active learning: a fitted model and row indices of X."""

    number: int
    """Number of the round, from 0."""
    model: Any
    """Model fitted on the rows ``labelled``, to be scored on test rows."""
    labelled: Int[np.ndarray, " n_labelled"]
    pool: Int[np.ndarray, " n_pool"]
    """Rows to choose from."""
    chosen: Int[np.ndarray, " n_chosen"]
    """Rows to label next, the best first."""
    expected_gain: float | None = None
    """Expected relative reduction of the pool's variance; None unless ``stop_below`` is set."""


def active_learning_rounds(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    labelled: Any,
    pool: Any,
    n_rounds: int = 10,
    n_per_round: int,
    acquisition: Acquisition = "variance",
    diversity: float | int = 0,
    cost: Any = None,
    budget: float | int | None = None,
    stop_below: float | int | None = None,
    random_state: Any = None,
) -> Iterator[Round]:
    """Simulate active learning on rows whose labels are known, one `Round` at a time.

    In each round a clone of the estimator is fitted on the labelled rows and ``n_per_round`` rows
    of the pool are chosen, which are labelled in the next round. The order of the given indices
    does not matter. The paper's protocol is ten rounds, each of 1 % of the first pool, from
    `split_for_active_learning`.

    Parameters
    ----------
    estimator
        Estimator to clone; it is not fitted itself.
    X, y : array-like of shape (n, d), and (n,) or (n, p)
    labelled, pool
        Row numbers, without overlap.
    n_rounds
        Number of rounds.
    n_per_round
        Rows to choose in each round.
    acquisition, diversity, budget
        As in `choose`; the budget is that of one round.
    cost : array-like of shape (n,), optional
        Cost of the label of each row of ``X``.
    stop_below : float, optional
        End the run after a round whose `expected_gain` is less: the relative reduction of the
        pool's mean predictive variance by its labels.
    random_state : int, RandomState, Generator or None
        Seed of the whole run.

    Examples
    --------
    >>> from sigmax import GPRegressor
    >>> X = np.linspace(0, 10, 50)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> start = {"labelled": range(10), "pool": range(10, 50)}
    >>> for step in active_learning_rounds(GPRegressor(), X, y, **start, n_rounds=2, n_per_round=3):
    ...     print(step.number, len(step.labelled), len(step.chosen))
    0 10 3
    1 13 3
    """
    if len(X) != len(y):
        raise InvalidDataError(
            f"`X` and `y` must have the same length, got {len(X)} and {len(y)} rows."
        )
    labelled = _check_indices("labelled", labelled, len(X))
    pool = _check_indices("pool", pool, len(X))
    if n_shared := len(np.intersect1d(labelled, pool)):
        raise InvalidArgumentError(
            f"`labelled` and `pool` must not overlap, got {n_shared} rows in both."
        )
    _check_acquisition(acquisition, diversity)
    price = None if cost is None else _check_cost(cost, len(X))
    if stop_below is not None:
        check_number("stop_below", stop_below, above=0, inclusive=True)
    n_per_round = check_count("n_per_round", n_per_round)
    n_needed = check_count("n_rounds", n_rounds) * n_per_round
    if n_needed > len(pool):
        rounds = f"{n_rounds} rounds of {n_per_round} rows"
        raise InvalidArgumentError(f"`pool` must hold {rounds}, {n_needed}, got {len(pool)}.")
    key = make_key(random_state)

    def run() -> Iterator[Round]:
        known, left = labelled, pool
        for number in range(n_rounds):
            X_pool, y_known = _safe_indexing(X, left), _safe_indexing(y, known)
            model: Any = clone(estimator)
            model.fit(_safe_indexing(X, known), y_known)
            rng = named_generator(key, f"round {number}")
            unit, own_cost = _output_std(y_known), None if price is None else price[left]
            how = acquisition, diversity, unit, rng, own_cost, budget
            taken = _select(model, X_pool, n_per_round, *how)
            gain = None if stop_below is None else expected_gain(model, X_pool, taken)
            chosen = left[taken]
            yield Round(number, model, known, left, chosen, gain)
            if stop_below is not None and gain is not None and gain < stop_below:
                return
            known, left = np.union1d(known, chosen), np.setdiff1d(left, chosen)

    return run()


def split_for_active_learning(
    n_rows: int, random_state: Any = None
) -> tuple[Int[np.ndarray, " n_labelled"], Int[np.ndarray, " n_pool"], Int[np.ndarray, " n_test"]]:
    """Random split of the paper: 20 % labelled, 60 % pool, 20 % test, as row numbers.

    ``random_state`` is an int, RandomState, Generator or None.

    Examples
    --------
    >>> [len(part) for part in split_for_active_learning(506, random_state=0)]
    [101, 304, 101]
    """
    n_rows = check_count("n_rows", n_rows, minimum=5)
    order = named_generator(make_key(random_state), "split").permutation(n_rows)
    n_test = round(0.2 * n_rows)
    labelled, pool, test = np.split(order, [n_test, n_rows - n_test])
    return np.sort(labelled), np.sort(pool), np.sort(test)


def _check_indices(name: str, rows: Any, n_rows: int) -> Int[np.ndarray, " n"]:
    """Row numbers in order; an error unless they are different rows of ``n_rows``."""
    indices = np.asarray(rows)
    if indices.ndim == 1 and indices.size and np.issubdtype(indices.dtype, np.integer):
        unique = np.unique(indices)
        if len(unique) == len(indices) and unique[0] >= 0 and unique[-1] < n_rows:
            return unique
    rule = f"one or more different row numbers from 0 to {n_rows - 1}"
    raise InvalidArgumentError(f"`{name}` must be {rule}, got {indices!r}.")


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
        mixture = dist.base if isinstance(dist, Bounded) else dist
        if not isinstance(mixture, Mixture):
            raise _unsupported(model)
        of_members, known = _deviations(mixture), Predictive(mixture)
        shape = len(X), -1
        total = known.variance.reshape(shape)
        epistemic = known.epistemic_variance.reshape(shape)
        own = np.sqrt(np.maximum(epistemic - np.sum(of_members**2, axis=0), 0.0))
        coordinates = _member_coordinates(model, X)
        if coordinates is None:  # its correlation is unknown
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
        """Information gain in nats of each label given earlier ones, and the remaining variance."""
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
    _, left = joint.condition(np.asarray(chosen, dtype=int))
    total = (joint.variance + joint.noise).mean(axis=0)
    return float(np.mean((joint.variance - left).mean(axis=0) / total))


def _metric_coordinates(model: Any, X: Any) -> Float[np.ndarray, "rows coordinates"]:
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
    weight = np.full(means.shape, 1 / (mixture.n_members * mixture.n_parts))
    if mixture.log_weight is not None:
        weight = np.exp(np.asarray(mixture.log_weight, np.float64))
    shape = mixture.n_members, mixture.n_parts, means.shape[1], -1
    means, weight = means.reshape(shape), weight.reshape(shape)
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
