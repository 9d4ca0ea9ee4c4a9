r"""Kernel regression in a learned metric, with a neural prior updated in closed form.

At x, networks give a mean $\mu_0$ and a mixture of priors around it: component k has the weight
$\pi_k$, a mean $\mu_0 + \delta_k$, and an inverse-Gamma variance with $\alpha_k$ and $\beta_k$.
Each training row j contributes with the kernel weight
$K_j = A \exp(-\frac12 \|z(x) - z(x_j)\|^2 - \frac12 \|(x - x_j)/\ell\|^2)$, where z is an embedding
network: a conjugate (normal-inverse-Gamma) update of every component in which row j counts $K_j$
times, and of the weights by the marginal likelihood of the rows. Where no row is near, the
prediction is the prior.
"""

import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from sigmax.distributions import StudentT, log_gamma
from sigmax.inputs import Inputs
from sigmax.networks.edges import Edges
from sigmax.networks.extrapolation import NO_CENTER, ExtrapolationGate
from sigmax.networks.heads import SMALLEST_VARIANCE
from sigmax.networks.input_layer import InputLayer
from sigmax.networks.mlp import MLP
from sigmax.networks.weighted_student_t import WeightedStudentT

__all__ = [
    "COMPONENT_GAIN",
    "ROWS_PER_BLOCK",
    "EmbeddedRows",
    "KernelParameters",
    "LocalNetwork",
    "LocalPosterior",
    "Sums",
    "TrainingSet",
    "sums_over_lists",
    "weighted_sums",
]

EXACT = lax.Precision.HIGHEST
"""Distances and sums of squares lose their digits in the short products of accelerators."""

COMPONENT_GAIN = 3.0
"""Weights, offsets and scales of several components are so many times what the networks give: they
have to part early in the training."""

LOG_VARIANCES = (-18.0, 6.0)
"""Logarithms of the least and the largest squared scale of a component."""

ROWS_PER_BLOCK = 4096
"""Training rows in one block of the kernel sums; memory does not grow with their number."""


@final
class KernelParameters(eqx.Module):
    r"""Amplitude $\ln A$, and $\ln \kappa_0$: the prior mean counts for $\kappa_0$ rows."""

    log_amplitude: Float[Array, ""]
    log_prior_rows: Float[Array, ""]

    @classmethod
    def create(cls, prior_rows: float) -> "KernelParameters":
        return cls(jnp.zeros(()), jnp.asarray(math.log(prior_rows), dtype=jnp.float32))


@final
class EmbeddedRows(eqx.Module):
    """Some rows as one member's networks embed them."""

    inputs: Float[Array, "rows inputs"]
    """What the networks take."""
    coordinates: Float[Array, "rows metric"]
    """Coordinates in which the learned metric is Euclidean."""
    mean: Float[Array, "rows outputs"]
    """The prior mean."""
    beyond: Float[Array | np.ndarray, "rows reals"] | None = None
    """How far they lie beyond the range of the training data."""


@final
class TrainingSet(eqx.Module):
    """The training rows that kernel sums run over."""

    coordinates: Float[Array, "slots metric"]
    """Coordinates in which the learned metric is Euclidean."""
    residuals: Float[Array, "slots outputs"]
    """Their targets, less the prior mean."""
    weight: Float[Array, " slots"]
    """Sample weights, 0 for padding and held-out rows."""


@final
class Sums(eqx.Module):
    """Kernel-weighted sums over training rows, for every query: of 1, r and r²."""

    count: Float[Array, " rows"]
    total: Float[Array, "rows outputs"]
    squares: Float[Array, "rows outputs"]


@final
class LocalPosterior(eqx.Module):
    """The predictive density at some rows, and how many training rows support it."""

    dist: WeightedStudentT
    count: Float[Array, " rows"]
    """S₀: the sum of the kernel weights, an effective number of training rows."""
    epistemic_share: Float[Array, " rows"]
    """Share of the variance that is uncertainty about the mean: 1 / (κ + 1)."""
    gate: Float[Array, " rows"] | None = None
    """0 on the data, 1 far from them; None where nothing was said about it."""
    foreign_share: Float[Array, " rows"] | None = None
    """Share of S₀ that rows have which joined after the fit, off its data; None without any."""


