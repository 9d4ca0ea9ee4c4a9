"""What the rows that local members hold out decide at the end of a fit."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from sigmax.estimators.few_rows import few_rows_bounds, few_rows_factor, few_rows_shrinkages
from sigmax.estimators.joint_fit import FitInputs
from sigmax.estimators.member_forests import GrownForests, MemberForests
from sigmax.estimators.recalibration import (
    Recalibration,
    cross_fitted_recalibration,
    held_out_predictions,
    mixture_recalibration,
    recalibrated,
    recalibrated_moments,
)
from sigmax.networks import LocalNetwork
from sigmax.random import named_generator
from sigmax.targets import repeat_probability
from sigmax.training import Fold, Stage, TrainingData, held_out_density

__all__ = ["finish_few_rows", "finish_members", "grow_beside"]

OFTEN = 0.03
"""The probability that two rows have the same target, above which peaks would be rewarded."""


def grow_beside(folds: Fold, inputs: FitInputs) -> Callable[[], GrownForests] | None:
    """The forests of all members, to be grown while networks train; None if there are to be none.

    ``folds`` are arrays of NumPy.
    """
    recipe = inputs.recipe
    if inputs.has_few_rows or not recipe.validation_fraction or not recipe.n_trees:
        return None
    rows = np.asarray(inputs.X.coordinates), inputs.y, inputs.weight, folds
    rng = named_generator(inputs.keys[0], "forests")
    return partial(GrownForests.grow, recipe.n_trees, recipe.n_components, *rows, rng)


def finish_members(
    networks: LocalNetwork,
    folds: Fold,
    data: TrainingData,
    inputs: FitInputs,
    stage: Stage,
    grown: GrownForests | None,
) -> tuple[LocalNetwork, MemberForests | None, tuple[np.ndarray, np.ndarray]]:
    """Recalibrated members, their forests if these help, and the moments of held-out rows."""
    recipe, forests = inputs.recipe, None
    judged = held_out_predictions(networks, folds, data, stage)
    may_narrow = not inputs.has_replicates
    if grown is not None:
        forests, mixed = MemberForests.fit(
            grown,
            judged,
            repeats=max(repeat_probability(column) for column in inputs.y.T) > OFTEN,
            recalibrates=recipe.recalibrate,
            may_narrow=may_narrow,
        )
        found, moments = mixed.recalibration, (mixed.mean, mixed.variance)
    else:
        found = mixture_recalibration(judged) if recipe.recalibrate else Recalibration.none()
        found = found if may_narrow else found.never_narrower()
        moments = recalibrated_moments(judged, found)
    mean, variance = map(np.asarray, moments)
    return jax.tree.map(np.asarray, recalibrated(networks, found)), forests, (mean, variance)


def finish_few_rows(
    networks: LocalNetwork, folds: Fold, data: TrainingData, inputs: FitInputs
) -> LocalNetwork:
    """Members of few rows, recalibrated by cross-fitting."""
    if not (inputs.recipe.recalibrate and inputs.recipe.validation_fraction):
        return networks
    tried = few_rows_shrinkages(inputs.n_distinct), few_rows_bounds(inputs.n_distinct)
    found = cross_fitted_recalibration(networks, folds, data, held_out_density, *tried)
    found = found.wider(few_rows_factor(inputs.n_distinct))
    return recalibrated(networks, found.never_narrower() if inputs.has_replicates else found)
