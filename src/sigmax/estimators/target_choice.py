"""Whether to learn a target as it is or a monotone function of it: held-out rows decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from sigmax.estimators.base import TrainingRows
from sigmax.estimators.folds import hold_out
from sigmax.estimators.recipe import FEW_ROWS
from sigmax.random import draw_seed, named_generator, named_key
from sigmax.targets import TargetUnits

__all__ = ["MapTrial", "choose_target_maps"]

MOST_ROWS = 2048
"""More rows than this say nothing new about the shape of a target."""

HELD_OUT = 0.25
N_MEMBERS = 2
MOST_STEPS = 300

NEARLY_NORMAL = 0.99
"""A target so correlated with its normal scores is nearly their linear function."""

FEWEST_VALUES = 20
"""A target with fewer values is a grid, on which no smooth function changes much."""


@final
@dataclass(frozen=True, eq=False)
class MapTrial:
    """Some rows to fit a small model to with and without a map, and others to judge it by."""

    X: Any
    """As it was given, other rows than these included."""
    rows: TrainingRows
    learned: np.ndarray
    judged: np.ndarray
    seed: int

    @classmethod
    def create(cls, X: Any, rows: TrainingRows, labels: np.ndarray, key: Any) -> "MapTrial | None":
        """None where there is no question.

        Rows of equal X, which share a label, are on the same side. A target whose distribution is
        nearly Normal anyway, or has hardly any values, is not tried.
        """
        if not is_worth_trying(rows.y, rows.weight):
            return None
        rng = named_generator(key, "target map")
        some = np.sort(rng.permutation(len(rows.y))[:MOST_ROWS])
        own_key = named_key(key, "target map")
        (held_out,) = hold_out(labels[some], HELD_OUT, 1, own_key, largest=len(some))
        is_held_out = np.isin(np.arange(len(some)), held_out)
        learned, judged = some[~is_held_out], some[is_held_out]
        if len(np.unique(labels[learned])) < FEW_ROWS:  # of which no map is learned
            return None
        return cls(X, rows, learned, judged, draw_seed(rng))

    def learning_rows(self) -> tuple[Any, np.ndarray, np.ndarray]:
        return self.inputs(self.learned), self.rows.y[self.learned], self.rows.weight[self.learned]

    def log_density(self, pilot: Any) -> np.ndarray:
        """Of the rows to judge by."""
        log_prob = pilot.predict_dist(self.inputs(self.judged)).log_prob(self.rows.y[self.judged])
        return log_prob.reshape(len(self.judged), -1).sum(axis=1)

    def inputs(self, some: np.ndarray) -> Any:
        return _safe_indexing(self.X, self.rows.indices[some])

    def is_better(self, log_density: np.ndarray, other: np.ndarray) -> bool:
        """Whether the mean of one exceeds that of the other by more than its standard error."""
        gain, share = log_density - other, self.rows.weight[self.judged]
        share = share / share.sum()
        mean = share @ gain
        return bool(mean > np.sqrt(np.sum((share * (gain - mean)) ** 2)))


def choose_target_maps(
    models: Sequence[Any], trials: Sequence[MapTrial | None], fit_together: Callable
) -> list[str]:
    """The name of each model's better map, by two small fits to some rows, judged on others.

    A tie is no map. The small models of all trials are fitted together where they have as many rows
    each.
    """
    chosen = ["none"] * len(models)
    tried = {number: trial for number, trial in enumerate(trials) if trial is not None}
    same_size = len({len(trial.learned) for trial in tried.values()}) == 1
    for numbers in [list(tried)] if same_size else [[number] for number in tried]:
        some, found = [tried[number] for number in numbers], []
        for target_map in ("normal-scores", "none"):
            own = zip(numbers, some, strict=True)
            pilots = [pilot(models[number], trial, target_map) for number, trial in own]
            fit_together(pilots, [trial.learning_rows() for trial in some])
            pairs = zip(some, pilots, strict=True)
            found.append([trial.log_density(model) for trial, model in pairs])
        for number, trial, mapped, plain in zip(numbers, some, *found, strict=True):
            if trial.is_better(mapped, plain):
                chosen[number] = "normal-scores"
    return chosen


def pilot(model: Any, trial: MapTrial, target_map: str) -> Any:
    """A small model of the same kind."""
    small: Any = clone(model)
    small.set_params(
        preset="fast",
        n_members=N_MEMBERS,
        n_steps=min(model.n_steps or MOST_STEPS, MOST_STEPS),
        target_map=target_map,
        random_state=trial.seed,
        verbose=0,
    )
    if hasattr(small, "n_trees"):  # to trees any monotone function of the target is the same
        small.set_params(n_trees=0)
    return small


def is_worth_trying(y: np.ndarray, weight: np.ndarray) -> bool:
    """Whether normal scores of some output are another target than the output itself."""
    if min(len(np.unique(column)) for column in y.T) < FEWEST_VALUES:
        return False
    scores = TargetUnits.fit(y, weight, "normal-scores")(y, np.float64)
    return any(
        np.corrcoef(column, score)[0, 1] < NEARLY_NORMAL
        for column, score in zip(y.T, scores.T, strict=True)
    )
