"""The heart: steps of one member as one pure function, vmapped over members, compiled once.

Nothing in here knows scikit-learn, files or printing. A chunk of steps is one compiled call; the
host loops over chunks to report progress, keep the best snapshots and stop early.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sigmax.random import named_key
from sigmax.sampling import draw_batches
from sigmax.training.data import Batch, Fold, TrainingData
from sigmax.training.schedule import Phase, Stage

__all__ = ["MemberState", "Progress", "start_member", "train_member", "train_stage"]

Network = Any  # an Equinox module with the fields that the phases name
Parts = dict[str, Float[Array, " _"]]
States = tuple[dict[str, optax.OptState], ...]


MEMBERS = "members"
"""The axis of members, for what they do together."""


class MemberState(eqx.Module):
    """A member in training: where it is, and the best it has been."""

    network: Network
    states: States
    best: Network
    best_score: Float[Array, "*members"]


@dataclass(frozen=True)
class Progress:
    """What a caller is told after every chunk."""

    stage: str
    chunk: int
    n_chunks: int
    scores: np.ndarray
    """The held-out score of every member, nan when nothing is held out."""


def flatten_parts(network: Network, stage: Stage) -> tuple[Parts, Callable[[Parts], Network]]:
    """The parts that ``stage`` trains, each as one vector, and the way back to a network.

    One vector per part keeps the compiled step small: an optimiser is then a handful of
    operations, however many layers there are.
    """
    names = {part.name for phase in stage.phases for part in phase.parts}
    parts, restore = {}, {}
    for name in sorted(names):
        arrays, rest = eqx.partition(getattr(network, name), eqx.is_inexact_array)
        parts[name], unravel = ravel_pytree(arrays)
        restore[name] = lambda flat, unravel=unravel, rest=rest: eqx.combine(unravel(flat), rest)

    def rebuild(parts: Parts) -> Network:
        whole = [restore[name](flat) for name, flat in parts.items()]
        return eqx.tree_at(lambda n: [getattr(n, name) for name in parts], network, whole)

    return parts, rebuild


def start_member(network: Network, stage: Stage) -> MemberState:
    """A member at the first step of ``stage``."""
    parts, _ = flatten_parts(network, stage)
    states = tuple(
        {part.name: part.optimizer(stage.n_cycles).init(parts[part.name]) for part in phase.parts}
        for phase in stage.phases
    )
    no_score = jnp.full((), -jnp.inf, dtype=jnp.float32)  # not weakly typed: one compilation
    return MemberState(network, states, network, no_score)


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
    draws_per_list = phase.n_primary * phase.n_secondary / graph.neighbors.shape[-1]
    expected_count = draws_per_list * graph.counts[fold.group, index] / data.n_rows[fold.group]
    weight = fold.weight[index] / expected_count
    return data.rows(fold.group, index, weight, key, fold.n_learned)


def train_member(
    member: MemberState,
    key: PRNGKeyArray,
    fold: Fold,
    data: TrainingData,
    stage: Stage,
) -> tuple[MemberState, Float[Array, ""]]:
    """One chunk of cycles of one member, then its held-out score: no member axis in sight."""
    draws = []
    phase_keys = jax.random.split(key, len(stage.phases))
    for phase, phase_key in zip(stage.phases, phase_keys, strict=True):
        neighbors, n_rows = data.graphs[phase.graph].neighbors[fold.group], data.n_rows[fold.group]
        sizes = (phase.n_primary, phase.n_secondary)
        batches = draw_batches(phase_key, stage.cycles_per_chunk, neighbors, n_rows, *sizes)
        step_keys = None
        if phase.is_random:
            step_keys = jax.random.split(named_key(phase_key, "steps"), stage.cycles_per_chunk)
        draws.append((batches, step_keys))

    parts, rebuild = flatten_parts(member.network, stage)

    def take_step(phase: Phase, parts: Parts, states: dict, draw) -> tuple[Parts, dict]:
        index, step_key = draw
        batch = weigh_rows(index, step_key, fold, data, phase)

        def loss(learning: Parts):
            losses = phase.objective(rebuild(parts | learning), batch, data)
            return jnp.sum(batch.weight * losses)

        gradients = jax.grad(loss)({part.name: parts[part.name] for part in phase.parts})
        for part in phase.parts:
            name = part.name
            updates, state = part.optimizer(stage.n_cycles).update(
                gradients[name], states[name], parts[name]
            )
            states = states | {name: state}
            parts = parts | {name: parts[name] + jnp.asarray(updates)}
        return parts, states

    def run_cycle(carry, draws):
        parts, states = carry
        new_states = []
        for phase, state, draw in zip(stage.phases, states, draws, strict=True):
            parts, state = take_step(phase, parts, state, draw)
            new_states.append(state)
        return (parts, tuple(new_states)), None

    (parts, states), _ = lax.scan(run_cycle, (parts, member.states), draws)
    network = rebuild(parts)
    if not stage.keep_best:
        return MemberState(network, states, network, member.best_score), jnp.asarray(jnp.nan)

    held_out = data.rows(fold.group, fold.validation, fold.validation_weight)
    scores = jnp.where(held_out.weight > 0, stage.score(network, held_out, data), 0.0)
    score = jnp.sum(held_out.weight * scores)
    judged = mean_score(score, fold.group) if stage.is_judged_together else score
    # Also False for nan: a broken member keeps its best.
    is_better = (judged > member.best_score) & jnp.isfinite(score)
    best = jax.tree.map(
        lambda new, old: jnp.where(is_better, new, old) if eqx.is_array(new) else new,
        network,
        member.best,
    )
    return MemberState(
        network, states, best, jnp.where(is_better, judged, member.best_score)
    ), score


def mean_score(score: Float[Array, ""], group: Int[Array, ""]) -> Float[Array, ""]:
    """The mean over the members of a group, without those that have broken down."""
    scores, groups = lax.all_gather((score, group), MEMBERS)
    counts = (groups == group) & jnp.isfinite(scores)
    return jnp.sum(jnp.where(counts, scores, 0.0)) / jnp.sum(counts)


MEMBER = eqx.if_array(0)
start_members = eqx.filter_jit(eqx.filter_vmap(start_member, in_axes=(MEMBER, None)))
train_chunk = eqx.filter_jit(
    eqx.filter_vmap(train_member, in_axes=(MEMBER, 0, MEMBER, None, None), axis_name=MEMBERS)
)


def shard_members(tree: Any, n_members: int) -> Any:
    """Members spread over the devices, as many devices as divide them evenly."""
    n_devices = max(n for n in range(1, jax.device_count() + 1) if n_members % n == 0)
    if n_devices == 1:
        return tree
    mesh = Mesh(np.asarray(jax.devices()[:n_devices]), ("members",))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("members")))


def train_stage(
    networks: Network,
    keys: Key[Array, " members"],
    folds: Fold,
    data: TrainingData,
    stage: Stage,
    report: Callable[[Progress], None] | None = None,
) -> tuple[Network, list[np.ndarray]]:
    """All members through one stage: the networks to go on with, and the scores of every group.

    ``networks``, ``keys`` and ``folds`` have a leading member axis; ``data`` are shared. The scores
    have the shape (chunks, members of the group). A group whose members have not become better for
    ``stage.patience`` chunks is done: it keeps its snapshots, whatever the others still do.
    """
    arrays, static = eqx.partition((networks, folds), eqx.is_array)
    arrays, keys = shard_members((arrays, keys), len(keys))
    networks, folds = eqx.combine(arrays, static)
    members = start_members(networks, stage)
    group = np.asarray(folds.group)
    n_groups = int(group.max()) + 1
    history: list[np.ndarray] = []
    best, since_best = np.full(len(keys), -np.inf), np.zeros(n_groups, dtype=int)
    length = np.full(n_groups, stage.n_chunks)
    for chunk in range(stage.n_chunks):
        fresh = jax.vmap(named_key, (0, None))(keys, f"{stage.name} {chunk}")
        members, scores = train_chunk(members, fresh, folds, data, stage)
        history.append(np.asarray(scores))  # the one wait for the device
        if report is not None:
            report(Progress(stage.name, chunk + 1, stage.n_chunks, history[-1]))
        if not stage.keep_best or not stage.patience:
            continue
        has_better = np.bincount(group, history[-1] > best, minlength=n_groups) > 0
        since_best = np.where(has_better, 0, since_best + 1)
        best = np.fmax(best, history[-1])
        done = (since_best >= stage.patience) & (length == stage.n_chunks)
        if not done.any():
            continue
        length[done] = chunk + 1
        if (length <= chunk + 1).all():
            break
        final = jnp.where(jnp.asarray(done[group]), jnp.inf, members.best_score)
        members = eqx.tree_at(lambda m: m.best_score, members, final)  # no snapshot beats infinity
    scores = np.stack(history)
    return members.best, [scores[: length[g], group == g] for g in range(n_groups)]
