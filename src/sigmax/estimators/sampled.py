"""Networks that predict by drawing themselves: one component of the mixture per draw."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from sigmax.checks import check_count
from sigmax.distributions import AbstractComponent, Normal
from sigmax.estimators.networks import AbstractNetworkRegressor, by_blocks, stack_members
from sigmax.estimators.recipe import N_CHUNKS, Recipe
from sigmax.networks import NO_CENTER
from sigmax.random import named_generator
from sigmax.training import Part, Phase, Stage

__all__ = ["AbstractSampledRegressor", "draw_members"]


class AbstractSampledRegressor(AbstractNetworkRegressor):
    """A network that is random itself; the prediction mixes ``n_draws`` draws of it.

    The draws are the same in every prediction, so that a fitted model is a function.
    """

    n_draws: int

    def recipe(self) -> Recipe:
        """All settings in force."""
        check_count("n_draws", self.n_draws)
        plain = {"locality": False, "split": False, "inverse_gamma": False, "extrapolate": False}
        return super().recipe().override(**plain)

    def _one_stage(self, recipe: Recipe, parts: tuple[str, ...], objective, score) -> Stage:
        """All steps alike: random batches, a random objective, one optimiser per part."""
        trained = tuple(
            Part(
                name=name,
                learning_rate=recipe.learning_rate[i > 0],
                weight_decay=recipe.weight_decay[i > 0],
                final_rate=0.0 if recipe.decay_rate else 1.0,
            )
            for i, name in enumerate(parts)
        )
        phase = Phase(
            parts=trained,
            objective=objective,
            graph=0,
            n_primary=recipe.batch_size,
            n_secondary=1,
            is_random=True,
        )
        return Stage(
            name="distribution",
            phases=(phase,),
            n_cycles=recipe.n_steps,
            cycles_per_chunk=max(1, recipe.n_steps // N_CHUNKS),
            score=score,
            keep_best=recipe.validation_fraction > 0,
            patience=recipe.patience,
        )

    def _components(self, X: np.ndarray) -> AbstractComponent:
        keys = jax.random.split(jax.random.key(0), self.n_draws)
        return by_blocks(partial(draw_members, self.networks_, keys), X, axis=1)


def create_members(create, recipe: Recipe, key: PRNGKeyArray) -> Any:
    """Members along a new first axis, each created with its own generator."""
    names = [f"member {member}" for member in range(recipe.n_members)]
    return stack_members([create(named_generator(key, name)) for name in names])


def no_centers(X: np.ndarray) -> np.ndarray:
    """These networks have no gate."""
    return np.full(len(X), NO_CENTER)


@eqx.filter_jit
def draw_members(
    networks: Any, keys: Key[Array, " draws"], X: Float[Array, "rows features"]
) -> Normal:
    """Every draw of every member, along one first axis."""

    def draw(network, key):
        return network.sample(X, key)

    of_member = eqx.filter_vmap(draw, in_axes=(None, 0))
    drawn = eqx.filter_vmap(of_member, in_axes=(eqx.if_array(0), None))(networks, keys)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), drawn)
