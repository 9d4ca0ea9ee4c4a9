"""A model watched on new labelled rows."""

import json
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from sigmax.errors import ModelFileError
from sigmax.monitoring.drift_tests import DriftTest, DriftTests

__all__ = ["Monitor", "randomised_pit"]

FORMAT = 1

OFF_DATA = 0.5
"""A gate above this is off the data."""

LEAST_TOLERANCE, MOST_TOLERANCE = 0.03, 0.15

USUAL_HELD_OUT = 100
"""Held-out rows that are assumed where a model does not say how many it had."""


@final
class Monitor:
    """Whether a model's predictions still hold on labelled rows, as these come.

    `DriftTests` says which hypotheses are tested; ``model.monitor()`` creates one. A model's
    predictions are calibrated by the rows that it held out, and no better than these can tell: the
    default ``tolerance`` is two standard errors of the mean of so many PITs, at least 0.03.

    Parameters
    ----------
    model
        Fitted, with ``predict_dist_and_gate``.
    alpha
        The share of streams without drift that may have an alarm, ever.
    coverage
        Of the intervals.
    tolerance
        How far the mean PIT, its mean distance from the middle, and the coverage may be off.
    most_off_data
        The share of rows off the data that is no alarm.
    random_state : int
        Seeds the PITs of values on a grid, which are drawn within their steps.
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
            n_held_out = len(getattr(model, "held_out_", ())) or USUAL_HELD_OUT
            errors = 2 / np.sqrt(12 * n_held_out)
            tolerance = round(float(np.clip(errors, LEAST_TOLERANCE, MOST_TOLERANCE)), 4)
        self._settings = (alpha, coverage, tolerance, most_off_data)
        self.drift = DriftTests(*self._settings)
        self._n_drawn = 0

    def update(self, X: Any, y: Any) -> "Monitor":
        """Take more labelled rows in, which the model has not learned from or remembered."""
        dist, gate = self.model.predict_dist_and_gate(X)
        y = np.asarray(y, np.float64)
        rng = np.random.default_rng(self.random_state)
        rng.bit_generator.advance(self._n_drawn)  # pyright: ignore
        units = getattr(self.model, "units_", None)
        width = np.zeros(y.shape) if units is None else units.cell_widths(y)
        pit = randomised_pit(dist, y, width, rng.random(dist.shape))
        bounds = dist.interval(self.drift.coverage)
        missed = (y < bounds[..., 0]) | (y > bounds[..., 1])
        if not self.n_rows:
            self.drift = DriftTests(*self._settings, has_gate=gate is not None)
        is_off = None if gate is None else gate > OFF_DATA
        self.drift.update(pit, missed.astype(np.float64), is_off)
        self._n_drawn += pit.size
        return self

    @property
    def n_rows(self) -> int:
        """Rows that were taken in."""
        return self.drift.n_rows

    @property
    def tests(self) -> tuple[DriftTest, ...]:
        """What each test says."""
        return self.drift.tests

    @property
    def alarms(self) -> tuple[DriftTest, ...]:
        """The tests that raise an alarm, the earliest first."""
        found = [test for test in self.tests if test.is_alarm]
        return tuple(sorted(found, key=lambda test: test.since or 0))

    @property
    def has_alarm(self) -> bool:
        """Whether there is any alarm."""
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
        """All that is needed to go on with the same model, as plain JSON."""
        own = {"format": FORMAT, "random_state": self.random_state, "n_drawn": self._n_drawn}
        return own | self.drift.to_json()

    def save(self, path: str | Path) -> None:
        """Write the state, without the model, as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, model: Any) -> "Monitor":
        """Go on from a state that `save` wrote, with the model that it is of."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            if state["format"] != FORMAT:
                raise ValueError(f"format {state['format']!r}, this one reads {FORMAT}")
            found = cls(model, random_state=state["random_state"])
            found.drift, found._n_drawn = DriftTests.from_json(state), int(state["n_drawn"])
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"{str(path)!r} is no state of a monitor: {error}.") from error
        return found


def randomised_pit(
    dist: Any,
    y: Float[np.ndarray, "*shape"],
    width: Float[np.ndarray, "*shape"],
    uniform: Float[np.ndarray, "*shape"],
) -> Float[np.ndarray, "*shape"]:
    """Probability of less than ``y``, uniform where predictions are right.

    A value that repeats has the probability of its cell, whose ``width`` is given: its PIT is drawn
    from those of the cell by ``uniform`` numbers.
    """
    if not width.any():
        return dist.cdf(y)
    lower, upper = dist.cdf(y - width / 2), dist.cdf(y + width / 2)
    return lower + uniform * (upper - lower)
