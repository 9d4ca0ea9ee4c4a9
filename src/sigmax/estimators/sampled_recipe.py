"""Settings of networks that predict by drawing themselves, and the named sets of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sigmax.checks import check_choice, check_count, check_flag, check_number, check_sizes
from sigmax.estimators.recipe import (
    N_CHUNKS,
    AbstractRecipe,
    Check,
    check_not_negative,
    check_positive,
)
from sigmax.networks import ACTIVATIONS
from sigmax.training import Part, Phase, Stage

__all__ = ["BAYESIAN", "BAYESIAN_PRESETS", "DROPOUT", "DROPOUT_PRESETS", "SampledRecipe"]

CHECKS: dict[str, Check] = {
    "n_members": check_count,
    "n_draws": check_count,
    "dropout_rate": partial(check_number, above=0, below=0.9, inclusive=True),
    "hidden_sizes": check_sizes,
    "activation": partial(check_choice, choices=ACTIVATIONS),
    "n_steps": check_count,
    "batch_size": check_count,
    "learning_rate": check_positive,
    "noise_learning_rate": check_positive,
    "weight_decay": check_not_negative,
    "decay_rate": check_flag,
    "validation_fraction": partial(check_number, above=0, below=0.5, inclusive=True),
    "patience": partial(check_count, minimum=0),
}


@dataclass(frozen=True, kw_only=True)
class SampledRecipe(AbstractRecipe):
    """Settings of a network whose weights are random."""

    checks = CHECKS

    n_members: int = 1
    """Networks trained; 1 is the method as published."""
    n_draws: int = 100
    """Draws of the network in the prediction."""
    dropout_rate: float = 0.05
    """Of MC-Dropout: chance of a unit, inputs included, to be dropped."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers."""
    activation: str = "silu"
    """``"relu"``, ``"silu"`` or ``"tanh"``."""
    n_steps: int = 20_000
    """Training steps. Draws are noise to the training as well: it takes many."""
    batch_size: int = 256
    """Rows of a batch."""
    learning_rate: float = 3e-3
    """Step size of Adam."""
    noise_learning_rate: float = 3e-2
    """Of the Bayesian network: that of its noise, one number that has a long way to go."""
    weight_decay: float = 1e-4
    """Decoupled weight decay; the prior of the Bayesian network takes its place."""
    decay_rate: bool = True
    """Let the step sizes fall to 0 along half a cosine."""
    validation_fraction: float = 0.1
    """Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
    The presets hold out more of fewer than 200 rows: 20 rows, or 40 %."""
    patience: int = 0
    """Scorings without a better snapshot before training stops; 0 never stops early."""

    def fit_to(self, n_rows: int) -> "SampledRecipe":
        return self

    def graph_sizes(self) -> dict[str, int]:
        return {}

    def stages(self, parts: tuple[Part, ...], objective: Callable, score: Callable) -> tuple[Stage]:
        """All steps alike: random batches and a random objective."""
        phase = Phase(
            parts=parts,
            objective=objective,
            graph="single",
            n_primary=self.batch_size,
            n_secondary=1,
            is_random=True,
        )
        stage = Stage(
            name="distribution",
            phases=(phase,),
            n_cycles=self.n_steps,
            cycles_per_chunk=max(1, self.n_steps // N_CHUNKS),
            score=score,
            keep_best=self.validation_fraction > 0,
            is_judged_together=self.is_judged_together,
            patience=self.patience,
        )
        return (stage,)

    def part(self, name: str, learning_rate: float, weight_decay: float = 0.0) -> Part:
        """A part of the network with its optimiser."""
        return Part(
            name=name,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            final_rate=0.0 if self.decay_rate else 1.0,
        )


DROPOUT = SampledRecipe()
BAYESIAN = replace(DROPOUT, hidden_sizes=(50, 50), activation="relu")
"""Every weight costs evidence: in wider networks more of them fall back to the prior."""

PAPER = SampledRecipe(
    hidden_sizes=(50,),
    activation="relu",
    n_steps=10_000,
    learning_rate=1e-2,
    noise_learning_rate=1e-1,
    weight_decay=0.0,
    decay_rate=False,
    validation_fraction=0.0,
)
DROPOUT_FAST = replace(DROPOUT, hidden_sizes=(64, 64), n_steps=1500, patience=15)
DROPOUT_PRESETS = {"fast": DROPOUT_FAST, "paper": PAPER}
BAYESIAN_PRESETS = {"fast": replace(BAYESIAN, n_steps=5000), "paper": PAPER}
