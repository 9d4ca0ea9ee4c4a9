"""Whether to learn a target as it is or a monotone function of it: held-out rows decide."""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from sigmax.estimators.folds import hold_out
from sigmax.estimators.recipe import FEW_ROWS
from sigmax.random import draw_seed, named_generator, named_key
from sigmax.targets import TargetUnits

__all__ = ["choose_target_map"]

MOST_ROWS = 2048
"""More rows than this say nothing new about the shape of a target."""

HELD_OUT = 0.25
N_MEMBERS = 2
MOST_STEPS = 300

NEARLY_NORMAL = 0.99
"""A target so correlated with its normal scores is nearly their linear function."""

FEWEST_VALUES = 20
"""A target with fewer values is a grid, on which no smooth function changes much."""


def choose_target_map(
    model: Any, X: Any, y: np.ndarray, weight: np.ndarray, labels: np.ndarray, key: Any
) -> str:
    """The name of the better map, by two small fits to some rows and the likelihood of others.

    A tie is no map: the difference of the mean log-densities has to exceed its standard error. Rows
    of equal X, which share a label, are on the same side. A target whose distribution is nearly
    Normal anyway, or has hardly any values, is not tried.
    """
    if not is_worth_trying(y, weight):
        return "none"
    rng = named_generator(key, "target map")
    rows = np.sort(rng.permutation(len(y))[:MOST_ROWS])
    (held_out,) = hold_out(labels[rows], HELD_OUT, 1, named_key(key, "target map"), largest=len(y))
    is_held_out = np.isin(np.arange(len(rows)), held_out)
    learned, judged = rows[~is_held_out], rows[is_held_out]
    if len(np.unique(labels[learned])) < FEW_ROWS:  # of which no map is learned
        return "none"
    n_steps = min(model.n_steps or MOST_STEPS, MOST_STEPS)
    seed = draw_seed(rng)

    def log_density(target_map: str) -> np.ndarray:
        pilot: Any = clone(model)
        pilot.set_params(
            preset="fast",
            n_members=N_MEMBERS,
            n_steps=n_steps,
            target_map=target_map,
            random_state=seed,
            verbose=0,
        )
        if hasattr(pilot, "n_trees"):  # to trees any monotone function of the target is the same
            pilot.set_params(n_trees=0)
        pilot.fit(_safe_indexing(X, learned), y[learned], weight[learned])
        log_prob = pilot.predict_dist(_safe_indexing(X, judged)).log_prob(y[judged])
        return log_prob.reshape(len(judged), -1).sum(axis=1)

    gain, share = log_density("normal-scores") - log_density("none"), weight[judged]
    share = share / share.sum()
    mean = share @ gain
    error = np.sqrt(np.sum((share * (gain - mean)) ** 2))
    return "normal-scores" if mean > error else "none"


def is_worth_trying(y: np.ndarray, weight: np.ndarray) -> bool:
    """Whether normal scores of some output are another target than the output itself."""
    if min(len(np.unique(column)) for column in y.T) < FEWEST_VALUES:
        return False
    scores = TargetUnits.fit(y, weight, "normal-scores")(y, np.float64)
    return any(
        np.corrcoef(column, score)[0, 1] < NEARLY_NORMAL
        for column, score in zip(y.T, scores.T, strict=True)
    )
