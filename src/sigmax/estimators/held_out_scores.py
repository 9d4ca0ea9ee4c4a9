"""What the rows that members hold out say about the width of intervals, without another fit.

A row is predicted by the mixture of the members that hold it out, and a new row by the same
mixture, compared with the errors of all rows of that mixture: CV+, and where folds overlap the
jackknife+ after bootstrap of Kim, Xu and Barber (2020).
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float

from sigmax.calibration import ConformalScores
from sigmax.files import take_array
from sigmax.training import Fold

__all__ = ["HeldOutScores"]

ROWS_AT_ONCE = 4096


@final
@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Scores of all rows that some member holds out, and the members that do."""

    scores: ConformalScores
    """Their folds are rows of `members`."""
    members: Bool[np.ndarray, "folds members"]

    @classmethod
    def create(
        cls,
        mean: Float[np.ndarray, "members held_out outputs"],
        variance: Float[np.ndarray, "members held_out outputs"],
        y: Float[np.ndarray, "rows outputs"],
        weight: Float[np.ndarray, " rows"],
        folds: Fold,
    ) -> "HeldOutScores":
        """From what every member predicts for the rows that it holds out."""
        member, slot = np.nonzero(np.asarray(folds.validation_weight))
        row = np.asarray(folds.validation)[member, slot]
        holds_out = np.zeros((len(y), len(mean)), dtype=bool)
        holds_out[row, member] = True
        rows = np.flatnonzero(holds_out.any(axis=1))
        members, fold = np.unique(holds_out[rows], axis=0, return_inverse=True)
        counts = holds_out.sum(axis=1)[:, None]

        def mean_over_members(values: np.ndarray) -> np.ndarray:
            total = np.zeros(y.shape)
            np.add.at(total, row, values)
            return total / np.maximum(counts, 1)

        center = mean_over_members(mean[member, slot])
        disagreement = (mean[member, slot] - center[row]) ** 2
        std = np.sqrt(mean_over_members(variance[member, slot] + disagreement))
        scores = ConformalScores.create(
            y[rows], center[rows], std[rows], weight[rows], fold.reshape(-1)
        )
        return cls(scores, members)

    @classmethod
    def empty(cls, n_members: int, n_outputs: int) -> "HeldOutScores":
        """No row is held out."""
        nothing = np.zeros((0, n_outputs))
        scores = ConformalScores.create(nothing, nothing, nothing)
        return cls(scores, np.zeros((0, n_members), dtype=bool))

    def __len__(self) -> int:
        return len(self.scores)

    def interval(
        self,
        mean: Float[np.ndarray, "members new outputs"],
        variance: Float[np.ndarray, "members new outputs"],
        coverage: float,
    ) -> Float[np.ndarray, "new outputs 2"]:
        """Intervals of new rows, by what every member predicts."""
        bounds = []
        for first in range(0, mean.shape[1], ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            means = np.stack([mean[own, rows].mean(axis=0) for own in self.members])
            variances = np.stack(
                [
                    variance[own, rows].mean(axis=0) + mean[own, rows].var(axis=0)
                    for own in self.members
                ]
            )
            bounds.append(self.scores.interval(means, np.sqrt(variances), coverage))
        return np.concatenate(bounds)

    def state(self) -> dict[str, np.ndarray]:
        """All that a saved model needs of it."""
        return {
            "held_out.score": self.scores.score,
            "held_out.weight": self.scores.weight,
            "held_out.fold": self.scores.fold,
            "held_out.members": self.members,
        }

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], n_members: int, n_outputs: int
    ) -> "HeldOutScores":
        """What `state` was taken from, refused if the shapes do not fit each other."""
        n_rows, n_folds = len(arrays["held_out.weight"]), len(arrays["held_out.members"])
        scores = ConformalScores(
            take_array(arrays, "held_out.score", (n_rows, n_outputs)),
            take_array(arrays, "held_out.weight", (n_rows,)),
            take_array(arrays, "held_out.fold", (n_rows,), np.int64),
        )
        return cls(scores, take_array(arrays, "held_out.members", (n_folds, n_members), bool))
