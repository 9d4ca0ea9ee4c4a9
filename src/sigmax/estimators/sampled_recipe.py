"""Settings of networks that predict by drawing themselves, and the named sets of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from sigmax.estimators.recipe import N_CHUNKS, PATIENCE, VALIDATION_FRACTION, AbstractRecipe
from sigmax.networks import ACTIVATIONS
from sigmax.settings import (
    COUNT,
    COUNT_OR_ZERO,
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    SIZES,
    number,
    one_of,
    setting,
)
from sigmax.training import Part, Phase, Stage

__all__ = ["BAYESIAN", "BAYESIAN_PRESETS", "DROPOUT", "DROPOUT_PRESETS", "SampledRecipe"]


@final
@dataclass(frozen=True, kw_only=True)
class SampledRecipe(AbstractRecipe):
    """Settings of a network whose weights are random."""

    n_members: int = setting(1, COUNT, "Networks trained; 1 is the method as published.")
    n_draws: int = setting(100, COUNT, "Draws of the network in the prediction.")
    dropout_rate: float = setting(
        0.05,
        number(above=0, below=0.9, inclusive=True),
        "Probability that a unit, inputs included, is dropped.",
    )
    hidden_sizes: tuple[int, ...] = setting((128, 128), SIZES, "Units of the hidden layers.")
    activation: str = setting("silu", one_of(ACTIVATIONS), "Activation of the hidden layers.")
    n_steps: int = setting(
        20_000, COUNT, "Training steps. Draws are noise to the training as well: it takes many."
    )
    batch_size: int = setting(256, COUNT, "Rows of a batch.")
    learning_rate: float = setting(3e-3, POSITIVE, "Step size of Adam.")
    noise_learning_rate: float = setting(
        3e-2, POSITIVE, "Step size of Adam for the noise, one number that has a long way to go."
    )
    weight_decay: float = setting(1e-4, NOT_NEGATIVE, "Decoupled weight decay.")
    decay_rate: bool = setting(True, FLAG, "Let the step sizes fall to 0 along half a cosine.")
    validation_fraction: float = setting(*VALIDATION_FRACTION)
    patience: int = setting(0, COUNT_OR_ZERO, PATIENCE)

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
    support=(None, None),
)
DROPOUT_FAST = replace(DROPOUT, hidden_sizes=(64, 64), n_steps=1500, patience=15)
DROPOUT_PRESETS = {"fast": DROPOUT_FAST, "paper": PAPER}
BAYESIAN_PRESETS = {"fast": replace(BAYESIAN, n_steps=5000), "paper": PAPER}
