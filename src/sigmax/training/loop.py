"""The one training loop: members vmapped, chunks of steps compiled, the rest on the host.

Nothing in here knows scikit-learn, files or printing, nor what is trained: that is the stage's. A
chunk of steps is one compiled call and its scores are another; the host loops over chunks to report
progress, keep the best snapshots and stop early.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sigmax.training.member_axis import (
    MEMBERS,
    name_keys,
    over_members,
    spread_members,
    without_padding,
)

__all__ = ["AbstractStage", "MemberState", "Progress", "judge_members", "train_stage"]

S = TypeVar("S", bound="AbstractStage")  # beartype knows no Self


@dataclass(frozen=True, kw_only=True)
class AbstractStage(ABC):
    """Chunks of like training steps; after each, members are scored on their held-out rows.

    `start`, `run_chunk` and `judge` are pure functions of one member, which the loop maps over all
    and compiles, with the stage as a static argument. A ``fold`` says what one member
    learns from and has the field ``group``: the members of a group stop together. The ``data`` are
    shared by all members.
    """

    name: str
    """What a progress bar says."""
    keep_best: bool
    """Whether held-out rows are scored and the stage ends with each member's best snapshot."""
    is_judged_together: bool = False
    """Whether the members of a group keep the snapshots of one chunk, by their mean score."""
    patience: int
    """Chunks without a better score in any member before the stage ends early; 0 for never."""

    @property
    @abstractmethod
    def n_chunks(self) -> int:
        """Compiled calls."""

    @abstractmethod
    def start(self, network: Any) -> Any:
        """The states of the optimisers before the first step."""

    @abstractmethod
    def run_chunk(
        self, network: Any, states: Any, key: PRNGKeyArray, fold: Any, data: Any, clock: Any
    ) -> tuple[Any, Any, dict[str, Float[Array, ""]]]:
        """One chunk of steps: network and states after it, and figures for the history."""

    @abstractmethod
    def judge(self, network: Any, fold: Any, data: Any) -> tuple[Float[Array, ""], Any]:
        """The score of the held-out rows, higher is better, and what it was computed from, if
        anybody asks for that later."""

    def snapshot(self, network: Any, states: Any) -> Any:
        """The network that is scored and kept, where it is not the one that learns on."""
        return network

    def one_chunk(self: S) -> S:
        """What a compiled chunk depends on: stages that agree in it share their programs."""
        return replace(self, name="", patience=0)

    def key_name(self, chunk: int) -> str:
        """The name by which the keys of a chunk are split off."""
        return f"{self.name} {chunk}"

    def clock(self, chunk: int) -> Any:
        """Arrays by which one chunk, or one stage of the same programs, differs from another."""
        return None

    def before_chunk(self, networks: Any, keys: Any, folds: Any, data: Any, chunk: int) -> Any:
        """The networks of all members as the chunk should find them."""
        return networks

    def describe(self, figures: dict[str, np.ndarray]) -> str:
        """What a progress bar says of the figures of all members after a chunk."""
        scores = figures["score"]
        return "" if np.isnan(scores).all() else f"held-out score {np.nanmean(scores):.3f}"


@final
class MemberState(eqx.Module):
    """A member in training: where it is, and the best it has been."""

    network: Any
    states: Any
    """Of its optimisers."""
    best: Any
    best_score: Float[Array, "*members"]


@final
@dataclass(frozen=True)
class Progress:
    """What a caller is told after every chunk."""

    stage: AbstractStage
    chunk: int
    """How many are done."""
    figures: dict[str, np.ndarray]
    """Of every member, "score" among them, which is nan when nothing is held out."""


def advance_member(
    network: Any, states: Any, key: PRNGKeyArray, fold: Any, data: Any, stage: Any, clock: Any
) -> tuple[Any, Any, Any, dict[str, Float[Array, ""]]]:
    """One chunk of one member, with its snapshot: no member axis in sight."""
    network, states, figures = stage.run_chunk(network, states, key, fold, data, clock)
    return network, states, stage.snapshot(network, states), figures


def judge_member(network: Any, fold: Any, data: Any, stage: AbstractStage) -> tuple[Array, Any]:
    """What `AbstractStage.judge` returns.

    A program of its own, so that who asks the same once more, after the training, compiles nothing.
    """
    return stage.judge(network, fold, data)


def keep_better(
    best: Any,
    best_score: Float[Array, ""],
    found: Any,
    score: Float[Array, ""],
    group: Int[Array, ""],
    is_judged_together: bool,
    n_members: int,
) -> tuple[Any, Float[Array, ""]]:
    """The better snapshot of one member, and its score.

    Only members that are judged together look at the others, of which the first ``n_members`` are
    no padding.
    """
    judged = score
    if is_judged_together and n_members > 1:
        judged = mean_score(score, group, n_members)
    # Also False for nan: a broken member keeps its best.
    is_better = (judged > best_score) & jnp.isfinite(score)
    best = jax.tree.map(
        lambda new, old: jnp.where(is_better, new, old) if eqx.is_array(new) else new, found, best
    )
    return best, jnp.where(is_better, judged, best_score)


