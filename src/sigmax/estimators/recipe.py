"""Recipes: all settings of a variance network and its training, and the named sets of them."""

from dataclasses import dataclass, fields, replace
from typing import Any

from sigmax.checks import check_choice, check_count, check_flag, check_number
from sigmax.errors import InvalidArgumentError
from sigmax.networks import ACTIVATIONS
from sigmax.training import (
    Part,
    Phase,
    Stage,
    log_likelihood,
    negative_log_likelihood,
    negative_squared_error,
    squared_error,
)

__all__ = ["DEFAULT", "FAST", "PAPER", "PRESETS", "Recipe"]

N_CHUNKS = 50
"""Held-out rows are scored about this often in a whole run."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of a variance network. Pairs are (for the mean, for the variance)."""

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
    learning_rate: tuple[float, float] = (3e-3, 3e-3)
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
    shrink_mean: bool = False
    """Let the mean tend to the mean of y off the data, too."""
    validation_fraction: float = 0.1
    """Rows that each member holds out to choose its best snapshot; 0 keeps the last one."""
    patience: int | None = 15
    """Scorings without a better snapshot before training stops."""
    recalibrate: bool = True
    """Fit one factor on all scales to the members' held-out rows."""

    def __post_init__(self):
        for name in ("n_members", "n_steps", "variance_steps", "batch_size", "n_inducing"):
            check_count(name, getattr(self, name))
        for name in ("locality", "split", "inverse_gamma", "extrapolate"):
            check_flag(name, getattr(self, name))
        for name in ("decay_rate", "shrink_mean", "recalibrate"):
            check_flag(name, getattr(self, name))
        for size in self.hidden_sizes:
            check_count("hidden_sizes", size)
        check_choice("activation", self.activation, ACTIVATIONS)
        for name in ("n_primary", "n_secondary", "n_neighbors"):
            for value in self._pair(name):
                check_count(name, value)
        for value in self._pair("learning_rate"):
            check_number("learning_rate", value, above=0)
        for value in self._pair("weight_decay"):
            check_number("weight_decay", value, above=0, inclusive=True)
        check_number("gate_learning_rate", self.gate_learning_rate, above=0, inclusive=True)
        check_number("prior_variance", self.prior_variance, above=0)
        check_number("warmup_fraction", self.warmup_fraction, above=0, below=1, inclusive=True)
        check_number(
            "validation_fraction", self.validation_fraction, above=0, below=0.5, inclusive=True
        )
        if self.gate_scale is not None:
            check_number("gate_scale", self.gate_scale, above=0)
        if self.patience is not None:
            check_count("patience", self.patience)

    def _pair(self, name: str) -> tuple[Any, Any]:
        value = getattr(self, name)
        if not isinstance(value, tuple) or len(value) != 2:
            raise InvalidArgumentError(
                f"`{name}` must be a pair (for the mean, for the variance), got {value!r}."
            )
        return value

    def override(self, **settings: Any) -> "Recipe":
        """The recipe with every setting that is not None put in place of its own."""
        known = {field.name for field in fields(self)}
        given = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in settings.items()
            if name in known and value is not None
        }
        return replace(self, **given)

    def fit_to(self, n_rows: int) -> "Recipe":
        """The recipe with neighbourhoods no larger than the data."""
        k = tuple(min(k, n_rows) for k in self.n_neighbors)
        n = tuple(min(n, k) for n, k in zip(self.n_secondary, k, strict=True))
        return replace(self, n_neighbors=k, n_secondary=n)

    def stages(self) -> tuple[Stage, ...]:
        """Warm-up of the mean, then mean and variance, apart or together.

        Graph 0 of the data are single rows, graphs 1 and 2 the neighbourhoods that mean and
        variance are trained on.
        """
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
        uniform = {"graph": 0, "n_primary": self.batch_size, "n_secondary": 1}
        local = [
            {"graph": 1 + i, "n_primary": self.n_primary[i], "n_secondary": self.n_secondary[i]}
            if self.locality
            else uniform
            for i in range(2)
        ]
        likelihood = negative_log_likelihood
        warmup = Phase(parts=(parts[0],), objective=squared_error, **uniform)
        mean = Phase(parts=(parts[0],), objective=likelihood, **local[0])
        variance = Phase(parts=tuple(parts[1:]), objective=likelihood, **local[1])
        joint = Phase(parts=tuple(parts), objective=likelihood, **local[0])

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
                patience=self.patience,
            )
            for name, phases, n_cycles, score in stages
            if n_cycles
        )


DEFAULT = Recipe()
FAST = replace(DEFAULT, n_members=2, hidden_sizes=(64, 64), n_steps=1500)
PAPER = Recipe(
    n_members=1,
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
    validation_fraction=0.0,
    patience=None,
    recalibrate=False,
)
PRESETS = {"fast": FAST, "paper": PAPER}
