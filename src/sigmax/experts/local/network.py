r"""Kernel regression in a learned metric, with a neural prior updated in closed form.

At x, networks give a mean $\mu_0$ and a mixture of priors around it: component k has the weight
$\pi_k$, a mean $\mu_0 + \delta_k$, and an inverse-Gamma variance with $\alpha_k$ and $\beta_k$.
Each training row j contributes with the kernel weight
$K_j = A \exp(-\frac12 \|z(x) - z(x_j)\|^2 - \frac12 \|(x - x_j)/\ell\|^2)$, where z is an embedding
network: a conjugate (normal-inverse-Gamma) update of every component in which row j counts $K_j$
times, and of the weights by the marginal likelihood of the rows. Where no row is near, the
prediction is the prior.
"""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Shaped
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from sigmax.compilation import on_device
from sigmax.distributions import StudentT, log_gamma
from sigmax.inputs import Inputs
from sigmax.networks import (
    MLP,
    NO_CENTER,
    SMALLEST_VARIANCE,
    ExtrapolationGate,
    InputLayer,
    blend_factor,
)
from sigmax.networks.gate import MOST_ROWS, trees
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


@final
class WeightedStudentT(eqx.Module):
    """Student-t components along the last axis of all leaves, and the logarithms of their weights.

    Examples
    --------
    >>> components = StudentT(jnp.array([[-1.0, 3.0]]), jnp.full((1, 2), 6.0), jnp.ones((1, 2)))
    >>> dist = WeightedStudentT(components, jnp.log(jnp.array([[0.75, 0.25]])))
    >>> dist.mean, dist.variance
    (Array([0.], dtype=float32), Array([4.5], dtype=float32))
    """

    components: StudentT
    log_weight: Float[Array, "*batch components"]

    @property
    def mean(self) -> Float[Array, "*batch"]:
        """Weighted mean of the components' means."""
        return jnp.sum(jnp.exp(self.log_weight) * self.components.mean, axis=-1)

    @property
    def variance(self) -> Float[Array, "*batch"]:
        """Mean of the components' variances, plus the variance of their means."""
        spread = self.components.variance + (self.components.mean - self.mean[..., None]) ** 2
        return jnp.sum(jnp.exp(self.log_weight) * spread, axis=-1)

    def log_prob(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Logarithm of the density at ``y``."""
        y = jnp.broadcast_to(y[..., None], self.log_weight.shape)
        return logsumexp(self.log_weight + self.components.log_prob(y), axis=-1)

    def cdf(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """P(X ≤ y)."""
        y = jnp.broadcast_to(y[..., None], self.log_weight.shape)
        return jnp.sum(jnp.exp(self.log_weight) * self.components.cdf(y), axis=-1)

    def widen(self, factor: ArrayLike) -> "WeightedStudentT":
        """Every component widened by ``factor`` about its own mean."""
        components = self.components.widen(of_components(factor))
        return WeightedStudentT(components, self.log_weight)

    def with_tails(self, most_df: ArrayLike, share: ArrayLike = 1.0) -> "WeightedStudentT":
        """Bound the degrees of freedom by ``most_df``, by a share: `StudentT.with_tails`."""
        components = self.components.with_tails(most_df, of_components(share))
        return WeightedStudentT(components, self.log_weight)

    def moved(self, shift: ArrayLike, variance: ArrayLike) -> "WeightedStudentT":
        """Every component moved by ``shift``, and its variance larger by ``variance``."""
        growth = of_components(variance) / self.components.variance
        components = StudentT(
            self.components.mean + of_components(shift),
            self.components.df,
            self.components.scale * jnp.sqrt(1 + growth),
        )
        return WeightedStudentT(components, self.log_weight)

    def toward(
        self, prior_variance: float, share: ArrayLike, mean_share: ArrayLike | None = None
    ) -> "WeightedStudentT":
        """Mean moved to 0 and variance to ``prior_variance``, by a share between 0 and 1.

        All components shrink to the mean, and each takes on the variance: in the end they are one,
        up to their tails. The mean may be moved by another share than the variance.
        """
        mean_share = of_components(share if mean_share is None else mean_share)
        mean, share = self.mean[..., None], of_components(share)
        factor = blend_factor(share, prior_variance, self.components.variance)
        center = (1 - mean_share) * mean + jnp.sqrt(1 - share) * (self.components.mean - mean)
        components = StudentT(center, self.components.df, factor * self.components.scale)
        return WeightedStudentT(components, self.log_weight)


def of_components(values: ArrayLike) -> Float[Array, "..."]:
    """Values of every density, broadcast over its components; one number stays one."""
    values = jnp.asarray(values)
    return values[..., None] if values.ndim else values


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

    @classmethod
    def none(cls, n_reals: int, n_outputs: int) -> "Edges":
        """No trend, and the mean of y where the gate is 1."""
        zeros = on_device(np.zeros((2, n_reals, n_outputs)), np.float32)
        ones = on_device(np.ones((2, n_reals)), np.float32)
        return cls(zeros, zeros, zeros, ones, ones, on_device(1.0, np.float32))

    def apply(
        self,
        dist: WeightedStudentT,
        gate: Float[Array, " rows"],
        beyond: Float[Array | np.ndarray, "rows reals"] | None,
        prior_variance: float,
    ) -> WeightedStudentT:
        """Predictions for rows within the range, as predictions for rows ``beyond`` it.

        The gate moves the variance to the prior's. It moves the mean later than that, and only by
        the share ``fade``.
        """
        opening = gate[:, None]
        dist = dist.toward(prior_variance, opening, mean_share=self.fade * opening**2)
        if beyond is None:
            return dist
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

    log_amplitude: Float[Array, ""]
    log_prior_rows: Float[Array, ""]


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
    factor: Float[Array, ""]
    """Factor on all scales, chosen on validation rows after the training."""
    most_df: Float[Array, ""]
    """Largest degrees of freedom on the data, chosen on validation rows."""
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
        """Predictive density on the data without any training row.

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
        components = StudentT.from_inverse_gamma(center, concentration, rate)
        return WeightedStudentT(components, jax.nn.log_softmax(logits, axis=-1))

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
        self, prior: WeightedStudentT, sums: Sums, mean: Float[Array, "rows outputs"]
    ) -> LocalPosterior:
        """Normal-inverse-Gamma update of every component by weighted sums, and of the weights.

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
        """Training rows in this member's metric, block by block."""

        def embed_block(x: Inputs) -> tuple[Array, Array]:
            rows = self.embed(x)
            return rows.coordinates, rows.mean

        coordinates, means = lax.map(embed_block, jax.tree.map(in_blocks, X))
        return TrainingSet(coordinates.reshape(len(X), -1), y - means.reshape(y.shape), weight)

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

        ``new_count`` is the part of ``sums.count`` of rows that were added away from the data of
        the fit.
        """
        found, shut = self.update(self.prior(rows), sums, rows.mean), (1 - gate)[:, None]
        dist = found.dist.with_tails(self.most_df, shut).widen(1 + (self.factor - 1) * shut)
        dist = self.edges.apply(dist, gate, rows.beyond, self.prior_variance)
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
    X, y, weight = data.X[group], data.y[group], data.weight[group] * (1 - is_held_out)
    if data.n_slots <= LARGEST_SCORED:
        return network(batch.X, network.embed_training_set(X, y, weight)).dist
    lists = data.graphs["context"].neighbors[group, batch.index]

    def predict(x: Inputs, neighbors: Int[Array, " k"]) -> WeightedStudentT:
        training_set = network.embed_training_set(X[neighbors], y[neighbors], weight[neighbors])
        return jax.tree.map(lambda leaf: leaf[0], network(x[None], training_set).dist)

    return jax.vmap(predict)(batch.X, lists)


EDGE = 0.1
"""Share of the rows beyond either edge that a column is validated on."""
LATER = 0.25
"""The same for times: new rows are usually later."""
FEWEST_BEYOND = 8
"""Rows beyond an edge that are needed to estimate a trend there."""
MOST_COLUMNS = 6
"""Number of columns, the most relevant ones, for which a trend is estimated."""
MAY_CHANGE = 0.1
"""Standard deviation of a slope beyond the edge, as a share of the slope before it."""
LEAST_RELEVANCE = 0.2
"""Columns of less relevance have no trend."""


def fit_edges(
    coordinates: NDArray[np.floating],
    n_reals: int,
    y: NDArray[np.floating],
    relevance: NDArray[np.floating],
    times: NDArray[np.intp],
    rng: np.random.Generator,
) -> Edges:
    """Trends beyond the range of the training data, validated on the outermost rows.

    For every relevant number, two models learn from the rows within the central part of its range
    and predict the rows beyond either edge: a forest, which extrapolates as a constant, and a
    linear model with a forest of its residuals, which extrapolates with the slope of the linear
    one. The mixture with the least squared error gives the share of that slope. The squared error
    that remains, in excess of the forest's out-of-bag error, is the growth of the variance. All
    these rows together also give the share by which predictions beyond an edge are moved to the
    mean of y. The first ``n_reals`` coordinates are numbers; ``times`` among them have a trend
    whatever their relevance, which continues for longer.
    """
    n_outputs = y.shape[1]
    slope, excess, doubt = np.zeros((3, 2, n_reals, n_outputs))
    X, rows = np.asarray(coordinates, np.float64), rng.permutation(len(y))[:MOST_ROWS]
    lowest, highest = X[:, :n_reals].min(axis=0), X[:, :n_reals].max(axis=0)
    length = np.stack([highest - lowest] * 2)
    validated = np.ones((2, n_reals))
    X, y = X[rows], np.asarray(y, np.float64)[rows]
    ranked = [j for j in np.argsort(-relevance[:n_reals]) if relevance[j] > LEAST_RELEVANCE]
    columns = dict.fromkeys([*times.tolist(), *map(int, ranked)])
    predicted, actual = [np.empty((0, n_outputs))], [np.empty((0, n_outputs))]
    for j in list(columns)[:MOST_COLUMNS]:
        share = LATER if j in times else EDGE
        low, high = np.quantile(X[:, j], [share, 1 - share])
        if j not in times:
            length[:, j] = low - lowest[j], highest[j] - high
        sides = np.stack([low - X[:, j], X[:, j] - high])
        is_inner = (sides <= 0).all(axis=0)
        if is_inner.sum() < 4 * FEWEST_BEYOND or (sides > 0).sum() < FEWEST_BEYOND:
            continue
        inner, center = (X[is_inner], y[is_inner]), y[is_inner].mean(axis=0)
        constants, linears, noise, slopes = predict_beyond(*inner, X, int(rng.integers(2**31)))
        for side, distance in enumerate(sides):
            is_outer = distance > 0
            if is_outer.sum() < FEWEST_BEYOND:
                continue
            constant, linear = constants[is_outer], linears[is_outer]
            target, distance = y[is_outer], distance[is_outer]
            kept = projection(linear - constant, target - constant)
            squares = (target - constant - kept * (linear - constant)) ** 2
            slope[side, j] = kept * slopes[:, j] * (-1, 1)[side]
            excess[side, j] = np.maximum(squares.mean(axis=0) - noise, 0.0)
            validated[side, j] = distance.mean()
            error = squares.mean(axis=0) / np.sum(distance**2)
            doubt[side, j] = error + (MAY_CHANGE * slope[side, j]) ** 2
            predicted.append(constant - center)
            actual.append(target - center)
    fade = 1.0
    if len(predicted) > 1:
        fade = 1 - projection(np.concatenate(predicted), np.concatenate(actual))
    parts = (slope, excess, doubt, validated, length, np.array(fade))
    return Edges(*(part.astype(np.float32) for part in parts))


def predict_beyond(
    X: NDArray[np.float64], y: NDArray[np.float64], beyond: NDArray[np.float64], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Predictions of a forest, and of a linear model with a forest of its residuals.

    Also the mean squared out-of-bag error of the first forest by output, and the coefficients
    (outputs, columns) of the linear model.
    """
    forest = trees(seed, X.shape[1], bootstrap=True, oob_score=True)
    with warnings.catch_warnings():  # a row may be in the sample of every tree
        warnings.simplefilter("ignore")
        forest.fit(X, y.squeeze())
    linear = Ridge().fit(X, y)
    residuals = y - linear.predict(X).reshape(y.shape)
    of_residuals = trees(seed, X.shape[1]).fit(X, residuals.squeeze())
    noise = np.mean((y - forest.oob_prediction_.reshape(y.shape)) ** 2, axis=0)
    constant, trend, rest = (
        model.predict(beyond).reshape(len(beyond), -1) for model in (forest, linear, of_residuals)
    )
    return constant, trend + rest, noise, np.atleast_2d(linear.coef_)


def projection(predicted: NDArray[np.float64], actual: NDArray[np.float64]) -> float:
    """Factor from 0 to 1 on ``predicted`` that is nearest to ``actual``.

    Examples
    --------
    >>> projection(np.array([[1.0], [-2.0]]), np.array([[0.5], [-1.0]]))
    0.5
    """
    squares = np.sum(predicted**2)
    return float(np.clip(np.sum(predicted * actual) / squares, 0.0, 1.0)) if squares else 0.0
