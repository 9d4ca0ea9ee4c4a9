"""Ensembles of networks: prepared, trained at once, validated on the rows each member holds out.

Several ensembles of one kind may be trained together: the splits of a cross-validation, say. A
single fit is the case of one.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from sigmax.distributions import Mixture
from sigmax.errors import InvalidArgumentError, TrainingError, TrainingWarning
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut
from sigmax.experts.recalibration import few_rows_spread
from sigmax.experts.rows import Rows, TrainingRows, count_held_out, held_out_share, hold_out
from sigmax.features import TARGET_TRANSFORMS, TargetUnits
from sigmax.inputs import Inputs
from sigmax.model import fit_models
from sigmax.neighbors import neighbor_graph
from sigmax.networks.gate import column_relevance
from sigmax.random import draw_seed, make_key, named_generator, named_key
from sigmax.settings import number, one_of, setting
from sigmax.training import Fold, Stage, Supply, TrainingData, train_stage
from sigmax.training.loop import phase_line, progress_bar

FEW_ROWS, N_MEMBERS_OF_FEW = 200, 10
"""With fewer rows than this, an ensemble has so many members unless `n_members` is given."""

LARGEST_HOLD_OUT = 4096
"""More held-out rows per member say nothing new about which checkpoint is best."""

VALIDATION_FRACTION = (
    0.1,
    number(above=0, below=0.5, inclusive=True),
    """Share of the rows that each ensemble member holds out to choose its best checkpoint; 0 keeps
    the last one. Rows of equal X are held out together. With fewer than 200 rows, 20 rows or 40 %
    are held out unless this is given.""",
)
PATIENCE = "Validations without a better checkpoint before training stops; 0 never stops early."


@dataclass(frozen=True, kw_only=True)
class AbstractNetworkExpert(AbstractExpert):
    """An ensemble of networks of one kind.

    A final class gives the networks to start from, the stages to train them by, and what is made
    of them in the end.
    """

    n_members: int
    hidden_sizes: tuple[int, ...]
    n_steps: int | None
    validation_fraction: float
    target_map: str = setting(
        "none",
        one_of(("auto", *TARGET_TRANSFORMS)),
        """Transform of the target that the networks learn: none, or the monotone function that
        makes its distribution Normal; "auto" chooses on validation rows. With fewer than 200
        different rows there is none.""",
    )
    is_scored_together: bool = False
    """True if all members keep the checkpoints of the same step, by the mean of their scores."""
    largest_hold_out: int = LARGEST_HOLD_OUT
    """Most rows that a member holds out."""

    @abstractmethod
    def init(self, rows: Rows, X: Inputs, key: PRNGKeyArray) -> tuple[Any, np.ndarray]:
        """Untrained members along a first axis, and the inducing point that each row is."""

    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the training."""

    @abstractmethod
    def finish(self, trained: "Trained") -> AbstractFitted:
        """Fitted value of trained members, calibrated on their held-out rows."""

    def host_work(self, prepared: "Prepared", folds: Fold) -> Callable[[], Any] | None:
        """Work for a thread of the host while networks train; ``folds`` are NumPy arrays.

        Its result has a member axis, and is `Trained.of_host`.
        """
        return None

    def fit_to(self, n_rows: int) -> "AbstractNetworkExpert":
        """Settings for so many rows: neighbourhoods no larger than the data."""
        return self

    def graph_sizes(self) -> dict[str, int]:
        """Sizes of the neighbourhoods that batches are drawn from, by the name of the graph."""
        return {}

    def for_rows(self, n_rows: int) -> "AbstractNetworkExpert":
        """Defaults with more members, which hold out a larger share, where rows are few.

        Each is validated on other rows, and all together on nearly all rows: the fewer there are,
        the less one split of them says.
        """
        share = self.validation_fraction
        if n_rows >= FEW_ROWS or not share:
            return self
        return replace(
            self,
            n_members=max(self.n_members, N_MEMBERS_OF_FEW) if self.n_members > 1 else 1,
            validation_fraction=held_out_share(n_rows, share),
            is_scored_together=True,
        )

    def fit(self, rows: Rows, key: PRNGKeyArray, *, verbose: int = 0) -> AbstractFitted:
        return self.fit_together([rows], [key], verbose=verbose)[0]

    def fit_together(
        self, rows: Sequence[Rows], keys: Sequence[PRNGKeyArray], *, verbose: int = 0
    ) -> list[AbstractFitted]:
        """All in one training: every ensemble ends as if it were alone, up to rounding."""
        with phase_line("preparing rows", visible=verbose > 0):
            prepared = [
                prepare(self.fit_to(len(own)), own, key)
                for own, key in zip(rows, keys, strict=True)
            ]
        return train(prepared, verbose=verbose)

    def targets(
        self, rows: Sequence[TrainingRows], keys: Sequence[PRNGKeyArray]
    ) -> list[TargetUnits]:
        fit = partial(TargetUnits.fit, support=self.support)
        if self.validation_fraction and self.target_map == "auto":
            transforms = choose_transforms(self.pilot(), rows, keys)
        else:
            transforms = [self.target_map.replace("auto", "none")] * len(rows)
        found = []
        for own, transform in zip(rows, transforms, strict=True):
            if self.validation_fraction and own.n_distinct < FEW_ROWS:
                units = fit(own.y, own.weight)
                found.append(units.wider(few_rows_spread(own.n_distinct)))
            else:
                found.append(fit(own.y, own.weight, transform))
        return found

    def pilot(self) -> "AbstractNetworkExpert":
        """A small ensemble of the same kind, to choose the transform of the target with."""
        return replace(
            self,
            n_members=2,
            hidden_sizes=tuple(min(size, 64) for size in self.hidden_sizes),
            n_steps=min(self.n_steps or PILOT_STEPS, PILOT_STEPS),
        )


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """All that the training of one ensemble starts from."""

    expert: Any
    """An `AbstractNetworkExpert` with settings for these rows."""
    rows: Rows
    X: Inputs
    """Encoded rows in single precision."""
    y: np.ndarray
    """Transformed targets in single precision."""
    networks: Any
    own_center: np.ndarray
    graphs: dict[str, np.ndarray]
    held_out: list[np.ndarray]
    """Rows that each member holds out."""
    keys: Key[Array, " members"]
    n_learned: int
    """Rows that are learned from: more than ``rows``, where a stream supplies others."""

    @property
    def has_few_rows(self) -> bool:
        """True if scales and tails must allow for the number of rows."""
        return self.rows.given.n_distinct < FEW_ROWS


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """Trained members of one ensemble, with what they have learned from."""

    prepared: Prepared
    networks: Any
    """Members that the training has not failed for, as NumPy arrays."""
    folds: Fold
    """Of these members."""
    data: TrainingData
    of_host: Any
    """Result of `AbstractNetworkExpert.host_work`."""
    history: dict[str, np.ndarray]
    """Validation scores (chunks, members) by stage."""

    @property
    def is_validated(self) -> bool:
        """True if members hold rows out."""
        return self.prepared.expert.validation_fraction > 0

    def held_out(self, density: Callable[[np.ndarray, np.ndarray, np.ndarray], Mixture]) -> HeldOut:
        """Held-out densities, none without validation.

        ``density`` takes the member, the slot and the row of every held-out row, and returns a
        mixture with leaves (parts, pairs, outputs).
        """
        rows, n_members = self.prepared.rows, len(self.folds.group)
        if not self.is_validated:
            return HeldOut.none(n_members, rows.y.shape[1])
        member, slot = np.nonzero(self.folds.validation_weight)
        row = np.asarray(self.folds.validation)[member, slot]
        return HeldOut.of_members(density(member, slot, row), member, row, n_members, rows)


