"""What all variance networks share: members, data, training, prediction, saving."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from sigmax.calibration import best_scale_factor
from sigmax.checks import check_choice, check_count
from sigmax.distributions import AbstractDistribution, Mixture, Predictive
from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.progress import progress_bar
from sigmax.estimators.recipe import DEFAULT, PRESETS, Recipe
from sigmax.neighbors import neighbor_graph
from sigmax.networks import (
    MLP,
    NO_CENTER,
    ExtrapolationGate,
    InverseGammaSpread,
    NormalSpread,
    VarianceNetwork,
    gate_from_data,
)
from sigmax.random import make_key, named_generator, named_key
from sigmax.scaling import Standardizer
from sigmax.training import Fold, TrainingData, bucket_size, pad_rows, train_stage

__all__ = ["AbstractVarianceNetworkRegressor"]

LARGEST_HOLD_OUT = 4096
"""More held-out rows than this say nothing new about which snapshot is best."""

ROWS_PER_CALL = 8192


class AbstractVarianceNetworkRegressor(AbstractRegressor):
    """Members of mean, spread and gate networks, trained at once, mixed in prediction.

    A setting of None, the default of all, is taken from the preset.
    """

    preset: str | None
    random_state: Any
    verbose: int

    networks_: VarianceNetwork

    def recipe(self) -> Recipe:
        """All settings in force: those of the preset, with the given ones in their place."""
        preset = DEFAULT
        if self.preset is not None:
            preset = PRESETS[check_choice("preset", self.preset, PRESETS)]
        return preset.override(**self.get_params(deep=False))

    def fit(self, X, y, sample_weight=None) -> "AbstractVarianceNetworkRegressor":
        """Learn from rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or (n, p)
            One target, or p targets with their own variances.
        sample_weight : array-like of shape (n,), optional
            How much each row counts; a row of weight 0 is as good as absent.
        """
        recipe = self.recipe()
        check_count("verbose", self.verbose, minimum=0)
        X, y, weight = self._check_training_rows(X, y, sample_weight)
        recipe = recipe.fit_to(len(X))
        key = make_key(self.random_state)
        self.x_scaling_ = Standardizer.fit(X, weight)
        self.y_scaling_ = Standardizer.fit(y, weight, constant_scale=1e-6)
        X, y = self.x_scaling_(X), self.y_scaling_(y)

        centers, own_center = inducing_points(X, recipe, key)
        graphs = neighborhoods(X, recipe)
        data = TrainingData.create([X], [y], [own_center], [[graph] for graph in graphs])
        held_out = hold_out(len(X), recipe, key)
        folds = Fold.create([weight], held_out, [0] * recipe.n_members, data.n_slots)
        keys = jax.random.split(named_key(key, "members"), recipe.n_members)
        gate = initial_gate(X, centers, own_center, recipe)
        networks = create_networks(key, X.shape[1], y.shape[1], gate, recipe)

        stages = recipe.stages()
        self.history_ = {}
        with progress_bar(stages, visible=self.verbose > 0) as report:
            for stage in stages:
                networks, history = train_stage(networks, keys, folds, data, stage, report)
                self.history_[stage.name] = history
        self.factor_ = 1.0
        if recipe.recalibrate and len(held_out[0]):
            self.factor_ = float(held_out_factor(networks, folds, data))
            factors = jnp.full(recipe.n_members, self.factor_, dtype=jnp.float32)
            networks = eqx.tree_at(lambda n: n.factor, networks, factors)
        self.networks_ = jax.tree.map(np.asarray, networks)
        return self

    def predict_dist(self, X) -> Predictive:
        """The equal mixture of the members' densities, in the units of ``y``."""
        return self._predict(X)[0]

    def predict_uncertainty(self, X) -> dict[str, NDArray[np.float64]]:
        dist, gate = self._predict(X)
        return {
            "total": dist.std,
            "aleatoric": np.sqrt(dist.aleatoric_variance),
            "epistemic": np.sqrt(dist.epistemic_variance),
            "gate": gate,
        }

    def _predict(self, X) -> tuple[Predictive, NDArray[np.float64]]:
        X = self._check_rows(X)
        X = self.x_scaling_(X)
        blocks = []
        for start in range(0, len(X), ROWS_PER_CALL):
            rows = X[start : start + ROWS_PER_CALL]
            padded = pad_rows(rows, min(bucket_size(len(rows), smallest=64), ROWS_PER_CALL))
            blocks.append(predict_members(self.networks_, jnp.asarray(padded)))
        members, gate = jax.tree.map(
            lambda *leaves: np.concatenate(leaves, axis=1)[:, : len(X)].astype(np.float64), *blocks
        )
        members = members.affine(self.y_scaling_.mean, self.y_scaling_.scale)
        if self.is_single_output_:
            members = jax.tree.map(lambda leaf: leaf[..., 0], members)
        return Predictive(Mixture(members)), gate.mean(axis=0)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        facts = {"is_single_output": bool(self.is_single_output_), "factor": self.factor_}
        arrays = {f"networks{name}": leaf for name, leaf in named_leaves(self.networks_)}
        arrays |= {f"history.{name}": scores for name, scores in self.history_.items()}
        for name, scaling in (("x", self.x_scaling_), ("y", self.y_scaling_)):
            arrays |= {f"{name}_mean": scaling.mean, f"{name}_scale": scaling.scale}
        return facts, arrays

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.is_single_output_ = bool(facts["is_single_output"])
        self.factor_ = float(facts["factor"])
        self.x_scaling_ = Standardizer(arrays["x_mean"], arrays["x_scale"])
        self.y_scaling_ = Standardizer(arrays["y_mean"], arrays["y_scale"])
        self.history_ = {
            name.removeprefix("history."): scores
            for name, scores in arrays.items()
            if name.startswith("history.")
        }
        skeleton = self._skeleton(len(self.x_scaling_.mean), len(self.y_scaling_.mean))
        leaves = []
        for name, expected in named_leaves(skeleton):
            leaf = arrays[f"networks{name}"]
            if leaf.shape != expected.shape or leaf.dtype != expected.dtype:
                raise ValueError(f"{name} is {leaf.dtype}{leaf.shape}, not {expected}")
            leaves.append(leaf)
        self.networks_ = jax.tree.unflatten(jax.tree.structure(skeleton), leaves)

    def _skeleton(self, n_features: int, n_outputs: int) -> VarianceNetwork:
        """The shapes of the fitted networks, from the settings alone."""
        recipe = self.recipe()
        centers = np.zeros((1, n_features))
        gate = ExtrapolationGate.create(centers, recipe.n_inducing, scale=1.0)
        gate = gate if recipe.extrapolate else None
        return create_networks(jax.random.key(0), n_features, n_outputs, gate, recipe)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Every array of a pytree with the path that leads to it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def create_networks(
    key: PRNGKeyArray,
    n_features: int,
    n_outputs: int,
    gate: ExtrapolationGate | None,
    recipe: Recipe,
) -> VarianceNetwork:
    """Untrained members around one gate, along a new first axis."""
    spread = InverseGammaSpread if recipe.inverse_gamma else NormalSpread
    shape = (n_features, recipe.hidden_sizes, n_outputs)

    def create(member: int) -> VarianceNetwork:
        def rng(name: str) -> np.random.Generator:
            return named_generator(key, f"{name} of member {member}")

        return VarianceNetwork(
            mean=MLP.create(rng("mean"), *shape, activation=recipe.activation),
            spread=spread.create(rng("spread"), *shape, activation=recipe.activation),
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


def neighborhoods(X: np.ndarray, recipe: Recipe) -> list[np.ndarray]:
    """The graphs that `Recipe.stages` counts on: single rows, then neighbourhoods by size."""
    single, sizes = np.arange(len(X))[:, None], recipe.graph_sizes()
    if not sizes:
        return [single]
    graph = neighbor_graph(X, max(sizes))
    return [single, *(graph[:, :k] for k in sizes)]


def hold_out(n_rows: int, recipe: Recipe, key: PRNGKeyArray) -> list[np.ndarray]:
    """Every member's held-out rows: disjoint folds of a shuffle, a new shuffle when used up."""
    n_held_out = min(round(recipe.validation_fraction * n_rows), LARGEST_HOLD_OUT)
    if n_held_out == 0:
        return [np.empty(0, dtype=int)] * recipe.n_members
    n_folds = n_rows // n_held_out
    folds = []
    for member in range(recipe.n_members):
        shuffled = named_generator(key, f"folds {member // n_folds}").permutation(n_rows)
        start = member % n_folds * n_held_out
        folds.append(shuffled[start : start + n_held_out])
    return folds


@eqx.filter_jit
def predict_members(
    networks: VarianceNetwork, X: Float[Array, "rows features"]
) -> tuple[AbstractDistribution, Float[Array, "members rows"]]:
    """Every member's density in standardised units, and its gate."""

    def predict(network, X):
        return network(X), network.openness(X)

    return eqx.filter_vmap(predict, in_axes=(eqx.if_array(0), None))(networks, X)


@eqx.filter_jit
def held_out_factor(networks: VarianceNetwork, folds: Fold, data: TrainingData) -> Float[Array, ""]:
    """The factor on all scales that suits the members' held-out rows best, but at least 1.

    The same rows chose the snapshots and so flatter them: a factor below 1 is not to be believed.
    """

    def predict(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        return network(rows.X, rows.own_center), rows.y, rows.weight

    axes = (eqx.if_array(0), eqx.if_array(0), None)
    members = eqx.filter_vmap(predict, in_axes=axes)(networks, folds, data)
    pooled = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), members)
    return jnp.maximum(best_scale_factor(*pooled), 1.0)
