"""Several models of one kind trained at once; a single fit is the case of one."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sigmax.checks import check_count
from sigmax.errors import InvalidArgumentError, TrainingError, TrainingWarning
from sigmax.estimators.atomic_fit import atomic_fit
from sigmax.estimators.base import TrainingRows
from sigmax.estimators.few_rows import few_rows_spread
from sigmax.estimators.folds import count_held_out, duplicate_groups, hold_out
from sigmax.estimators.progress import phase_line, progress_bar
from sigmax.estimators.recipe import FEW_ROWS, AbstractRecipe
from sigmax.estimators.target_choice import MapTrial, choose_target_maps
from sigmax.features import Features
from sigmax.inputs import Inputs
from sigmax.neighbors import neighbor_graph
from sigmax.random import make_key, named_key
from sigmax.targets import TargetUnits
from sigmax.training import Fold, Supply, TrainingData, train_stage

__all__ = [
    "FitInputs",
    "ReadRows",
    "fit_together",
    "neighborhoods",
    "prepare",
    "prepare_read",
    "train_prepared",
]

Model = Any  # an `AbstractNetworkRegressor`, whose `fit` is `fit_together` of one


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


def fit_together(models: Sequence[Model], data: Sequence[tuple]) -> None:
    """Fit each model to its own ``(X, y)`` or ``(X, y, sample_weight)``, all in one training.

    The models share class and settings, up to the seed: the splits of a cross-validation, say, or
    repeats of an experiment. Every one ends as if it had been fitted alone, up to rounding; one
    compilation serves them all, and their members are spread over all devices.
    """
    with atomic_fit(models) as copies:
        train_together(copies, data)


def train_together(models: Sequence[Model], data: Sequence[tuple]) -> None:
    """Fit unfitted models, which change on the way."""
    with phase_line("preparing rows", visible=is_verbose(models)):
        inputs = prepare_all(models, data)
    train_prepared(models, inputs)


def is_verbose(models: Sequence[Model]) -> bool:
    """True if the progress of a fit is shown; what is no number is refused later."""
    return isinstance(models[0].verbose, int) and models[0].verbose > 0


def train_prepared(
    models: Sequence[Model],
    inputs: Sequence[FitInputs],
    create_supply: Callable[[Fold, TrainingData], Supply] | None = None,
) -> None:
    """Fit unfitted models, where ``create_supply`` is given from the rows that it supplies."""
    recipe, n_members = inputs[0].recipe, inputs[0].recipe.n_members
    shapes = {(own.X.input_shape, own.y.shape) for own in inputs}
    if len(shapes) > 1 or any(own.recipe != recipe for own in inputs):
        raise InvalidArgumentError(
            "Models that are fitted together need the same settings and data of the same shape."
        )
    weights = [own.weight for own in inputs]
    rows = TrainingData.create(
        [own.X for own in inputs],
        [own.y for own in inputs],
        [own.own_center for own in inputs],
        {name: [own.graphs[name] for own in inputs] for name in inputs[0].graphs},
        weights,
    )
    held_out = [fold for own in inputs for fold in own.held_out]
    groups = [group for group in range(len(inputs)) for _ in range(n_members)]
    labels = [own.duplicate_group for own in inputs]
    # Room for what more rows of the same padded size hold out: their programs are the same.
    most_rows = rows.n_slots if len(inputs[0].X) >= FEW_ROWS else 0
    room = count_held_out(most_rows, recipe.validation_fraction, models[0].largest_hold_out)
    folds = Fold.create(weights, held_out, groups, rows.n_slots, labels, room)
    networks, keys = inputs[0].networks, inputs[0].keys
    if len(inputs) > 1:
        leaves = [own.networks for own in inputs]
        networks = jax.tree.map(lambda *leaf: jnp.concatenate(leaf), *leaves)
        keys = jnp.concatenate([own.keys for own in inputs])

    stages, histories = models[0]._stages(recipe), {}
    supply = create_supply(folds, rows) if create_supply else None
    all_folds = jax.tree.map(np.asarray, folds)  # as NumPy, where a slice compiles nothing
    of_model = np.arange(len(keys)).reshape(-1, n_members)
    with beside(
        model._beside_training(jax.tree.map(lambda leaf, own=own: leaf[own], all_folds), given)
        for model, given, own in zip(models, inputs, of_model, strict=True)
    ) as done_beside:
        with progress_bar(stages, visible=is_verbose(models)) as report:
            for stage in stages:
                members, found = train_stage(
                    networks, keys, folds, rows, stage, report, supply=supply
                )
                networks = members.best
                histories[stage.name] = [history["score"] for history in found]
        with phase_line("forests", visible=is_verbose(models) and any(done_beside)):
            done = [work and work.result() for work in done_beside]
    networks = jax.tree.map(np.asarray, networks)
    with phase_line("calibrating on validation rows", visible=is_verbose(models)):
        for group, (model, given) in enumerate(zip(models, inputs, strict=True)):
            own, scores = of_model[group], histories[stages[-1].name][group]
            is_sound = sound_members(networks, own, scores, is_scored=stages[-1].keep_best)
            own, of_host = own[is_sound], done[group]
            if of_host is not None and not is_sound.all():
                of_host = of_host[np.flatnonzero(is_sound)]
            mine, fold = jax.tree.map(lambda leaf, own=own: leaf[own], (networks, all_folds))
            moments = model._finish(mine, fold, rows, given, of_host)
            model.held_out_ = model._score_held_out(moments, fold, given)
            model.history_ = {name: history[group] for name, history in histories.items()}
            model._keep_rows(given)


@contextmanager
def beside(work: Iterable[Callable[[], Any] | None]) -> Iterator[list[Future | None]]:
    """Work that a thread does for the time of a block; what has not begun at its end is dropped."""
    pool = ThreadPoolExecutor(1)
    try:
        yield [None if task is None else pool.submit(task) for task in work]
    finally:
        pool.shutdown(cancel_futures=True)


def prepare(model: Model, X: Any, y: Any, sample_weight: Any = None) -> FitInputs:
    """The data in standardised units, and the untrained members; the model keeps the units."""
    (inputs,) = prepare_all([model], [(X, y, sample_weight)])
    return inputs


def prepare_all(models: Sequence[Model], data: Sequence[tuple]) -> list[FitInputs]:
    """What `prepare` gives, of several models."""
    read = [ReadRows.create(model, *given) for model, given in zip(models, data, strict=True)]
    return prepare_read(models, data, read)


def prepare_read(
    models: Sequence[Model], data: Sequence[tuple], read: Sequence["ReadRows"]
) -> list[FitInputs]:
    """What `prepare` gives, of rows that were read."""
    trials = [rows.trial(*given) for rows, given in zip(read, data, strict=True)]
    maps = choose_target_maps(models, trials, fit_together)
    each = zip(models, read, maps, strict=True)
    return [create_inputs(model, rows, best) for model, rows, best in each]


@final
class ReadRows(NamedTuple):
    """Rows as they were given, in numbers."""

    rows: TrainingRows
    labels: np.ndarray
    """The same for rows of equal X."""
    n_distinct: int
    recipe: Any
    key: Any

    @classmethod
    def create(
        cls, model: Model, X: Any, y: Any, sample_weight: Any = None, key: Any = None
    ) -> "ReadRows":
        model._recipe()  # refuses wrong settings first
        check_count("verbose", model.verbose, minimum=0)
        rows = model._read_training(X, y, sample_weight)
        labels = duplicate_groups(rows.table.values)
        n_distinct = int(labels.max()) + 1
        if n_distinct < FEW_ROWS:  # equal X with other y are rows of their own
            of_both = np.column_stack([rows.table.values, rows.y])
            n_distinct = int(duplicate_groups(of_both).max()) + 1
        recipe = model._recipe(len(rows.table))
        key = make_key(model.random_state) if key is None else key
        return cls(rows, labels, n_distinct, recipe, key)

    @property
    def has_few_rows(self) -> bool:
        """Whether some are held out that are too few to decide much."""
        return bool(self.recipe.validation_fraction) and self.n_distinct < FEW_ROWS

    def trial(self, X: Any, *_: Any) -> MapTrial | None:
        """How to find out about a map of the target, if that is asked for."""
        is_asked = self.recipe.target_map == "auto" and self.recipe.validation_fraction
        if not is_asked or self.has_few_rows:
            return None
        X = X if hasattr(X, "__getitem__") else np.asarray(X)
        return MapTrial.create(X, self.rows, self.labels, self.key)

    def units(self, target_map: str) -> TargetUnits:
        """Those of the target, with the map that held-out rows have chosen if any was asked."""
        _, y, weight, _ = self.rows
        if self.has_few_rows:
            units = TargetUnits.fit(y, weight, support=self.recipe.support)
            return units.wider(few_rows_spread(self.n_distinct))
        if self.recipe.target_map == "normal-scores":
            target_map = self.recipe.target_map
        return TargetUnits.fit(y, weight, target_map, self.recipe.support)


def create_inputs(model: Model, read: ReadRows, target_map: str) -> FitInputs:
    """Rows and members of one model, which keeps the units."""
    (table, y, weight, indices), recipe, key = read.rows, read.recipe, read.key
    model.n_rows_ = model.n_learned_ = len(table)
    model.units_ = units = read.units(target_map)
    share, largest = recipe.validation_fraction, model.largest_hold_out
    held_out = hold_out(read.labels, share, recipe.n_members, key, largest=largest)
    model.features_, X = Features.fit(table, units(y, np.float64), weight, read.labels)
    y = units(y)
    networks, own_center = model._create_networks(X, y, recipe, key)
    keys = jax.random.split(named_key(key, "members"), recipe.n_members)
    graphs = neighborhoods(np.asarray(X.coordinates), recipe)
    of_rows = X, y, weight, indices, read.labels, read.n_distinct
    return FitInputs(recipe, *of_rows, networks, own_center, graphs, held_out, keys)


def neighborhoods(X: np.ndarray, recipe: AbstractRecipe) -> dict[str, np.ndarray]:
    """The graphs that stages name: single rows, and neighbourhoods of the recipe's sizes."""
    single, sizes = np.arange(len(X))[:, None], recipe.graph_sizes()
    if not sizes:
        return {"single": single}
    graph = neighbor_graph(X, max(sizes.values()))
    return {"single": single} | {name: graph[:, :k] for name, k in sizes.items()}


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