def prepare(expert: AbstractNetworkExpert, rows: Rows, key: PRNGKeyArray) -> Prepared:
    """Untrained members, their neighbour graphs and the rows that each holds out."""
    share, n_members = expert.validation_fraction, expert.n_members
    labels = rows.given.duplicate_group
    held_out = hold_out(labels, share, n_members, key, largest=expert.largest_hold_out)
    keys = jax.random.split(named_key(key, "members"), n_members)
    X, y = rows.X.astype(np.float32), rows.y.astype(np.float32)
    networks, own_center = expert.init(rows, X, key)
    graphs = neighborhoods(np.asarray(X.coordinates), expert)
    start = networks, own_center, graphs, held_out, keys
    return Prepared(expert, rows, X, y, *start, len(rows))


def prepare_fit(expert: AbstractNetworkExpert, given: TrainingRows, key: PRNGKeyArray) -> Prepared:
    """All that the training of rows in the units of the user starts from."""
    rows = Rows.encode(given, expert.targets([given], [key])[0])
    return prepare(expert.fit_to(len(rows)), rows, key)


def gate_relevance(rows: Rows, X: Inputs, key: PRNGKeyArray) -> np.ndarray:
    """Relevance of every coordinate to the gate; 0 for times, which go on."""
    rng, features = named_generator(key, "relevance"), rows.features
    y = rows.y.astype(np.float32)
    found = column_relevance(np.asarray(X.coordinates), y, features.column_of(), rng)
    found[features.trends()] = 0.0
    return found


