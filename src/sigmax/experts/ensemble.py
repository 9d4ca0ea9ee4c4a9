"""Ensembles of networks: prepared, trained at once, and recalibrated on rows that members hold out.

Several ensembles of one kind may be trained together: the splits of a cross-validation, say. A
single fit is the case of one.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sigmax.calibration import best_scale_factor, coverage_match, factor_of_mixture, trusted
from sigmax.compilation import by_blocks, compiled, on_device
from sigmax.distributions import Mixture
from sigmax.errors import InvalidArgumentError, TrainingError, TrainingWarning
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut
from sigmax.experts.rows import Rows, TrainingRows, count_held_out, hold_out
from sigmax.inputs import Inputs
from sigmax.neighbors import neighborhoods
from sigmax.random import RandomKey, jax_key, named_key
from sigmax.settings import COUNT, number
from sigmax.training import (
    Fold,
    Stage,
    Supply,
    TrainingData,
    progress_bar,
    train_stage,
    validate_members,
)

N_MEMBERS = (
    5,
    COUNT,
    "Ensemble members, trained at once, of which the prediction is the equal mixture.",
)
VALIDATION_FRACTION = (
    0.1,
    number(above=0, below=0.5, inclusive=True),
    """Share of the rows that each ensemble member holds out to choose its best checkpoint, at least
    20 rows or 40 % of them; 0 holds out none and keeps the last checkpoint. Rows of equal X are
    held out together.""",
)
PATIENCE = "Validations without a better checkpoint before training stops; 0 never stops early."


@dataclass(frozen=True, kw_only=True)
class AbstractNetworkExpert(AbstractExpert):
    """An ensemble of networks of one kind.

    A final class gives the networks to start from, the stages to train them by, and what is made
    of them in the end.
    """

    is_network: ClassVar[bool] = True

    n_members: int
    hidden_sizes: tuple[int, ...]
    n_steps: int | None
    validation_fraction: float
    deadline: float | None = None
    """Time of `time.perf_counter` at which the training ends with its best checkpoints."""
    largest_hold_out: int = 4096
    """Most rows that a member holds out; more hardly change which checkpoint is best."""

    @abstractmethod
    def init(self, rows: Rows, X: Inputs, key: RandomKey) -> tuple[Any, np.ndarray]:
        """Untrained members along a first axis, and the inducing point that each row is."""

    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the training."""

    @abstractmethod
    def finish(self, trained: "Trained") -> AbstractFitted:
        """Fitted value of trained members, calibrated on their held-out rows."""

    def fit_to(self, n_rows: int) -> "AbstractNetworkExpert":
        """Settings for so many rows: neighbourhoods no larger than the data."""
        return self

    def graph_sizes(self) -> dict[str, int]:
        """Sizes of the neighbourhoods that batches are drawn from, by the name of the graph."""
        return {}

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> AbstractFitted:
        return self.fit_together([rows], [key], verbose=verbose)[0]

    def fit_together(
        self, rows: Sequence[Rows], keys: Sequence[RandomKey], *, verbose: int = 0
    ) -> list[AbstractFitted]:
        """All in one training: every ensemble ends as if it were alone, up to rounding."""
        with phase_line("preparing rows", visible=verbose > 0):
            prepared = [
                prepare(self.fit_to(len(own.y)), own, key)
                for own, key in zip(rows, keys, strict=True)
            ]
        return train(prepared, verbose=verbose)


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """All that the training of one ensemble starts from."""

    expert: AbstractNetworkExpert
    """Settings for these rows."""
    stages: tuple[Stage, ...]
    rows: Rows
    X: Inputs
    """Encoded rows in single precision."""
    y: np.ndarray
    """Transformed targets in single precision."""
    networks: Any
    own_center: np.ndarray
    graphs: dict[str, np.ndarray]
    held_out: list[np.ndarray]
    keys: Key[Array, " members"]
    n_learned: int
    """Rows that are learned from: more than ``rows``, where a stream supplies others."""


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """Trained members of one ensemble, with what they have learned from."""

    prepared: Prepared
    networks: Any
    """Members that the training has not failed for, as NumPy arrays."""
    folds: Fold
    data: TrainingData
    history: dict[str, np.ndarray]
    """Validation scores (chunks, members) by stage."""

    def held_out(self, dist: Mixture | None) -> HeldOut:
        """Held-out densities, none without validation.

        ``dist`` are the densities of every member at the rows that it holds out: leaves
        (parts, members, held out, outputs), anything for padding.
        """
        rows, n_members = self.prepared.rows, len(self.folds.group)
        if dist is None:
            return HeldOut.none(n_members, rows.y.shape[1])
        member, slot = np.nonzero(self.folds.validation_weight)
        row = np.asarray(self.folds.validation)[member, slot]
        pairs = jax.tree.map(lambda leaf: np.asarray(leaf)[:, member, slot], dist)
        return HeldOut.of_members(pairs, member, row, n_members, rows)