def mean_score(score: Float[Array, ""], group: Int[Array, ""], n_members: int) -> Float[Array, ""]:
    """The mean over the members of a group, without those that have broken down."""
    gathered = lax.all_gather((score, group), MEMBERS)
    scores, groups = (values[:n_members] for values in gathered)
    counts = (groups == group) & jnp.isfinite(scores)
    return jnp.sum(jnp.where(counts, scores, 0.0)) / jnp.sum(counts)


def start_member(network: Any, states: Any, stage: AbstractStage) -> MemberState:
    """A member at the first step of ``stage``, its optimisers in ``states`` if these are given."""
    states = stage.start(network) if states is None else states
    return MemberState(network, states, network, jnp.full((), -jnp.inf, dtype=jnp.float32))


start_members = over_members(start_member, 2)
advance_members = over_members(advance_member, 4)
judge_members = over_members(judge_member, 2)
keep_members = over_members(keep_better, 5)


def train_chunk(
    members: MemberState,
    keys: Key[Array, " members"],
    folds: Any,
    data: Any,
    stage: AbstractStage,
    clock: Any,
    n_members: int,
) -> tuple[MemberState, dict[str, Any]]:
    """One chunk of all members, ``n_members`` and padding, then their held-out scores."""
    network, states, found, figures = advance_members(
        members.network, members.states, keys, folds, data, stage, clock
    )
    if not stage.keep_best:
        figures = figures | {"score": np.full(len(keys), np.nan, np.float32)}
        return MemberState(network, states, found, members.best_score), figures
    score, _ = judge_members(found, folds, data, stage)
    kept = members.best, members.best_score, found, score, folds.group
    best, best_score = keep_members(*kept, stage.is_judged_together, n_members)
    return MemberState(network, states, best, best_score), figures | {"score": score}


def train_stage(
    networks: Any,
    keys: Key[Array, " members"],
    folds: Any,
    data: Any,
    stage: AbstractStage,
    report: Callable[[Progress], None] | None = None,
    *,
    states: Any = None,
) -> tuple[MemberState, list[dict[str, np.ndarray]]]:
    """All members through one stage: how they end, and the figures of every group.

    ``networks``, ``keys`` and ``folds`` have a leading member axis; ``data`` are shared. With
    ``states``, those of an earlier stage, its optimisers go on. A group whose members have not
    become better for ``stage.patience`` chunks is done: it keeps its snapshots, whatever the others
    still do. Members are spread over all devices. Figures have the shape (chunks, members of the
    group).
    """
    n_members, group, program = len(keys), np.asarray(folds.group), stage.one_chunk()
    members = start_members(networks, states, program)
    members, keys, folds = spread_members((members, keys, folds))
    n_groups = int(group.max()) + 1
    history: list[dict[str, np.ndarray]] = []
    best, since_best = np.full(n_members, -np.inf), np.zeros(n_groups, dtype=int)
    length = np.full(n_groups, stage.n_chunks)
    for chunk in range(stage.n_chunks):
        found = stage.before_chunk(members.network, keys, folds, data, chunk)
        members, fresh = replace(members, network=found), name_keys(keys, stage.key_name(chunk))
        members, figures = train_chunk(
            members, fresh, folds, data, program, stage.clock(chunk), n_members
        )
        # the one wait for the device
        history.append({name: np.asarray(value)[:n_members] for name, value in figures.items()})
        if report is not None:
            report(Progress(stage, chunk + 1, history[-1]))
        if not stage.keep_best or not stage.patience:
            continue
        scores = history[-1]["score"]
        has_better = np.bincount(group, scores > best, minlength=n_groups) > 0
        since_best = np.where(has_better, 0, since_best + 1)
        best = np.fmax(best, scores)
        done = (since_best >= stage.patience) & (length == stage.n_chunks)
        if not done.any():
            continue
        length[done] = chunk + 1
        if (length <= chunk + 1).all():
            break
        is_done = jnp.asarray(done)[folds.group]
        final = jnp.where(is_done, jnp.inf, members.best_score)  # no snapshot beats infinity
        members = replace(members, best_score=final)
    figures = {name: np.stack([at[name] for at in history]) for name in history[0]}
    histories = [
        {name: values[: length[g], group == g] for name, values in figures.items()}
        for g in range(n_groups)
    ]
    return without_padding(members, n_members), histories
