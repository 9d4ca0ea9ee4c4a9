r"""Kernel regression in a learned metric, with a neural prior updated in closed form.

At x, networks give a mean $\mu_0$ and a mixture of priors around it: component k has the weight
$\pi_k$, a mean $\mu_0 + \delta_k$, and an inverse-Gamma variance with $\alpha_k$ and $\beta_k$.
Each training row j contributes with the kernel weight
$K_j = A \exp(-\frac12 \|z(x) - z(x_j)\|^2 - \frac12 \|(x - x_j)/\ell\|^2)$, where z is an embedding
network: a conjugate (normal-inverse-Gamma) update of every component in which row j counts $K_j$
times, and of the weights by the marginal likelihood of the rows. Where no row is near, the
prediction is the prior.
"""

from dataclasses import dataclass
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Shaped

from sigmax.distributions import StudentT, WeightedStudentT, log_gamma
from sigmax.extrapolation import NO_CENTER, ExtrapolationGate
from sigmax.inputs import Inputs
from sigmax.networks import MLP, SMALLEST_VARIANCE, InputLayer
from sigmax.training import Batch, TrainingData

EXACT = lax.Precision.HIGHEST
"""Precision of products: distances and sums of squares lose digits in an accelerator's default."""
COMPONENT_GAIN = 3.0
"""Factor on the networks' outputs for weights, offsets and scales of several components, which have
to separate early in the training."""
LOG_VARIANCES = (-18.0, 6.0)
"""Logarithms of the least and the largest squared scale of a component."""
ROWS_PER_BLOCK = 4096
"""Training rows in one block of the kernel sums; memory does not grow with their number."""


MOST_GROWTH = 1.5
"""Lengths beyond which the variance grows no further."""


@final
class Edges(eqx.Module):
    """Trend of the mean beyond the lowest and the highest value of every number.

    At a row beyond the range of the training data, the networks predict for the nearest row within
    it. The mean then moves by ``slope`` times the distance, up to a ``length``. The variance grows
    by the ``excess`` at the distance ``validated``, as the root of the distance before it and in
    proportion beyond, and by ``doubt``, the variance of the slope, times the squared distance.
    `fit_edges` estimates all of them.
    """

    slope: Float[Array | np.ndarray, "2 reals outputs"]
    excess: Float[Array | np.ndarray, "2 reals outputs"]
    doubt: Float[Array | np.ndarray, "2 reals outputs"]
    validated: Float[Array | np.ndarray, "2 reals"]
    length: Float[Array | np.ndarray, "2 reals"]
    fade: Float[Array | np.ndarray, ""]
    """Share by which the mean is moved to that of y where the gate is 1."""

    def apply(
        self, dist: WeightedStudentT, beyond: Float[Array | np.ndarray, "rows reals"]
    ) -> WeightedStudentT:
        """Predictions for rows within the range, as predictions for rows ``beyond`` it."""
        distance, length = jnp.stack([-beyond, beyond]), jnp.asarray(self.length)[:, None]
        near = jnp.clip(distance, 0.0, length)
        far = jnp.clip(distance, 0.0, MOST_GROWTH * length)
        far = far / jnp.asarray(self.validated)[:, None]
        growth = jnp.where(far < 1, jnp.sqrt(jnp.maximum(far, 1e-12)), far) * (far > 0)
        total = partial(jnp.einsum, "srd,sdo->ro", precision=EXACT)  # over sides and numbers
        variance = total(growth, self.excess) + total(near**2, self.doubt)
        return dist.moved(total(near, self.slope), variance)


@final
class KernelParameters(eqx.Module):
    r"""Amplitude $\ln A$, and $\ln \kappa_0$: the prior mean counts for $\kappa_0$ rows."""

    log_amplitude: Float[Array | np.ndarray, ""]
    log_prior_rows: Float[Array | np.ndarray, ""]


@final
class EmbeddedRows(eqx.Module):
    """Rows as the networks of one ensemble member embed them."""

    inputs: Float[Array, "rows inputs"]
    """Inputs of the networks."""
    coordinates: Float[Array, "rows metric"]
    """Coordinates in which the learned metric is Euclidean."""
    mean: Float[Array, "rows outputs"]
    """Prior mean."""
    beyond: Float[Array | np.ndarray, "rows reals"] | None = None
    """Distance beyond the range of the training data, by number."""


