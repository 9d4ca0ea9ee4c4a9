"""What all networks share as estimators: members, data, training, prediction, saving."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from sigmax.checks import check_choice, check_count
from sigmax.distributions import Mixture, Predictive
from sigmax.errors import InvalidArgumentError, TrainingError, TrainingWarning
from sigmax.estimators.atomic_fit import atomic_fit
from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.few_rows import few_rows_spread
from sigmax.estimators.folds import duplicate_groups, hold_out
from sigmax.estimators.progress import progress_bar
from sigmax.estimators.recipe import DEFAULT, FEW_ROWS, PRESETS, AbstractRecipe
from sigmax.estimators.saving import named_leaves, restore
from sigmax.features import Features, Table
from sigmax.inputs import Inputs
from sigmax.neighbors import neighbor_graph
from sigmax.random import make_key, named_key
from sigmax.scaling import Standardizer
from sigmax.training import Fold, Stage, TrainingData, bucket_size, pad_rows, train_stage

__all__ = [
    "ROWS_PER_CALL",
    "AbstractNetworkRegressor",
    "FitInputs",
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

    default_recipe = DEFAULT
    presets = PRESETS
    largest_hold_out: ClassVar[int] = 4096
    """More held-out rows than this say nothing new about which snapshot is best."""

    preset: str | None
    random_state: Any
    verbose: int

    networks_: Any
    n_rows_: int
    """Rows that were learned from."""

    def recipe(self, n_rows: int | None = None) -> dict[str, Any]:
        """All settings in force: those of the preset, with the given ones in their place.

        Parameters
        ----------
        n_rows : int, optional
            Some settings depend on the number of rows. By default it is that of the fitted rows,
            and before `fit` many.
        """
        if n_rows is None:
            n_rows = getattr(self, "n_rows_", None)
        recipe, settings = self._recipe(n_rows), super().recipe()
        return {name: getattr(recipe, name, value) for name, value in settings.items()}

    def _recipe(self, n_rows: int | None = None) -> Any:
        """The recipe that `recipe` shows."""
        recipe = self.default_recipe
        if self.preset is not None:
            recipe = self.presets[check_choice("preset", self.preset, self.presets)]
        if n_rows is not None:
            recipe = recipe.for_rows(n_rows)
        recipe = recipe.override(self.get_params(deep=False))
        return recipe if n_rows is None else recipe.fit_to(n_rows)

    @abstractmethod
    def _create_networks(
        self, X: Inputs, n_outputs: int, recipe: Any, key: PRNGKeyArray
    ) -> tuple[Any, np.ndarray]:
        """Untrained members along a first axis, and the inducing point that each row is."""

    @abstractmethod
    def _stages(self, recipe: Any) -> tuple[Stage, ...]:
        """How the members are trained."""

    def _finish(self, networks: Any, folds: Fold, data: TrainingData, inputs: "FitInputs") -> Any:
        """The trained members with whatever their held-out rows, if any, still decide."""
        return networks

    def _keep_rows(self, inputs: "FitInputs") -> None:
        """Keep what prediction needs of the training rows; the networks are trained."""

    @abstractmethod
    def _mixture(self, X: Inputs) -> Mixture:
        """The members' densities at some rows: leaves (components, rows, outputs)."""

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

    def _prepare(self, X, y, sample_weight) -> "FitInputs":
        """The data in standardised units, and the untrained members."""
        self._recipe()  # refuses wrong settings first
        check_count("verbose", self.verbose, minimum=0)
        rows = self._read_training(X, y, sample_weight)
        table, y, weight = rows.table, rows.y, rows.weight
        recipe, key = self._recipe(len(table)), make_key(self.random_state)
        self.n_rows_ = len(table)
        self.features_ = Features.fit(table, weight)
        self.y_scaling_ = Standardizer.fit(y, weight, constant_scale=1e-6)
        share = recipe.validation_fraction
        labels = duplicate_groups(table.values)
        n_distinct = int(labels.max()) + 1
        if n_distinct < FEW_ROWS:  # equal X with other y are rows of their own
            n_distinct = int(duplicate_groups(np.column_stack([table.values, y])).max()) + 1
        if share and n_distinct < FEW_ROWS:
            unknown = few_rows_spread(n_distinct)
            self.y_scaling_ = replace(self.y_scaling_, scale=unknown * self.y_scaling_.scale)
        held_out = hold_out(labels, share, recipe.n_members, key, largest=self.largest_hold_out)
        X, y = self.features_(table), self.y_scaling_(y)
        networks, own_center = self._create_networks(X, y.shape[1], recipe, key)
        keys = jax.random.split(named_key(key, "members"), recipe.n_members)
        graphs = neighborhoods(np.asarray(X.coordinates), recipe)
        rows = X, y, weight, rows.indices, labels, n_distinct
        return FitInputs(recipe, *rows, networks, own_center, graphs, held_out, keys)

    def predict_dist(self, X) -> Predictive:
        """The equal mixture of the members' densities, in the units of ``y``."""
        return self._predictive(self._mixture(self._inputs(X)))

    def _inputs(self, X) -> Inputs:
        """Rows to predict, as networks take them."""
        table = Table.read(self, X)
        return self.features_(table)

    def _predictive(self, mixture: Mixture) -> Predictive:
        """A mixture in standardised units, in the units of y."""
        mixture = mixture.affine(self.y_scaling_.mean, self.y_scaling_.scale)
        if self.is_single_output_:
            mixture = jax.tree.map(lambda leaf: leaf[..., 0], mixture)
        return Predictive(mixture)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        n_members = len(jax.tree.leaves(self.networks_)[0])
        facts = {"is_single_output": bool(self.is_single_output_)}
        facts |= {"n_rows": self.n_rows_, "n_members": n_members}
        arrays = named_leaves("networks", self.networks_)
        arrays |= {f"history.{name}": scores for name, scores in self.history_.items()}
        return facts, arrays | self.features_.state() | self.y_scaling_.state("y")

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.is_single_output_ = bool(facts["is_single_output"])
        self.n_rows_, n_members = (int(facts[name]) for name in ("n_rows", "n_members"))
        n_outputs = 1 if self.is_single_output_ else len(arrays["y.mean"])
        self.features_ = Features.from_state(arrays, self.n_features_in_)
        self.y_scaling_ = Standardizer.from_state(arrays, "y", n_outputs)
        self.history_ = {
            name.removeprefix("history."): scores
            for name, scores in arrays.items()
            if name.startswith("history.")
        }
        rows, key = self.features_.blank(2), jax.random.key(0)
        recipe = replace(self._recipe(self.n_rows_), n_members=n_members)
        skeleton, _ = self._create_networks(rows, n_outputs, recipe, key)
        self.networks_ = jax.tree.map(jnp.asarray, restore(skeleton, "networks", arrays))


