"""Settings of kernel regression in a learned metric, and the named sets of them."""

import math
from dataclasses import dataclass, replace
from typing import final

from sigmax.estimators.recipe import FEW_ROWS, PATIENCE, VALIDATION_FRACTION, AbstractRecipe
from sigmax.settings import (
    COUNT,
    COUNT_OR_ZERO,
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    SIZES,
    number,
    setting,
)
from sigmax.training import LeaveOneOut, Part, Phase, Stage, bucket_size, held_out_density

__all__ = ["LOCAL_DEFAULT", "LOCAL_PRESETS", "LocalRecipe"]

FEWEST_STEPS = 600

STEPS_AS_FOR = 2304
"""Fewer rows are trained on for as many steps as this number of them: functions without noise take
that long. Of fewer than 200 rows, that many steps would learn the noise."""

DECAYED = 3600
"""With fewer rows than these, weight decay no longer grows as their inverse."""

MANY_ROWS, FEW_SCORINGS = 10_000, 20
"""With more rows than these, training is scored so often: it costs more there and tells less."""


PATIENT_SHARE = 0.75
"""Of the chunks that shards make, after which a training without a better score ends."""


@final
@dataclass(frozen=True, kw_only=True)
class LocalRecipe(AbstractRecipe):
    """Settings of kernel regression in a learned metric."""

    n_members: int = setting(
        5,
        COUNT,
        """Networks trained at once, of which the prediction is the equal mixture; ten with fewer
        than 200 rows unless this is given or 1.""",
    )
    hidden_sizes: tuple[int, ...] = setting(
        (128, 128), SIZES, "Units of the hidden layers of each network."
    )
    n_shared_layers: int = setting(
        1, COUNT_OR_ZERO, "Hidden layers that embedding, mean and spread have in common."
    )
    n_components: int = setting(
        3, COUNT, "Components of each member's mixture of priors; 1 is a single Student-t."
    )
    embedding_size: int = setting(32, COUNT, "Dimensions of the learned embedding.")
    n_waves: int = setting(16, COUNT, "Waves by which the networks see each feature.")
    frequency: float = setting(
        0.1,
        POSITIVE,
        "Spread of the waves' frequencies at the start, in waves per standard deviation.",
    )
    input_scale: float = setting(
        1.67,
        POSITIVE,
        "Length-scale of the kernel in input space, in standard deviations of the features.",
    )
    min_concentration: float = setting(
        2.0, number(above=1), "The least α of the prior: half its degrees of freedom."
    )
    prior_rows: float = setting(
        0.3, POSITIVE, "How many rows the prior mean counts for, at the start of training."
    )
    prior_variance: float = setting(
        1.0, POSITIVE, "Variance far from the data, in units of Var(y)."
    )
    n_steps: int | None = setting(
        None, COUNT, "Training steps, at most; None takes their number from `effort`."
    )
    effort: float = setting(
        25.0,
        POSITIVE,
        """Without `n_steps`: steps per square root of the number of rows, or of 2,304 if there are
        fewer.""",
    )
    n_primary: int = setting(8, COUNT, "Neighbourhoods of a batch.")
    n_neighbors: int = setting(64, COUNT, "Rows of a neighbourhood: the context.")
    n_queries: int = setting(
        32, COUNT, "The nearest of these rows, which are predicted from the context."
    )
    learning_rate: float = setting(
        4e-3, POSITIVE, "Step size of Adam, which falls to 0 along half a cosine."
    )
    weight_decay: float = setting(
        900.0,
        NOT_NEGATIVE,
        """Decoupled weight decay over the number of rows; with fewer than 3,600 rows less than
        that, as smooth functions without noise are learned from few rows, too.""",
    )
    error_weight: float = setting(
        0.5, NOT_NEGATIVE, "Weight of the squared error beside the likelihood."
    )
    average_weights: bool = setting(
        True, FLAG, "Keep averages of the weights over the last steps as snapshots."
    )
    n_trees: int = setting(
        30,
        COUNT_OR_ZERO,
        """Trees of each member's forest, at most, which is mixed in where held-out rows say so; 0
        for none. Of fewer than 200 different rows none is grown.""",
    )
    n_inducing: int = setting(
        1000,
        COUNT,
        "Inducing points of the extrapolation gate, at most; all rows if there are fewer.",
    )
    validation_fraction: float = setting(*VALIDATION_FRACTION)
    patience: int = setting(15, COUNT_OR_ZERO, PATIENCE)
    recalibrate: bool = setting(
        True,
        FLAG,
        """One factor on all scales and one bound on the degrees of freedom, from the members'
        held-out rows and their disagreement; with fewer than 200 rows also how far predictions are
        taken back to the mean and the variance of y.""",
    )
    n_scorings: int = 50
    """How often the held-out rows are looked at, at most."""
    decay_per_step: float = 0.0
    """`weight_decay` for the number of rows: what `fit_to` sets."""
    longest_chunk: int = 1
    """Steps between two scorings with the most rows that are padded to the same size."""

    def fit_to(self, n_rows: int) -> "LocalRecipe":
        """The recipe for so many rows: neighbourhoods, steps, scorings and weight decay."""
        k, n_slots = min(self.n_neighbors, n_rows), bucket_size(n_rows)
        return replace(
            self,
            n_neighbors=k,
            n_queries=min(self.n_queries, k),
            n_steps=self.steps_for(n_rows),
            n_scorings=self.scorings_for(n_rows),
            decay_per_step=self.weight_decay / n_rows * min(1.0, n_rows / DECAYED) ** 0.8,
            longest_chunk=self.steps_for(n_slots) // self.scorings_for(n_slots),
        )

    def for_shards(self, n_shards: int) -> "LocalRecipe":
        """The same steps, in at least one chunk for every shard of the rows."""
        assert self.n_steps is not None
        n_chunks = min(self.n_steps, max(self.n_scorings, n_shards))
        patience = self.patience and max(self.patience, round(PATIENT_SHARE * n_chunks))
        longest = self.n_steps // n_chunks
        return replace(self, n_scorings=n_chunks, patience=patience, longest_chunk=longest)

    def steps_for(self, n_rows: int) -> int:
        if n_rows >= FEW_ROWS:
            n_rows = max(n_rows, STEPS_AS_FOR)
        return self.n_steps or max(FEWEST_STEPS, round(self.effort * math.sqrt(n_rows)))

    def scorings_for(self, n_rows: int) -> int:
        return FEW_SCORINGS if n_rows > MANY_ROWS else self.n_scorings

    def graph_sizes(self) -> dict[str, int]:
        return {"queries": self.n_queries, "context": self.n_neighbors}

    def stages(self) -> tuple[Stage, ...]:
        """All parts together, by the leave-one-out likelihood."""
        n_steps = self.n_steps or FEWEST_STEPS
        decayed = {"learning_rate": self.learning_rate, "final_rate": 0.0}
        names = ("inputs", "trunk", "embedding", "mean", "spread")
        names = names if self.n_shared_layers else (names[0], *names[2:])
        parts = [Part(name=name, weight_decay=self.decay_per_step, **decayed) for name in names]
        phase = Phase(
            parts=(*parts, Part(name="kernel", **decayed)),
            objective=LeaveOneOut(self.n_primary, self.error_weight),
            graph="context",
            n_primary=self.n_primary,
            n_secondary=self.n_neighbors,
        )
        stage = Stage(
            name="distribution",
            phases=(phase,),
            n_cycles=n_steps,
            cycles_per_chunk=max(1, n_steps // self.n_scorings),
            longest_chunk=self.longest_chunk,
            predict=held_out_density,
            averages=self.average_weights,
            keep_best=self.validation_fraction > 0,
            is_judged_together=self.is_judged_together,
            patience=self.patience,
        )
        return (stage,)


LOCAL_DEFAULT = LocalRecipe(target_map="auto")
LOCAL_FAST = replace(
    LOCAL_DEFAULT, n_members=2, hidden_sizes=(64, 64), effort=12.0, target_map="none"
)
LOCAL_PRESETS = {"fast": LOCAL_FAST}
