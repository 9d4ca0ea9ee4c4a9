"""How an autoencoder is trained: settings that do not change while it is."""

from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Phase", "Plan"]

Phase = Literal["joint", "warm-up", "split"]
"""What a step trains: everything at once; encoder and mean under one common std; or encoder and
mean first, then, on a locality batch, the variance."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training run."""

    n_steps: int
    """Iterations; each trains every network of its phase once."""
    warm_up: float
    """Share of the iterations over which the weight of the divergence grows from 0 to 1."""
    batch_size: int
    learning_rate: float
    n_primary: int = 1
    """Neighbourhoods of a locality batch."""
    n_secondary: int = 1
    """Rows taken of each."""
    splits: bool = False
    """Whether mean and variance are never trained in the same step."""
    patience: int | None = None
    """Scorings without a better one before training ends; None for never."""
    longest_chunk: int = 100
    """Iterations in one compiled call; after each the held-out rows are scored."""

    @property
    def n_chunks(self) -> int:
        """At least two where a warm-up is to differ from what follows it."""
        least = min(self.n_steps, 2) if self.splits and self.warm_up else 1
        return max(least, -(-self.n_steps // self.longest_chunk))

    @property
    def steps_per_chunk(self) -> int:
        """Chunks are all of one length, so the last may run a few iterations over."""
        return -(-self.n_steps // self.n_chunks)

    def one_chunk(self) -> "Plan":
        """What a compiled chunk depends on, so that a longer run of the like compiles nothing."""
        n_steps = self.steps_per_chunk
        return replace(self, n_steps=n_steps, longest_chunk=n_steps, warm_up=0.0, patience=None)

    @property
    def n_warm_up_chunks(self) -> int:
        return round(self.warm_up * self.n_chunks)

    @property
    def first_judged_chunk(self) -> int:
        """The first after the warm-up, or the last of all: held-out scores count from here on."""
        return min(self.n_warm_up_chunks, self.n_chunks - 1)

    def phase(self, chunk: int) -> Phase:
        if not self.splits:
            return "joint"
        return "warm-up" if chunk < self.first_judged_chunk else "split"