def neighborhoods(X: np.ndarray, expert: AbstractNetworkExpert) -> dict[str, np.ndarray]:
    """Graphs that stages name: single rows, and neighbourhoods of the expert's sizes."""
    single, sizes = np.arange(len(X))[:, None], expert.graph_sizes()
    if not sizes:
        return {"single": single}
    graph = neighbor_graph(X, max(sizes.values()))
    return {"single": single} | {name: graph[:, :k] for name, k in sizes.items()}


def train(
    prepared: Sequence[Prepared],
    create_supply: Callable[[Fold, TrainingData], Supply] | None = None,
    *,
    verbose: int = 0,
) -> list[AbstractFitted]:
    """Train all members of all ensembles, from the rows of ``create_supply`` where it is given."""
    first = prepared[0]
    expert, n_members = first.expert, first.expert.n_members
    shapes = {(own.X.input_shape, own.y.shape) for own in prepared}
    if len(shapes) > 1 or any(own.expert != expert for own in prepared):
        raise InvalidArgumentError(
            "Models that are fitted together need the same settings and data of the same shape."
        )
    weights = [own.rows.weight for own in prepared]
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
    most_rows = data.n_slots if len(first.X) >= FEW_ROWS else 0
    room = count_held_out(most_rows, expert.validation_fraction, expert.largest_hold_out)
    folds = Fold.create(weights, held_out, groups, data.n_slots, labels, room)
    networks, keys = first.networks, first.keys
    if len(prepared) > 1:
        leaves = [own.networks for own in prepared]
        networks = jax.tree.map(lambda *leaf: jnp.concatenate(leaf), *leaves)
        keys = jnp.concatenate([own.keys for own in prepared])

    stages, histories = expert.stages(), {}
    supply = create_supply(folds, data) if create_supply else None
    on_host = jax.tree.map(np.asarray, folds)  # as NumPy, where a slice compiles nothing
    of_group = np.arange(len(keys)).reshape(-1, n_members)
    tasks = [
        expert.host_work(start, jax.tree.map(lambda leaf, own=own: leaf[own], on_host))
        for start, own in zip(prepared, of_group, strict=True)
    ]
    with in_background(tasks) as background:
        with progress_bar(stages, visible=verbose > 0) as report:
            for stage in stages:
                members, found = train_stage(
                    networks, keys, folds, data, stage, report, supply=supply
                )
                networks = members.best
                histories[stage.name] = [history["score"] for history in found]
        with phase_line("forests", visible=verbose > 0 and any(background)):
            done = [work and work.result() for work in background]
    networks, fitted = jax.tree.map(np.asarray, networks), []
    with phase_line("calibrating on validation rows", visible=verbose > 0):
        for group, start in enumerate(prepared):
            own, scores = of_group[group], histories[stages[-1].name][group]
            is_sound = sound_members(networks, own, scores, is_scored=stages[-1].keep_best)
            own, of_host = own[is_sound], done[group]
            if of_host is not None and not is_sound.all():
                of_host = of_host[np.flatnonzero(is_sound)]
            mine, fold = jax.tree.map(lambda leaf, own=own: leaf[own], (networks, on_host))
            history = {name: scores[group] for name, scores in histories.items()}
            fitted.append(expert.finish(Trained(start, mine, fold, data, of_host, history)))
    return fitted


