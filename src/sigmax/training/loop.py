"""The one training loop: chunks of steps of a team of members, and between them the host.

The host loops over chunks to report progress, to judge what the members have become and to stop
early; where the members are trained is the team's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from sigmax.training.chunk import AbstractStage, MemberState
from sigmax.training.team import Supply, gather_team

__all__ = ["Progress", "train_stage"]


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
    team = gather_team(networks, states, keys, folds, data, stage, supply)
    n_groups = int(group.max()) + 1
    history: list[dict[str, np.ndarray]] = []
    best, since_best = np.full(n_members, -np.inf), np.zeros(n_groups, dtype=int)
    length = np.full(n_groups, stage.n_chunks)
    if report is not None:
        report(Progress(stage, 0, {}))
    for chunk in range(stage.n_chunks):
        history.append(team.advance(chunk))  # the one wait for the devices
        scores = history[-1]["score"]
        if stage.keep_best:
            is_open = (length == stage.n_chunks)[group]
            team.keep(judge(scores, group, is_open, together=stage.is_judged_together))
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
    return team.end(), histories


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
