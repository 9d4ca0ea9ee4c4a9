"""The local expert: settings, training and calibration of its ensemble, and the fitted value."""

import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from sigmax.calibration import few_rows_factor
from sigmax.compilation import bucket_size, on_device, stack_members
from sigmax.distributions import Mixture
from sigmax.experts.base import StoredRows
from sigmax.experts.ensemble import (
    N_MEMBERS,
    PATIENCE,
    VALIDATION_FRACTION,
    AbstractNetworkExpert,
    Trained,
    held_out_predictions,
    mixture_recalibration,
    recalibrated,
)
from sigmax.experts.local.fitted import LocalFitted
from sigmax.experts.local.network import (
    COMPONENT_GAIN,
    Edges,
    KernelParameters,
    LeaveOneOut,
    LocalNetwork,
    held_out_density,
)
from sigmax.experts.rows import Rows
from sigmax.extrapolation import MOST_ROWS, create_gate, gate_relevance, trees
from sigmax.inputs import Inputs
from sigmax.networks import MLP, InputLayer
from sigmax.random import RandomKey, named_generator
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
from sigmax.training import Part, Phase, Stage

FEWEST_STEPS = 600
DECAY_ROWS = 1500
"""Number of rows that is added to that of the data in the rule for the weight decay."""
PATIENT_SHARE = 0.75
"""Share of the chunks after which a training on shards may end without a better score."""
MIXTURES_PER_FEATURE = 8
FARTHEST_OFFSET = 0.75
"""Offset of the outer components from the mean before training, in standard deviations of y."""


