"""What all networks share as estimators: members, data, training, prediction, saving."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from sigmax.checks import check_choice, check_count
from sigmax.distributions import AbstractComponent, Mixture, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.executables import forget_when_many
from sigmax.estimators.progress import progress_bar
from sigmax.estimators.recipe import DEFAULT, PRESETS, AbstractRecipe
from sigmax.estimators.saving import named_leaves, restore
from sigmax.neighbors import neighbor_graph
from sigmax.random import make_key, named_generator, named_key
from sigmax.scaling import Standardizer
from sigmax.training import Fold, Stage, TrainingData, bucket_size, pad_rows, train_stage

__all__ = [
    "ROWS_PER_CALL",
    "AbstractNetworkRegressor",
    "Start",
    "by_blocks",
    "fit_together",
    "stack_members",
]

ROWS_PER_CALL = 8192


class AbstractNetworkRegressor(AbstractRegressor):
    """Members of one kind of network, trained at once by the engine, mixed in prediction.

    A setting of None, the default of most, is taken from the preset. A subclass gives the
    networks to start from, the stages to train them by, what follows, and their densities.
    """

    default_recipe: ClassVar[AbstractRecipe] = DEFAULT
    presets: ClassVar[Mapping[str, AbstractRecipe]] = PRESETS
    largest_hold_out: ClassVar[int] = 4096
    """More held-out rows than this say nothing new about which snapshot is best."""

    preset: str | None
    random_state: Any
    verbose: int

    networks_: Any

    def recipe(self) -> Any:
        """All settings in force: those of the preset, with the given ones in their place."""
        preset = self.default_recipe
        if self.preset is not None:
            preset = self.presets[check_choice("preset", self.preset, self.presets)]
        return preset.override(**self.get_params(deep=False))

    @abstractmethod
    def _create_networks(
        self, X: np.ndarray, n_outputs: int, recipe: Any, key: PRNGKeyArray
    ) -> tuple[Any, np.ndarray]:
        """Untrained members along a first axis, and the inducing point that each row is."""

    @abstractmethod
    def _stages(self, recipe: Any) -> tuple[Stage, ...]:
        """How the members are trained."""

    def _finish(self, networks: Any, folds: Fold, data: TrainingData, recipe: Any) -> Any:
        """The trained members with whatever their held-out rows still decide."""
        return networks

    def _remember(self, start: "Start") -> None:
        """Keep what prediction needs of the training rows; the networks are trained."""

    @abstractmethod
    def _components(self, X: np.ndarray) -> AbstractComponent:
        """The members' densities at standardised rows: leaves (components, rows, outputs)."""

    def fit(self, X, y, sample_weight=None) -> "AbstractNetworkRegressor":
        """Learn from rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or (n, p)
            One target, or p targets with their own variances.
        sample_weight : array-like of shape (n,), optional
            How much each row counts; a row of weight 0 is as good as absent.
        """
        fit_together([self], [(X, y, sample_weight)])
        return self

    def _start(self, X, y, sample_weight) -> "Start":
        """The data in standardised units, and the untrained members."""
        recipe = self.recipe()
        check_count("verbose", self.verbose, minimum=0)
        X, y, weight = self._check_training_rows(X, y, sample_weight)
        numbers, weights = np.arange(len(X)), np.asarray(sample_weight)
        if weights.ndim == 1:  # rows of weight 0 are gone
            numbers = np.flatnonzero(weights > 0)
        recipe = recipe.fit_to(len(X))
        key = make_key(self.random_state)
        self.x_scaling_ = Standardizer.fit(X, weight)
        self.y_scaling_ = Standardizer.fit(y, weight, constant_scale=1e-6)
        X, y = self.x_scaling_(X), self.y_scaling_(y)
        networks, own_center = self._create_networks(X, y.shape[1], recipe, key)
        keys = jax.random.split(named_key(key, "members"), recipe.n_members)
        held_out = hold_out(len(X), recipe, key, self.largest_hold_out)
        graphs = neighborhoods(X, recipe)
        return Start(recipe, X, y, weight, numbers, networks, own_center, graphs, held_out, keys)

    def predict_dist(self, X) -> Predictive:
        """The equal mixture of the members' densities, in the units of ``y``."""
        X = self._check_rows(X)
        return self._predictive(self._components(self.x_scaling_(X)))

    def _predictive(self, components: AbstractComponent) -> Predictive:
        """The mixture of densities in standardised units, in the units of y."""
        components = components.affine(self.y_scaling_.mean, self.y_scaling_.scale)
        if self.is_single_output_:
            components = jax.tree.map(lambda leaf: leaf[..., 0], components)
        return Predictive(Mixture(components))

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        facts = {"is_single_output": bool(self.is_single_output_)}
        arrays = named_leaves("networks", self.networks_)
        arrays |= {f"history.{name}": scores for name, scores in self.history_.items()}
        for name, scaling in (("x", self.x_scaling_), ("y", self.y_scaling_)):
            arrays |= {f"{name}_mean": scaling.mean, f"{name}_scale": scaling.scale}
        return facts, arrays

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.is_single_output_ = bool(facts["is_single_output"])
        self.x_scaling_ = Standardizer(arrays["x_mean"], arrays["x_scale"])
        self.y_scaling_ = Standardizer(arrays["y_mean"], arrays["y_scale"])
        self.history_ = {
            name.removeprefix("history."): scores
            for name, scores in arrays.items()
            if name.startswith("history.")
        }
        rows = np.zeros((2, len(self.x_scaling_.mean)), dtype=np.float32)
        n_outputs, key = len(self.y_scaling_.mean), jax.random.key(0)
        skeleton, _ = self._create_networks(rows, n_outputs, self.recipe(), key)
        self.networks_ = restore(skeleton, "networks", arrays)