def prepare(expert: AbstractNetworkExpert, rows: Rows, key: RandomKey) -> Prepared:
    """Untrained members, their neighbour graphs and the rows that each holds out."""
    share, n_members = expert.validation_fraction, expert.n_members
    held_out = hold_out(
        rows.given.duplicate_group,
        share,
        n_members,
        key,
        largest=expert.largest_hold_out,
        first=rows.scored,
        keeps_groups=rows.given.group is not None,
    )
    keys = jax.random.split(jax_key(named_key(key, "members")), n_members)
    X, y = rows.X.astype(np.float32), rows.y.astype(np.float32)
    coordinates, sizes, stages = np.asarray(X.coordinates), expert.graph_sizes(), expert.stages()
    networks, own_center = expert.init(rows, X, key)
    graphs = neighborhoods(coordinates, sizes)
    parts = networks, own_center, graphs, held_out, keys, len(y)
    return Prepared(expert, stages, rows, X, y, *parts)


def prepare_fit(expert: AbstractNetworkExpert, given: TrainingRows, key: RandomKey) -> Prepared:
    """All that the training of rows in the units of the user starts from."""
    rows = Rows.encode(given, expert.target(given))
    return prepare(expert.fit_to(len(rows)), rows, key)


def train(
    prepared: Sequence[Prepared],
    create_supply: Callable[[Fold, TrainingData], Supply] | None = None,
    *,
    verbose: int = 0,
) -> list[AbstractFitted]:
    """Train all members of all ensembles, from the rows of ``create_supply`` where it is given."""
    first = prepared[0]
    expert, n_members = first.expert, first.expert.n_members
    shapes = {(own.X.n_codes, *map(np.shape, jax.tree.leaves((own.X, own.y)))) for own in prepared}
    if len(shapes) > 1 or any(own.expert != expert for own in prepared):
        raise InvalidArgumentError(
            "Models that are fitted together need the same settings and data of the same shape."
        )
    weights = [own.rows.given.weight for own in prepared]
    data = TrainingData.create(
        [own.X for own in prepared],
        [own.y for own in prepared],
        [own.own_center for own in prepared],
        {name: [own.graphs[name] for own in prepared] for name in first.graphs},
        weights,
    )
    held_out = [fold for own in prepared for fold in own.held_out]
    groups = [group for group in range(len(prepared)) for _ in range(n_members)]
    labels = [own.rows.given.duplicate_group for own in prepared]
    # Room for what more rows of the same padded size hold out: their compiled functions are shared.
    room = count_held_out(data.n_slots, expert.validation_fraction, expert.largest_hold_out)
    folds = Fold.create(weights, held_out, groups, data.n_slots, labels, room)
    networks, keys = first.networks, first.keys
    if len(prepared) > 1:
        leaves = [own.networks for own in prepared]
        networks = jax.tree.map(lambda *leaf: jnp.concatenate(leaf), *leaves)
        keys = jnp.concatenate([own.keys for own in prepared])

    stages, histories = first.stages, {}
    supply = create_supply(folds, data) if create_supply else None
    on_host = jax.tree.map(np.asarray, folds)  # as NumPy, where a slice compiles nothing
    of_group = np.arange(len(keys)).reshape(-1, n_members)
    with progress_bar(stages, visible=verbose > 0) as report:
        for stage in stages:
            members, found = train_stage(
                networks, keys, folds, data, stage, report, supply=supply, deadline=expert.deadline
            )
            networks = members.best
            histories[stage.name] = [history["score"] for history in found]
    networks, fitted = jax.tree.map(np.asarray, networks), []
    with phase_line("calibrating on validation rows", visible=verbose > 0):
        for group, start in enumerate(prepared):
            own, scores = of_group[group], histories[stages[-1].name][group]
            is_sound = sound_members(networks, own, scores, is_scored=stages[-1].keep_best)
            own = own[is_sound]
            mine, fold = jax.tree.map(lambda leaf, own=own: leaf[own], (networks, on_host))
            history = {name: scores[group] for name, scores in histories.items()}
            fitted.append(expert.finish(Trained(start, mine, fold, data, history)))
    return fitted


