"""What the training of a regressor consists of: stages of cycles of phases."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sigmax.padding import bucket_size
from sigmax.random import named_key
from sigmax.sampling import draw_batches, expected_count, horvitz_thompson
from sigmax.training.data import Batch, Fold, TrainingData
from sigmax.training.loop import AbstractStage
from sigmax.training.member_axis import divide_rows

ADAM = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())
"""Directions of steps; their sizes and the weight decay are numbers that no program is made for."""

Network = Any  # an Equinox module with the fields that the phases name
Parts = dict[str, Float[Array, " _"]]
States = tuple[tuple[dict[str, optax.OptState], ...], Parts | None]
"""Of the optimisers of every phase, and the average of the weights, if there is one."""

AVERAGED = 8.0
"""Averages of weights are over the last steps: one in so many, and one more (Shamir and Zhang 2013,
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
    """The last step size as a share of the first, reached along half a cosine."""

    def numbers(self) -> Float[np.ndarray, "3"]:
        """Step size at the start and at the end, and weight decay."""
        first = self.learning_rate
        return np.array([first, first * self.final_rate, self.weight_decay], np.float32)

    def without_numbers(self) -> "Part":
        """What a program is made for."""
        return Part(name=self.name, learning_rate=0.0)


@final
@dataclass(frozen=True, kw_only=True)
class Phase:
    """One step: some parts of the network learn by one objective from one kind of batch."""

    parts: tuple[Part, ...]
    """What learns; everything else is held fixed."""
    objective: Callable
    """A loss per row, from ``sigmax.training.objective``."""
    graph: str
    """The graph of the data that the batch is drawn from."""
    n_primary: int
    """Centres of a batch."""
    n_secondary: int
    """Neighbours taken of each."""
    is_random: bool = False
    """Whether the objective draws, and so needs a key in every step."""

    def without_numbers(self) -> "Phase":
        """What a program is made for."""
        return replace(self, parts=tuple(part.without_numbers() for part in self.parts))


@final
class Clock(eqx.Module):
    """The numbers of one chunk, which are no part of its program: how far, how long, how fast."""

    n_before: Int[Array | np.ndarray, ""]
    """Cycles of the stage before this chunk."""
    n_cycles: Int[Array | np.ndarray, ""]
    """Cycles of the stage."""
    n_here: Int[Array | np.ndarray, ""]
    """Cycles of this chunk."""
    numbers: tuple[Mapping[str, Float[Array | np.ndarray, "3"]], ...]
    """`Part.numbers` of the parts of every phase, by name."""


@final
@dataclass(frozen=True, kw_only=True)
class Stage(AbstractStage):
    """Cycles of the same phases, judged by one score on the held-out rows."""

    phases: tuple[Phase, ...]
    """The steps of one cycle, in order."""
    n_cycles: int
    """How often the cycle is run."""
    cycles_per_chunk: int
    """Cycles in one compiled call; after each call the held-out rows are scored."""
    longest_chunk: int = 1
    """A chunk is compiled for so many cycles, if it has no more: shorter ones share its program."""
    score: Callable | None = None
    """A score per row, higher is better; without one, the log-density by `predict`."""
    predict: Callable | None = None
    """A density per held-out row, which `judge` returns, too."""
    averages: bool = False
    """Whether snapshots are averages of the weights over the last steps, about a tenth of all."""

    @property
    def n_chunks(self) -> int:
        return -(-self.n_cycles // self.cycles_per_chunk)

    @property
    def n_drawn(self) -> int:
        """Cycles that batches are drawn for at once: one of a few numbers."""
        return bucket_size(max(self.cycles_per_chunk, self.longest_chunk), smallest=16)

    def one_chunk(self) -> "Stage":
        """The stage without the numbers that its `clock` has."""
        return replace(
            super().one_chunk(),
            phases=tuple(phase.without_numbers() for phase in self.phases),
            n_cycles=0,
            cycles_per_chunk=self.n_drawn,
            longest_chunk=1,
        )

    def clock(self, chunk: int) -> Clock:
        n_before = chunk * self.cycles_per_chunk
        n_here = min(self.cycles_per_chunk, self.n_cycles - n_before)
        numbers = tuple({part.name: part.numbers() for part in p.parts} for p in self.phases)
        counts = n_before, self.n_cycles, n_here
        before, whole, here = (np.array(count, np.int32) for count in counts)
        return Clock(before, whole, here, numbers)

    def start(self, network: Network) -> States:
        parts, _ = flatten_parts(network, self.phases)
        of_phases = tuple(
            {part.name: ADAM.init(parts[part.name]) for part in phase.parts}
            for phase in self.phases
        )
        return of_phases, parts if self.averages else None

    def snapshot(self, network: Network, states: States) -> Network:
        average = states[1]
        return network if average is None else flatten_parts(network, self.phases)[1](average)

    def run_chunk(self, network, states, key, fold: Fold, data: TrainingData, clock: Clock):
        """One chunk of cycles."""
        keys = jax.random.split(key, len(self.phases))
        draws = [
            self.draw_chunk(phase, key, fold, data)
            for phase, key in zip(self.phases, keys, strict=True)
        ]
        parts, rebuild = flatten_parts(network, self.phases)

        def take_step(phase: Phase, parts: Parts, states: dict, draw, numbers, progress):
            index, step_key = draw
            batch = weigh_rows(divide_rows(index), step_key, fold, data, phase)

            def loss(learning: Parts):
                losses = phase.objective(rebuild(parts | learning), batch, data)
                return jnp.sum(batch.weight * losses)

            gradients = jax.grad(loss)({part.name: parts[part.name] for part in phase.parts})
            for part in phase.parts:
                name = part.name
                step, state = ADAM.update(gradients[name], states[name])
                rate, decay = step_size(numbers[name], progress), numbers[name][2]
                states = states | {name: state}
                parts = parts | {name: parts[name] - rate * (step + decay * parts[name])}
            return parts, states

        def run_cycle(cycle, carry):
            parts, (states, average) = carry
            new_states = []
            progress = (clock.n_before + cycle) / clock.n_cycles
            for phase, state, draw, numbers in zip(
                self.phases, states, draws, clock.numbers, strict=True
            ):
                own = jax.tree.map(lambda drawn: drawn[cycle], draw)
                parts, state = take_step(phase, parts, state, own, numbers, progress)
                new_states.append(state)
            if average is not None:
                share = (AVERAGED + 1) / (clock.n_before + cycle + AVERAGED + 1)
                average = {name: old + share * (parts[name] - old) for name, old in average.items()}
            return parts, (tuple(new_states), average)

        parts, states = lax.fori_loop(0, clock.n_here, run_cycle, (parts, states))
        return rebuild(parts), states, {}

    def draw_chunk(
        self, phase: Phase, key: PRNGKeyArray, fold: Fold, data: TrainingData
    ) -> tuple[Int[Array, "cycles batch"], Any]:
        """The batches of one phase, and the keys of its objective if that draws."""
        neighbors, n_rows = data.graphs[phase.graph].neighbors[fold.group], data.n_rows[fold.group]
        sizes = (phase.n_primary, phase.n_secondary)
        batches = draw_batches(key, self.n_drawn, neighbors, n_rows, *sizes)
        if not phase.is_random:
            return batches, None
        return batches, jax.random.split(named_key(key, "steps"), self.n_drawn)

    def judge(self, network: Network, fold: Fold, data: TrainingData) -> tuple[Array, Any]:
        held_out = divide_rows((fold.validation, fold.validation_weight))
        rows = data.rows(fold.group, *held_out)
        dist = self.predict(network, rows, data) if self.predict else None
        if self.score:
            scores = self.score(network, rows, data)
        elif dist is not None:
            scores = jnp.sum(dist.log_prob(rows.y), axis=1)
        else:
            raise ValueError(f"The stage {self.name!r} has neither a score nor predictions.")
        return jnp.sum(rows.weight * jnp.where(rows.weight > 0, scores, 0.0)), dist


def step_size(numbers: Float[Array, "3"], progress: Float[Array, ""]) -> Float[Array, ""]:
    """From the first step size to the last along half a cosine, by the share that is done."""
    first, last, _ = numbers
    return last + (first - last) * (1 + jnp.cos(jnp.pi * progress)) / 2


def flatten_parts(
    network: Network, phases: tuple[Phase, ...]
) -> tuple[Parts, Callable[[Parts], Network]]:
    """The parts that ``phases`` train, each as one vector, and the way back to a network.

    One vector per part keeps the compiled step small: an optimiser is then a handful of
    operations, however many layers there are.
    """
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


def weigh_rows(
    index: Int[Array, " batch"],
    key: PRNGKeyArray | None,
    fold: Fold,
    data: TrainingData,
    phase: Phase,
) -> Batch:
    """The rows of a locality batch, so weighted that sums estimate those over all training rows.

    Held-out rows may be among them: they are neighbours like any other, and count with weight 0.
    """
    graph = data.graphs[phase.graph]
    sizes = graph.n_neighbors, phase.n_primary, phase.n_secondary
    counts, n_rows = graph.counts[fold.group, index], data.n_rows[fold.group]
    weight = fold.weight[index] * horvitz_thompson(expected_count(counts, n_rows, *sizes))
    return data.rows(fold.group, index, weight, key, fold.n_learned)
