"""Networks that predict by drawing themselves: one component of the mixture per draw."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from sigmax.compilation import compiled
from sigmax.distributions import Mixture, Normal
from sigmax.estimators.blocks import by_blocks, stack_members
from sigmax.estimators.members import AbstractNetworkRegressor
from sigmax.estimators.sampled_recipe import SampledRecipe
from sigmax.inputs import Inputs
from sigmax.networks import NO_CENTER
from sigmax.random import named_generator
from sigmax.training import Batch, TrainingData

__all__ = ["AbstractSampledRegressor", "draw_members"]


class AbstractSampledRegressor(AbstractNetworkRegressor):
    """A network that is random itself; the prediction mixes ``n_draws`` draws of it.

    The draws are the same in every prediction, so that a fitted model is a function.
    """

    def _predict_held_out(self) -> Callable:
        return MixtureOfDraws(self._recipe().n_draws)

    def _mixture(self, X: Inputs) -> Mixture:
        keys = draw_keys(self._recipe().n_draws)
        return Mixture(by_blocks(partial(draw_members, self.networks_, keys), X, axis=1))


def draw_keys(n_draws: int) -> Key[Array, " draws"]:
    """The keys of all predictions."""
    return jax.random.split(jax.random.key(0), n_draws)


@final
@dataclass(frozen=True)
class MixtureOfDraws:
    """One network's density at rows of the data."""

    n_draws: int

    def __call__(self, network: Any, rows: Batch, data: TrainingData) -> Mixture:
        return Mixture(jax.vmap(lambda key: network.sample(rows.X, key))(draw_keys(self.n_draws)))


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
