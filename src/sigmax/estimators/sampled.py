"""Networks that predict by drawing themselves: one component of the mixture per draw."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from sigmax.compilation import compiled
from sigmax.distributions import Mixture, Normal
from sigmax.estimators.blocks import by_blocks, stack_members
from sigmax.estimators.joint_fit import FitInputs
from sigmax.estimators.members import AbstractNetworkRegressor, Moments
from sigmax.estimators.sampled_recipe import SampledRecipe
from sigmax.inputs import Inputs
from sigmax.networks import NO_CENTER
from sigmax.random import named_generator
from sigmax.training import Fold, TrainingData

__all__ = ["AbstractSampledRegressor", "draw_members"]


class AbstractSampledRegressor(AbstractNetworkRegressor):
    """A network that is random itself; the prediction mixes ``n_draws`` draws of it.

    The draws are the same in every prediction, so that a fitted model is a function.
    """

    def _held_out_moments(self, folds: Fold, data: TrainingData, inputs: FitInputs) -> Moments:
        """As for new rows, by the program that predicts them: no training row is remembered."""
        own = np.arange(len(folds.group))
        drawn = self._mixture(inputs.X[np.asarray(folds.validation).reshape(-1)]).components
        # Of all members' draws at all members' rows, each one's at its own.
        shape = len(own), -1, *folds.validation.shape, inputs.y.shape[1]
        mean, std = (
            np.asarray(leaf).reshape(shape)[own, :, own] for leaf in (drawn.mean, drawn.std)
        )
        return mean.mean(axis=1), np.mean(std**2, axis=1) + mean.var(axis=1)

    def _mixture(self, X: Inputs) -> Mixture:
        keys = jax.random.split(jax.random.key(0), self._recipe().n_draws)
        return Mixture(by_blocks(partial(draw_members, self.networks_, keys), X, axis=1))


def create_members(create, recipe: SampledRecipe, key: PRNGKeyArray) -> Any:
    """Members along a new first axis, each created with its own generator."""
    names = [f"member {member}" for member in range(recipe.n_members)]
    return stack_members([create(named_generator(key, name)) for name in names])


def no_centers(X: Inputs) -> np.ndarray:
    """These networks have no gate."""
    return np.full(len(X), NO_CENTER)


@compiled
def draw_members(networks: Any, keys: Key[Array, " draws"], X: Inputs) -> Normal:
    """Every draw of every member, along one first axis."""

    def draw(network, key):
        return network.sample(X, key)

    of_member = eqx.filter_vmap(draw, in_axes=(None, 0))
    drawn = eqx.filter_vmap(of_member, in_axes=(eqx.if_array(0), None))(networks, keys)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), drawn)