@final
class TrainingSet(eqx.Module):
    """Training rows that kernel sums run over."""

    coordinates: Float[Array, "slots metric"]
    """Coordinates in which the learned metric is Euclidean."""
    residuals: Float[Array, "slots outputs"]
    """Targets minus the prior mean."""
    weight: Float[Array, " slots"]
    """Sample weights, 0 for padding and held-out rows."""


@final
class Sums(eqx.Module):
    """Kernel-weighted sums over training rows, for every query: of 1, r and r²."""

    count: Float[Array, " rows"]
    total: Float[Array, "rows outputs"]
    squares: Float[Array, "rows outputs"]


@final
class Prior(eqx.Module):
    """Mixture of normal-inverse-Gamma priors; components along the last axis of all leaves."""

    mean: Float[Array, "rows outputs components"]
    concentration: Float[Array, "rows outputs components"]
    rate: Float[Array, "rows outputs components"]
    log_weight: Float[Array, "rows outputs components"]


@final
class LocalPosterior(eqx.Module):
    """Predictive density at some rows, and the number of training rows that support it."""

    dist: WeightedStudentT
    count: Float[Array, " rows"]
    """S₀: the sum of the kernel weights, an effective number of training rows."""
    epistemic_share: Float[Array, " rows"]
    """Share of the variance that is uncertainty about the mean: 1 / (κ + 1)."""
    gate: Float[Array, " rows"] | None = None
    """0 on the data, 1 far from them; None on the training data."""
    new_share: Float[Array, " rows"] | None = None
    """Share of S₀ of rows that were added after the fit, away from its data; None without any."""

    def widened(self, factor: ArrayLike) -> "LocalPosterior":
        """Predictions with ``factor`` on their scales, by the share of such rows in them."""
        if self.new_share is None or self.gate is None:
            return self
        growth = 1 + (factor - 1) * self.new_share * (1 - self.gate)
        scale = self.dist.components.scale * growth[..., None, None]
        return eqx.tree_at(lambda rows: rows.dist.components.scale, self, scale)