@contextmanager
def in_background(work: Iterable[Callable[[], Any] | None]) -> Iterator[list[Future | None]]:
    """Work that a thread does for the time of a block; what has not begun at its end is dropped."""
    pool = ThreadPoolExecutor(1)
    try:
        yield [None if task is None else pool.submit(task) for task in work]
    finally:
        pool.shutdown(cancel_futures=True)


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


PILOT_ROWS, PILOT_STEPS, PILOT_SHARE = 2048, 300, 0.25
"""Rows and steps of a pilot fit at most, and the share of the rows that it is validated on."""

NEARLY_NORMAL = 0.99
"""A target so correlated with its normal scores is nearly their linear function."""

FEWEST_VALUES = 20
"""A target with fewer values is discrete: no smooth function changes it much."""


@final
@dataclass(frozen=True, eq=False)
class Pilot:
    """Rows to fit a small ensemble to, with and without a transform, and rows to validate it on."""

    learned: TrainingRows
    validated: TrainingRows
    seed: int

    @classmethod
    def create(cls, rows: TrainingRows, key: PRNGKeyArray) -> "Pilot | None":
        """None where no transform can matter, or rows are too few to choose one."""
        if rows.n_distinct < FEW_ROWS or not is_worth_trying(rows.y, rows.weight):
            return None
        rng = named_generator(key, "target map")
        some = np.sort(rng.permutation(len(rows))[:PILOT_ROWS])
        labels, own_key = rows.duplicate_group[some], named_key(key, "target map")
        (held_out,) = hold_out(labels, PILOT_SHARE, 1, own_key, largest=len(some))
        is_held_out = np.isin(np.arange(len(some)), held_out)
        if len(np.unique(labels[~is_held_out])) < FEW_ROWS:  # no transform would be used
            return None
        return cls(rows.take(some[~is_held_out]), rows.take(some[is_held_out]), draw_seed(rng))

    def is_better(self, log_prob: np.ndarray, other: np.ndarray) -> bool:
        """True if the mean of one exceeds that of the other by more than its standard error."""
        gain, share = log_prob - other, self.validated.weight
        share = share / share.sum()
        mean = share @ gain
        return bool(mean > np.sqrt(np.sum((share * (gain - mean)) ** 2)))


def choose_transforms(
    expert: AbstractNetworkExpert, rows: Sequence[TrainingRows], keys: Sequence[PRNGKeyArray]
) -> list[str]:
    """Better transform of every target, by two pilot fits each; a tie is no transform.

    Pilots with as many rows each are fitted together.
    """
    chosen = ["none"] * len(rows)
    each = (Pilot.create(own, key) for own, key in zip(rows, keys, strict=True))
    pilots = {i: pilot for i, pilot in enumerate(each) if pilot is not None}
    same_size = len({len(pilot.learned) for pilot in pilots.values()}) == 1
    for together in [list(pilots)] if same_size else [[own] for own in pilots]:
        some, found = [pilots[own] for own in together], []
        for transform in ("normal-scores", "none"):
            seeds = [make_key(pilot.seed) for pilot in some]
            tried = replace(expert, target_map=transform)
            models = fit_models(tried, [pilot.learned for pilot in some], seeds)
            found.append(
                [
                    model.predict(pilot.validated.table)
                    .log_prob(
                        pilot.validated.y[:, 0] if model.is_single_output else pilot.validated.y
                    )
                    .reshape(len(pilot.validated), -1)
                    .sum(axis=1)
                    for model, pilot in zip(models, some, strict=True)
                ]
            )
        for own, pilot, transformed, plain in zip(together, some, *found, strict=True):
            if pilot.is_better(transformed, plain):
                chosen[own] = "normal-scores"
    return chosen


def is_worth_trying(y: np.ndarray, weight: np.ndarray) -> bool:
    """True if normal scores of some output are another target than the output itself."""
    if min(len(np.unique(column)) for column in y.T) < FEWEST_VALUES:
        return False
    scores = TargetUnits.fit(y, weight, "normal-scores")(y, np.float64)
    return any(
        np.corrcoef(column, score)[0, 1] < NEARLY_NORMAL
        for column, score in zip(y.T, scores.T, strict=True)
    )
