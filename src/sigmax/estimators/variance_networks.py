"""Variance networks as estimators: their start, their gate, and the factor at the end."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from sigmax.calibration import best_scale_factor
from sigmax.distributions import AbstractComponent
from sigmax.estimators.networks import ROWS_PER_CALL, AbstractNetworkRegressor, by_blocks
from sigmax.estimators.recipe import Recipe
from sigmax.networks import (
    MLP,
    NO_CENTER,
    ExtrapolationGate,
    InverseGammaSpread,
    NormalSpread,
    VarianceNetwork,
    gate_from_data,
)
from sigmax.random import named_generator
from sigmax.training import Fold, Stage, TrainingData

__all__ = ["AbstractVarianceNetworkRegressor"]


class AbstractVarianceNetworkRegressor(AbstractNetworkRegressor):
    """Members of mean, spread and gate networks."""

    networks_: VarianceNetwork

    def predict_uncertainty(self, X) -> dict[str, NDArray[np.float64]]:
        parts = super().predict_uncertainty(X)
        gates = by_blocks(self._gates, self.x_scaling_(self._check_rows(X)), axis=1)
        return parts | {"gate": gates.mean(axis=0)}

    @property
    def factor_(self) -> float:
        """What the held-out rows widened all scales by."""
        return float(self.networks_.factor[0])

    def _create_networks(
        self, X: np.ndarray, n_outputs: int, recipe: Recipe, key: PRNGKeyArray
    ) -> tuple[VarianceNetwork, np.ndarray]:
        centers, own_center = inducing_points(X, recipe, key)
        gate = initial_gate(X, centers, own_center, recipe)
        return create_networks(key, X.shape[1], n_outputs, gate, recipe), own_center

    def _stages(self, recipe: Recipe) -> tuple[Stage, ...]:
        return recipe.stages()

    def _finish(
        self, networks: VarianceNetwork, folds: Fold, data: TrainingData, recipe: Recipe
    ) -> VarianceNetwork:
        if not recipe.recalibrate:
            return networks
        factors = jnp.broadcast_to(held_out_factor(networks, folds, data), recipe.n_members)
        return eqx.tree_at(lambda n: n.factor, networks, factors)

    def _components(self, X: Float[Array, "rows features"]) -> AbstractComponent:
        return predict_members(self.networks_, X)

    def _gates(self, X: Float[Array, "rows features"]) -> Float[Array, "members rows"]:
        return predict_gates(self.networks_, X)


def create_networks(
    key: PRNGKeyArray,
    n_features: int,
    n_outputs: int,
    gate: ExtrapolationGate | None,
    recipe: Recipe,
) -> VarianceNetwork:
    """Untrained members around one gate, along a new first axis."""
    spread = NormalSpread.create
    if recipe.inverse_gamma:
        least = recipe.min_concentration
        spread = partial(InverseGammaSpread.create, min_concentration=least)
    shape = (n_features, recipe.hidden_sizes, n_outputs)

    def create(member: int) -> VarianceNetwork:
        def rng(name: str) -> np.random.Generator:
            return named_generator(key, f"{name} of member {member}")

        return VarianceNetwork(
            mean=MLP.create(rng("mean"), *shape, activation=recipe.activation),
            spread=spread(rng("spread"), *shape, activation=recipe.activation),
            gate=gate,
            factor=jnp.ones(()),
            prior_variance=recipe.prior_variance,
            shrink_mean=recipe.shrink_mean,
        )

    members = [create(member) for member in range(recipe.n_members)]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *members)


def inducing_points(
    X: np.ndarray, recipe: Recipe, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the data, and for every row the centre that it is itself, if any.

    All rows where there are few, else the centres of k-means on a sample.
    """
    if len(X) <= recipe.n_inducing:
        return X, np.arange(len(X))
    own_center = np.full(len(X), NO_CENTER)
    if not recipe.extrapolate:
        return X[:1], own_center
    from sklearn.cluster import MiniBatchKMeans

    rng = named_generator(key, "inducing points")
    sample = X[rng.choice(len(X), min(len(X), 100 * recipe.n_inducing), replace=False)]
    seed = int(rng.integers(2**31))
    settings: dict[str, Any] = {"n_init": 1, "batch_size": 2048, "random_state": seed}
    k_means = MiniBatchKMeans(recipe.n_inducing, **settings).fit(sample)
    return np.asarray(k_means.cluster_centers_, dtype=np.float32), own_center


def initial_gate(
    X: np.ndarray, centers: np.ndarray, own_center: np.ndarray, recipe: Recipe
) -> ExtrapolationGate | None:
    """A gate that is nearly shut on the training rows, each taken as if it were new."""
    if not recipe.extrapolate:
        return None
    gate = ExtrapolationGate.create(centers, recipe.n_inducing, scale=recipe.gate_scale or 1.0)
    if recipe.gate_scale is not None:
        return gate
    rows = slice(None, None, max(1, len(X) // ROWS_PER_CALL))
    distances = np.asarray(gate.distance(jnp.asarray(X[rows]), jnp.asarray(own_center[rows])))
    scale, margin = gate_from_data(distances)
    return ExtrapolationGate.create(centers, recipe.n_inducing, scale=scale, margin=margin)


MEMBER = eqx.if_array(0)


@eqx.filter_jit
def predict_members(
    networks: VarianceNetwork, X: Float[Array, "rows features"]
) -> AbstractComponent:
    """Every member's density in standardised units."""
    return eqx.filter_vmap(lambda network, X: network(X), in_axes=(MEMBER, None))(networks, X)


@eqx.filter_jit
def predict_gates(
    networks: VarianceNetwork, X: Float[Array, "rows features"]
) -> Float[Array, "members rows"]:
    """Every member's gate."""

    def openness(network, X):
        return network.openness(X)

    return eqx.filter_vmap(openness, in_axes=(MEMBER, None))(networks, X)


@eqx.filter_jit
def held_out_factor(networks: VarianceNetwork, folds: Fold, data: TrainingData) -> Float[Array, ""]:
    """The factor on all scales that suits the members' held-out rows best, but at least 1.

    The same rows chose the snapshots and so flatter them: a factor below 1 is not to be believed.
    """

    def predict(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        return network(rows.X, rows.own_center), rows.y, rows.weight

    members = eqx.filter_vmap(predict, in_axes=(MEMBER, MEMBER, None))(networks, folds, data)
    pooled = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)
    return jnp.maximum(best_scale_factor(*pooled), 1.0)
