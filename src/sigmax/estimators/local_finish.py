"""What the rows that local members hold out decide at the end of a fit."""

import jax
import numpy as np

from sigmax.estimators.joint_fit import FitInputs
from sigmax.estimators.member_forests import MemberForests
from sigmax.estimators.recalibration import (
    Recalibration,
    held_out_predictions,
    mixture_recalibration,
    recalibrated,
    recalibrated_moments,
    spread_over_steps,
)
from sigmax.networks import LocalNetwork, TargetSteps
from sigmax.random import named_generator
from sigmax.targets import repeat_probability
from sigmax.training import Fold, Stage, TrainingData

__all__ = ["finish_members", "first_steps"]

OFTEN = 0.03
"""The probability that two rows have the same target, above which peaks would be rewarded."""


def finish_members(
    networks: LocalNetwork, folds: Fold, data: TrainingData, inputs: FitInputs, stage: Stage
) -> tuple[LocalNetwork, MemberForests | None, tuple[np.ndarray, np.ndarray]]:
    """Recalibrated members, their forests if these help, and the moments of held-out rows."""
    recipe, forests = inputs.recipe, None
    judged = held_out_predictions(networks, folds, data, stage)
    steps = first_steps(networks)
    if steps.lengths.any():
        judged = spread_over_steps(judged, steps)
    may_narrow = not inputs.has_replicates
    if recipe.n_trees:
        rng = named_generator(inputs.keys[0], "forests")
        rows = np.asarray(inputs.X.coordinates), inputs.y, inputs.weight, folds
        repeats = max(repeat_probability(column) for column in inputs.y.T) > OFTEN
        forests, mixed = MemberForests.fit(
            recipe.n_trees, *rows, judged, steps, rng, repeats, recipe.recalibrate, may_narrow
        )
        found, moments = mixed.recalibration, (mixed.mean, mixed.variance)
    else:
        found = mixture_recalibration(judged) if recipe.recalibrate else Recalibration.none()
        found = found if may_narrow else found.never_narrower()
        moments = recalibrated_moments(judged, found)
    mean, variance = map(np.asarray, moments)
    return jax.tree.map(np.asarray, recalibrated(networks, found)), forests, (mean, variance)


def first_steps(networks: LocalNetwork) -> TargetSteps:
    """Steps of the target, which all members share."""
    return jax.tree.map(lambda leaf: np.asarray(leaf[0]), networks.steps)