@dataclass(frozen=True, eq=False)
class Start:
    """All that the training of one estimator begins from."""

    recipe: Any
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    numbers: np.ndarray
    """Which of the rows given to `fit` these are."""
    networks: Any
    own_center: np.ndarray
    graphs: list[np.ndarray]
    held_out: list[np.ndarray]
    keys: Key[Array, " members"]


def fit_together(models: Sequence[AbstractNetworkRegressor], data: Sequence[tuple]) -> None:
    """Fit each model to its own ``(X, y)`` or ``(X, y, sample_weight)``, all in one training.

    The models share class and settings, up to the seed: the splits of a cross-validation, say, or
    repeats of an experiment. Every one ends as if it had been fitted alone, up to rounding; one
    compilation and, on an accelerator, one device serve them all.
    """
    forget_when_many()
    starts = [
        model._start(X, y, *(rest or (None,)))
        for model, (X, y, *rest) in zip(models, data, strict=True)
    ]
    recipe, n_members = starts[0].recipe, starts[0].recipe.n_members
    if any(start.recipe != recipe or start.X.shape != starts[0].X.shape for start in starts):
        raise InvalidArgumentError(
            "Models that are fitted together need the same settings and data of the same shape."
        )
    rows = TrainingData.create(
        [start.X for start in starts],
        [start.y for start in starts],
        [start.own_center for start in starts],
        [list(kind) for kind in zip(*(start.graphs for start in starts), strict=True)],
        [start.weight for start in starts],
    )
    held_out = [fold for start in starts for fold in start.held_out]
    groups = [group for group in range(len(starts)) for _ in range(n_members)]
    folds = Fold.create([start.weight for start in starts], held_out, groups, rows.n_slots)
    networks, keys = starts[0].networks, starts[0].keys
    if len(starts) > 1:
        leaves = [start.networks for start in starts]
        networks = jax.tree.map(lambda *leaf: jnp.concatenate(leaf), *leaves)
        keys = jnp.concatenate([start.keys for start in starts])

    stages, histories = models[0]._stages(recipe), {}
    with progress_bar(stages, visible=models[0].verbose > 0) as report:
        for stage in stages:
            networks, histories[stage.name] = train_stage(
                networks, keys, folds, rows, stage, report
            )
    # As NumPy, where a slice compiles nothing.
    networks, folds = jax.tree.map(np.asarray, (networks, folds))
    for group, (model, start) in enumerate(zip(models, starts, strict=True)):
        own = slice(group * n_members, (group + 1) * n_members)
        mine, fold = jax.tree.map(lambda leaf, own=own: leaf[own], (networks, folds))
        if len(held_out[0]):
            mine = model._finish(mine, fold, rows, recipe)
        model.networks_ = jax.tree.map(np.asarray, mine)
        model.history_ = {name: history[group] for name, history in histories.items()}
        model._remember(start)


def by_blocks(
    function: Any, X: np.ndarray, *, axis: int, rows_per_call: int = ROWS_PER_CALL
) -> Any:
    """``function`` of all rows of ``X``, in calls of a few sizes; rows lie along ``axis``."""
    blocks = []
    for start in range(0, len(X), rows_per_call):
        block = X[start : start + rows_per_call]
        n_slots = min(bucket_size(len(block), smallest=64), rows_per_call)
        blocks.append(function(jnp.asarray(pad_rows(block, n_slots))))
    rows = (slice(None),) * axis + (slice(len(X)),)
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves, axis=axis)[rows].astype(np.float64), *blocks
    )


def stack_members(members: Sequence[Any]) -> Any:
    """Members along a new first axis."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *members)


def neighborhoods(X: np.ndarray, recipe: AbstractRecipe) -> list[np.ndarray]:
    """The graphs that `Recipe.stages` counts on: single rows, then neighbourhoods by size."""
    single, sizes = np.arange(len(X))[:, None], recipe.graph_sizes()
    if not sizes:
        return [single]
    graph = neighbor_graph(X, max(sizes))
    return [single, *(graph[:, :k] for k in sizes)]


def hold_out(
    n_rows: int, recipe: AbstractRecipe, key: PRNGKeyArray, largest: int
) -> list[np.ndarray]:
    """Every member's held-out rows: disjoint folds of a shuffle, a new shuffle when used up."""
    n_held_out = min(round(recipe.validation_fraction * n_rows), largest)
    if n_held_out == 0:
        return [np.empty(0, dtype=int)] * recipe.n_members
    n_folds = n_rows // n_held_out
    folds = []
    for member in range(recipe.n_members):
        shuffled = named_generator(key, f"folds {member // n_folds}").permutation(n_rows)
        start = member % n_folds * n_held_out
        folds.append(shuffled[start : start + n_held_out])
    return folds