@final
@dataclass(frozen=True, eq=False)
class FitInputs:
    """All that the training of one estimator begins from."""

    recipe: Any
    X: Inputs
    y: np.ndarray
    weight: np.ndarray
    indices: np.ndarray
    """Which of the rows given to `fit` these are."""
    duplicate_group: np.ndarray
    """A label for every row, the same for rows of equal X."""
    n_distinct: int
    """How many rows differ, in X or in y."""
    networks: Any
    own_center: np.ndarray
    graphs: dict[str, np.ndarray]
    held_out: list[np.ndarray]
    keys: Key[Array, " members"]

    @property
    def has_replicates(self) -> bool:
        """Whether most rows are repeated in X, as in a design: new rows will be copies, too.

        Held-out rows, whose copies are held out with them, are then less known than new rows, and
        say nothing about how narrow predictions may be.
        """
        return bool(np.mean(np.bincount(self.duplicate_group) > 1) > 0.5)

    @property
    def has_few_rows(self) -> bool:
        """Whether scales and tails must allow for the number of rows."""
        return self.n_distinct < FEW_ROWS


def fit_together(models: Sequence[AbstractNetworkRegressor], data: Sequence[tuple]) -> None:
    """Fit each model to its own ``(X, y)`` or ``(X, y, sample_weight)``, all in one training.

    The models share class and settings, up to the seed: the splits of a cross-validation, say, or
    repeats of an experiment. Every one ends as if it had been fitted alone, up to rounding; one
    compilation and, on an accelerator, one device serve them all.
    """
    with atomic_fit(models) as copies:
        train_together(copies, data)


