"""What the training of a regressor consists of: stages of cycles of phases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sigmax.random import named_key
from sigmax.sampling import draw_batches
from sigmax.training.data import Batch, Fold, TrainingData
from sigmax.training.loop import AbstractStage

__all__ = ["Part", "Phase", "Stage", "weigh_rows"]

Network = Any  # an Equinox module with the fields that the phases name
Parts = dict[str, Float[Array, " _"]]
States = tuple[dict[str, optax.OptState], ...]


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

    def optimizer(self, n_steps: int) -> optax.GradientTransformation:
        rate = optax.cosine_decay_schedule(self.learning_rate, n_steps, self.final_rate)
        return optax.chain(
            optax.clip_by_global_norm(10.0), optax.adamw(rate, weight_decay=self.weight_decay)
        )


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
    score: Callable
    """A score per row, higher is better."""

    @property
    def n_chunks(self) -> int:
        return -(-self.n_cycles // self.cycles_per_chunk)

    def start(self, network: Network) -> States:
        parts, _ = flatten_parts(network, self.phases)
        return tuple(
            {
                part.name: part.optimizer(self.n_cycles).init(parts[part.name])
                for part in phase.parts
            }
            for phase in self.phases
        )

    def run_chunk(self, network, states, key, fold: Fold, data: TrainingData, clock):
        """One chunk of cycles."""
        keys = jax.random.split(key, len(self.phases))
        draws = [
            self.draw_chunk(phase, key, fold, data)
            for phase, key in zip(self.phases, keys, strict=True)
        ]
        parts, rebuild = flatten_parts(network, self.phases)

        def take_step(phase: Phase, parts: Parts, states: dict, draw) -> tuple[Parts, dict]:
            index, step_key = draw
            batch = weigh_rows(index, step_key, fold, data, phase)

            def loss(learning: Parts):
                losses = phase.objective(rebuild(parts | learning), batch, data)
                return jnp.sum(batch.weight * losses)

            gradients = jax.grad(loss)({part.name: parts[part.name] for part in phase.parts})
            for part in phase.parts:
                name = part.name
                updates, state = part.optimizer(self.n_cycles).update(
                    gradients[name], states[name], parts[name]
                )
                states = states | {name: state}
                parts = parts | {name: parts[name] + jnp.asarray(updates)}
            return parts, states

        def run_cycle(carry, draws):
            parts, states = carry
            new_states = []
            for phase, state, draw in zip(self.phases, states, draws, strict=True):
                parts, state = take_step(phase, parts, state, draw)
                new_states.append(state)
            return (parts, tuple(new_states)), None

        (parts, states), _ = lax.scan(run_cycle, (parts, states), draws)
        return rebuild(parts), states, {}

    def draw_chunk(
        self, phase: Phase, key: PRNGKeyArray, fold: Fold, data: TrainingData
    ) -> tuple[Int[Array, "cycles batch"], Any]:
        """The batches of one phase, and the keys of its objective if that draws."""
        neighbors, n_rows = data.graphs[phase.graph].neighbors[fold.group], data.n_rows[fold.group]
        sizes = (phase.n_primary, phase.n_secondary)
        batches = draw_batches(key, self.cycles_per_chunk, neighbors, n_rows, *sizes)
        if not phase.is_random:
            return batches, None
        return batches, jax.random.split(named_key(key, "steps"), self.cycles_per_chunk)

    def score_member(self, network: Network, fold: Fold, data: TrainingData) -> Float[Array, ""]:
        held_out = data.rows(fold.group, fold.validation, fold.validation_weight)
        scores = jnp.where(held_out.weight > 0, self.score(network, held_out, data), 0.0)
        return jnp.sum(held_out.weight * scores)


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
    draws_per_list = phase.n_primary * phase.n_secondary / graph.n_neighbors
    expected_count = draws_per_list * graph.counts[fold.group, index] / data.n_rows[fold.group]
    weight = fold.weight[index] / expected_count
    return data.rows(fold.group, index, weight, key, fold.n_learned)