@final
class LocalNetwork(eqx.Module):
    """One ensemble member: a prior for every row, and a kernel by which training rows update it."""

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
    factor: Float[Array | np.ndarray, ""]
    """Factor on all scales, chosen on validation rows after the training."""
    most_df: Float[Array | np.ndarray, ""]
    """Largest degrees of freedom on the data, chosen on validation rows."""
    input_scale: float = eqx.field(static=True)
    min_concentration: float = eqx.field(static=True)
    prior_variance: float = eqx.field(static=True)

    def embed(self, x: Inputs) -> EmbeddedRows:
        inputs, in_input_space = self.inputs(x), x.coordinates / self.input_scale
        if self.trunk is not None:
            inputs = jax.nn.silu(self.trunk(inputs))
        coordinates = jnp.concatenate([self.embedding(inputs), in_input_space], axis=1)
        return EmbeddedRows(inputs, coordinates, self.mean(inputs), x.beyond)

    def prior(self, rows: EmbeddedRows) -> Prior:
        """Prior of every row.

        A single component has the mean of the networks; several have an offset each.
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
        return Prior(center, concentration, rate, jax.nn.log_softmax(logits, axis=-1))

    def gate_value(self, x: Inputs) -> Float[Array, " rows"]:
        """Gate at every row: 0 on the data, 1 far from them."""
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
        self, prior: Prior, sums: Sums, mean: Float[Array, "rows outputs"]
    ) -> LocalPosterior:
        """Normal-inverse-Gamma update of every component by weighted sums, and of the weights.

        Residuals are from ``mean``, that of the networks.
        """
        own, count = jnp.exp(self.kernel.log_prior_rows), sums.count[:, None]
        strength = own + count
        average = sums.total / jnp.maximum(count, 1e-12)
        scatter = jnp.maximum(sums.squares - sums.total * average, 0.0)
        count, strength = count[..., None], strength[..., None]
        shift = (mean + average)[..., None] - prior.mean
        before, rate = prior.concentration, prior.rate
        after = before + count / 2
        updated = rate + scatter[..., None] / 2 + 0.5 * own * count / strength * shift**2
        evidence = log_gamma(after) - log_gamma(before) + before * jnp.log(rate)
        log_weight = prior.log_weight + evidence - after * jnp.log(updated)
        found = StudentT.from_inverse_gamma(
            prior.mean + count / strength * shift, after, updated * (strength + 1) / strength
        )
        dist = WeightedStudentT(found, jax.nn.log_softmax(log_weight, axis=-1))
        return LocalPosterior(dist, sums.count, 1 / (own + sums.count + 1))

    def embed_training_set(
        self, X: Inputs, y: Float[Array, "slots outputs"], weight: Float[Array, " slots"]
    ) -> TrainingSet:
        """Training rows in this member's metric, block by block."""

        def embed_block(x: Inputs) -> tuple[Array, Array]:
            rows = self.embed(x)
            return rows.coordinates, rows.mean

        coordinates, means = lax.map(embed_block, jax.tree.map(in_blocks, X))
        return TrainingSet(coordinates.reshape(len(y), -1), y - means.reshape(y.shape), weight)

    def kernel_sums(
        self,
        coordinates: Float[Array, "rows metric"],
        training_set: TrainingSet,
        group: Int[Array, " slots"] | None = None,
        own_group: Int[Array, " rows"] | None = None,
    ) -> Sums:
        """Sums over the training set for queries at ``coordinates``, block by block.

        Training rows whose ``group`` is the query's ``own_group`` are left out.
        """

        def add(sums: Sums, block: tuple[TrainingSet, Array | None]) -> tuple[Sums, None]:
            rows, of_rows = block
            weights = self.kernel_weights(coordinates, rows.coordinates) * rows.weight[None]
            if of_rows is not None and own_group is not None:
                weights = jnp.where(own_group[:, None] == of_rows[None], 0.0, weights)
            return jax.tree.map(jnp.add, sums, weighted_sums(weights, rows.residuals)), None

        zeros = jnp.zeros((len(coordinates), training_set.residuals.shape[1]))
        empty = Sums(zeros[:, 0], zeros, zeros)
        return lax.scan(add, empty, jax.tree.map(in_blocks, (training_set, group)))[0]

    def sums_over_lists(
        self,
        training_set: TrainingSet,
        squared: Float[Array, "rows k"],
        indices: Int[Array, "rows k"],
    ) -> Sums:
        """Sums over a list of training rows for every query, at their squared distances."""
        weights = self.weights_at(squared) * training_set.weight[indices]
        residuals = training_set.residuals[indices]
        weighted = weights[:, :, None] * residuals
        squares = jnp.sum(weighted * residuals, axis=1)
        return Sums(jnp.sum(weights, axis=1), jnp.sum(weighted, axis=1), squares)

    def posterior(
        self,
        rows: EmbeddedRows,
        gate: Float[Array, " rows"],
        sums: Sums,
        new_count: Float[Array, " rows"] | None = None,
    ) -> LocalPosterior:
        """Predictive density from kernel sums: the conjugate update, then the gate and the edges.

        The gate moves the variance to the prior's. It moves the mean later than that, and only by
        the share `Edges.fade`.

        ``new_count`` is the part of ``sums.count`` of rows that were added away from the data of
        the fit.
        """
        found, opening = self.update(self.prior(rows), sums, rows.mean), gate[:, None]
        dist = found.dist.with_tails(self.most_df, 1 - opening)
        dist = dist.widen(1 + (self.factor - 1) * (1 - opening))
        dist = dist.toward(self.prior_variance, opening, self.edges.fade * opening**2)
        if rows.beyond is not None:
            dist = self.edges.apply(dist, rows.beyond)
        count = (1 - gate) * found.count
        share = 1 / (jnp.exp(self.kernel.log_prior_rows) + count + 1)
        new_share = None if new_count is None else new_count / jnp.maximum(sums.count, 1e-12)
        return LocalPosterior(dist, count, share, gate, new_share)

    def __call__(self, x: Inputs, training_set: TrainingSet) -> LocalPosterior:
        """Predictive density of queries ``x`` given the whole training set."""
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