def train_together(models: Sequence[AbstractNetworkRegressor], data: Sequence[tuple]) -> None:
    """Fit unfitted models, which change on the way."""
    inputs = [
        model._prepare(X, y, *(rest or (None,)))
        for model, (X, y, *rest) in zip(models, data, strict=True)
    ]
    recipe, n_members = inputs[0].recipe, inputs[0].recipe.n_members
    shapes = {(own.X.input_shape, own.y.shape) for own in inputs}
    if len(shapes) > 1 or any(own.recipe != recipe for own in inputs):
        raise InvalidArgumentError(
            "Models that are fitted together need the same settings and data of the same shape."
        )
    rows = TrainingData.create(
        [own.X for own in inputs],
        [own.y for own in inputs],
        [own.own_center for own in inputs],
        {name: [own.graphs[name] for own in inputs] for name in inputs[0].graphs},
        [own.weight for own in inputs],
    )
    held_out = [fold for own in inputs for fold in own.held_out]
    groups = [group for group in range(len(inputs)) for _ in range(n_members)]
    labels = [own.duplicate_group for own in inputs]
    folds = Fold.create([own.weight for own in inputs], held_out, groups, rows.n_slots, labels)
    networks, keys = inputs[0].networks, inputs[0].keys
    if len(inputs) > 1:
        leaves = [own.networks for own in inputs]
        networks = jax.tree.map(lambda *leaf: jnp.concatenate(leaf), *leaves)
        keys = jnp.concatenate([own.keys for own in inputs])

    stages, histories = models[0]._stages(recipe), {}
    with progress_bar(stages, visible=models[0].verbose > 0) as report:
        for stage in stages:
            members, found = train_stage(networks, keys, folds, rows, stage, report)
            networks = members.best
            histories[stage.name] = [history["score"] for history in found]
    # As NumPy, where a slice compiles nothing.
    networks, folds = jax.tree.map(np.asarray, (networks, folds))
    for group, (model, given) in enumerate(zip(models, inputs, strict=True)):
        own = np.arange(group * n_members, (group + 1) * n_members)
        scores = histories[stages[-1].name][group]
        own = own[sound_members(networks, own, scores, is_scored=stages[-1].keep_best)]
        mine, fold = jax.tree.map(lambda leaf, own=own: leaf[own], (networks, folds))
        mine = model._finish(mine, fold, rows, given)
        model.networks_ = jax.tree.map(np.asarray, mine)
        model.history_ = {name: history[group] for name, history in histories.items()}
        model._keep_rows(given)


def sound_members(
    networks: Any, own: np.ndarray, scores: np.ndarray, *, is_scored: bool
) -> np.ndarray:
    """Which of the members ``own`` were trained to something; the others are named in a warning.

    A member is sound if its parameters are finite and, where held-out rows are scored, if it ever
    had a finite score.
    """
    leaves = [np.asarray(leaf)[own] for leaf in jax.tree.leaves(networks)]
    leaves = [leaf.reshape(len(own), -1) for leaf in leaves if leaf.dtype.kind == "f"]
    is_sound = ~np.any([np.isnan(leaf).any(axis=1) for leaf in leaves], axis=0)
    if is_scored:
        is_sound &= np.isfinite(scores).any(axis=0)
    remedy = "a smaller `learning_rate`, or a target without absurdly large values, may help"
    if not is_sound.any():
        raise TrainingError(
            f"The training broke down: none of {len(own)} members ever had a finite"
            f" likelihood; {remedy}."
        )
    if not is_sound.all():
        broken = ", ".join(str(member) for member in np.flatnonzero(~is_sound))
        warnings.warn(
            f"The training of {np.sum(~is_sound)} of {len(own)} members broke down (number"
            f" {broken}); they are left out of the mixture; {remedy}.",
            TrainingWarning,
            stacklevel=4,
        )
    return is_sound


def padded(rows: Any, n_slots: int) -> Any:
    """All arrays of a pytree with ``n_slots`` rows, on the device."""
    return jax.tree.map(lambda leaf: jnp.asarray(pad_rows(leaf, n_slots)), rows)


def by_blocks(
    function: Any, X: Inputs | np.ndarray, *, axis: int, rows_per_call: int = ROWS_PER_CALL
) -> Any:
    """``function`` of all rows of ``X``, in calls of a few sizes; rows lie along ``axis``."""
    blocks = []
    for first in range(0, len(X), rows_per_call):
        block = X[first : first + rows_per_call]
        n_slots = min(bucket_size(len(block), smallest=64), rows_per_call)
        blocks.append(function(padded(block, n_slots)))
    rows = (slice(None),) * axis + (slice(len(X)),)
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves, axis=axis)[rows].astype(np.float64), *blocks
    )


def stack_members(members: Sequence[Any]) -> Any:
    """Members along a new first axis."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *members)


def neighborhoods(X: np.ndarray, recipe: AbstractRecipe) -> dict[str, np.ndarray]:
    """The graphs that stages name: single rows, and neighbourhoods of the recipe's sizes."""
    single, sizes = np.arange(len(X))[:, None], recipe.graph_sizes()
    if not sizes:
        return {"single": single}
    graph = neighbor_graph(X, max(sizes.values()))
    return {"single": single} | {name: graph[:, :k] for name, k in sizes.items()}
