"""The one training loop: chunks of steps of ensemble members, and validation between them.

Nothing in here knows scikit-learn, files or printing, nor what is trained: that is the stage's. A
chunk of steps of all members is one compiled call and their validation scores are another. The host
loops over chunks to report progress, to keep the best checkpoints and to stop early.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from sigmax.training.member_axis import (
    name_keys,
    over_members,
    spread_members,
    without_padding,
)

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
    scored: tuple[Any, Any] | None = None,
) -> tuple[MemberState, dict[str, Any]]:
    """One chunk of all members, then their held-out scores; `keep_better` is for the caller.

    ``folds`` and ``data`` are what they learn from, and what they are scored on unless ``scored``
    are others. Where nothing is scored, the last snapshot is the best.
    """
    network, states, found, figures = advance_members(
        members.network, members.states, keys, folds, data, stage, clock
    )
    if stage.keep_best:
        best, (score, _) = members.best, judge_members(found, *(scored or (folds, data)), stage)
    else:
        best, score = found, np.full(len(keys), np.nan, np.float32)
    trained = MemberState(network, states, found, best, members.best_score)
    return trained, figures | {"score": score}


Supply = Callable[[int], tuple[Any, Any]]
"""Folds and data to learn from, by the number of the chunk."""


class AbstractTrainer(ABC):
    """Members in training, which go through a stage chunk by chunk."""

    @abstractmethod
    def advance(self, chunk: int) -> dict[str, np.ndarray]:
        """Train all members for one chunk: their figures, "score" among them."""

    @abstractmethod
    def keep(self, judged: Float[np.ndarray, " members"]) -> None:
        """Keep the last snapshots of the members for which ``judged`` is better than before."""

    @abstractmethod
    def end(self) -> MemberState:
        """All members as they are now."""


@final
class LocalTrainer(AbstractTrainer):
    """Members spread over the devices of this process."""

    def __init__(
        self,
        networks: Any,
        states: Any,
        keys: Key[Array, " members"],
        folds: Any,
        data: Any,
        stage: AbstractStage,
        supply: Supply | None = None,
    ):
        members = start_members(networks, states, stage.one_chunk())
        self.members, self.keys, self.folds = spread_members((members, keys, folds))
        self.data, self.stage, self.n_members = data, stage, len(keys)
        self.supply = supply

    def advance(self, chunk: int) -> dict[str, np.ndarray]:
        learned = scored = self.folds, self.data
        if self.supply is not None:
            folds, data = self.supply(chunk)
            learned = spread_members(folds), data
        self.members, figures = train_numbered_chunk(
            self.members, self.keys, learned, scored, self.stage, chunk
        )
        return {name: np.asarray(value)[: self.n_members] for name, value in figures.items()}

    def keep(self, judged: Float[np.ndarray, " members"]) -> None:
        slots = np.arange(len(self.keys)) % self.n_members  # padding is copies of the first ones
        self.members = keep_better(self.members, judged[slots])

    def end(self) -> MemberState:
        return without_padding(self.members, self.n_members)


def train_numbered_chunk(
    members: MemberState,
    keys: Key[Array, " members"],
    learned: tuple[Any, Any],
    scored: tuple[Any, Any],
    stage: AbstractStage,
    chunk: int,
) -> tuple[MemberState, dict[str, Any]]:
    """Members after the chunk of that number, and their figures."""
    found = stage.before_chunk(members.network, keys, *learned, chunk)
    fresh, clock = name_keys(keys, stage.key_name(chunk)), stage.clock(chunk)
    ready = replace(members, network=found)
    return train_chunk(ready, fresh, *learned, stage.one_chunk(), clock, scored)


TRAINER: ContextVar[Callable[..., AbstractTrainer]] = ContextVar("TRAINER", default=LocalTrainer)


def create_trainer(*arguments: Any) -> AbstractTrainer:
    """Trainer of a stage: on this machine, or where `other_trainers` says."""
    return TRAINER.get()(*arguments)


@contextmanager
def other_trainers(create: Callable[..., AbstractTrainer]) -> Iterator[None]:
    """For the time of a block, members are trained by the teams that ``create`` makes."""
    token = TRAINER.set(create)
    try:
        yield
    finally:
        TRAINER.reset(token)


@final
@dataclass(frozen=True)
class Progress:
    """What a caller is told before the first chunk of a stage, and after every chunk."""

    stage: AbstractStage
    chunk: int
    """How many are done."""
    figures: dict[str, np.ndarray]
    """Of every member, "score" among them, which is nan when nothing is held out; at first none."""


def train_stage(
    networks: Any,
    keys: Key[Array, " members"],
    folds: Any,
    data: Any,
    stage: AbstractStage,
    report: Callable[[Progress], None] | None = None,
    *,
    states: Any = None,
    supply: Supply | None = None,
) -> tuple[MemberState, list[dict[str, np.ndarray]]]:
    """All members through one stage: how they end, and the figures of every group.

    ``networks``, ``keys`` and ``folds`` have a leading member axis; ``data`` are shared. With
    ``states``, those of an earlier stage, its optimisers go on. With a ``supply``, members learn
    from what it gives for the chunk, and ``folds`` and ``data`` are what they are scored on.

    A group whose members have not become better for ``stage.patience`` chunks is done: it keeps its
    snapshots, whatever the others still do. Members are spread over all devices, or over a cluster
    inside `sigmax.on_ray`. Figures have the shape (chunks, members of the group).
    """
    n_members, group = len(keys), np.asarray(folds.group)
    trainer = create_trainer(networks, states, keys, folds, data, stage, supply)
    n_groups = int(group.max()) + 1
    history: list[dict[str, np.ndarray]] = []
    best, since_best = np.full(n_members, -np.inf), np.zeros(n_groups, dtype=int)
    length = np.full(n_groups, stage.n_chunks)
    if report is not None:
        report(Progress(stage, 0, {}))
    for chunk in range(stage.n_chunks):
        history.append(trainer.advance(chunk))  # the one wait for the devices
        scores = history[-1]["score"]
        if stage.keep_best:
            is_open = (length == stage.n_chunks)[group]
            trainer.keep(judge(scores, group, is_open, together=stage.is_judged_together))
        if report is not None:
            report(Progress(stage, chunk + 1, history[-1]))
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


def judge(
    scores: Float[np.ndarray, " members"],
    group: Int[np.ndarray, " members"],
    is_open: Bool[np.ndarray, " members"],
    *,
    together: bool,
) -> Float[np.ndarray, " members"]:
    """What the last snapshots of the members are worth, nan for those that must not be kept.

    Members that are judged ``together`` have the mean score of their group, without those that have
    broken down; these, and members whose groups are done, keep what they have.
    """
    is_sound = np.isfinite(scores)
    judged = np.where(is_sound, scores, 0.0)
    if together:
        total, count = (np.bincount(group, weights) for weights in (judged, is_sound))
        judged = (total / np.fmax(count, 1))[group]
    return np.where(is_sound & is_open, judged, np.nan).astype(np.float32)