def in_blocks(rows: Shaped[Array, "slots ..."]) -> Shaped[Array, "blocks block ..."]:
    """Rows in equal blocks; their number is less than `ROWS_PER_BLOCK`, or a multiple of it."""
    size = min(len(rows), ROWS_PER_BLOCK)
    return rows.reshape(len(rows) // size, size, *rows.shape[1:])


@final
@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out negative log-likelihood of queries, given all other rows of the batch.

    The batch holds whole lists of the graph "context", nearest rows first. The first rows of each
    list, as many as the lists of the graph "queries" have, are the queries: an outer row of a
    neighbourhood has few of its own neighbours in the batch. No row contributes to its own
    prediction, nor twice to another, and held-out rows do not contribute. ``error_weight`` adds the
    squared error of the mean, and half of that of the prior mean.
    """

    n_primary: int
    error_weight: float

    def __call__(
        self, network: LocalNetwork, batch: Batch, data: TrainingData
    ) -> Float[Array, " batch"]:
        queries, context = data.graphs["queries"], data.graphs["context"]
        if len(batch.index) != self.n_primary * context.n_neighbors:  # then lists keep their order
            raise ValueError("A leave-one-out batch must hold whole lists of the context.")
        lists = jnp.arange(len(batch.index)).reshape(self.n_primary, context.n_neighbors)
        position = lists[:, : queries.n_neighbors].reshape(-1)
        is_same = batch.index[:, None] == batch.index[None]
        is_repeat = jnp.any(jnp.tril(is_same, -1), axis=1)
        own = jnp.where(batch.weight > 0, data.weight[batch.group, batch.index], 0.0)
        contribution = jnp.where(is_repeat, 0.0, own)

        rows, y = network.embed(batch.X), batch.y[position]
        weights = network.kernel_weights(rows.coordinates[position], rows.coordinates)
        weights = weights * contribution[None]
        weights = jnp.where(is_same[position], 0.0, weights)
        residuals = batch.y - lax.stop_gradient(rows.mean)
        prior = network.prior(jax.tree.map(lambda part: part[position], rows))
        mean = rows.mean[position]
        dist = network.update(prior, weighted_sums(weights, residuals), mean).dist
        error = (y - dist.mean) ** 2 + 0.5 * (y - mean) ** 2
        misfit = self.error_weight * error - dist.log_prob(y)
        # The batch is weighted as if all its rows were queries, which are drawn less often.
        index = batch.index[position]
        counts = [graph.counts[batch.group, index] for graph in (context, queries)]
        losses = jnp.sum(misfit, axis=1) * counts[0] / counts[1]
        return jnp.zeros(len(batch.index)).at[position].set(losses)


LARGEST_SCORED = 2**16
"""Slots of training rows up to which validation rows are predicted from all of them."""


def held_out_density(network: LocalNetwork, batch: Batch, data: TrainingData) -> WeightedStudentT:
    """Predictive density of held-out rows given all others.

    With very many rows, only their neighbours in input space contribute: the graph "context".
    """
    group = batch.group
    is_held_out = jnp.zeros(data.n_slots).at[batch.index].max(batch.weight > 0)
    X, y, weight = jax.tree.map(lambda leaf: leaf[group], (data.X, data.y, data.weight))
    weight = weight * (1 - is_held_out)
    if data.n_slots <= LARGEST_SCORED:
        return network(batch.X, network.embed_training_set(X, y, weight)).dist
    lists = data.graphs["context"].neighbors[group, batch.index]

    def predict(x: Inputs, neighbors: Int[Array, " k"]) -> WeightedStudentT:
        training_set = network.embed_training_set(X[neighbors], y[neighbors], weight[neighbors])
        return jax.tree.map(lambda leaf: leaf[0], network(x[None], training_set).dist)

    return jax.vmap(predict)(batch.X, lists)