@final
@dataclass(frozen=True, kw_only=True)
class Local(AbstractNetworkExpert):
    """Kernel regression in a learned metric, with a neural prior updated in closed form.

    Networks give a normal-inverse-Gamma prior at every x. Training rows that are near, in a learned
    embedding and in input space, update it in closed form, each weighted by a kernel. All networks
    are trained on the leave-one-out likelihood of the training rows.
    """

    n_members: int = setting(*N_MEMBERS)
    hidden_sizes: tuple[int, ...] = setting(
        (128, 128), SIZES, "Units of the hidden layers of each network."
    )
    n_shared_layers: int = setting(
        1,
        COUNT_OR_ZERO,
        "Number of hidden layers shared by the networks of embedding, mean and spread.",
    )
    n_components: int = setting(
        3, COUNT, "Components of each member's mixture of priors; 1 is a single Student-t."
    )
    embedding_size: int = setting(32, COUNT, "Dimensions of the learned embedding.")
    n_waves: int = setting(16, COUNT, "Periodic features of each number.")
    frequency: float = setting(
        0.1, POSITIVE, "Initial spread of their frequencies, per standard deviation."
    )
    input_scale: float = setting(
        1.67, POSITIVE, "Length-scale of the kernel in input space, in standard deviations."
    )
    min_concentration: float = setting(
        2.0, number(above=1), "Minimum α of the prior, which is half its degrees of freedom."
    )
    prior_rows: float = setting(0.3, POSITIVE, "Initial weight of the prior mean, in rows.")
    prior_variance: float = setting(
        1.0, POSITIVE, "Variance far from the training rows, in units of Var(y)."
    )
    n_steps: int | None = setting(
        None, COUNT, "Maximum number of training steps; None computes it from `effort`."
    )
    effort: float = setting(
        25.0,
        POSITIVE,
        "Without `n_steps`: steps per square root of the number of rows, at least 600 in all.",
    )
    n_primary: int = setting(8, COUNT, "Neighbourhoods of a batch.")
    n_neighbors: int = setting(64, COUNT, "Rows of a neighbourhood, the context of predictions.")
    n_queries: int = setting(
        32, COUNT, "Number of its nearest rows, which are predicted from the context."
    )
    learning_rate: float = setting(
        4e-3, POSITIVE, "Initial step size of Adam, which decreases to 0 along half a cosine."
    )
    weight_decay: float = setting(
        1000.0, NOT_NEGATIVE, "Decoupled weight decay, multiplied by 1,500 plus the number of rows."
    )
    error_weight: float = setting(
        0.5, NOT_NEGATIVE, "Weight of the squared error that is added to the likelihood."
    )
    average_weights: bool = setting(
        True, FLAG, "True to use averages of the weights over the last steps as checkpoints."
    )
    n_inducing: int = setting(
        1000, COUNT, "Maximum number of inducing points of the gate; all rows if there are fewer."
    )
    validation_fraction: float = setting(*VALIDATION_FRACTION)
    patience: int = setting(10, COUNT_OR_ZERO, PATIENCE)
    recalibrate: bool = setting(
        True,
        FLAG,
        """Choose one factor on all scales and one bound on the degrees of freedom on the validation
        rows.""",
    )
    largest_hold_out: int = 1024
    n_scorings: int = 30
    """Number of validations, at most."""
    decay_per_step: float = 0.0
    """Weight decay for the number of rows: `fit_to` sets it."""
    longest_chunk: int = 1
    """Steps between two validations with the most rows that are padded to the same size."""

    def fit_to(self, n_rows: int) -> "Local":
        """Settings for so many rows: neighbourhoods, steps, validations and weight decay."""
        k, n_steps = min(self.n_neighbors, n_rows), self.steps_for(n_rows)
        return replace(
            self,
            n_neighbors=k,
            n_queries=min(self.n_queries, k),
            n_steps=n_steps,
            decay_per_step=self.weight_decay / (n_rows + DECAY_ROWS),
            longest_chunk=self.steps_for(bucket_size(n_rows)) // self.n_scorings,
        )

    def for_shards(self, n_shards: int) -> "Local":
        """Settings with the same steps, in at least one chunk for every shard of the rows."""
        assert self.n_steps is not None
        n_chunks = min(self.n_steps, max(self.n_scorings, n_shards))
        patience = self.patience and max(self.patience, round(PATIENT_SHARE * n_chunks))
        longest = self.n_steps // n_chunks
        return replace(self, n_scorings=n_chunks, patience=patience, longest_chunk=longest)

    def steps_for(self, n_rows: int) -> int:
        return self.n_steps or max(FEWEST_STEPS, round(self.effort * math.sqrt(n_rows)))

    def graph_sizes(self) -> dict[str, int]:
        return {"queries": self.n_queries, "context": self.n_neighbors}

    def init(self, rows: Rows, X: Inputs, key: RandomKey) -> tuple[LocalNetwork, np.ndarray]:
        coordinates, y = np.asarray(X.coordinates), rows.y.astype(np.float32)
        relevance, n_outputs = gate_relevance(rows.features, coordinates, y, key), y.shape[1]
        gate, own_center = create_gate(coordinates, self.n_inducing, key, relevance=relevance)
        common = {
            "gate": gate,
            "edges": no_edges(len(rows.features.scaling.mean), n_outputs),
            "factor": np.asarray(1.0, np.float32),
            "most_df": np.asarray(np.inf, np.float32),
            "input_scale": self.input_scale,
            "min_concentration": self.min_concentration,
            "prior_variance": self.prior_variance,
        }
        members = []
        for member in range(self.n_members):
            rng = named_generator(key, f"member {member}")
            parts = self.create_parts(rng, X, n_outputs)
            members.append(LocalNetwork(**parts, **common))
        return stack_members(members), own_center

    def create_parts(self, rng: np.random.Generator, X: Inputs, n_outputs: int) -> dict[str, Any]:
        """Trained parts of one ensemble member, before training."""
        waves = {"n_waves": self.n_waves, "n_mixtures": MIXTURES_PER_FEATURE}
        inputs = InputLayer.create(rng, X, **waves, frequency=self.frequency)
        shared = self.hidden_sizes[: self.n_shared_layers]
        own = self.hidden_sizes[self.n_shared_layers :]
        trunk, n_inputs = None, inputs.n_outputs
        if shared:
            n_inputs = shared[-1]
            sizes = (inputs.n_outputs, shared[:-1], n_inputs)
            trunk = MLP.create(rng, *sizes, activation="silu", output_gain=2**0.5)
        network = partial(MLP.create, rng, n_inputs, own, activation="silu")
        gain = 2 / math.sqrt(self.embedding_size)
        embedding = network(self.embedding_size, output_gain=gain)
        mean, k = network(n_outputs), self.n_components
        spread = network((2 if k == 1 else 4 * k) * n_outputs)
        if k > 1:  # weights, offsets, concentrations and scales; offsets start apart
            start = np.zeros((n_outputs, 4, k), dtype=np.float32)
            start[:, 1] = np.linspace(-FARTHEST_OFFSET, FARTHEST_OFFSET, k) / COMPONENT_GAIN
            biases = (*spread.biases[:-1], start.reshape(-1))
            spread = eqx.tree_at(lambda mlp: mlp.biases, spread, biases)
        logs = (np.asarray(log, np.float32) for log in (0.0, math.log(self.prior_rows)))
        networks = {"embedding": embedding, "mean": mean, "spread": spread}
        return {"inputs": inputs, "trunk": trunk, **networks, "kernel": KernelParameters(*logs)}

    def stages(self) -> tuple[Stage, ...]:
        """One stage: all parts together, by the leave-one-out likelihood."""
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
            patience=self.patience,
        )
        return (stage,)

    def finish(self, trained: Trained) -> LocalFitted:
        start, given, networks = trained.prepared, trained.prepared.rows.given, trained.networks
        has_replicates, n_distinct = start.rows.has_replicates, given.n_distinct
        edges = fit_edges(
            np.asarray(start.X.coordinates),
            len(start.rows.features.scaling.mean),
            start.y,
            np.asarray(networks.gate.relevance)[0],
            start.rows.features.trends(),
            named_generator(np.asarray(jax.random.key_data(start.keys))[0], "edges"),
        )
        edges = jax.tree.map(lambda leaf: np.stack([leaf] * len(networks.factor)), edges)
        dist = None
        if self.validation_fraction:
            found = held_out_predictions(networks, trained.folds, trained.data, start.stages[-1])
            dist = found.dist
            if self.recalibrate:
                scales = mixture_recalibration(found, not has_replicates)
                factor, most_df = map(np.float32, scales)
                factor *= np.float32(few_rows_factor(n_distinct))
                parts = [np.full(networks.factor.shape, one) for one in (factor, most_df)]
                networks = eqx.tree_at(lambda n: (n.factor, n.most_df), networks, parts)
                dist = recalibrated(dist, on_device(factor), on_device(most_df))
            dist = jax.tree.map(lambda leaf: np.moveaxis(np.asarray(leaf, np.float64), -1, 0), dist)
            dist = Mixture(dist.components, None, dist.log_weight, self.n_components)
        weight = (given.weight / given.weight.mean()).astype(np.float32)
        return LocalFitted(
            networks=eqx.tree_at(lambda n: n.edges, jax.tree.map(np.asarray, networks), edges),
            rows=StoredRows(start.X, start.y, weight, given.indices),
            held_out=trained.held_out(dist),
            history=trained.history,
            n_fitted=len(weight),
            n_learned=start.n_learned,
            n_centers=int(np.sum(np.asarray(networks.gate.is_used)[0])),
            n_inducing=self.n_inducing,
        )


# Trends beyond the range of the training data.

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


def no_edges(n_reals: int, n_outputs: int) -> Edges:
    """No trend, and the mean of y where the gate is 1."""
    zeros = np.zeros((2, n_reals, n_outputs), np.float32)
    ones = np.ones((2, n_reals), np.float32)
    return Edges(zeros, zeros, zeros, ones, ones, np.asarray(1.0, np.float32))


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


DEFAULT = Local()
LOCAL_PRESETS = {
    "default": DEFAULT,
    "fast": replace(DEFAULT, n_members=2, hidden_sizes=(64, 64), effort=12.0),
}
