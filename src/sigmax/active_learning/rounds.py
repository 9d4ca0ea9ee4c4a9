"""Active learning played on rows whose labels are known."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Int
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from sigmax.active_learning.choosing import Acquisition, Wishes, _output_std, check_cost
from sigmax.active_learning.joint import expected_gain
from sigmax.checks import check_count, check_number
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.random import make_key, named_generator

__all__ = ["Round", "active_learning_rounds", "split_for_active_learning"]

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
    expected_gain: float | None = None
    """What their labels would take off the pool's variance; None where nothing asks for it."""

    @property
    def next_labelled(self) -> Int[np.ndarray, " n"]:
        """``labelled`` of the round that follows."""
        return np.union1d(self.labelled, self.chosen)

    @property
    def next_pool(self) -> Int[np.ndarray, " n"]:
        """``pool`` of the round that follows."""
        return np.setdiff1d(self.pool, self.chosen)


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
    acquisition, diversity, budget
        As in `choose`; the budget is that of a round.
    cost : array-like of shape (n,), optional
        What the label of each row of ``X`` costs.
    stop_below : float, optional
        Ends the run after a round whose `expected_gain` is less: the share by which its labels
        would lower the mean predictive variance of the pool.
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
    wishes = Wishes(acquisition=acquisition, diversity=diversity)
    price = None if cost is None else check_cost(cost, len(X))
    if stop_below is not None:
        check_number("stop_below", stop_below, above=0, inclusive=True)
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
            own = None if price is None else price[left]
            unit = _output_std(y_known)
            taken = wishes.take(model, X_pool, n_per_round, unit, rng, own, budget)
            gain = None if stop_below is None else expected_gain(model, X_pool, taken)
            done = Round(number, model, known, left, left[taken], gain)
            yield done
            if stop_below is not None and gain is not None and gain < stop_below:
                return
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


def _check_indices(name: str, rows: Any, n_rows: int) -> Int[np.ndarray, " n"]:
    """Row numbers in order, refused unless they are different rows of ``n_rows``."""
    indices = np.asarray(rows)
    if indices.ndim == 1 and indices.size and np.issubdtype(indices.dtype, np.integer):
        unique = np.unique(indices)
        if len(unique) == len(indices) and unique[0] >= 0 and unique[-1] < n_rows:
            return unique
    rule = f"one or more different row numbers from 0 to {n_rows - 1}"
    raise InvalidArgumentError(f"`{name}` must be {rule}, got {indices!r}.")
