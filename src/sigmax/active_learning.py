"""Active learning: which rows to label next.

The model may be any with ``predict_dist(X)``, as all of sigmax, or with
``predict(X, return_std=True)``, as scikit-learn's Gaussian process and pipelines that end in one.
`choose` is for people who go away and measure, `active_learning_rounds` for simulations in which
all labels are known, and `split_for_active_learning` gives the paper's rows for one.

An acquisition says how much each row of the pool is wanted. By name:

``"variance"``
    The total predictive variance, noise included: the paper's.
``"epistemic"``
    The part of the variance that more data would take away.
``"information"``
    The log of the total over the aleatoric standard deviation: for a Normal, what a label is
    expected to tell.
``"random"``
    A uniform number: the control that the others have to beat.

With several outputs a row's score is the sum of theirs, variances being counted in units of each
output's variance in the labelled rows. An acquisition of one's own is a function
``(model, X_pool, rng) -> scores (n,)``, larger being more wanted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from sigmax.checks import check_choice, check_count, check_number
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.neighbors import as_rows
from sigmax.random import make_key, named_generator
from sigmax.scaling import Standardizer

__all__ = [
    "ACQUISITIONS",
    "Round",
    "active_learning_rounds",
    "choose",
    "split_for_active_learning",
]

ACQUISITIONS = ("variance", "epistemic", "information", "random")

Acquisition = str | Callable[[Any, Any, np.random.Generator], Any]

LABELLED_SHARE = 0.2
TEST_SHARE = 0.2


@final
@dataclass(frozen=True, eq=False)
class Round:
    """One round: a model, what it learned from and what it wants to know. Indices are rows of X."""

    number: int
    """Rounds count from 0."""
    model: Any
    """Fitted on the rows ``labelled``: what to score on test rows."""
    labelled: Int[np.ndarray, " n_labelled"]
    pool: Int[np.ndarray, " n_pool"]
    """The rows that could be chosen."""
    chosen: Int[np.ndarray, " n_chosen"]
    """The rows to label next, most wanted first."""

    @property
    def next_labelled(self) -> Int[np.ndarray, " n"]:
        """``labelled`` of the round that follows."""
        return np.union1d(self.labelled, self.chosen)

    @property
    def next_pool(self) -> Int[np.ndarray, " n"]:
        """``pool`` of the round that follows."""
        return np.setdiff1d(self.pool, self.chosen)


def choose(
    model: Any,
    X_pool: Any,
    n: int = 1,
    *,
    acquisition: Acquisition = "variance",
    diversity: float | int = 0,
    y_labelled: Any = None,
    random_state: Any = None,
) -> Int[np.ndarray, " n"]:
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
    random_state : int, RandomState, Generator or None
        Seeds ``"random"`` and the ``rng`` of a function.

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
    acquisition, diversity = _check_wishes(acquisition, diversity)
    n = check_count("n", n)
    if n > len(X_pool):
        raise InvalidArgumentError(f"`n` must be at most the pool's {len(X_pool)} rows, got {n}.")
    return _take(_scores(model, X_pool, acquisition, unit, rng), X_pool, n, diversity)


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
    random_state: Any = None,
    first_round: int = 0,
) -> Iterator[Round]:
    """Play active learning on rows whose labels are known, one `Round` at a time.

    In every round a clone of the estimator is fitted on the labelled rows and chooses
    ``n_per_round`` rows of the pool, which are labelled in the next. The order of the indices given
    plays no part. The paper's protocol is ten rounds, each of 1 % of the first pool, from
    `split_for_active_learning`.

    What is random in a round depends on ``random_state`` and its number only. So a run can be
    stopped after any round and taken up again with its ``next_labelled``, its ``next_pool`` and
    ``first_round`` one above its number; if both ``random_state`` and that of the estimator are
    whole numbers, nothing differs from a run that never stopped.

    Parameters
    ----------
    estimator
        Not fitted, and left so.
    X, y : array-like of shape (n, d), and (n,) or (n, p)
    labelled, pool
        Row numbers, none of them in both.
    n_rounds
        Rounds of the whole run, those before ``first_round`` included.
    n_per_round
        Rows to choose in each.
    acquisition, diversity
        As in `choose`.
    random_state : int, RandomState, Generator or None
        One for the whole run.
    first_round
        Number of the first round to play.

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
        raise InvalidDataError(f"`X` and `y` must be as long, got {len(X)} and {len(y)} rows.")
    labelled = _check_indices("labelled", labelled, len(X))
    pool = _check_indices("pool", pool, len(X))
    if n_shared := len(np.intersect1d(labelled, pool)):
        raise InvalidArgumentError(
            f"`labelled` and `pool` must not overlap, got {n_shared} rows in both."
        )
    acquisition, diversity = _check_wishes(acquisition, diversity)
    n_per_round = check_count("n_per_round", n_per_round)
    first_round = check_count("first_round", first_round, minimum=0)
    numbers = range(first_round, check_count("n_rounds", n_rounds, minimum=max(1, first_round)))
    n_needed = len(numbers) * n_per_round
    if n_needed > len(pool):
        rounds = f"{len(numbers)} rounds of {n_per_round} rows"
        raise InvalidArgumentError(f"`pool` must hold {rounds}, {n_needed}, got {len(pool)}.")
    key = make_key(random_state)

    def play() -> Iterator[Round]:
        known, left = labelled, pool
        for number in numbers:
            X_pool, y_known = _safe_indexing(X, left), _safe_indexing(y, known)
            model: Any = clone(estimator)
            model.fit(_safe_indexing(X, known), y_known)
            rng = named_generator(key, f"round {number}")
            scores = _scores(model, X_pool, acquisition, _output_std(y_known), rng)
            chosen = left[_take(scores, X_pool, n_per_round, diversity)]
            done = Round(number, model, known, left, chosen)
            yield done
            known, left = done.next_labelled, done.next_pool

    return play()


