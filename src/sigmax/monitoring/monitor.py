"""Monitoring of a model on new labelled rows."""

import json
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from sigmax.errors import ModelFileError
from sigmax.monitoring.drift_tests import DriftTest, DriftTests

FORMAT = 1

OUT_OF_DISTRIBUTION = 0.5
"""Gate above which a row is out of distribution."""

LEAST_TOLERANCE, MOST_TOLERANCE = 0.03, 0.15

USUAL_HELD_OUT = 100
"""Number of held-out rows that is assumed if the model does not have it."""


@final
class Monitor:
    """Sequential tests of a model's predictions on labelled rows.

    `DriftTests` lists the hypotheses; ``model.monitor()`` creates a monitor. A model is calibrated
    on its validation rows, only as precisely as their number allows: the default ``tolerance`` is
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
        """Add labelled rows that the model was not trained on and that were not added to it.

        ``y_error`` are known errors of the targets, as in `SigmaxRegressor.predict_dist`.
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
        is_off = None if gate is None else gate > OUT_OF_DISTRIBUTION
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
        """State without the model, as plain JSON."""
        own = {"format": FORMAT, "random_state": self.random_state, "n_drawn": self._n_drawn}
        return own | self.drift.to_json()

    def save(self, path: str | Path) -> None:
        """Write the state without the model as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, model: Any) -> "Monitor":
        """Restore a state that `save` wrote, for the same model."""
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
