"""What a training run consists of: stages of cycles of phases."""

from collections.abc import Callable
from dataclasses import dataclass

import optax

__all__ = ["Part", "Phase", "Stage"]


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


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One step: some parts of the network learn by one objective from one kind of batch."""

    parts: tuple[Part, ...]
    """What learns; everything else is held fixed."""
    objective: Callable
    """A loss per row, from ``sigmax.training.objective``."""
    graph: int
    """Which graph of the data the batch is drawn from."""
    n_primary: int
    """Centres of a batch."""
    n_secondary: int
    """Neighbours taken of each."""
    is_random: bool = False
    """Whether the objective draws, and so needs a key in every step."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Cycles of the same phases, judged by one score on the held-out rows."""

    name: str
    """What a progress bar says."""
    phases: tuple[Phase, ...]
    """The steps of one cycle, in order."""
    n_cycles: int
    """How often the cycle is run."""
    cycles_per_chunk: int
    """Cycles in one compiled call; after each call the held-out rows are scored."""
    score: Callable
    """A score per row, higher is better."""
    keep_best: bool
    """Whether the stage ends with each member's best snapshot rather than its last."""
    is_judged_together: bool = False
    """Whether the members of a group keep the snapshots of one chunk, by their mean score."""
    patience: int
    """Chunks without a better score in any member before the stage ends early; 0 for never."""

    @property
    def n_chunks(self) -> int:
        return -(-self.n_cycles // self.cycles_per_chunk)
