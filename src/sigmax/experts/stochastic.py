"""Networks that are random themselves: MC dropout (Gal and Ghahramani) and Flipout (Wen et al.).

The prediction mixes ``n_draws`` draws of the network, one component of the mixture per draw. The
draws are the same in every prediction, so that a fitted model is a function.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key, PRNGKeyArray

from sigmax.calibration import few_rows_factor
from sigmax.compilation import by_blocks, compiled, on_device, stack_members
from sigmax.distributions import Mixture, Normal
from sigmax.experts.base import AbstractFitted, HeldOut
from sigmax.experts.combined import INITIAL_VARIANCE, N_CHUNKS, RowValues, negative_squared_error
from sigmax.experts.ensemble import PATIENCE, VALIDATION_FRACTION, AbstractNetworkExpert, Trained
from sigmax.experts.rows import Rows
from sigmax.extrapolation import NO_CENTER
from sigmax.inputs import Inputs
from sigmax.networks import ACTIVATIONS, SMALLEST_VARIANCE, InputLayer, TabularMLP, inverse_softplus
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
from sigmax.training import Batch, Fold, Part, Phase, Stage, TrainingData

MOST_ROWS = 4096
"""Training rows that choose the precision of dropout where nothing is held out, at most."""
LOG_PRECISIONS = np.linspace(np.log(1e-2), np.log(1e6), 241)


@final
class DropoutNetwork(eqx.Module):
    """Perceptron with dropout before every weight layer, and one noise variance per output.

    ``log_precision`` is the paper's τ; it is chosen on held-out rows, and no step trains it.
    """

    mean: TabularMLP
    log_precision: Float[Array, " outputs"]
    rate: float = eqx.field(static=True)

    def __call__(
        self, rows: Inputs, key: PRNGKeyArray, *, shared: bool = False
    ) -> Float[Array, "rows outputs"]:
        """The mean under one mask: a fresh one for every row, or one ``shared`` by all rows."""
        x, mlp = self.mean.inputs(rows), self.mean.mlp
        activate = ACTIVATIONS[mlp.activation]
        for i, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
            x = activate(x) if i else x
            shape = (1, x.shape[1]) if shared else x.shape
            kept = jax.random.bernoulli(jax.random.fold_in(key, i), 1 - self.rate, shape)
            x = (jnp.broadcast_to(kept, x.shape) * x / (1 - self.rate)) @ weight + bias[None]
        return x

    def sample(self, rows: Inputs, key: PRNGKeyArray) -> Normal:
        """The density under one drawn mask."""
        mean = self(rows, key, shared=True)
        std = jnp.exp(-0.5 * self.log_precision)
        return Normal(mean, jnp.broadcast_to(std[None], mean.shape))


INITIAL_STD = 0.02


@final
class FlipoutLayer(eqx.Module):
    """A linear layer whose weights and biases have independent Gaussian posteriors.

    The prior is N(0, 1) in the scale in which the layer keeps the size of its inputs: a weight is
    its Gaussian over the square root of the number of inputs.
    """

    weight_mean: Float[Array, "inputs outputs"]
    weight_raw_std: Float[Array, "inputs outputs"]
    bias_mean: Float[Array, " outputs"]
    bias_raw_std: Float[Array, " outputs"]

    @classmethod
    def create(
        cls, rng: np.random.Generator, n_inputs: int, n_outputs: int, *, gain: float
    ) -> "FlipoutLayer":
        shape, raw = (n_inputs, n_outputs), inverse_softplus(INITIAL_STD)
        return cls(
            on_device(rng.normal(0, gain, shape), np.float32),
            on_device(np.full(shape, raw), np.float32),
            on_device(rng.uniform(-gain, gain, n_outputs), np.float32),
            on_device(np.full(n_outputs, raw), np.float32),
        )

    def __call__(
        self, x: Float[Array, "rows inputs"], key: PRNGKeyArray | None, *, shared: bool = False
    ) -> Float[Array, "rows outputs"]:
        """The layer at its mean weights, or perturbed: by random signs per row, or ``shared``."""
        scale = x.shape[1] ** -0.5
        mean = scale * x @ self.weight_mean + self.bias_mean[None]
        if key is None:
            return mean
        weight_key, bias_key = jax.random.split(key)
        weight = jax.random.normal(weight_key, self.weight_mean.shape)
        weight = weight * jax.nn.softplus(self.weight_raw_std)
        bias = jax.random.normal(bias_key, self.bias_mean.shape)
        bias = bias * jax.nn.softplus(self.bias_raw_std)
        if shared:
            return mean + scale * x @ weight + bias[None]
        in_key, out_key = jax.random.split(jax.random.fold_in(key, 1))
        signs_in = jax.random.rademacher(in_key, x.shape, dtype=x.dtype)
        signs_out = jax.random.rademacher(out_key, mean.shape, dtype=x.dtype)
        return mean + signs_out * (scale * (x * signs_in) @ weight + bias[None])

    def divergence(self) -> Float[Array, ""]:
        """KL divergence of the posterior from the prior N(0, 1)."""

        def of(mean, raw_std):
            std = jax.nn.softplus(raw_std)
            return jnp.sum(0.5 * (std**2 + mean**2 - 1) - jnp.log(std))

        weights = of(self.weight_mean, self.weight_raw_std)
        return weights + of(self.bias_mean, self.bias_raw_std)


@final
class FlipoutNetwork(eqx.Module):
    """Bayesian perceptron, and one noise variance per output, which is learned, not inferred."""

    inputs: InputLayer
    layers: tuple[FlipoutLayer, ...]
    raw_noise: Float[Array, " outputs"]
    activation: str = eqx.field(static=True)

    @property
    def noise_variance(self) -> Float[Array, " outputs"]:
        """Variance of the observation noise: positive whatever is learned."""
        return jax.nn.softplus(self.raw_noise) + SMALLEST_VARIANCE

    def __call__(self, rows: Inputs, key: PRNGKeyArray | None, *, shared: bool = False) -> Normal:
        """The density at the mean weights (no key), per-row perturbed ones, or one ``shared``."""
        x, activate = self.inputs(rows), ACTIVATIONS[self.activation]
        for i, layer in enumerate(self.layers):
            layer_key = None if key is None else jax.random.fold_in(key, i)
            x = layer(activate(x) if i else x, layer_key, shared=shared)
        std = jnp.sqrt(self.noise_variance)
        return Normal(x, jnp.broadcast_to(std[None], x.shape))

    def sample(self, rows: Inputs, key: PRNGKeyArray) -> Normal:
        """The density under one draw of all weights."""
        return self(rows, key, shared=True)

    def divergence(self) -> Float[Array, ""]:
        """KL divergence of all weights from their prior."""
        return jnp.sum(jnp.stack([layer.divergence() for layer in self.layers]))


# Objectives.


def dropout_error(network: DropoutNetwork, batch: Batch, data: TrainingData) -> RowValues:
    """Half the squared error under a fresh mask for every row."""
    assert batch.key is not None
    return 0.5 * jnp.sum((batch.y - network(batch.X, batch.key)) ** 2, axis=1)


def negative_elbo(network: FlipoutNetwork, batch: Batch, data: TrainingData) -> RowValues:
    """Negative evidence lower bound per row: expected loss, plus the divergence over n.

    n is the number of rows that the member learns from, without those that it holds out. The
    weights of a batch sum to 1 in the mean, so the divergence may stand in every row.
    """
    assert batch.key is not None and batch.n_learned is not None
    loss = -jnp.sum(network(batch.X, batch.key).log_prob(batch.y), axis=1)
    return loss + network.divergence() / batch.n_learned


def mean_weights_log_likelihood(
    network: FlipoutNetwork, batch: Batch, data: TrainingData
) -> RowValues:
    """Log-likelihood of every row at the mean weights."""
    return jnp.sum(network(batch.X, None).log_prob(batch.y), axis=1)


@final
class StochasticFitted(AbstractFitted):
    """Trained networks, of which every prediction draws the same ``n_draws``."""

    networks: DropoutNetwork | FlipoutNetwork
    held_out: HeldOut
    history: dict[str, np.ndarray]
    n_draws: int

    def density(self, X: Inputs) -> Mixture:
        return Mixture(draw_densities(self.networks, self.n_draws, X))


def draw_densities(networks: Any, n_draws: int, X: Inputs) -> Normal:
    """Density of every draw of every member at some rows: leaves (members x draws, rows, ...)."""
    keys = jax.random.split(jax.random.key(0), n_draws)
    return by_blocks(partial(draw_members, networks, keys), X.astype(np.float32), axis=1)


@compiled
def draw_members(networks: Any, keys: Key[Array, " draws"], X: Inputs) -> Normal:
    of_member = eqx.filter_vmap(lambda network, key: network.sample(X, key), in_axes=(None, 0))
    drawn = eqx.filter_vmap(of_member, in_axes=(eqx.if_array(0), None))(networks, keys)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), drawn)


@dataclass(frozen=True, kw_only=True)
class AbstractStochastic(AbstractNetworkExpert):
    """Settings and training that dropout and Bayesian networks share."""

    n_members: int = setting(1, COUNT, "Number of networks; 1 is the method as published.")
    n_draws: int = setting(100, COUNT, "Number of random draws of the network in the prediction.")
    hidden_sizes: tuple[int, ...] = setting((128, 128), SIZES, "Units of the hidden layers.")
    activation: str = setting("silu", one_of(ACTIVATIONS), "Activation of the hidden layers.")
    n_steps: int = setting(
        20_000, COUNT, "Training steps. Random draws make training noisy, so many steps are needed."
    )
    batch_size: int = setting(256, COUNT, "Rows of a batch.")
    learning_rate: float = setting(3e-3, POSITIVE, "Step size of Adam.")
    decay_rate: bool = setting(
        True, FLAG, "True to reduce the step sizes to 0 along half a cosine."
    )
    validation_fraction: float = setting(*VALIDATION_FRACTION)
    patience: int = setting(0, COUNT_OR_ZERO, PATIENCE)

    @abstractmethod
    def create(self, rng: np.random.Generator, X: Inputs, n_outputs: int) -> Any:
        """Untrained network."""

    def init(self, rows: Rows, X: Inputs, key: RandomKey) -> tuple[Any, np.ndarray]:
        rngs = [named_generator(key, f"member {member}") for member in range(self.n_members)]
        n_outputs = rows.y.shape[1]
        networks = stack_members([self.create(rng, X, n_outputs) for rng in rngs])
        return networks, np.full(len(X), NO_CENTER)

    def stage(self, parts: tuple[Part, ...], objective: Callable, score: Callable) -> Stage:
        """All steps alike: uniform batches and a random objective."""
        phase = Phase(
            parts=parts,
            objective=objective,
            graph="single",
            n_primary=self.batch_size,
            n_secondary=1,
            is_random=True,
        )
        return Stage(
            name="distribution",
            phases=(phase,),
            n_cycles=self.n_steps,
            cycles_per_chunk=max(1, self.n_steps // N_CHUNKS),
            score=score,
            keep_best=self.validation_fraction > 0,
            patience=self.patience,
        )

    def part(self, name: str, learning_rate: float, weight_decay: float = 0.0) -> Part:
        final_rate = 0.0 if self.decay_rate else 1.0
        return Part(
            name=name, learning_rate=learning_rate, weight_decay=weight_decay, final_rate=final_rate
        )

    def finish(self, trained: Trained) -> StochasticFitted:
        dist, n_members = None, len(trained.folds.group)
        if self.validation_fraction:
            rows = np.asarray(trained.folds.validation)
            X, members = trained.prepared.X[rows.reshape(-1)], np.arange(n_members)

            def own(leaf: np.ndarray) -> np.ndarray:
                """Draws of every member at its rows: (draws, members, held out, outputs)."""
                drawn = leaf.reshape(n_members, self.n_draws, *rows.shape, -1)
                return drawn[members, :, members].swapaxes(0, 1)

            drawn = draw_densities(trained.networks, self.n_draws, X)
            dist = Mixture(jax.tree.map(own, drawn), n_parts=self.n_draws)
        return StochasticFitted(
            networks=jax.tree.map(np.asarray, trained.networks),
            held_out=trained.held_out(dist),
            history=trained.history,
            n_draws=self.n_draws,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Dropout(AbstractStochastic):
    """Dropout before every weight layer, kept on in prediction.

    The precision of the observations is the one that makes the validation rows likeliest or, where
    nothing is held out, the training rows, which is too high if the network overfits.
    """

    dropout_rate: float = setting(
        0.05,
        number(above=0, below=0.9, inclusive=True),
        "Probability that a unit, inputs included, is dropped.",
    )
    weight_decay: float = setting(1e-4, NOT_NEGATIVE, "Decoupled weight decay.")

    def create(self, rng: np.random.Generator, X: Inputs, n_outputs: int) -> DropoutNetwork:
        mlp = TabularMLP.create(rng, X, self.hidden_sizes, n_outputs, activation=self.activation)
        return DropoutNetwork(mlp, jnp.zeros(n_outputs), self.dropout_rate)

    def stages(self) -> tuple[Stage, ...]:
        part = self.part("mean", self.learning_rate, self.weight_decay)
        return (self.stage((part,), dropout_error, negative_squared_error),)

    def finish(self, trained: Trained) -> StochasticFitted:
        folds = trained.folds
        if not self.validation_fraction:  # some rows that each member learns from in their place
            weight = np.asarray(folds.weight)
            n_rows = min(int(folds.n_learned.min()), MOST_ROWS)
            rows = np.stack([np.flatnonzero(row)[:n_rows] for row in weight]).astype(np.int32)
            share = np.take_along_axis(weight, rows, axis=1)
            parts = rows, share / share.sum(axis=1, keepdims=True)
            folds = eqx.tree_at(lambda f: (f.validation, f.validation_weight), folds, parts)
        precisions = best_precision(trained.networks, folds, trained.data, self.n_draws)
        n_distinct = trained.prepared.rows.given.n_distinct
        precisions = precisions - 2 * math.log(few_rows_factor(n_distinct))
        networks = eqx.tree_at(lambda n: n.log_precision, trained.networks, precisions)
        return super().finish(replace(trained, networks=networks))


@compiled
def best_precision(
    networks: DropoutNetwork, folds: Fold, data: TrainingData, n_draws: int
) -> Float[Array, "members outputs"]:
    """Log precision, per member and output, that makes its validation rows likeliest."""
    keys = jax.random.split(jax.random.key(1), n_draws)

    def choose(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        means = jax.vmap(lambda key: network(rows.X, key, shared=True))(keys)

        def score(log_precision):
            std = jnp.broadcast_to(jnp.exp(-0.5 * log_precision), means.shape)
            log_prob = Mixture(Normal(means, std)).log_prob(rows.y)
            return jnp.sum(rows.weight[:, None] * log_prob, axis=0)

        grid = jnp.asarray(LOG_PRECISIONS, dtype=jnp.float32)
        return grid[jnp.argmax(lax.map(score, grid), axis=0)]

    axes = (eqx.if_array(0), eqx.if_array(0), None)
    return eqx.filter_vmap(choose, in_axes=axes)(networks, folds, data)


@final
@dataclass(frozen=True, kw_only=True)
class Bayesian(AbstractStochastic):
    """A Gaussian on every weight, trained on the evidence lower bound with Flipout gradients."""

    hidden_sizes: tuple[int, ...] = setting(
        (50, 50),
        SIZES,
        """Units of the hidden layers. Every weight costs evidence: in wider networks more of them
        fall back to the prior.""",
    )
    activation: str = setting("relu", one_of(ACTIVATIONS), "Activation of the hidden layers.")
    noise_learning_rate: float = setting(
        3e-2, POSITIVE, "Step size of Adam for the noise level, a single number that changes much."
    )

    def create(self, rng: np.random.Generator, X: Inputs, n_outputs: int) -> FlipoutNetwork:
        inputs = InputLayer.create(rng, X)
        sizes = inputs.n_outputs, *self.hidden_sizes, n_outputs
        gains = *(1.0 for _ in self.hidden_sizes), 0.1
        layers = tuple(
            FlipoutLayer.create(rng, *pair, gain=gain)
            for pair, gain in zip(itertools.pairwise(sizes), gains, strict=True)
        )
        raw = on_device(np.full(n_outputs, inverse_softplus(INITIAL_VARIANCE)), np.float32)
        return FlipoutNetwork(inputs, layers, raw, self.activation)

    def stages(self) -> tuple[Stage, ...]:
        parts = (
            self.part("layers", self.learning_rate),
            self.part("raw_noise", self.noise_learning_rate),
        )
        return (self.stage(parts, negative_elbo, mean_weights_log_likelihood),)


PAPER: dict[str, Any] = {
    "hidden_sizes": (50,),
    "activation": "relu",
    "n_steps": 10_000,
    "learning_rate": 1e-2,
    "decay_rate": False,
    "validation_fraction": 0.0,
    "support": (None, None),
}
DROPOUT_PRESETS = {
    "default": Dropout(),
    "fast": Dropout(hidden_sizes=(64, 64), n_steps=1500, patience=15),
    "paper": Dropout(**PAPER, weight_decay=0.0),
}
BAYESIAN_PRESETS = {
    "default": Bayesian(),
    "fast": Bayesian(n_steps=5000),
    "paper": Bayesian(**PAPER, noise_learning_rate=1e-1),
}
