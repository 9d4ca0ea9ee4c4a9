"""Settings of the local likelihood and its training, and the named sets of them."""

import math
from dataclasses import dataclass, replace
from functools import partial

from sigmax.checks import check_count, check_flag, check_number, check_sizes
from sigmax.estimators.recipe import (
    AbstractRecipe,
    Check,
    check_not_negative,
    check_positive,
)
from sigmax.training import LeaveOneOut, Part, Phase, Stage, local_log_likelihood

__all__ = ["LOCAL_DEFAULT", "LOCAL_FAST", "LocalRecipe"]

FEWEST_STEPS = 600

MANY_ROWS, FEW_SCORINGS = 10_000, 20
"""With more rows than these, training is scored so often: it costs more there and tells less."""

CHECKS: dict[str, Check] = {
    "n_members": check_count,
    "hidden_sizes": check_sizes,
    "embedding_size": check_count,
    "n_waves": check_count,
    "frequency": check_positive,
    "input_scale": check_positive,
    "min_concentration": partial(check_number, above=1),
    "prior_rows": check_positive,
    "prior_variance": check_positive,
    "n_steps": check_count,
    "effort": check_positive,
    "n_primary": check_count,
    "n_neighbors": check_count,
    "n_queries": check_count,
    "learning_rate": check_positive,
    "weight_decay": check_not_negative,
    "error_weight": check_not_negative,
    "n_inducing": check_count,
    "validation_fraction": partial(check_number, above=0, below=0.5, inclusive=True),
    "patience": partial(check_count, minimum=0),
    "recalibrate": check_flag,
}


@dataclass(frozen=True, kw_only=True)
class LocalRecipe(AbstractRecipe):
    """Settings of the local likelihood."""

    checks = CHECKS

    n_members: int = 5
    """Networks trained at once; the prediction is their equal mixture."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of each network."""
    embedding_size: int = 32
    """Dimensions of the learned metric."""
    n_waves: int = 16
    """Waves by which networks see a feature."""
    frequency: float = 0.1
    """Spread of their frequencies at the start, in waves per standard deviation."""
    input_scale: float = 1.67
    """Length-scale of the kernel in input space, in standard deviations of the features."""
    min_concentration: float = 3.0
    """The least α of the prior, half its degrees of freedom."""
    prior_rows: float = 0.3
    """How many rows the prior mean counts for, at the start."""
    prior_variance: float = 1.0
    """Variance far from the data, in units of Var(y)."""
    n_steps: int | None = None
    """Training steps, at most; None takes them from `effort`."""
    effort: float = 25.0
    """Without `n_steps`: steps per square root of the number of rows."""
    n_primary: int = 8
    """Neighbourhoods of a batch."""
    n_neighbors: int = 64
    """Rows of a neighbourhood: the context."""
    n_queries: int = 32
    """The nearest of them, which are predicted."""
    learning_rate: float = 4e-3
    """Step size of Adam, which falls to 0 along half a cosine."""
    weight_decay: float = 7.0
    """Decoupled weight decay, over the square root of the number of rows: with steps by `effort`,
    weights shrink as much over the whole training, whatever that number."""
    error_weight: float = 0.5
    """Weight of the squared error beside the likelihood."""
    n_inducing: int = 1000
    """Inducing points of the extrapolation gate, at most; all rows if there are fewer."""
    validation_fraction: float = 0.1
    """Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
    The presets hold out more of fewer than 200 rows: 20 rows, or 40 %."""
    patience: int = 15
    """Scorings without a better snapshot before training stops; 0 never stops early."""
    n_scorings: int = 50
    """How often the held-out rows are looked at, at most."""
    recalibrate: bool = True
    """One factor on all scales and one bound on the degrees of freedom, from held-out rows."""
    decay_per_step: float = 0.0
    """`weight_decay` for the number of rows: what `fit_to` sets."""

    def fit_to(self, n_rows: int) -> "LocalRecipe":
        """The recipe for so many rows: neighbourhoods, steps, scorings and weight decay."""
        k = min(self.n_neighbors, n_rows)
        n_steps = self.n_steps or max(FEWEST_STEPS, round(self.effort * math.sqrt(n_rows)))
        return replace(
            self,
            n_neighbors=k,
            n_queries=min(self.n_queries, k),
            n_steps=n_steps,
            n_scorings=FEW_SCORINGS if n_rows > MANY_ROWS else self.n_scorings,
            decay_per_step=self.weight_decay / math.sqrt(n_rows),
        )

    def graph_sizes(self) -> dict[str, int]:
        return {"queries": self.n_queries, "context": self.n_neighbors}

    def stages(self) -> tuple[Stage, ...]:
        """All parts together, by the leave-one-out likelihood."""
        n_steps = self.n_steps or FEWEST_STEPS
        decayed = {"learning_rate": self.learning_rate, "final_rate": 0.0}
        names = ("features", "embedding", "mean", "spread")
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
            score=local_log_likelihood,
            keep_best=self.validation_fraction > 0,
            is_judged_together=self.is_judged_together,
            patience=self.patience,
        )
        return (stage,)


LOCAL_DEFAULT = LocalRecipe()
LOCAL_FAST = replace(LOCAL_DEFAULT, n_members=2, hidden_sizes=(64, 64), effort=12.0)