def sound_members(
    networks: Any, own: np.ndarray, scores: np.ndarray, *, is_scored: bool
) -> np.ndarray:
    """True for the members ``own`` whose training has not failed; a warning names the others.

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


def phase_line(name: str, *, visible: bool) -> AbstractContextManager[Any]:
    """Show a line on the terminal while a block of unknown length runs."""
    from rich import get_console

    return get_console().status(name) if visible else nullcontext()


def mean_gates(networks: Any, X: Any) -> Float[np.ndarray, " rows"]:
    """Gate at every row, averaged over the ensemble members, which have a ``gate_value``."""
    return by_blocks(partial(predict_gates, networks), X, axis=1).mean(axis=0)


@compiled
def predict_gates(networks: Any, X: Any) -> Float[Array, "members rows"]:
    axes = (eqx.if_array(0), None)
    return eqx.filter_vmap(lambda network, X: network.gate_value(X), in_axes=axes)(networks, X)


# Recalibration on the rows that members hold out: scales and tails.

ROWS_TO_DISAGREE_ON = 256
"""Held-out rows of each member at which all members are compared: a median needs no more."""
DF_BOUNDS = np.array([np.inf, 30.0, 12.0, 6.0, 4.0])
"""Bounds on the degrees of freedom that are tried. A variance of fewer than four means little."""
LARGEST_FACTOR = 16.0
"""Largest factor on scales whose tails change, too: much of a scale may be due to the tails."""


def held_out_densities(networks: Any, folds: Fold, data: TrainingData, stage: Stage) -> Any:
    """Density of every member at the rows that it holds out, by ``stage.predict``.

    By the compiled function that scored the members in ``stage``: nothing is compiled for it.
    Leaves (members, held out, ...) on the device; anything for padding.
    """
    return validate_members(networks, jax.tree.map(on_device, folds), data, stage.one_chunk())[1]


@compiled
def held_out_factor(dist: Any, folds: Fold, data: TrainingData) -> Float[Array, ""]:
    """Factor on all scales that makes the members' held-out rows likeliest, each on its own."""
    y = data.y[folds.group[:, None], folds.validation]
    return best_scale_factor(*joined((dist, y, folds.validation_weight)))


def joined(tree: Any) -> Any:
    """Rows of all members, one member after the other."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


@final
class HeldOutPredictions(eqx.Module):
    """Predictions of members for rows that they hold out, and for some that others hold out."""

    dist: Any
    """Densities of every member at the rows that it holds out: leaves (members, held out, ...)."""
    y: Float[Array, "members held_out outputs"]
    weight: Float[Array, "members held_out"]
    """0 for padding."""
    of_all: Any
    """Densities of all members at some rows of every fold: leaves (folds, members, some, ...)."""
    is_row: Bool[Array, "folds some"]
    """False for padding."""


def held_out_predictions(
    networks: Any, folds: Fold, data: TrainingData, stage: Stage
) -> HeldOutPredictions:
    """`held_out_densities`, and densities of all members at some rows of every fold.

    To reuse the compiled function for rows that other members hold out, the folds are rotated
    among the members as often as there are members.
    """
    n_members = len(folds.group)

    def predict(shift: int) -> Any:
        moved = jax.tree.map(lambda leaf: np.roll(leaf, -shift, axis=0), folds)
        return jax.tree.map(np.asarray, held_out_densities(networks, moved, data, stage))

    own, *others = (predict(shift) for shift in range(n_members))
    fold, member = np.mgrid[:n_members, :n_members]

    def of_all(*leaves: np.ndarray) -> Array:
        some = np.stack([leaf[:, :ROWS_TO_DISAGREE_ON] for leaf in leaves])
        return on_device(some[(fold - member) % n_members, member])

    rows, weight = np.asarray(folds.validation), np.asarray(folds.validation_weight)
    y = np.asarray(data.y)[np.asarray(folds.group)[:, None], rows]
    return HeldOutPredictions(
        jax.tree.map(on_device, own),
        on_device(y),
        on_device(weight),
        jax.tree.map(of_all, own, *others),
        on_device(weight[:, :ROWS_TO_DISAGREE_ON] > 0),
    )


@compiled
def mixture_recalibration(
    found: HeldOutPredictions, may_narrow: bool = True
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Factor on the members' scales that suits their mixture, and bound on their tails.

    The bound on the degrees of freedom is the one that makes the rows that members hold out
    likeliest, each bound with its likeliest factor. Where hundreds of rows contribute, a prediction
    is next to Normal, as if its variance were known; with noise that differs from row to row, or
    hardly any, it is not. The factor is the one by which intervals of 50, 80 and 90 % have their
    nominal coverage, corrected for the mixture by `factor_of_mixture`.
    """
    dist, y, weight = joined((found.dist, found.y, found.weight))

    def score(most_df: Float[Array, ""]) -> Float[Array, ""]:
        tailed = dist.with_tails(most_df)
        log_prob = tailed.widen(best_scale_factor(tailed, y, weight, LARGEST_FACTOR)).log_prob(y)
        return jnp.sum(jnp.where(weight > 0, weight * jnp.sum(log_prob, axis=1), 0.0))

    bounds = jnp.asarray(DF_BOUNDS, y.dtype)
    scores = jax.vmap(score)(bounds)
    most_df = bounds[jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))]
    tailed = dist.with_tails(most_df)
    single = best_scale_factor(tailed, y, weight, LARGEST_FACTOR, coverage_match)
    of_all = found.of_all.with_tails(most_df)
    factor = factor_of_mixture(single, of_all.mean, of_all.variance, found.is_row)
    return trusted(factor, found.weight, may_narrow), most_df


@compiled
def recalibrated(dist: Any, factor: Float[Array, ""], most_df: Float[Array, ""]) -> Any:
    """Densities with bounded tails and their scales multiplied by ``factor``."""
    return dist.with_tails(most_df).widen(factor)
