r"""Sequential tests of predictions on new labelled rows, valid at any time.

They are betting tests of means, whose error rate holds at any stopping time.

Numbers $x_t$ in $[0, 1]$ arrive one at a time. The hypothesis is that their mean, given the past,
is at most $m$. A gambler who stakes a share $c$ of his wealth on larger numbers multiplies it by
$1 + c (x_t / m - 1)$, of mean at most 1: his wealth is a nonnegative supermartingale, and by
Ville's inequality the probability that it ever reaches $1/\alpha$ is at most $\alpha$. So it may be
checked after every row, and the data may decide when to stop (Ville 1939; Shafer and Vovk 2019;
Waudby-Smith and Ramdas 2024).

Wealth is spread over several shares $c$, and over all rows at which betting may start: row $s$ has
$1 / (s (s + 1))$ of it, so that a change after a million rows without drift is detected, too.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from sigmax.errors import ModelFileError
from sigmax.settings import check_number

__all__ = ["DriftTest", "DriftTests", "Monitor"]

STAKES = np.array([0.03, 0.06, 0.12, 0.25, 0.5, 0.9])
"""Shares of the wealth: small ones for small deviations."""


@final
@dataclass(frozen=True, eq=False)
class Bets:
    """State of several tests, each with a bound on the mean of its numbers.

    Examples
    --------
    >>> bets = Bets.create([0.5])
    >>> bets, log_e = bets.update(np.ones((20, 1)))  # twenty ones from a mean of at most a half
    >>> bool(np.exp(log_e[-1, 0]) > 1000)
    True
    """

    bound: Float[np.ndarray, " tests"]
    """Largest means that the hypotheses allow."""
    n_rows: int
    log_wealth: Float[np.ndarray, "tests stakes"]
    """Log of the staked wealth, summed over all rows at which betting started."""
    total: Float[np.ndarray, " tests"]
    """Sums of the numbers."""

    @classmethod
    def create(cls, bound: Any) -> "Bets":
        """Create tests without any rows."""
        bound = np.asarray(bound, np.float64)
        return cls(bound, 0, np.full((len(bound), len(STAKES)), -np.inf), np.zeros(len(bound)))

    def update(
        self, x: Float[np.ndarray, "rows tests"]
    ) -> "tuple[Bets, Float[np.ndarray, 'rows tests']]":
        """State after more rows, and the log e-value of each test after every row."""
        found, state = np.empty(x.shape), self
        for i, row in enumerate(x):
            n_rows = state.n_rows + 1
            gain = np.log1p(STAKES[None] * (row / self.bound - 1)[:, None])
            wealth = np.logaddexp(state.log_wealth, -np.log(n_rows * (n_rows + 1.0))) + gain
            state = Bets(self.bound, n_rows, wealth, state.total + row)
            found[i] = state.log_e
        return state, found

    @property
    def log_e(self) -> Float[np.ndarray, " tests"]:
        """Current log e-values."""
        kept = -np.log(self.n_rows + 1.0)  # wealth reserved for later starts
        found = np.logaddexp.reduce(np.logaddexp(self.log_wealth, kept), axis=1)
        return found - np.log(len(STAKES))

    def to_json(self) -> dict[str, Any]:
        """State as plain numbers, None for a wealth of 0."""
        log_wealth = self.log_wealth.astype(object)
        log_wealth[np.isinf(self.log_wealth)] = None
        arrays = {"bound": self.bound, "log_wealth": log_wealth, "total": self.total}
        return {"n_rows": self.n_rows} | {name: each.tolist() for name, each in arrays.items()}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "Bets":
        """Restore from `to_json`; a ValueError if the state is inconsistent."""
        names, n_rows = ("bound", "log_wealth", "total"), state["n_rows"]
        bound, wealth, total = (np.array(state[name], np.float64) for name in names)
        wealth = np.where(np.isnan(wealth), -np.inf, wealth)  # None is read as nan
        is_sound = wealth.shape == (len(bound), len(STAKES)) and total.shape == bound.shape
        is_sound &= isinstance(n_rows, int) and n_rows >= 0
        if not (is_sound and np.all((bound > 0) & (bound <= 1)) and np.isfinite(total).all()):
            raise ValueError("the state of the bets is inconsistent")
        return cls(bound, n_rows, wealth, total)


ABOVE, BELOW = "targets above the predictions", "targets below the predictions"
LARGER, SMALLER = "errors larger than predicted", "errors smaller than predicted"
MISSED, OUT_OF_DISTRIBUTION = "targets outside their intervals", "rows out of distribution"


@final
@dataclass(frozen=True)
class DriftTest:
    """Hypothesis and the evidence against it."""

    name: str
    e_value: float
    """Current evidence: wealth of a gambler against the hypothesis who started with 1."""
    since: int | None
    """First row, from 1, at which the hypothesis was rejected; None if it never was."""
    mean: float
    """Mean over all rows of the PIT, its distance from the middle, or the share of rows."""
    expected: float
    bound: float
    """Largest mean that the hypothesis allows."""

    @property
    def is_alarm(self) -> bool:
        """True if the hypothesis is rejected; smaller errors than predicted are only a notice."""
        return self.since is not None and self.name != SMALLER

    def __str__(self) -> str:
        state = "quiet"
        if self.since is not None:
            state = f"{'ALARM' if self.is_alarm else 'notice'} since row {self.since:,}"
        numbers = f"mean {self.mean:.3f}, expected {self.expected:.3g}, allowed {self.bound:.3g}"
        return f"{self.name:<33} {state:<24} e-value {self.e_value:<9.3g} {numbers}"


@final
@dataclass
class DriftTests:
    """Tests of PIT, coverage and share of rows out of distribution, updated row by row.

    Together they raise a false alarm in at most a share ``alpha`` of all streams, of any length and
    checked at any time, if these hypotheses hold for every row given those before it:

    - the mean of the PIT is within ``tolerance`` of a half, and so is the mean of its distance from
      the middle, |2 PIT - 1|;
    - at most ``1 - coverage + tolerance`` of the targets are outside their intervals;
    - at most ``most_off_data`` of the rows are out of distribution.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> tests = DriftTests(has_gate=False)
    >>> tests.update(rng.random(500), np.zeros(500)).has_alarm
    False
    >>> tests.update(rng.random(500) ** 0.5, np.zeros(500)).has_alarm  # two thirds on average
    True
    >>> [test.name for test in tests.tests if test.is_alarm]
    ['targets above the predictions']
    """

    alpha: float = 0.05
    coverage: float = 0.9
    tolerance: float = 0.03
    most_off_data: float = 0.05
    has_gate: bool = True
    bets: Bets = field(init=False)
    since: list[int | None] = field(init=False)
    path: list[Float[np.ndarray, "rows tests"]] = field(init=False)
    """Log e-values after every row since this object was created or loaded."""

    def __post_init__(self) -> None:
        self.alpha = check_number("alpha", self.alpha, above=0, below=1)
        self.coverage = check_number("coverage", self.coverage, above=0, below=1)
        self.tolerance = check_number("tolerance", self.tolerance, above=0, below=0.5)
        share = check_number("most_off_data", self.most_off_data, above=0, below=1)
        middle, missed = 0.5 + self.tolerance, min(1 - self.coverage + self.tolerance, 1.0)
        bounds = [middle] * 4 + [missed] + [share] * self.has_gate
        self.bets = Bets.create(bounds)
        self.since, self.path = [None] * len(bounds), []

    @property
    def names(self) -> list[str]:
        """Names of the tests."""
        return [ABOVE, BELOW, LARGER, SMALLER, MISSED, OUT_OF_DISTRIBUTION][: len(self.since)]

    @property
    def n_rows(self) -> int:
        """Number of rows added so far."""
        return self.bets.n_rows

    @property
    def threshold(self) -> float:
        """E-value that rejects a hypothesis: each test has an equal part of ``alpha``."""
        return len(self.since) / self.alpha

    def update(
        self,
        pit: Float[np.ndarray, " rows *outputs"],
        missed: Float[np.ndarray, " rows *outputs"],
        is_off_data: Any = None,
    ) -> "DriftTests":
        """Add rows; several outputs of a row count as their mean.

        Parameters
        ----------
        pit : array of shape (n,) or (n, p)
            Probability integral transform of each target.
        missed : array of shape (n,) or (n, p)
            1 if the target is outside its interval, otherwise 0.
        is_off_data : array of shape (n,), optional
            True for rows out of distribution.

        Returns
        -------
        self
        """
        n_rows = len(pit)
        pit, missed = (np.asarray(part, np.float64).reshape(n_rows, -1) for part in (pit, missed))
        mean, spread = pit.mean(axis=1), np.abs(2 * pit - 1).mean(axis=1)
        columns = [mean, 1 - mean, spread, 1 - spread, missed.mean(axis=1)]
        if self.has_gate:
            columns.append(np.asarray(is_off_data, np.float64))
        before = self.n_rows
        self.bets, log_e = self.bets.update(np.stack(columns, axis=1))
        is_enough = log_e >= np.log(self.threshold)
        first = np.where(is_enough.any(axis=0), is_enough.argmax(axis=0), -1)
        self.since = [
            known if known is not None or row < 0 else before + int(row) + 1
            for known, row in zip(self.since, first, strict=True)
        ]
        self.path.append(log_e)
        return self

    @property
    def tests(self) -> tuple[DriftTest, ...]:
        """Current result of each test."""
        n_rows = max(self.n_rows, 1)
        expected = [0.5] * 4 + [1 - self.coverage, 0.0]
        e_values = np.exp(np.minimum(self.bets.log_e, 700.0))
        columns = self.names, e_values, self.since, self.bets.total / n_rows, expected
        each = zip(*columns, self.bets.bound, strict=False)
        return tuple(
            DriftTest(name, float(e), since, float(mean), round(usual, 12), round(float(bound), 12))
            for name, e, since, mean, usual, bound in each
        )

    @property
    def has_alarm(self) -> bool:
        """True if any test has raised an alarm."""
        return any(test.is_alarm for test in self.tests)

    def to_json(self) -> dict[str, Any]:
        """Return settings and state, from which the tests can continue.

        Returns
        -------
        dict
        """
        names = ("alpha", "coverage", "tolerance", "most_off_data", "has_gate", "since")
        return {name: getattr(self, name) for name in names} | {"bets": self.bets.to_json()}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "DriftTests":
        """Restore from `to_json`.

        Parameters
        ----------
        state : dict

        Returns
        -------
        DriftTests

        Raises
        ------
        ValueError
            If the state is inconsistent.
        """
        names = ("alpha", "coverage", "tolerance", "most_off_data", "has_gate")
        found = cls(**{name: state[name] for name in names})
        bets, since = Bets.from_json(state["bets"]), list(state["since"])
        is_sound = np.array_equal(bets.bound, found.bets.bound) and len(since) == len(bets.bound)
        if not (is_sound and all(row is None or isinstance(row, int) for row in since)):
            raise ValueError("the state of the tests does not match their settings")
        found.bets, found.since = bets, since
        return found


FORMAT = 1

LEAST_GATE = 0.5
"""Gate above which a row is out of distribution."""

LEAST_TOLERANCE, MOST_TOLERANCE = 0.03, 0.15

USUAL_HELD_OUT = 100
"""Number of held-out rows that is assumed if the model does not have it."""


@final
class Monitor:
    """Sequential tests of a model's predictions on labelled rows.

    `DriftTests` lists the hypotheses; ``model.monitor()`` creates a monitor. A model is calibrated
    only as precisely as the number of its validation rows allows: the default ``tolerance`` is
    two standard errors of the mean of that many PITs, at least 0.03.

    Parameters
    ----------
    model
        Fitted model with ``predict_dist_and_gate``.
    alpha
        Largest share of streams without drift that ever have an alarm.
    coverage
        Nominal coverage of the intervals.
    tolerance
        Allowed deviation of the mean PIT, of its mean distance from the middle, and of the
        coverage.
    most_off_data
        Largest share of rows out of distribution without an alarm.
    random_state : int
        Seed of the randomised PITs of rounded targets.

    Examples
    --------
    >>> from sigmax import LinearRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 1))
    >>> y = X[:, 0] + rng.normal(size=400)
    >>> monitor = Monitor(LinearRegressor().fit(X[:200], y[:200]))
    >>> monitor.update(X[200:300], y[200:300]).has_alarm
    False
    >>> monitor.update(X[300:], y[300:] + 5).has_alarm
    True
    """

    def __init__(
        self,
        model: Any,
        *,
        alpha: float = 0.05,
        coverage: float = 0.9,
        tolerance: float | None = None,
        most_off_data: float = 0.05,
        random_state: int = 0,
    ):
        self.model, self.random_state = model, int(random_state)
        if tolerance is None:
            known = len(model.model_.fitted.held_out) if hasattr(model, "model_") else 0
            n_held_out = known or USUAL_HELD_OUT
            errors = 2 / np.sqrt(12 * n_held_out)
            tolerance = round(float(np.clip(errors, LEAST_TOLERANCE, MOST_TOLERANCE)), 4)
        self._settings = (alpha, coverage, tolerance, most_off_data)
        self.drift = DriftTests(*self._settings)
        self._n_drawn = 0

    def update(self, X: Any, y: Any, y_error: Any = None) -> "Monitor":
        """Add labelled rows, in the order in which they arrived.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Rows that the model was not trained on, and that were not added to it.
        y : array-like of shape (n,) or (n, p)
        y_error : array-like of shape (n,), optional
            Known errors of the targets, as in `SigmaxRegressor.predict_dist`.

        Returns
        -------
        self
        """
        dist, gate = self.model.predict_dist_and_gate(X)
        if y_error is not None:
            dist = self.model.predict_dist(X, y_error=y_error)
        y = np.asarray(y, np.float64)
        rng = np.random.default_rng(self.random_state)
        rng.bit_generator.advance(self._n_drawn)  # pyright: ignore
        width = np.zeros(y.shape)  # of the interval that a rounded target represents
        if hasattr(self.model, "model_"):
            width = self.model.model_.target.cell_widths(y)
        pit = randomised_pit(dist, y, width, rng.random(dist.shape))
        bounds = dist.interval(self.drift.coverage)
        missed = (y < bounds[..., 0]) | (y > bounds[..., 1])
        if not self.n_rows:
            self.drift = DriftTests(*self._settings, has_gate=gate is not None)
        is_off = None if gate is None else gate > LEAST_GATE
        self.drift.update(pit, missed.astype(np.float64), is_off)
        self._n_drawn += pit.size
        return self

    @property
    def n_rows(self) -> int:
        """Number of rows added so far."""
        return self.drift.n_rows

    @property
    def tests(self) -> tuple[DriftTest, ...]:
        """Current result of each test."""
        return self.drift.tests

    @property
    def alarms(self) -> tuple[DriftTest, ...]:
        """Tests with an alarm, the earliest first."""
        found = [test for test in self.tests if test.is_alarm]
        return tuple(sorted(found, key=lambda test: test.since or 0))

    @property
    def has_alarm(self) -> bool:
        """True if there is any alarm."""
        return self.drift.has_alarm

    def __repr__(self) -> str:
        name, n = type(self.model).__name__, f"{self.n_rows:,} rows"
        if not self.has_alarm:
            head = f"{name} on {n}: no alarm."
        else:
            first = self.alarms[0]
            head = f"{name} on {n}: ALARM since row {first.since:,}, {first.name}."
        share = f"{100 * self.drift.alpha:g} %"
        foot = f"Without drift, at most {share} of streams ever have an alarm."
        return "\n".join([head, *(f"  {test}" for test in self.tests), foot])

    def to_json(self) -> dict[str, Any]:
        """Return the state without the model, as plain JSON.

        Returns
        -------
        dict
        """
        own = {"format": FORMAT, "random_state": self.random_state, "n_drawn": self._n_drawn}
        return own | self.drift.to_json()

    def save(self, path: str | Path) -> None:
        """Write the state without the model to a JSON file.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        None
        """
        Path(path).write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, model: Any) -> "Monitor":
        """Load a state that `save` wrote, for the same model.

        Parameters
        ----------
        path : str or Path
        model
            The fitted model.

        Returns
        -------
        Monitor
        """
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            if state["format"] != FORMAT:
                raise ValueError(f"format {state['format']!r}, this version reads {FORMAT}")
            found = cls(model, random_state=state["random_state"])
            found.drift, found._n_drawn = DriftTests.from_json(state), int(state["n_drawn"])
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(
                f"{str(path)!r} is not the state of a monitor: {error}."
            ) from error
        return found


def randomised_pit(
    dist: Any,
    y: Float[np.ndarray, "*shape"],
    width: Float[np.ndarray, "*shape"],
    uniform: Float[np.ndarray, "*shape"],
) -> Float[np.ndarray, "*shape"]:
    """Probability integral transform, uniform for calibrated predictions.

    A rounded value represents an interval of the given ``width`` around it: its PIT is drawn from
    those of the interval by ``uniform`` numbers.
    """
    if not width.any():
        return dist.cdf(y)
    lower, upper = dist.cdf(y - width / 2), dist.cdf(y + width / 2)
    return lower + uniform * (upper - lower)
