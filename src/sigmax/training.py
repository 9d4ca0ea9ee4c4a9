"""Training of ensemble members: rows on the device, stages of steps, and the loop over chunks.

A stage describes the steps of one member; `over_members` compiles them for all members at once. A
chunk of steps of all members is one compiled call and their validation scores are another. The host
loops over chunks to report progress, to keep the best checkpoints and to stop early.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial, wraps
from time import perf_counter
from typing import Any, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sigmax.compilation import bucket_size, compiled, on_device
from sigmax.errors import TrainingWarning
from sigmax.inputs import Inputs
from sigmax.random import name_number, named_key
from sigmax.sampling import draw_batches, expected_count, horvitz_thompson

# Rows. All arrays of `TrainingData` have a leading axis of groups: one group for an ordinary fit,
# one per split when the splits of a cross-validation are trained together. Data are stored once per
# group, not once per member.


def stack_groups(
    groups: Sequence[np.ndarray], n_slots: int, dtype: Any = None, fill: float = 0.0
) -> Array:
    first = np.asarray(groups[0], dtype)
    padded = np.full((len(groups), n_slots, *first.shape[1:]), fill, first.dtype)
    for slots, rows in zip(padded, groups, strict=True):
        slots[: len(rows)] = rows
    return on_device(padded)


@final
class Graph(eqx.Module):
    """Neighbour lists, and the number of lists that hold each row."""

    neighbors: Int[Array, "groups slots k"]
    counts: Float[Array, "groups slots"]

    @property
    def n_neighbors(self) -> int:
        """Length of a list."""
        return self.neighbors.shape[-1]

    @classmethod
    def create(cls, graphs: Sequence[np.ndarray], n_slots: int) -> "Graph":
        """Create from one array of neighbour lists per group."""
        counts = [np.bincount(graph.ravel(), minlength=len(graph)) for graph in graphs]
        return cls(
            stack_groups(graphs, n_slots, np.int32),
            stack_groups(counts, n_slots, np.float32, fill=1.0),
        )


@final
class TrainingData(eqx.Module):
    """Rows of every group, standardised and padded, and the graphs that batches are drawn from."""

    X: Inputs
    """Leaves (groups, slots, ...)."""
    y: Float[Array, "groups slots outputs"]
    own_center: Int[Array, "groups slots"]
    weight: Float[Array, "groups slots"]
    """Sample weights, 1 on average, and 0 for padding."""
    n_rows: Int[Array, " groups"]
    graphs: dict[str, Graph]

    @classmethod
    def create(
        cls,
        X: Sequence[Inputs],
        y: Sequence[np.ndarray],
        own_center: Sequence[np.ndarray],
        graphs: Mapping[str, Sequence[np.ndarray]],
        weight: Sequence[np.ndarray] | None = None,
        n_slots: int = 0,
    ) -> "TrainingData":
        """Create from lists with one entry per group, with at least ``n_slots`` slots.

        ``graphs`` has such a list for every name.
        """
        n_slots = max(n_slots, bucket_size(max(len(rows) for rows in y)))
        weight = [np.ones(len(rows)) for rows in y] if weight is None else weight
        return cls(
            jax.tree.map(lambda *leaves: stack_groups(leaves, n_slots), *X),
            stack_groups(y, n_slots, np.float32),
            stack_groups(own_center, n_slots, np.int32),
            stack_groups([own / own.mean() for own in weight], n_slots, np.float32),
            on_device([len(rows) for rows in y], np.int32),
            {name: Graph.create(lists, n_slots) for name, lists in graphs.items()},
        )

    @property
    def n_slots(self) -> int:
        return self.y.shape[1]

    def rows(
        self,
        group: Int[Array, ""],
        index: Int[Array, " batch"],
        weight: Float[Array, " batch"],
        key: PRNGKeyArray | None = None,
        n_learned: Float[Array, ""] | None = None,
    ) -> "Batch":
        """Return the rows ``index`` of one group."""
        own = self.X, self.y, self.own_center
        X, y, own_center = jax.tree.map(lambda leaf: leaf[group, index], own)
        return Batch(X, y, own_center, group, index, weight, key, n_learned)


@final
class Batch(eqx.Module):
    """Rows of a batch, the input of an objective, which may look up other rows by ``index``."""

    X: Inputs
    """Leaves (batch, ...)."""
    y: Float[Array, "batch outputs"]
    own_center: Int[Array, " batch"]
    group: Int[Array, ""]
    index: Int[Array, " batch"]
    weight: Float[Array, " batch"]
    key: PRNGKeyArray | None = None
    """Key of the step, for the objective of a phase that `Phase.is_random`."""
    n_learned: Float[Array, ""] | None = None
    """Number of training rows of the member, None outside of training steps."""


@final
class Fold(eqx.Module):
    """Training rows and validation rows of one member."""

    group: Int[Array, "*members"]
    weight: Float[Array, "*members slots"]
    """Weight of each row in the objective: 0 for validation rows and padding; the sum is 1."""
    validation: Int[Array, "*members held_out"]
    """Validation rows."""
    validation_weight: Float[Array, "*members held_out"]
    """Weights of these, 0 for padding; the sum is 1, or 0 if there are none."""
    n_learned: Float[Array, "*members"]
    """Number of rows with a weight."""

    @classmethod
    def create(
        cls,
        sample_weights: Sequence[np.ndarray],
        held_out: Sequence[np.ndarray],
        groups: Sequence[int],
        n_slots: int,
        duplicate_group: Sequence[np.ndarray] | None = None,
        n_held_out: int = 1,
    ) -> "Fold":
        """Create one fold per member from the sample weights of its group and its held-out rows.

        Validation rows with the same label in ``duplicate_group``, those of equal X, share the
        weight of one row. There is room for at least ``n_held_out`` validation rows.
        """
        n_held_out = max(n_held_out, *(len(rows) for rows in held_out))
        n_held_out = bucket_size(n_held_out, smallest=32)
        weight = np.zeros((len(groups), n_slots), dtype=np.float32)
        validation = np.zeros((len(groups), n_held_out), dtype=np.int32)
        validation_weight = np.zeros((len(groups), n_held_out), dtype=np.float32)
        for member, (group, rows) in enumerate(zip(groups, held_out, strict=True)):
            learned = sample_weights[group].astype(np.float64)
            if len(rows):
                scored = learned[rows]
                if duplicate_group is not None:
                    labels = duplicate_group[group]
                    scored = scored / np.bincount(labels)[labels[rows]]
                validation[member, : len(rows)] = rows
                validation_weight[member, : len(rows)] = scored / scored.sum()
            learned[rows] = 0
            weight[member, : len(learned)] = learned / learned.sum()
        n_learned = np.sum(weight > 0, axis=1).astype(np.float32)
        group = np.asarray(groups, dtype=np.int32)
        parts = group, weight, validation, validation_weight, n_learned
        return cls(*map(on_device, parts))


# Members. Where there are fewer members than devices, several devices share a member and divide
# its rows.

MEMBERS, ROWS = "members", "rows"  # names of the two axes of devices

MESH: ContextVar[Mesh | None] = ContextVar("MESH", default=None)
"""Devices of the members whose function is traced."""


def device_mesh(n_members: int) -> Mesh | None:
    """Mesh of devices, one line per group of members; None if there is one device.

    With 8 devices and 3 members, two devices share a member and two have no work.
    """
    devices = jax.devices()
    if len(devices) == 1:
        return None
    n_lines = min(n_members, len(devices))
    n_each = len(devices) // n_lines
    return Mesh(np.asarray(devices[: n_lines * n_each]).reshape(n_lines, n_each), (MEMBERS, ROWS))


def divide_rows(rows: Any) -> Any:
    """Divide arrays of one member along their first axis among the devices that share the member.

    To be called in a function of `over_members`. The number of rows may be any.
    """
    mesh = MESH.get()
    if mesh is None or mesh.shape[ROWS] == 1:
        return rows
    places = NamedSharding(mesh, PartitionSpec(ROWS))
    return jax.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, places), rows)


@compiled
def fold_in_all(keys: Key[Array, " members"], number: Any) -> Key[Array, " members"]:
    return jax.vmap(jax.random.fold_in, (0, None))(keys, number)


def name_keys(keys: Key[Array, " members"], name: str) -> Key[Array, " members"]:
    """Apply `sigmax.random.named_key` to the key of every member."""
    return fold_in_all(keys, np.uint32(name_number(name)))


def count_members(tree: Any) -> int:
    return len(next(leaf for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)))


def on_arrays(function: Callable, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: function(leaf) if eqx.is_array(leaf) else leaf, tree)


def over_members(function: Callable, n_mapped: int) -> Callable:
    """Compile a function of one member for all: its first arguments get an axis of members.

    One member alone is not mapped over, which on a CPU compiles a quarter quicker and runs up to
    twice as quick; then there is no axis of the name `MEMBERS`.
    """

    @compiled
    @wraps(function)
    def call(*arguments: Any) -> Any:
        mapped, shared = arguments[:n_mapped], arguments[n_mapped:]
        n_members = count_members(mapped)
        token = MESH.set(device_mesh(n_members))
        try:
            if n_members == 1:
                alone = function(*on_arrays(lambda leaf: leaf[0], mapped), *shared)
                return on_arrays(lambda leaf: leaf[None], alone)
            axes = (eqx.if_array(0),) * n_mapped + (None,) * len(shared)
            return eqx.filter_vmap(function, in_axes=axes, axis_name=MEMBERS)(*arguments)
        finally:
            MESH.reset(token)

    return call


@compiled
def take_members(tree: Any, index: Int[Array | np.ndarray, " members"]) -> Any:
    return on_arrays(lambda leaf: leaf[index], tree)


def spread_members(tree: Any) -> Any:
    """Spread members evenly over the devices, padded with duplicates of the first ones."""
    n_members = count_members(tree)
    mesh = device_mesh(n_members)
    if mesh is None:
        return tree
    n_lines = mesh.shape[MEMBERS]
    n_slots = -(-n_members // n_lines) * n_lines
    padded = tree if n_slots == n_members else take_members(tree, np.arange(n_slots) % n_members)
    arrays, rest = eqx.partition(padded, eqx.is_array)
    sharded = jax.device_put(arrays, NamedSharding(mesh, PartitionSpec(MEMBERS)))
    return eqx.combine(sharded, rest)


# Stages: the steps of one member.

S = TypeVar("S", bound="AbstractStage")  # beartype knows no Self


@dataclass(frozen=True, kw_only=True)
class AbstractStage(ABC):
    """Chunks of training steps of one kind; after each, members are scored on validation rows.

    `start`, `run_chunk` and `validate` are pure functions of one member, which the loop maps over
    all and compiles, with the stage as a static argument. A ``fold`` holds the training rows of one
    member and has the field ``group``: the members of a group stop together. The ``data`` are
    shared by all members.
    """

    name: str
    """Description in a progress bar."""
    keep_best: bool
    """True if validation rows are scored and the stage ends with each member's best checkpoint."""
    patience: int
    """Chunks without a better score in any member before the stage ends early; 0 for never."""

    @property
    @abstractmethod
    def n_chunks(self) -> int:
        """Number of chunks, each of which is one compiled call."""

    @abstractmethod
    def start(self, network: Any) -> Any:
        """Return the states of the optimisers before the first step."""

    @abstractmethod
    def run_chunk(
        self, network: Any, states: Any, key: PRNGKeyArray, fold: Any, data: Any, clock: Any
    ) -> tuple[Any, Any, dict[str, Float[Array, ""]]]:
        """Run one chunk of steps: network and states after it, and figures for the history."""

    @abstractmethod
    def validate(self, network: Any, fold: Any, data: Any) -> tuple[Float[Array, ""], Any]:
        """Return the score of the validation rows, higher is better, and their predictions."""

    def checkpoint(self, network: Any, states: Any) -> Any:
        """Return the network to score and keep, where it is not the one that is trained."""
        return network

    def one_chunk(self: S) -> S:
        """Return the stage without fields that do not affect a compiled chunk."""
        return replace(self, name="", patience=0)

    def key_name(self, chunk: int) -> str:
        """Return the name of the keys of a chunk."""
        return f"{self.name} {chunk}"

    def clock(self, chunk: int) -> Any:
        """Return the arrays in which chunks that share a compiled function differ."""
        return None

    def before_chunk(self, networks: Any, keys: Any, folds: Any, data: Any, chunk: int) -> Any:
        """Return the networks of all members to start the chunk with."""
        return networks

    def describe(self, figures: dict[str, np.ndarray]) -> str:
        """Return the text of a progress bar for the figures of all members after a chunk."""
        scores = figures["score"]
        return "" if np.isnan(scores).all() else f"validation score {np.nanmean(scores):.3f}"


