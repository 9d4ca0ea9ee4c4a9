"""Tests of calibration, coverage and distribution shift on a stream of labelled rows."""

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from jaxtyping import Float

from sigmax.monitoring.bets import Bets
from sigmax.settings import check_number

ABOVE, BELOW = "targets above the predictions", "targets below the predictions"
LARGER, SMALLER = "errors larger than predicted", "errors smaller than predicted"
MISSED, OUT_OF_DISTRIBUTION = "targets outside their intervals", "rows out of distribution"

NOTICES = (SMALLER,)
"""Tests that give a notice instead of an alarm."""


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
        """True if the hypothesis is rejected and the test gives alarms, not only notices."""
        return self.since is not None and self.name not in NOTICES

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
