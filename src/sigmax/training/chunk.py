"""One chunk of steps of some members, compiled, and what is kept of it.

Nothing in here knows scikit-learn, files or printing, nor what is trained: that is the stage's. A
chunk of steps is one compiled call and its scores are another.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from sigmax.training.member_axis import over_members

__all__ = [
    "AbstractStage",
    "MemberState",
    "judge_members",
    "keep_better",
    "start_members",
    "train_chunk",
]

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
    found: Any
    """The snapshot after the last chunk."""
    best: Any
    best_score: Float[Array, "*members"]


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


def keep_snapshot(members: MemberState, judged: Float[Array | np.ndarray, ""]) -> MemberState:
    """A member that keeps its last snapshot if it is judged better than its best one.

    Nothing is better than a score, nor worse, that is nan.
    """
    is_better = judged > members.best_score
    best = jax.tree.map(
        lambda new, old: jnp.where(is_better, new, old) if eqx.is_array(new) else new,
        members.found,
        members.best,
    )
    return replace(members, best=best, best_score=jnp.where(is_better, judged, members.best_score))


def start_member(network: Any, states: Any, stage: AbstractStage) -> MemberState:
    """A member at the first step of ``stage``, its optimisers in ``states`` if these are given."""
    states = stage.start(network) if states is None else states
    worst = jnp.full((), -jnp.inf, dtype=jnp.float32)
    return MemberState(network, states, network, network, worst)


start_members = over_members(start_member, 2)
advance_members = over_members(advance_member, 4)
judge_members = over_members(judge_member, 2)
keep_better = over_members(keep_snapshot, 2)


def train_chunk(
    members: MemberState,
    keys: Key[Array, " members"],
    folds: Any,
    data: Any,
    stage: AbstractStage,
    clock: Any,
) -> tuple[MemberState, dict[str, Any]]:
    """One chunk of all members, then their held-out scores; `keep_better` is for the caller.

    Where nothing is scored, the last snapshot is the best.
    """
    network, states, found, figures = advance_members(
        members.network, members.states, keys, folds, data, stage, clock
    )
    if stage.keep_best:
        best, (score, _) = members.best, judge_members(found, folds, data, stage)
    else:
        best, score = found, np.full(len(keys), np.nan, np.float32)
    trained = MemberState(network, states, found, best, members.best_score)
    return trained, figures | {"score": score}