ADAM = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())
"""Directions of steps; step sizes and weight decay are arguments of a compiled function."""

Network = Any  # an Equinox module with the fields that the phases name
Parts = dict[str, Float[Array, " _"]]
States = tuple[tuple[dict[str, optax.OptState], ...], Parts | None]
"""States of the optimisers of every phase, and the average of the weights, if there is one."""

AVERAGED = 8.0
"""Weights are averaged over about the last ninth of the steps (Shamir and Zhang 2013,
polynomial-decay averaging)."""


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """A field of the network that a phase trains, with its own optimiser."""

    name: str
    """Name of the field."""
    learning_rate: float
    """Step size of Adam at the start."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    final_rate: float = 1.0
    """Last step size as a share of the first, reached along half a cosine."""


@final
@dataclass(frozen=True, kw_only=True)
class Phase:
    """One step: some parts of the network are trained by one objective on one kind of batch."""

    parts: tuple[Part, ...]
    """Parts to train; everything else is held fixed."""
    objective: Callable
    """Loss per row, a function of network, batch and data."""
    graph: str
    """Graph of the data that the batch is drawn from."""
    n_primary: int
    """Centres of a batch."""
    n_secondary: int
    """Neighbours drawn of each centre."""
    is_random: bool = False
    """True if the objective needs a key in every step."""


@final
class Clock(eqx.Module):
    """Numbers of one chunk that are arguments of its compiled function."""

    n_before: Int[Array | np.ndarray, ""]  # cycles of the stage before this chunk
    n_cycles: Int[Array | np.ndarray, ""]  # cycles of the stage
    n_here: Int[Array | np.ndarray, ""]  # cycles of this chunk
    rates: tuple[Mapping[str, Float[Array | np.ndarray, "3"]], ...]
    """First and last step size and weight decay of the parts of every phase, by name."""


@final
@dataclass(frozen=True, kw_only=True)
class Stage(AbstractStage):
    """Cycles of the same phases, with one score of the validation rows."""

    phases: tuple[Phase, ...]
    """Steps of one cycle, in order."""
    n_cycles: int
    """Number of cycles."""
    cycles_per_chunk: int
    """Cycles in one compiled call; after each call the validation rows are scored."""
    longest_chunk: int = 1
    """Cycles that a chunk is compiled for, if it has no more: shorter chunks share the function."""
    score: Callable | None = None
    """Score per row, higher is better; by default the log-density of `predict`."""
    predict: Callable | None = None
    """Density of each validation row, which `validate` also returns."""
    averages: bool = False
    """True if checkpoints are averages of the weights over the last steps."""

    @property
    def n_chunks(self) -> int:
        return -(-self.n_cycles // self.cycles_per_chunk)

    @property
    def n_drawn(self) -> int:
        """Cycles that batches are drawn for at once: one of a few numbers."""
        return bucket_size(max(self.cycles_per_chunk, self.longest_chunk), smallest=16)

    def one_chunk(self) -> "Stage":
        """Return the stage without the numbers of its `clock`."""
        phases = tuple(
            replace(phase, parts=tuple(Part(name=p.name, learning_rate=0.0) for p in phase.parts))
            for phase in self.phases
        )
        numbers = {"n_cycles": 0, "cycles_per_chunk": self.n_drawn, "longest_chunk": 1}
        return replace(super().one_chunk(), phases=phases, **numbers)

    def clock(self, chunk: int) -> Clock:
        n_before = chunk * self.cycles_per_chunk
        counts = n_before, self.n_cycles, min(self.cycles_per_chunk, self.n_cycles - n_before)
        rates = tuple(
            {
                p.name: np.array(
                    [p.learning_rate, p.learning_rate * p.final_rate, p.weight_decay], np.float32
                )
                for p in phase.parts
            }
            for phase in self.phases
        )
        before, whole, here = (np.array(count, np.int32) for count in counts)
        return Clock(before, whole, here, rates)

    def start(self, network: Network) -> States:
        parts, _ = flatten_parts(network, self.phases)
        names = ([part.name for part in phase.parts] for phase in self.phases)
        of_phases = tuple({name: ADAM.init(parts[name]) for name in own} for own in names)
        return of_phases, parts if self.averages else None

    def checkpoint(self, network: Network, states: States) -> Network:
        average = states[1]
        return network if average is None else flatten_parts(network, self.phases)[1](average)

    def run_chunk(self, network, states, key, fold: Fold, data: TrainingData, clock: Clock):
        """Run one chunk of cycles."""
        draws, weights = [], []
        for phase, own in zip(self.phases, jax.random.split(key, len(self.phases)), strict=True):
            graph, sizes = data.graphs[phase.graph], (phase.n_primary, phase.n_secondary)
            rows = graph.neighbors[fold.group], data.n_rows[fold.group]
            step_keys = None
            if phase.is_random:
                step_keys = jax.random.split(named_key(own, "steps"), self.n_drawn)
            weights.append(row_weights(fold, data, phase))
            draws.append((draw_batches(own, self.n_drawn, *rows, *sizes), step_keys))
        parts, rebuild = flatten_parts(network, self.phases)

        def take_step(phase: Phase, parts: Parts, states: dict, draw, weight, rates, progress):
            index, step_key = divide_rows(draw[0]), draw[1]
            batch = data.rows(fold.group, index, weight[index], step_key, fold.n_learned)

            def loss(learning: Parts):
                losses = phase.objective(rebuild(parts | learning), batch, data)
                return jnp.sum(batch.weight * losses)

            gradients = jax.grad(loss)({part.name: parts[part.name] for part in phase.parts})
            for name in (part.name for part in phase.parts):
                step, state = ADAM.update(gradients[name], states[name])
                first, last, decay = rates[name]
                rate = last + (first - last) * (1 + jnp.cos(jnp.pi * progress)) / 2
                states = states | {name: state}
                parts = parts | {name: parts[name] - rate * (step + decay * parts[name])}
            return parts, states

        def run_cycle(cycle, carry):
            parts, (states, average) = carry
            new_states = []
            progress = (clock.n_before + cycle) / clock.n_cycles
            for phase, state, draw, weight, rates in zip(
                self.phases, states, draws, weights, clock.rates, strict=True
            ):
                own = jax.tree.map(lambda drawn: drawn[cycle], draw)
                parts, state = take_step(phase, parts, state, own, weight, rates, progress)
                new_states.append(state)
            if average is not None:
                share = (AVERAGED + 1) / (clock.n_before + cycle + AVERAGED + 1)
                average = {name: old + share * (parts[name] - old) for name, old in average.items()}
            return parts, (tuple(new_states), average)

        parts, states = lax.fori_loop(0, clock.n_here, run_cycle, (parts, states))
        return rebuild(parts), states, {}

    def validate(self, network: Network, fold: Fold, data: TrainingData) -> tuple[Array, Any]:
        held_out = divide_rows((fold.validation, fold.validation_weight))
        rows = data.rows(fold.group, *held_out)
        dist: Any = self.predict(network, rows, data) if self.predict else None
        if self.score:
            scores = self.score(network, rows, data)
        else:
            scores = jnp.sum(dist.log_prob(rows.y), axis=1)
        return jnp.sum(rows.weight * jnp.where(rows.weight > 0, scores, 0.0)), dist


def flatten_parts(
    network: Network, phases: tuple[Phase, ...]
) -> tuple[Parts, Callable[[Parts], Network]]:
    """Return the parts that ``phases`` train, each as one vector, and the inverse function."""
    names = {part.name for phase in phases for part in phase.parts}
    parts, restore = {}, {}
    for name in sorted(names):
        arrays, rest = eqx.partition(getattr(network, name), eqx.is_inexact_array)
        parts[name], unravel = ravel_pytree(arrays)
        restore[name] = lambda flat, unravel=unravel, rest=rest: eqx.combine(unravel(flat), rest)

    def rebuild(parts: Parts) -> Network:
        whole = [restore[name](flat) for name, flat in parts.items()]
        return eqx.tree_at(lambda n: [getattr(n, name) for name in parts], network, whole)

    return parts, rebuild


def row_weights(fold: Fold, data: TrainingData, phase: Phase) -> Float[Array, " slots"]:
    """Weights with which the rows of a locality batch estimate sums over all training rows.

    Validation rows may be among them: they are neighbours like any other, with weight 0.
    """
    graph = data.graphs[phase.graph]
    sizes = graph.n_neighbors, phase.n_primary, phase.n_secondary
    counts, n_rows = graph.counts[fold.group], data.n_rows[fold.group]
    return fold.weight * horvitz_thompson(expected_count(counts, n_rows, *sizes))


# The loop.


@final
class MemberState(eqx.Module):
    """A member in training, and its best checkpoint."""

    network: Any
    states: Any  # states of its optimisers
    checkpoint: Any  # checkpoint after the last chunk
    best: Any
    best_score: Float[Array, "*members"]


@partial(over_members, n_mapped=2)
def start_members(network: Any, states: Any, stage: AbstractStage) -> MemberState:
    """Return a member at the first step, its optimisers in ``states`` if these are given."""
    states = stage.start(network) if states is None else states
    worst = jnp.full((), -jnp.inf, dtype=jnp.float32)
    return MemberState(network, states, network, network, worst)


@partial(over_members, n_mapped=4)
def advance_members(
    network: Any, states: Any, key: PRNGKeyArray, fold: Any, data: Any, stage: Any, clock: Any
) -> tuple[Any, Any, Any, dict[str, Float[Array, ""]]]:
    network, states, figures = stage.run_chunk(network, states, key, fold, data, clock)
    return network, states, stage.checkpoint(network, states), figures


@partial(over_members, n_mapped=2)
def validate_members(network: Any, fold: Any, data: Any, stage: AbstractStage) -> tuple[Array, Any]:
    """Return the result of `AbstractStage.validate`; also called after the training."""
    return stage.validate(network, fold, data)


@partial(over_members, n_mapped=2)
def keep_better(member: MemberState, score: Float[Array | np.ndarray, ""]) -> MemberState:
    """Replace the best checkpoint by the last one if its score is better; nan never is."""
    is_better = score > member.best_score
    best = jax.tree.map(
        lambda new, old: jnp.where(is_better, new, old) if eqx.is_array(new) else new,
        member.checkpoint,
        member.best,
    )
    return replace(member, best=best, best_score=jnp.where(is_better, score, member.best_score))


def train_chunk(
    members: MemberState,
    keys: Key[Array, " members"],
    learned: tuple[Any, Any],
    stage: AbstractStage,
    chunk: int,
    scored: tuple[Any, Any] | None = None,
) -> tuple[MemberState, dict[str, Any]]:
    """Train all members for one chunk and score them; `keep_better` is for the caller.

    ``learned`` are folds and data for training, and for validation unless ``scored`` is given.
    Where nothing is scored, the last checkpoint is the best.
    """
    network = stage.before_chunk(members.network, keys, *learned, chunk)
    keys, clock = name_keys(keys, stage.key_name(chunk)), stage.clock(chunk)
    stage = stage.one_chunk()
    network, states, checkpoint, figures = advance_members(
        network, members.states, keys, *learned, stage, clock
    )
    if stage.keep_best:
        score, _ = validate_members(checkpoint, *(scored or learned), stage)
        best = members.best
    else:
        best, score = checkpoint, np.full(len(keys), np.nan, np.float32)
    trained = MemberState(network, states, checkpoint, best, members.best_score)
    return trained, figures | {"score": score}


Supply = Callable[[int], tuple[Any, Any]]
"""Returns training folds and data of a chunk, given its number."""

Report = Callable[[AbstractStage, int, dict[str, np.ndarray]], None]
"""Called with the stage, the number of finished chunks and the figures of every member: before the
first chunk, without figures, and after every chunk."""


@final
class LocalTrainer:
    """Ensemble members spread over the devices of this process.

    ``of_members`` are networks, states, keys and folds.
    """

    def __init__(self, of_members: Any, data: Any, stage: AbstractStage, supply: Supply | None):
        networks, states, keys, folds = of_members
        members = start_members(networks, states, stage.one_chunk())
        self.members, self.keys, self.folds = spread_members((members, keys, folds))
        self.data, self.stage, self.n_members = data, stage, len(keys)
        self.supply = supply

    def advance(self, chunk: int) -> dict[str, np.ndarray]:
        """Train all members for one chunk and return their figures, "score" among them."""
        learned = scored = self.folds, self.data
        if self.supply is not None:
            folds, data = self.supply(chunk)
            learned = spread_members(folds), data
        self.members, figures = train_chunk(
            self.members, self.keys, learned, self.stage, chunk, scored
        )
        return {name: np.asarray(value)[: self.n_members] for name, value in figures.items()}

    def keep(self, scores: Float[np.ndarray, " members"]) -> None:
        """Keep the last checkpoints of the members whose score is better than before."""
        slots = np.arange(len(self.keys)) % self.n_members  # padding duplicates the first members
        self.members = keep_better(self.members, scores[slots])

    def end(self) -> MemberState:
        if len(self.keys) == self.n_members:
            return self.members
        return take_members(self.members, np.arange(self.n_members))


TRAINER: ContextVar[Callable[..., Any]] = ContextVar("TRAINER", default=LocalTrainer)
"""Class with the methods of `LocalTrainer` that trains members in this context."""


def train_stage(
    networks: Any,
    keys: Key[Array, " members"],
    folds: Any,
    data: Any,
    stage: AbstractStage,
    report: Report | None = None,
    *,
    states: Any = None,
    supply: Supply | None = None,
    deadline: float | None = None,
) -> tuple[MemberState, list[dict[str, np.ndarray]]]:
    """Train all ensemble members for one stage; return them and the figures of every group.

    ``networks``, ``keys`` and ``folds`` have a leading member axis; ``data`` are shared. With
    ``states`` of an earlier stage, its optimisers continue. With a ``supply``, members are trained
    on its data, and ``folds`` and ``data`` are for validation.

    A group without a better score for ``stage.patience`` chunks is finished: it keeps its
    checkpoints while others continue. After the ``deadline``, a time of `time.perf_counter`, all
    are finished, and a warning says so. Members are spread over all devices, or over a cluster
    inside `sigmax.on_ray`. Figures have the shape (chunks, members of the group).
    """
    n_members, group = len(keys), np.asarray(folds.group)
    trainer = TRAINER.get()((networks, states, keys, folds), data, stage, supply)
    n_groups = int(group.max()) + 1
    history: list[dict[str, np.ndarray]] = []
    best, since_best = np.full(n_members, -np.inf), np.zeros(n_groups, dtype=int)
    length = np.full(n_groups, stage.n_chunks)
    if report is not None:
        report(stage, 0, {})
    for chunk in range(stage.n_chunks):
        history.append(trainer.advance(chunk))  # waits for the devices
        scores = history[-1]["score"]
        if stage.keep_best:
            is_open = (length == stage.n_chunks)[group]
            trainer.keep(np.where(is_open & np.isfinite(scores), scores, np.nan))
        if report is not None:
            report(stage, chunk + 1, history[-1])
        if deadline is not None and perf_counter() > deadline and chunk + 1 < stage.n_chunks:
            warnings.warn(
                f"Time is over: the training of networks ended after {chunk + 1} of"
                f" {stage.n_chunks} validations, with the best checkpoint so far.",
                TrainingWarning,
                stacklevel=3,
            )
            break
        if not stage.keep_best or not stage.patience:
            continue
        has_better = np.bincount(group, scores > best, minlength=n_groups) > 0
        since_best = np.where(has_better, 0, since_best + 1)
        best = np.fmax(best, scores)
        done = (since_best >= stage.patience) & (length == stage.n_chunks)
        length[done] = chunk + 1
        if (length <= chunk + 1).all():
            break
    figures = {name: np.stack([at[name] for at in history]) for name in history[0]}
    histories = [
        {name: values[: length[g], group == g] for name, values in figures.items()}
        for g in range(n_groups)
    ]
    return trainer.end(), histories


@contextmanager
def progress_bar(stages: Sequence[AbstractStage], *, visible: bool) -> Iterator[Report | None]:
    """Show a bar on the terminal, if ``visible``, to which `train_stage` reports."""
    if not visible:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    ends = np.cumsum([stage.n_chunks for stage in stages]).tolist()
    before = {stage.name: end - stage.n_chunks for stage, end in zip(stages, ends, strict=True)}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[score]}")) as bar:
        task = bar.add_task("preparing", total=ends[-1], score="")

        def report(stage: AbstractStage, chunk: int, figures: dict[str, np.ndarray]) -> None:
            score = stage.describe(figures) if chunk else ""
            text = stage.name if chunk else f"{stage.name}: compiling, first steps"
            done = before[stage.name] + chunk
            bar.update(task, completed=done, description=text, score=score, refresh=not chunk)

        yield report
        bar.update(task, completed=ends[-1])