@final
class LocalNetwork(eqx.Module):
    """A prior for every row, and a kernel by which training rows update it."""

    inputs: InputLayer
    """Common to all networks."""
    trunk: MLP | None
    """Hidden layers that all networks share, if any."""
    embedding: MLP
    mean: MLP
    spread: MLP
    kernel: KernelParameters
    gate: ExtrapolationGate
    edges: Edges
    factor: Float[Array, ""]
    """What the held-out rows widened all scales by; no step trains it."""
    most_df: Float[Array, ""]
    """Largest degrees of freedom on the data, chosen on held-out rows."""
    shrinkage: Float[Array, ""]
    """How far every prediction is taken to the mean and the variance of y: 0 is not at all."""
    input_scale: float = eqx.field(static=True)
    min_concentration: float = eqx.field(static=True)
    prior_variance: float = eqx.field(static=True)

    def embed(self, x: Inputs) -> EmbeddedRows:
        """Inputs, coordinates and prior mean of some rows."""
        inputs, in_input_space = self.inputs(x), x.coordinates / self.input_scale
        if self.trunk is not None:
            inputs = jax.nn.silu(self.trunk(inputs))
        coordinates = jnp.concatenate([self.embedding(inputs), in_input_space], axis=1)
        return EmbeddedRows(inputs, coordinates, self.mean(inputs), x.beyond)

    def prior(self, rows: EmbeddedRows) -> WeightedStudentT:
        """The predictive density on the data without any training row.

        A single component has the mean of the networks; of several each has an offset of its own.
        """
        found = self.spread(rows.inputs).reshape(*rows.mean.shape, -1)
        if found.shape[-1] == 2:
            concentration, squared_scale = jnp.split(jax.nn.softplus(found), 2, axis=-1)
            center, logits = rows.mean[..., None], jnp.zeros_like(concentration)
        else:
            logits, offset, concentration, log_scale = jnp.split(found, 4, axis=-1)
            center = rows.mean[..., None] + COMPONENT_GAIN * offset
            logits, concentration = COMPONENT_GAIN * logits, jax.nn.softplus(concentration + 1)
            exponent = 2 * COMPONENT_GAIN * log_scale - 1
            squared_scale = jnp.exp(jnp.clip(exponent, *LOG_VARIANCES))
        concentration = self.min_concentration + concentration
        rate = concentration * (squared_scale + SMALLEST_VARIANCE)
        components = StudentT.from_inverse_gamma(center, concentration, rate)
        return WeightedStudentT(components, jax.nn.log_softmax(logits, axis=-1))

    def gate_value(self, x: Inputs) -> Float[Array, " rows"]:
        """The gate at every row: 0 on the data, 1 far from them."""
        return self.gate(jnp.asarray(x.actual_coordinates), jnp.full(len(x), NO_CENTER))

    def kernel_weights(
        self, coordinates: Float[Array, "rows metric"], others: Float[Array, "others metric"]
    ) -> Float[Array, "rows others"]:
        """K of every pair of rows."""
        squared = jnp.sum(coordinates**2, axis=1)[:, None] + jnp.sum(others**2, axis=1)[None]
        squared = squared - 2 * jnp.matmul(coordinates, others.T, precision=EXACT)
        return self.weights_at(jnp.maximum(squared, 0.0))

    def weights_at(
        self, squared_distance: Float[Array, "rows others"]
    ) -> Float[Array, "rows others"]:
        """K at squared distances in the learned metric."""
        return jnp.exp(self.kernel.log_amplitude - 0.5 * squared_distance)

    def update(
        self, prior: WeightedStudentT, sums: Sums, mean: Float[Array, "rows outputs"]
    ) -> LocalPosterior:
        """The normal-inverse-Gamma update of every component by weighted sums, and of the weights.

        Residuals are from ``mean``, that of the networks.
        """
        own, count = jnp.exp(self.kernel.log_prior_rows), sums.count[:, None]
        strength = own + count
        average = sums.total / jnp.maximum(count, 1e-12)
        scatter = jnp.maximum(sums.squares - sums.total * average, 0.0)
        components, count, strength = prior.components, count[..., None], strength[..., None]
        shift = (mean + average)[..., None] - components.mean
        before = jnp.asarray(components.df) / 2
        after = before + count / 2
        rate = before * components.scale**2
        updated = rate + scatter[..., None] / 2 + 0.5 * own * count / strength * shift**2
        evidence = log_gamma(after) - log_gamma(before) + before * jnp.log(rate)
        log_weight = prior.log_weight + evidence - after * jnp.log(updated)
        found = StudentT.from_inverse_gamma(
            components.mean + count / strength * shift, after, updated * (strength + 1) / strength
        )
        dist = WeightedStudentT(found, jax.nn.log_softmax(log_weight, axis=-1))
        return LocalPosterior(dist, sums.count, 1 / (own + sums.count + 1))

    def embed_training_set(
        self,
        X: Inputs,
        y: Float[Array, "slots outputs"],
        weight: Float[Array, " slots"],
    ) -> TrainingSet:
        """The training rows in this member's metric, block by block."""

        def embed_block(x: Inputs) -> tuple[Array, Array]:
            rows = self.embed(x)
            return rows.coordinates, rows.mean

        coordinates, means = lax.map(embed_block, jax.tree.map(in_blocks, X))
        return TrainingSet(coordinates.reshape(len(X), -1), y - means.reshape(y.shape), weight)

    def kernel_sums(
        self, coordinates: Float[Array, "rows metric"], training_set: TrainingSet
    ) -> Sums:
        """Sums over the whole training set for queries at ``coordinates``, block by block."""

        def add(sums: Sums, block: TrainingSet) -> tuple[Sums, None]:
            weights = self.kernel_weights(coordinates, block.coordinates) * block.weight[None]
            return jax.tree.map(jnp.add, sums, weighted_sums(weights, block.residuals)), None

        zeros = jnp.zeros((len(coordinates), training_set.residuals.shape[1]))
        empty = Sums(zeros[:, 0], zeros, zeros)
        return lax.scan(add, empty, jax.tree.map(in_blocks, training_set))[0]

    def posterior(
        self, rows: EmbeddedRows, gate: Float[Array, " rows"], sums: Sums
    ) -> LocalPosterior:
        """The predictive density from kernel sums: the conjugate update, then what lies beyond."""
        found, shut = self.update(self.prior(rows), sums, rows.mean), (1 - gate)[:, None]
        dist = found.dist.with_tails(self.most_df, shut).widen(1 + (self.factor - 1) * shut)
        dist = self.edges.apply(dist, gate, rows.beyond, self.prior_variance)
        dist = dist.toward(self.prior_variance, self.shrinkage)
        count = (1 - gate) * found.count
        share = 1 / (jnp.exp(self.kernel.log_prior_rows) + count + 1)
        return LocalPosterior(dist, count, share, gate)

    def __call__(self, x: Inputs, training_set: TrainingSet) -> LocalPosterior:
        """The predictive density of queries ``x`` given the whole training set."""
        rows = self.embed(x)
        return self.posterior(
            rows, self.gate_value(x), self.kernel_sums(rows.coordinates, training_set)
        )


def weighted_sums(
    weights: Float[Array, "rows others"], residuals: Float[Array, "others outputs"]
) -> Sums:
    """Sums over rows that all queries share."""
    n_outputs = residuals.shape[1]
    terms = jnp.concatenate([jnp.ones_like(residuals[:, :1]), residuals, residuals**2], axis=1)
    sums = jnp.matmul(weights, terms, precision=EXACT)
    return Sums(sums[:, 0], sums[:, 1 : 1 + n_outputs], sums[:, 1 + n_outputs :])


def sums_over_lists(
    weights: Float[Array, "rows k"], residuals: Float[Array, "rows k outputs"]
) -> Sums:
    """Sums over a list of rows for every query."""
    weighted = weights[:, :, None] * residuals
    return Sums(
        jnp.sum(weights, axis=1),
        jnp.sum(weighted, axis=1),
        jnp.sum(weighted * residuals, axis=1),
    )


def in_blocks(rows: Shaped[Array, "slots ..."]) -> Shaped[Array, "blocks block ..."]:
    """Rows cut into equal blocks; their number is a small one, or a multiple of the block."""
    size = min(len(rows), ROWS_PER_BLOCK)
    return rows.reshape(len(rows) // size, size, *rows.shape[1:])
