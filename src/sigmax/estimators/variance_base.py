"""Variance networks as estimators: their inputs, their gate, their prediction."""

from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from sigmax.compilation import compiled
from sigmax.distributions import AbstractComponent, AbstractDistribution, Mixture
from sigmax.estimators.blocks import by_blocks, stack_members
from sigmax.estimators.few_rows import few_rows_factor, few_rows_shrinkages
from sigmax.estimators.gates import create_gate
from sigmax.estimators.joint_fit import FitInputs
from sigmax.estimators.members import AbstractNetworkRegressor, Moments
from sigmax.estimators.recalibration import (
    cross_fitted_recalibration,
    held_out_factor,
    held_out_moments,
    recalibrated,
    with_factor,
)
from sigmax.estimators.recipe import Recipe
from sigmax.inputs import Inputs, InputShape
from sigmax.networks import (
    NO_CENTER,
    ExtrapolationGate,
    InverseGammaSpread,
    NormalSpread,
    TabularMLP,
    VarianceNetwork,
)
from sigmax.random import named_generator
from sigmax.training import Batch, Fold, Stage, TrainingData

__all__ = ["AbstractVarianceNetworkRegressor", "mean_gates"]


class AbstractVarianceNetworkRegressor(AbstractNetworkRegressor):
    """Members of mean, spread and gate networks."""

    networks_: VarianceNetwork

    def predict_uncertainty(self, X) -> dict[str, NDArray[np.float64]]:
        return super().predict_uncertainty(X) | {"gate": self.predict_gate(X)}

    def predict_gate(self, X) -> NDArray[np.float64]:
        """How far each row is off the data, from 0 to 1."""
        rows = self._completed(X)
        return rows.average(mean_gates(self.networks_, self._encoded(rows.table)))

    @property
    def factor_(self) -> float:
        """What the held-out rows widened all scales by."""
        return float(self.networks_.factor[0])

    def _create_networks(
        self, X: Inputs, y: np.ndarray, recipe: Recipe, key: PRNGKeyArray
    ) -> tuple[VarianceNetwork, np.ndarray]:
        gate, own_center = None, np.full(len(X), NO_CENTER)
        if recipe.extrapolate:
            coordinates, scale = np.asarray(X.coordinates), recipe.gate_scale
            relevance = None if scale is not None else self._relevance(X, y, key)
            gate, own_center = create_gate(
                coordinates, recipe.n_inducing, key, scale=scale, relevance=relevance
            )
        return create_networks(key, X.input_shape, y.shape[1], gate, recipe), own_center

    def _stages(self, recipe: Recipe) -> tuple[Stage, ...]:
        return recipe.stages()

    def _recalibrated(
        self, networks: VarianceNetwork, folds: Fold, data: TrainingData, inputs: FitInputs
    ) -> VarianceNetwork:
        if not (inputs.recipe.recalibrate and inputs.recipe.validation_fraction):
            return networks
        if inputs.has_few_rows:
            shrinkages = few_rows_shrinkages(inputs.n_distinct)
            found = cross_fitted_recalibration(networks, folds, data, predict_rows, shrinkages)
            found = found.wider(few_rows_factor(inputs.n_distinct))
            return recalibrated(
                networks, found.never_narrower() if inputs.has_replicates else found
            )
        # The same rows chose the snapshots and so flatter them: nothing is made narrower.
        factor = jnp.maximum(held_out_factor(networks, folds, data, predict_rows), 1.0)
        return with_factor(networks, factor)

    def _held_out_moments(self, folds: Fold, data: TrainingData, inputs: FitInputs) -> Moments:
        return held_out_moments(self.networks_, folds, data, predict_rows)

    def _mixture(self, X: Inputs) -> Mixture:
        return Mixture(by_blocks(partial(predict_members, self.networks_), X, axis=1))


def create_networks(
    key: PRNGKeyArray,
    input_shape: InputShape,
    n_outputs: int,
    gate: ExtrapolationGate | None,
    recipe: Recipe,
) -> VarianceNetwork:
    """Untrained members around one gate, along a new first axis."""
    spread = NormalSpread.create
    if recipe.inverse_gamma:
        least = recipe.min_concentration
        spread = partial(InverseGammaSpread.create, min_concentration=least)
    shape = (input_shape, recipe.hidden_sizes, n_outputs)

    def create(member: int) -> VarianceNetwork:
        def rng(name: str) -> np.random.Generator:
            return named_generator(key, f"{name} of member {member}")

        return VarianceNetwork(
            mean=TabularMLP.create(rng("mean"), *shape, activation=recipe.activation),
            spread=spread(rng("spread"), *shape, activation=recipe.activation),
            gate=gate,
            factor=jnp.ones(()),
            shrinkage=jnp.zeros(()),
            prior_variance=recipe.prior_variance,
            shrink_mean=recipe.shrink_mean,
        )

    return stack_members([create(member) for member in range(recipe.n_members)])


MEMBER = eqx.if_array(0)


def predict_rows(network: VarianceNetwork, rows: Batch, data: TrainingData) -> AbstractDistribution:
    """One member's density at rows of the data."""
    return network(rows.X, rows.own_center)


@compiled
def predict_members(networks: VarianceNetwork, X: Inputs) -> AbstractComponent:
    """Every member's density in standardised units."""
    return eqx.filter_vmap(lambda network, X: network.predict(X), in_axes=(MEMBER, None))(
        networks, X
    )


def mean_gates(networks: Any, X: Inputs) -> NDArray[np.float64]:
    """The members' gate at every row, on average."""
    return by_blocks(partial(predict_gates, networks), X, axis=1).mean(axis=0)


@compiled
def predict_gates(networks: Any, X: Inputs) -> Float[Array, "members rows"]:
    """Every member's gate."""

    def gate_value(network, X):
        return network.gate_value(X)

    return eqx.filter_vmap(gate_value, in_axes=(MEMBER, None))(networks, X)
