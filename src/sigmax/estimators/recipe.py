"""Recipes: all settings of a variance network and its training, and the named sets of them."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from sigmax.checks import check_choice, check_count, check_flag, check_number, check_sizes
from sigmax.errors import InvalidArgumentError
from sigmax.estimators.folds import held_out_share
from sigmax.networks import ACTIVATIONS
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
    "PRESETS",
    "AbstractRecipe",
    "Check",
    "Recipe",
    "check_not_negative",
    "check_positive",
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

Check = Callable[[str, Any], Any]


def pair_of(check: Check) -> Check:
    """A check of both entries of a pair."""

    def check_pair(name: str, value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            rule = "a pair (for the mean, for the variance)"
            raise InvalidArgumentError(f"`{name}` must be {rule}, got {value!r}.")
        return check(name, value[0]), check(name, value[1])

    return check_pair


check_positive = partial(check_number, above=0)
check_not_negative = partial(check_number, above=0, inclusive=True)

CHECKS: dict[str, Check] = {
    "n_members": check_count,
    "locality": check_flag,
    "split": check_flag,
    "inverse_gamma": check_flag,
    "extrapolate": check_flag,
    "min_concentration": partial(check_number, above=1),
    "loss": partial(check_choice, choices=LOSSES),
    "hidden_sizes": check_sizes,
    "activation": partial(check_choice, choices=ACTIVATIONS),
    "n_steps": check_count,
    "warmup_fraction": partial(check_number, above=0, below=1, inclusive=True),
    "variance_steps": check_count,
    "batch_size": check_count,
    "n_primary": pair_of(check_count),
    "n_secondary": pair_of(check_count),
    "n_neighbors": pair_of(check_count),
    "learning_rate": pair_of(check_positive),
    "weight_decay": pair_of(check_not_negative),
    "decay_rate": check_flag,
    "n_inducing": check_count,
    "gate_scale": check_positive,
    "gate_learning_rate": check_not_negative,
    "prior_variance": check_positive,
    "shrink_mean": check_flag,
    "validation_fraction": partial(check_number, above=0, below=0.5, inclusive=True),
    "patience": partial(check_count, minimum=0),
    "recalibrate": check_flag,
}


@dataclass(frozen=True, kw_only=True)
class AbstractRecipe:
    """Settings of a network and its training, each with its check."""

    checks: ClassVar[dict[str, Check]]

    n_members: int
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

    def override(self, **settings: Any) -> Any:
        """The recipe with every setting that is not None checked and put in place of its own."""
        given = {
            name: self.checks[name](name, value)
            for name, value in settings.items()
            if name in self.checks and value is not None
        }
        return replace(self, **given)

    @abstractmethod
    def fit_to(self, n_rows: int) -> "AbstractRecipe":
        """The recipe with neighbourhoods no larger than the data."""

    @abstractmethod
    def graph_sizes(self) -> dict[str, int]:
        """Sizes of the neighbourhoods that batches are drawn from, by the name of the graph.

        There is one more graph, "single", of single rows.
        """


@dataclass(frozen=True, kw_only=True)
class Recipe(AbstractRecipe):
    """Settings of a variance network. Pairs are (for the mean, for the variance)."""

    checks = CHECKS

    n_members: int = 5
    """Networks trained at once; the prediction is their equal mixture."""
    locality: bool = True
    """Draw batches with the locality sampler (LS) instead of uniformly."""
    split: bool = True
    """Never train mean and variance in the same step (MV)."""
    inverse_gamma: bool = True
    """Give the variance an inverse-Gamma distribution (IG): a Student-t predictive."""
    extrapolate: bool = True
    """Let the variance tend to `prior_variance` off the data (EX)."""
    min_concentration: float = 3.0
    """With `inverse_gamma`: the least α, half the degrees of freedom. Near 1 the tails may be so
    heavy that the variance, which follows from them, means nothing."""
    loss: str = "likelihood"
    """Without `split`: ``"likelihood"``, ``"beta"`` (β-NLL, β = ½) or ``"faithful"``."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of each network."""
    activation: str = "silu"
    """``"relu"``, ``"silu"`` or ``"tanh"``."""
    n_steps: int = 4000
    """Training steps in all, of the mean and of the variance together."""
    warmup_fraction: float = 0.3
    """Share of the steps that train the mean alone, at first."""
    variance_steps: int = 1
    """With `split`: variance steps after each mean step."""
    batch_size: int = 256
    """Rows of a batch without `locality`, and of every warm-up batch."""
    n_primary: tuple[int, int] = (16, 16)
    """Centres of a locality batch."""
    n_secondary: tuple[int, int] = (16, 16)
    """Neighbours drawn of each centre."""
    n_neighbors: tuple[int, int] = (32, 32)
    """Neighbours to draw from."""
    learning_rate: tuple[float, float] = (3e-3, 1e-3)
    """Step sizes of Adam."""
    weight_decay: tuple[float, float] = (1e-4, 1e-4)
    """Decoupled weight decay."""
    decay_rate: bool = True
    """Let the step sizes fall to 0 along half a cosine."""
    n_inducing: int = 100
    """Inducing points of the extrapolation gate, at most; all rows if there are fewer."""
    gate_scale: float | None = None
    """Initial width of the paper's gate, in standardised units; None takes both width and a
    margin, within which the gate is shut, from the data."""
    gate_learning_rate: float = 1e-3
    """Step size of inducing points and gate width."""
    prior_variance: float = 1.0
    """Variance far from the data, in units of Var(y)."""
    shrink_mean: bool = True
    """Let the mean tend to the mean of y off the data, too."""
    validation_fraction: float = 0.1
    """Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
    The presets hold out more of fewer than 200 rows: 20 rows, or 40 %."""
    patience: int = 15
    """Scorings without a better snapshot before training stops; 0 never stops early."""
    recalibrate: bool = True
    """Widen all scales by the one factor that suits the members' held-out rows best."""

    def plain(self) -> "Recipe":
        """The recipe of a network that has none of the four ideas."""
        return replace(self, locality=False, split=False, inverse_gamma=False, extrapolate=False)

    def fit_to(self, n_rows: int) -> "Recipe":
        k = tuple(min(k, n_rows) for k in self.n_neighbors)
        n = tuple(min(n, k) for n, k in zip(self.n_secondary, k, strict=True))
        return replace(self, n_neighbors=k, n_secondary=n)

    def graph_sizes(self) -> dict[str, int]:
        return {f"{k} neighbors": k for k in self.n_neighbors} if self.locality else {}

    def stages(self) -> tuple[Stage, ...]:
        """Warm-up of the mean, then mean and variance, apart or together."""
        final_rate = 0.0 if self.decay_rate else 1.0
        parts = [
            Part(
                name=name,
                learning_rate=self.learning_rate[i],
                weight_decay=self.weight_decay[i],
                final_rate=final_rate,
            )
            for i, name in enumerate(("mean", "spread"))
        ]
        if self.extrapolate:
            rate = self.gate_learning_rate
            parts.append(Part(name="gate", learning_rate=rate, final_rate=final_rate))
        uniform: dict[str, Any] = {
            "graph": "single",
            "n_primary": self.batch_size,
            "n_secondary": 1,
        }
        local: list[dict[str, Any]] = [
            {
                "graph": f"{self.n_neighbors[i]} neighbors",
                "n_primary": self.n_primary[i],
                "n_secondary": self.n_secondary[i],
            }
            if self.locality
            else uniform
            for i in range(2)
        ]
        likelihood = negative_log_likelihood
        warmup = Phase(parts=(parts[0],), objective=squared_error, **uniform)
        mean = Phase(parts=(parts[0],), objective=likelihood, **local[0])
        variance = Phase(parts=tuple(parts[1:]), objective=likelihood, **local[1])
        joint = Phase(parts=tuple(parts), objective=LOSSES[self.loss], **local[0])

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
    n_primary=(3, 1),
    n_secondary=(40, 10),
    n_neighbors=(50, 10),
    learning_rate=(1e-2, 1e-2),
    weight_decay=(0.0, 0.0),
    decay_rate=False,
    n_inducing=500,
    gate_scale=1.5,
    shrink_mean=False,
    validation_fraction=0.0,
    patience=0,
    recalibrate=False,
)
PRESETS = {"fast": FAST, "paper": PAPER}