def split_for_active_learning(
    n_rows: int, random_state: Any = None
) -> tuple[Int[np.ndarray, " n_labelled"], Int[np.ndarray, " n_pool"], Int[np.ndarray, " n_test"]]:
    """The paper's split at random: 20 % labelled, 60 % pool, 20 % test, as row numbers.

    ``random_state`` is an int, RandomState, Generator or None.

    Examples
    --------
    >>> [len(part) for part in split_for_active_learning(506, random_state=0)]
    [101, 304, 101]
    """
    n_rows = check_count("n_rows", n_rows, minimum=5)
    order = named_generator(make_key(random_state), "split").permutation(n_rows)
    n_labelled, n_test = round(LABELLED_SHARE * n_rows), round(TEST_SHARE * n_rows)
    labelled, pool, test = np.split(order, [n_labelled, n_rows - n_test])
    return np.sort(labelled), np.sort(pool), np.sort(test)


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
    scores: Float[np.ndarray, " n_pool"], X_pool: Any, n: int, diversity: float
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


def _check_wishes(acquisition: Any, diversity: Any) -> tuple[Acquisition, float]:
    if not callable(acquisition):
        check_choice("acquisition", acquisition, ACQUISITIONS)
    return acquisition, check_number("diversity", diversity, above=0, inclusive=True)


def _check_indices(name: str, rows: Any, n_rows: int) -> Int[np.ndarray, " n"]:
    """Row numbers in order, refused unless they are different rows of ``n_rows``."""
    indices = np.asarray(rows)
    if indices.ndim == 1 and indices.size and np.issubdtype(indices.dtype, np.integer):
        unique = np.unique(indices)
        if len(unique) == len(indices) and unique[0] >= 0 and unique[-1] < n_rows:
            return unique
    rule = f"one or more different row numbers from 0 to {n_rows - 1}"
    raise InvalidArgumentError(f"`{name}` must be {rule}, got {indices!r}.")
