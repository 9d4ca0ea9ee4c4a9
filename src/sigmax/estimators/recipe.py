"""Recipes: all settings of a variance network and its training, and the named sets of them."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

from sigmax.estimators.folds import held_out_share
from sigmax.networks import ACTIVATIONS
from sigmax.settings import (
    COUNT,
    COUNT_OR_ZERO,
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    SIZES,
    AbstractSettings,
    number,
    one_of,
    setting,
)
from sigmax.targets import SUPPORT, TARGET_MAPS
from sigmax.training import (
    Part,
    Phase,
    Stage,
    beta_negative_log_likelihood,
    faithful_error,
    log_likelihood,
    negative_log_likelihood,
    negative_squared_error,
    squared_error,
)

__all__ = [
    "DEFAULT",
    "FAST",
    "N_CHUNKS",
    "PAPER",
    "PATIENCE",
    "PLAIN",
    "PLAIN_PRESETS",
    "PRESETS",
    "VALIDATION_FRACTION",
    "AbstractRecipe",
    "Recipe",
]

LOSSES: dict[str, Callable] = {
    "likelihood": negative_log_likelihood,
    "beta": beta_negative_log_likelihood,
    "faithful": faithful_error,
}

FEW_ROWS, N_MEMBERS_OF_FEW = 200, 10
"""With fewer rows than this, there are so many members unless `n_members` is given."""

N_CHUNKS = 50
"""Held-out rows are scored about this often in each stage."""

VALIDATION_FRACTION = (
    0.1,
    number(above=0, below=0.5, inclusive=True),
    """Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
    Rows of equal X are held out together. Of fewer than 200 rows, 20 rows or 40 % are held out
    unless this is given.""",
)
PATIENCE = "Scorings without a better snapshot before training stops; 0 never stops early."


@dataclass(frozen=True, kw_only=True)
class AbstractRecipe(AbstractSettings):
    """Settings of networks and their training."""

    n_members: int
    target_map: str = setting(
        "none",
        one_of(("auto", *TARGET_MAPS)),
        """What the networks learn: y itself, or a monotone function of it that makes its
        distribution Normal; "auto" lets held-out rows decide. Of fewer than 200 different rows, y
        itself is learned, whatever is asked.""",
    )
    support: str | tuple[float | None, float | None] = setting(*SUPPORT)
    validation_fraction: float
    is_judged_together: bool = False
    """Whether all members keep the snapshots of the same step, by the mean of their scores."""

    def for_rows(self, n_rows: int) -> Any:
        """The recipe with more members, which hold out a larger share, where rows are few.

        Each is judged on other rows, and all together on nearly all rows: the fewer there are, the
        less one split of them says, and the more a choice of each member's own would flatter it. A
        recipe without held-out rows stays as it is, and one of a single network has one.
        """
        share = self.validation_fraction
        if n_rows >= FEW_ROWS or not share:
            return self
        n_members = max(self.n_members, N_MEMBERS_OF_FEW) if self.n_members > 1 else 1
        share = held_out_share(n_rows, share)
        return replace(
            self, n_members=n_members, validation_fraction=share, is_judged_together=True
        )

    @abstractmethod
    def fit_to(self, n_rows: int) -> "AbstractRecipe":
        """The recipe with neighbourhoods no larger than the data."""

    @abstractmethod
    def graph_sizes(self) -> dict[str, int]:
        """Sizes of the neighbourhoods that batches are drawn from, by the name of the graph.

        There is one more graph, "single", of single rows.
        """


@final
@dataclass(frozen=True, kw_only=True)
class Recipe(AbstractRecipe):
    """Settings of a variance network."""

    n_members: int = setting(
        5,
        COUNT,
        """Networks trained at once, of which the prediction is the equal mixture; ten with fewer
        than 200 rows unless this is given or 1.""",
    )
    locality: bool = setting(
        True, FLAG, "Draw batches with the locality sampler (LS) instead of uniformly."
    )
    split: bool = setting(True, FLAG, "Never train mean and variance in the same step (MV).")
    inverse_gamma: bool = setting(
        True,
        FLAG,
        "Give the variance an inverse-Gamma distribution (IG): a Student-t predictive.",
    )
    extrapolate: bool = setting(
        True, FLAG, "Let the variance tend to `prior_variance` away from the data (EX)."
    )
    min_concentration: float = setting(
        3.0,
        number(above=1),
        """With `inverse_gamma`, the least α: half the degrees of freedom of the Student-t. Near 1
        the tails may be so heavy that the variance, which follows from them, means nothing.""",
    )
    loss: str = setting(
        "likelihood",
        one_of(LOSSES),
        """Without `split`: the plain likelihood; β-NLL with β = ½ (Seitzer et al.); or the squared
        error for the mean and the likelihood around it for the variance (Stirn et al.).""",
    )
    hidden_sizes: tuple[int, ...] = setting(
        (128, 128), SIZES, "Units of the hidden layers of each network."
    )
    activation: str = setting("silu", one_of(ACTIVATIONS), "Activation of the hidden layers.")
    n_steps: int = setting(
        4000, COUNT, "Training steps in all, of the mean and of the variance together."
    )
    warmup_fraction: float = setting(
        0.3,
        number(above=0, below=1, inclusive=True),
        "Share of the steps that train the mean alone, at first.",
    )
    variance_steps: int = setting(
        1, COUNT, "With `split`, variance steps after each step of the mean."
    )
    batch_size: int = setting(256, COUNT, "Rows of a batch in the warm-up and without `locality`.")
    n_primary: int = setting(16, COUNT, "Centres of a locality batch of the mean.")
    n_secondary: int = setting(16, COUNT, "Neighbours drawn of each of these centres.")
    n_neighbors: int = setting(32, COUNT, "Nearest neighbours that these are drawn from.")
    variance_n_primary: int = setting(16, COUNT, "Centres of a locality batch of the variance.")
    variance_n_secondary: int = setting(16, COUNT, "Neighbours drawn of each of these centres.")
    variance_n_neighbors: int = setting(32, COUNT, "Nearest neighbours that these are drawn from.")
    learning_rate: float = setting(3e-3, POSITIVE, "Step size of Adam for the mean.")
    variance_learning_rate: float = setting(1e-3, POSITIVE, "Step size of Adam for the variance.")
    weight_decay: float = setting(1e-4, NOT_NEGATIVE, "Decoupled weight decay of the mean network.")
    variance_weight_decay: float = setting(
        1e-4, NOT_NEGATIVE, "Decoupled weight decay of the variance networks."
    )
    decay_rate: bool = setting(True, FLAG, "Let the step sizes fall to 0 along half a cosine.")
    n_inducing: int = setting(
        100,
        COUNT,
        "Inducing points of the extrapolation gate, at most; all rows if there are fewer.",
    )
    gate_scale: float | None = setting(
        None,
        POSITIVE,
        """Initial width of the paper's gate, in standardised units; None takes both the width and a
        margin, within which the gate is closed, from the data.""",
    )
    gate_learning_rate: float = setting(
        1e-3, NOT_NEGATIVE, "Step size of Adam for inducing points and gate width."
    )
    prior_variance: float = setting(
        1.0, POSITIVE, "Variance far from the data, in units of Var(y)."
    )
    shrink_mean: bool = setting(
        True, FLAG, "Let the mean tend to the mean of y away from the data, too."
    )
    validation_fraction: float = setting(*VALIDATION_FRACTION)
    patience: int = setting(15, COUNT_OR_ZERO, PATIENCE)
    recalibrate: bool = setting(
        True,
        FLAG,
        """Widen all scales by the one factor that suits the members' held-out rows best. With fewer
        than 200 rows these also decide how far predictions are taken back to the mean and the
        variance of y.""",
    )

    def plain(self) -> "Recipe":
        """The recipe of a network that has none of the four ideas."""
        return replace(self, locality=False, split=False, inverse_gamma=False, extrapolate=False)

    def fit_to(self, n_rows: int) -> "Recipe":
        k, variance_k = (min(k, n_rows) for k in (self.n_neighbors, self.variance_n_neighbors))
        return replace(
            self,
            n_neighbors=k,
            n_secondary=min(self.n_secondary, k),
            variance_n_neighbors=variance_k,
            variance_n_secondary=min(self.variance_n_secondary, variance_k),
        )

    def graph_sizes(self) -> dict[str, int]:
        sizes = (self.n_neighbors, self.variance_n_neighbors) if self.locality else ()
        return {f"{k} neighbors": k for k in sizes}

    def stages(self) -> tuple[Stage, ...]:
        """Warm-up of the mean, then mean and variance, apart or together."""
        decay = {"final_rate": 0.0 if self.decay_rate else 1.0}
        rates = self.learning_rate, self.variance_learning_rate
        decays = self.weight_decay, self.variance_weight_decay
        parts = [
            Part(name=name, learning_rate=rate, weight_decay=weight_decay, **decay)
            for name, rate, weight_decay in zip(("mean", "spread"), rates, decays, strict=True)
        ]
        if self.extrapolate:
            parts.append(Part(name="gate", learning_rate=self.gate_learning_rate, **decay))
        uniform: dict[str, Any] = {
            "graph": "single",
            "n_primary": self.batch_size,
            "n_secondary": 1,
        }

        def local(k: int, n_primary: int, n_secondary: int) -> dict[str, Any]:
            sizes = {"n_primary": n_primary, "n_secondary": n_secondary}
            return {"graph": f"{k} neighbors", **sizes} if self.locality else uniform

        of_mean = local(self.n_neighbors, self.n_primary, self.n_secondary)
        of_variance = local(
            self.variance_n_neighbors, self.variance_n_primary, self.variance_n_secondary
        )
        likelihood = negative_log_likelihood
        warmup = Phase(parts=(parts[0],), objective=squared_error, **uniform)
        mean = Phase(parts=(parts[0],), objective=likelihood, **of_mean)
        variance = Phase(parts=tuple(parts[1:]), objective=likelihood, **of_variance)
        joint = Phase(parts=tuple(parts), objective=LOSSES[self.loss], **of_mean)

        n_warmup = round(self.warmup_fraction * self.n_steps)
        cycle = (mean, *[variance] * self.variance_steps) if self.split else (joint,)
        keep_best = self.validation_fraction > 0
        stages = [
            ("mean", (warmup,), n_warmup, negative_squared_error),
            ("distribution", cycle, (self.n_steps - n_warmup) // len(cycle), log_likelihood),
        ]
        return tuple(
            Stage(
                name=name,
                phases=phases,
                n_cycles=n_cycles,
                cycles_per_chunk=max(1, n_cycles // N_CHUNKS),
                score=score,
                keep_best=keep_best,
                is_judged_together=self.is_judged_together,
                patience=self.patience,
            )
            for name, phases, n_cycles, score in stages
            if n_cycles
        )


DEFAULT = Recipe()
FAST = replace(DEFAULT, n_members=2, hidden_sizes=(64, 64), n_steps=1500)
PAPER = Recipe(
    n_members=1,
    min_concentration=1.1,
    hidden_sizes=(50,),
    activation="relu",
    n_steps=10_000,
    warmup_fraction=0.5,
    batch_size=256,
    n_primary=3,
    n_secondary=40,
    n_neighbors=50,
    variance_n_primary=1,
    variance_n_secondary=10,
    variance_n_neighbors=10,
    learning_rate=1e-2,
    variance_learning_rate=1e-2,
    weight_decay=0.0,
    variance_weight_decay=0.0,
    decay_rate=False,
    n_inducing=500,
    gate_scale=1.5,
    shrink_mean=False,
    validation_fraction=0.0,
    patience=0,
    recalibrate=False,
    support=(None, None),
)
PRESETS = {"fast": FAST, "paper": PAPER}

PLAIN = replace(DEFAULT, n_members=1).plain()
PLAIN_PRESETS = {name: replace(preset, n_members=1).plain() for name, preset in PRESETS.items()}
"""Of single networks that have none of the paper's ideas."""
