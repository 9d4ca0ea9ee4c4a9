"""The members of a stage, wherever they are trained: on this process's devices unless told."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, final

import numpy as np
from jaxtyping import Array, Float, Key

from sigmax.training.chunk import (
    AbstractStage,
    MemberState,
    keep_better,
    start_members,
    train_chunk,
)
from sigmax.training.member_axis import name_keys, spread_members, without_padding

__all__ = ["AbstractTeam", "LocalTeam", "gather_team", "other_teams", "train_numbered_chunk"]


class AbstractTeam(ABC):
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
class LocalTeam(AbstractTeam):
    """Members spread over the devices of this process."""

    def __init__(
        self,
        networks: Any,
        states: Any,
        keys: Key[Array, " members"],
        folds: Any,
        data: Any,
        stage: AbstractStage,
    ):
        members = start_members(networks, states, stage.one_chunk())
        self.members, self.keys, self.folds = spread_members((members, keys, folds))
        self.data, self.stage, self.n_members = data, stage, len(keys)

    def advance(self, chunk: int) -> dict[str, np.ndarray]:
        self.members, figures = train_numbered_chunk(
            self.members, self.keys, self.folds, self.data, self.stage, chunk
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
    folds: Any,
    data: Any,
    stage: AbstractStage,
    chunk: int,
) -> tuple[MemberState, dict[str, Any]]:
    """Members after the chunk of that number, and their figures."""
    found = stage.before_chunk(members.network, keys, folds, data, chunk)
    fresh, clock = name_keys(keys, stage.key_name(chunk)), stage.clock(chunk)
    return train_chunk(
        replace(members, network=found), fresh, folds, data, stage.one_chunk(), clock
    )


GATHER: ContextVar[Callable[..., AbstractTeam]] = ContextVar("GATHER", default=LocalTeam)


def gather_team(*arguments: Any) -> AbstractTeam:
    """The team of a stage, from what `LocalTeam` takes, where `other_teams` says."""
    return GATHER.get()(*arguments)


@contextmanager
def other_teams(gather: Callable[..., AbstractTeam]) -> Iterator[None]:
    """For the time of a block, members are trained by the teams that ``gather`` makes."""
    token = GATHER.set(gather)
    try:
        yield
    finally:
        GATHER.reset(token)
