r"""The paper's method, "Combined" (Detlefsen, Jørgensen and Hauberg 2019), and its four ideas.

The network of one ensemble member gives a mean $\mu(x)$ and a distribution of the variance
$\sigma^2(x)$. Each idea is a switch of `Combined`; without any it is the mean-variance network of
Nix and Weigend, and with several members the deep ensemble of Lakshminarayanan et al.

====  ====================================================  =======================================
idea  in the paper                                          here
====  ====================================================  =======================================
LS    locality sampler: psu primary sampling units, then    `Combined.stages`: ``n_primary``,
      ssu of the k nearest neighbours of each, and          ``n_secondary``, ``n_neighbors``;
      Horvitz-Thompson weights $1/\pi_j$                     `sigmax.sampling` draws and weighs
MV    mean-variance split: while one is trained, the other  `Combined.stages`: phases "mean" and
      is fixed                                              "spread" take turns
IG    $\sigma^2 \sim$ Inv-Gamma$(\alpha, \beta)$, hence a   `InverseGammaSpread`
      Student-t $p(y|x)$
EX    $\hat\sigma^2 = (1-\nu(\delta))\sigma^2 + \nu\eta$,   `VarianceNetwork`, with the gate of
      $\nu = \text{sigmoid}((\delta + a)/\gamma)$            `sigmax.extrapolation`
====  ====================================================  =======================================
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from sigmax.calibration import few_rows_factor
from sigmax.compilation import by_blocks, compiled, stack_members
from sigmax.distributions import AbstractDistribution, Mixture, Normal, StudentT, blend_factor
from sigmax.experts.base import AbstractFitted, HeldOut
from sigmax.experts.ensemble import (
    N_MEMBERS,
    PATIENCE,
    VALIDATION_FRACTION,
    AbstractNetworkExpert,
    Trained,
    held_out_densities,
    held_out_factor,
    mean_gates,
)
from sigmax.experts.rows import Rows
from sigmax.extrapolation import NO_CENTER, ExtrapolationGate, create_gate, gate_relevance
from sigmax.inputs import Inputs
from sigmax.networks import ACTIVATIONS, SMALLEST_VARIANCE, TabularMLP, inverse_softplus
from sigmax.random import RandomKey, named_generator
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
from sigmax.training import Batch, Part, Phase, Stage, TrainingData

N_CHUNKS = 50
"""Validations in each stage, about."""
RowValues = Float[Array, " batch"]


# IG: the variance has an inverse-Gamma distribution, hence y a Student-t.

INITIAL_VARIANCE, INITIAL_CONCENTRATION = 0.3, 4.0


@final
class InverseGammaSpread(eqx.Module):
    r"""IG: a variance with an inverse-Gamma distribution, hence a Student-t around the mean.

    $\alpha = \alpha_0 + \text{softplus}(\cdot)$ with $\alpha_0 > 1$, so that
    $E[\sigma^2] = \beta/(\alpha-1)$ exists, and $\beta = \alpha\,\text{softplus}(\cdot)$: the
    second network is the squared scale.
    """

    concentration: TabularMLP
    squared_scale: TabularMLP
    min_concentration: float = eqx.field(static=True)

    @classmethod
    def create(
        cls, *sizes: Any, activation: str, min_concentration: float = 1.1
    ) -> "InverseGammaSpread":
        """Untrained networks; ``sizes`` are those of `TabularMLP.create`."""
        above_least = max(INITIAL_CONCENTRATION - min_concentration, 1.0)
        concentration, squared_scale = (
            TabularMLP.create(*sizes, activation=activation, output_bias=inverse_softplus(value))
            for value in (above_least, INITIAL_VARIANCE)
        )
        return cls(concentration, squared_scale, min_concentration)

    def __call__(self, x: Inputs, mean: Float[Array, "rows outputs"]) -> StudentT:
        alpha = self.min_concentration + jax.nn.softplus(self.concentration(x))
        beta = alpha * (jax.nn.softplus(self.squared_scale(x)) + SMALLEST_VARIANCE)
        return StudentT.from_inverse_gamma(mean, alpha, beta)


@final
class NormalSpread(eqx.Module):
    """One variance per row, without IG."""

    variance: TabularMLP

    @classmethod
    def create(cls, *sizes: Any, activation: str) -> "NormalSpread":
        """Untrained network; ``sizes`` are those of `TabularMLP.create`."""
        bias = inverse_softplus(INITIAL_VARIANCE)
        return cls(TabularMLP.create(*sizes, activation=activation, output_bias=bias))

    def __call__(self, x: Inputs, mean: Float[Array, "rows outputs"]) -> Normal:
        variance = jax.nn.softplus(self.variance(x)) + SMALLEST_VARIANCE
        return Normal(mean, variance**0.5)


# EX: away from the data, the variance tends to a prior variance.


@final
class VarianceNetwork(eqx.Module):
    r"""Density of one ensemble member: mean, spread and gate.

    Everything is in standardised units, where a prior variance $\eta = 1$ is Var(y). EX: the gate
    $\tilde\nu$ leaves the shape of the density and sets its variance to
    $(1-\tilde\nu)\sigma^2 + \tilde\nu\eta$; for the inverse-Gamma spread that is the rate
    $(1-\tilde\nu)\beta + \tilde\nu\eta(\alpha-1)$. With ``shrink_mean`` the mean, too, tends to
    that of y, which is 0. It does so as $1-\tilde\nu^2$, later than the variance: a row just beyond
    the data should become uncertain before its mean moves.

    ``factor`` multiplies every scale on the data; it is chosen on validation rows after the
    training.
    """

    mean: TabularMLP
    spread: InverseGammaSpread | NormalSpread
    gate: ExtrapolationGate | None
    factor: Float[Array, ""]
    prior_variance: float = eqx.field(static=True)
    shrink_mean: bool = eqx.field(static=True)

    def __call__(
        self, x: Inputs, own_center: Int[Array, " rows"] | None = None
    ) -> AbstractDistribution:
        mean = self.mean(x)
        if self.gate is None:
            return self.spread(x, mean).widen(jnp.broadcast_to(self.factor, mean.shape))
        gate = self.gate_value(x, own_center)[:, None]
        on_data = self.spread(x, (1 - gate**2) * mean if self.shrink_mean else mean)
        on_data = on_data.widen(jnp.broadcast_to(self.factor, mean.shape))
        return on_data.widen(blend_factor(gate, self.prior_variance, on_data.variance))

    def gate_value(
        self, x: Inputs, own_center: Int[Array, " rows"] | None = None
    ) -> Float[Array, " rows"]:
        """Gate at every row: 0 on the data, 1 far from them, 0 without a gate."""
        if self.gate is None:
            return jnp.zeros(len(x))
        return self.gate(
            jnp.asarray(x.actual_coordinates),
            jnp.full(len(x), NO_CENTER) if own_center is None else own_center,
        )

    def check(self) -> None:
        if not np.all(np.asarray(self.factor) > 0):
            raise ValueError("factors on scales must be above 0")


# Objectives, and the densities of validation rows.


def density(network: VarianceNetwork, batch: Batch, data: TrainingData) -> AbstractDistribution:
    """Density of every row; a row that is an inducing point of the gate does not see itself."""
    return network(batch.X, batch.own_center)


def negative_log_likelihood(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    """Minus the log-density of a row; outputs are independent given x, so theirs add up."""
    return -jnp.sum(density(network, batch, data).log_prob(batch.y), axis=1)


def beta_negative_log_likelihood(
    network: VarianceNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    """Loss of each row times its standard deviation, taken as given (Seitzer 2022, β = ½)."""
    dist = density(network, batch, data)
    return -jnp.sum(lax.stop_gradient(dist.std) * dist.log_prob(batch.y), axis=1)


def faithful_error(network: VarianceNetwork, batch: Batch, data: TrainingData) -> RowValues:
    """Squared error for the mean, likelihood around it for the variance (Stirn 2023)."""
    dist = density(network, batch, data)
    fixed = eqx.tree_at(lambda d: d.mean, dist, lax.stop_gradient(dist.mean))
    return squared_error(network, batch, data) - jnp.sum(fixed.log_prob(batch.y), axis=1)


def squared_error(network: Any, batch: Batch, data: TrainingData) -> RowValues:
    """Half the squared error of the mean network alone: the likelihood of one common variance."""
    return 0.5 * jnp.sum((batch.y - network.mean(batch.X)) ** 2, axis=1)


def negative_squared_error(network: Any, batch: Batch, data: TrainingData) -> RowValues:
    return -squared_error(network, batch, data)


LOSSES: dict[str, Callable] = {
    "likelihood": negative_log_likelihood,
    "beta": beta_negative_log_likelihood,
    "faithful": faithful_error,
}


@final
@dataclass(frozen=True, kw_only=True)
class Combined(AbstractNetworkExpert):
    """The paper's method, with all of its settings."""

    n_members: int = setting(*N_MEMBERS)
    locality: bool = setting(
        True,
        FLAG,
        "True to draw batches with the locality sampler (LS), False for uniform batches.",
    )
    split: bool = setting(True, FLAG, "True to train mean and variance in separate steps (MV).")
    inverse_gamma: bool = setting(
        True, FLAG, "True for an inverse-Gamma variance (IG), which gives Student-t predictions."
    )
    extrapolate: bool = setting(
        True,
        FLAG,
        "True if the variance tends to `prior_variance` far from the training rows (EX).",
    )
    min_concentration: float = setting(
        3.0,
        number(above=1),
        """Minimum α with `inverse_gamma`, half the degrees of freedom of the Student-t. Near 1
        the tails may be so heavy that the variance, which depends on them, means nothing.""",
    )
    loss: str = setting(
        "likelihood",
        one_of(LOSSES),
        """Without `split`: the likelihood; β-NLL with β = ½ (Seitzer et al.); or the squared
        error for the mean and the likelihood for the variance (Stirn et al.).""",
    )
    hidden_sizes: tuple[int, ...] = setting(
        (128, 128), SIZES, "Units of the hidden layers of each network."
    )
    activation: str = setting("silu", one_of(ACTIVATIONS), "Activation of the hidden layers.")
    n_steps: int = setting(
        4000, COUNT, "Total number of training steps, of the mean and of the variance."
    )
    warmup_fraction: float = setting(
        0.3,
        number(above=0, below=1, inclusive=True),
        "Share of the steps at the beginning that train only the mean.",
    )
    variance_steps: int = setting(
        1, COUNT, "Number of variance steps after each step of the mean, with `split`."
    )
    batch_size: int = setting(256, COUNT, "Rows of a batch in the warm-up and without `locality`.")
    n_primary: int = setting(16, COUNT, "Centres of a locality batch of the mean (psu).")
    n_secondary: int = setting(16, COUNT, "Neighbours drawn for each of these centres (ssu).")
    n_neighbors: int = setting(32, COUNT, "Nearest neighbours from which they are drawn.")
    variance_n_primary: int = setting(16, COUNT, "Centres of a locality batch of the variance.")
    variance_n_secondary: int = setting(16, COUNT, "Neighbours drawn for each of these centres.")
    variance_n_neighbors: int = setting(32, COUNT, "Nearest neighbours from which they are drawn.")
    learning_rate: float = setting(3e-3, POSITIVE, "Step size of Adam for the mean.")
    variance_learning_rate: float = setting(1e-3, POSITIVE, "Step size of Adam for the variance.")
    weight_decay: float = setting(1e-4, NOT_NEGATIVE, "Decoupled weight decay of the mean network.")
    variance_weight_decay: float = setting(
        1e-4, NOT_NEGATIVE, "Decoupled weight decay of the variance networks."
    )
    decay_rate: bool = setting(
        True, FLAG, "True to reduce the step sizes to 0 along half a cosine."
    )
    n_inducing: int = setting(
        100,
        COUNT,
        "Maximum number of inducing points of the gate; all rows if there are fewer.",
    )
    gate_scale: float | None = setting(
        None,
        POSITIVE,
        """Initial width γ of the paper's gate, in standardised units; None estimates the width, and
        a margin within which the gate is closed, from the data.""",
    )
    gate_learning_rate: float = setting(
        1e-3, NOT_NEGATIVE, "Step size of Adam for inducing points and gate width."
    )
    prior_variance: float = setting(
        1.0, POSITIVE, "Variance η far from the training rows, in units of Var(y)."
    )
    shrink_mean: bool = setting(
        True, FLAG, "True if the mean tends to that of y far from the training rows."
    )
    validation_fraction: float = setting(*VALIDATION_FRACTION)
    patience: int = setting(15, COUNT_OR_ZERO, PATIENCE)
    recalibrate: bool = setting(
        True,
        FLAG,
        "Multiply all scales by the one factor that makes the validation rows likeliest.",
    )

    def plain(self) -> "Combined":
        """Mean-variance network: none of the four ideas, and one member."""
        switches = dict.fromkeys(("locality", "split", "inverse_gamma", "extrapolate"), False)
        return replace(self, n_members=1, **switches)

    def fit_to(self, n_rows: int) -> "Combined":
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

    def init(self, rows: Rows, X: Inputs, key: RandomKey) -> tuple[VarianceNetwork, np.ndarray]:
        gate, own_center = None, np.full(len(X), NO_CENTER)
        if self.extrapolate:
            scale = self.gate_scale
            coordinates, relevance = np.asarray(X.coordinates), None
            if scale is None:
                y = rows.y.astype(np.float32)
                relevance = gate_relevance(rows.features, coordinates, y, key)
            gate, own_center = create_gate(
                coordinates, self.n_inducing, key, scale=scale, relevance=relevance
            )
        sizes, members = (X, self.hidden_sizes, rows.y.shape[1]), []
        for member in range(self.n_members):
            rng = named_generator(key, f"mean of member {member}")
            mean = TabularMLP.create(rng, *sizes, activation=self.activation)
            create: Any = NormalSpread.create
            if self.inverse_gamma:
                least = self.min_concentration
                create = partial(InverseGammaSpread.create, min_concentration=least)
            rng = named_generator(key, f"spread of member {member}")
            parts = mean, create(rng, *sizes, activation=self.activation), gate
            settings = self.prior_variance, self.shrink_mean
            members.append(VarianceNetwork(*parts, jnp.ones(()), *settings))
        return stack_members(members), own_center

    def stages(self) -> tuple[Stage, ...]:
        """Warm-up of the mean on uniform batches, then mean and variance, apart or together."""
        decay = {"final_rate": 0.0 if self.decay_rate else 1.0}
        rates = self.learning_rate, self.variance_learning_rate
        decays = self.weight_decay, self.variance_weight_decay
        parts = [
            Part(name=name, learning_rate=rate, weight_decay=weight_decay, **decay)
            for name, rate, weight_decay in zip(("mean", "spread"), rates, decays, strict=True)
        ]
        if self.extrapolate:
            parts.append(Part(name="gate", learning_rate=self.gate_learning_rate, **decay))
        uniform = {"graph": "single", "n_primary": self.batch_size, "n_secondary": 1}

        def batches(k: int, n_primary: int, n_secondary: int) -> dict[str, Any]:
            """LS: psu centres, then ssu of the k nearest neighbours of each."""
            sizes = {"n_primary": n_primary, "n_secondary": n_secondary}
            return {"graph": f"{k} neighbors", **sizes} if self.locality else uniform

        of_mean = batches(self.n_neighbors, self.n_primary, self.n_secondary)
        of_variance = batches(
            self.variance_n_neighbors, self.variance_n_primary, self.variance_n_secondary
        )
        likelihood = negative_log_likelihood
        warmup = Phase(parts=(parts[0],), objective=squared_error, **uniform)
        mean = Phase(parts=(parts[0],), objective=likelihood, **of_mean)
        variance = Phase(parts=tuple(parts[1:]), objective=likelihood, **of_variance)
        joint = Phase(parts=tuple(parts), objective=LOSSES[self.loss], **of_mean)

        n_warmup = round(self.warmup_fraction * self.n_steps)
        # MV: one step of the mean, then steps of the variance, each with the other one fixed.
        cycle = (mean, *[variance] * self.variance_steps) if self.split else (joint,)
        stages = [
            ("mean", (warmup,), n_warmup, {"score": negative_squared_error}),
            ("distribution", cycle, (self.n_steps - n_warmup) // len(cycle), {"predict": density}),
        ]
        return tuple(
            Stage(
                name=name,
                phases=phases,
                n_cycles=n_cycles,
                cycles_per_chunk=max(1, n_cycles // N_CHUNKS),
                keep_best=self.validation_fraction > 0,
                patience=self.patience,
                **scored,
            )
            for name, phases, n_cycles, scored in stages
            if n_cycles
        )

    def finish(self, trained: Trained) -> "CombinedFitted":
        networks, rows, dist = trained.networks, (trained.folds, trained.data), None
        if self.validation_fraction:
            stage = replace(trained.prepared.stages[-1], score=None, predict=density)
            found = held_out_densities(networks, *rows, stage)
            if self.recalibrate:
                # The same rows chose the checkpoints, which look too good: nothing is narrowed.
                factor = jnp.maximum(held_out_factor(found, *rows), 1.0)
                factor = factor * few_rows_factor(trained.prepared.rows.given.n_distinct)
                factors = jnp.broadcast_to(factor, networks.factor.shape)
                networks = eqx.tree_at(lambda n: n.factor, networks, factors)
                found = held_out_densities(networks, *rows, stage)
            dist = Mixture(jax.tree.map(lambda leaf: leaf[None], found))
        held_out = trained.held_out(dist)
        networks = jax.tree.map(np.asarray, networks)
        return CombinedFitted(networks=networks, held_out=held_out, history=trained.history)


@final
class CombinedFitted(AbstractFitted):
    """Trained members; the prediction is their equal mixture."""

    networks: VarianceNetwork
    """Members along the first axis of all arrays."""
    held_out: HeldOut
    history: dict[str, np.ndarray]
    """Validation scores (chunks, members) by stage."""

    def density(self, X: Inputs) -> Mixture:
        X = X.astype(np.float32)
        return Mixture(by_blocks(partial(predict_members, self.networks), X, axis=1))

    def gate(self, X: Inputs) -> Float[np.ndarray, " rows"]:
        return mean_gates(self.networks, X.astype(np.float32))

    def prediction_shape(self, X: Inputs) -> tuple[int, ...]:
        dist = eqx.filter_eval_shape(predict_members, self.networks, X.astype(np.float32))
        return dist.mean.shape[1:]


@compiled
def predict_members(networks: VarianceNetwork, X: Inputs) -> AbstractDistribution:
    axes = (eqx.if_array(0), None)
    return eqx.filter_vmap(lambda network, X: network(X), in_axes=axes)(networks, X)


DEFAULT = Combined()
PAPER = Combined(
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
PRESETS = {
    "default": DEFAULT,
    "fast": replace(DEFAULT, n_members=2, hidden_sizes=(64, 64), n_steps=1500),
    "paper": PAPER,
}
PLAIN_PRESETS = {name: preset.plain() for name, preset in PRESETS.items()}
"""Presets of mean-variance networks."""
