"""The formulas of our networks as nodes of an ONNX graph, one member at a time.

They repeat `sigmax.networks` in other operators; the tests compare the two.
"""

import math
from typing import Any, NamedTuple, final

import jax
import numpy as np

from sigmax.integrations.onnx_graph import OnnxValue
from sigmax.networks import COMPONENT_GAIN, LocalNetwork, TrainingSet, VarianceNetwork
from sigmax.networks.extrapolation import OFFSET
from sigmax.networks.heads import SMALLEST_VARIANCE, InverseGammaSpread
from sigmax.networks.local import LOG_VARIANCES
from sigmax.networks.periodic import SINE

__all__ = ["OnnxInputs", "OnnxMember", "local_member", "members_of", "variance_member"]


@final
class OnnxInputs(NamedTuple):
    """Rows in standardised units, in single precision."""

    numbers: OnnxValue
    """What networks see."""
    coordinates: OnnxValue
    """What distances see."""


@final
class OnnxMember(NamedTuple):
    """The density of one member in standardised units: (rows, outputs, components)."""

    mean: OnnxValue
    scale: OnnxValue
    df: OnnxValue | None
    """None for a Normal."""
    log_weight: OnnxValue | None
    """Within the member; None for one component."""


def perceptron(network: Any, x: OnnxValue) -> OnnxValue:
    """An `MLP`."""
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = (activated(network.activation, x) if i else x) @ np.asarray(weight) + np.asarray(bias)
    return x


def activated(name: str, x: OnnxValue) -> OnnxValue:
    """One of the `ACTIVATIONS`."""
    if name == "silu":
        return x * x.apply("Sigmoid")
    return x.apply({"relu": "Relu", "tanh": "Tanh"}[name])


def periodic(features: Any, x: OnnxValue) -> OnnxValue:
    """`PeriodicFeatures`."""
    turns = x.expand(2) * np.asarray(features.frequencies) + np.asarray(features.phases)
    s = 0.25 - (turns - turns.apply("Round")).apply("Abs")
    square = s.square()
    polynomial = square * SINE[-1] + SINE[-2]
    for coefficient in SINE[-3::-1]:
        polynomial = polynomial * square + coefficient
    weights = x.graph.constant(features.weights)
    mixed = x.graph.node("Einsum", s * polynomial, weights, equation="rfw,fwm->rfm")
    mixed = (mixed + np.asarray(features.biases)).apply("Relu")
    return x.graph.concatenate([x, mixed.reshape(0, int(np.size(features.biases)))], axis=1)


def input_layer(layer: Any, x: OnnxInputs) -> OnnxValue:
    """An `InputLayer` of numbers."""
    return x.numbers if layer.periodic is None else periodic(layer.periodic, x.numbers)


def gate_value(gate: Any, x: OnnxValue) -> OnnxValue:
    """An `ExtrapolationGate` at new rows: (rows, 1)."""
    centers = np.asarray(gate.inducing_points)[np.asarray(gate.is_used)]
    # |x|² is the same for all centres, and so not needed to find the nearest.
    squared = np.sum(centers**2, axis=1) - 2 * (x @ centers.T)
    nearest = squared.apply("ArgMin", axis=1, keepdims=0)
    offset = x - x.graph.node("Gather", x.graph.constant(centers), nearest, axis=0)
    length = (offset.square().reduce("ReduceSum", 1) + 1e-12).apply("Sqrt")
    scale, at_zero = np.exp(np.asarray(gate.log_scale)), 1 / (1 + math.exp(OFFSET))
    beyond = (length - np.asarray(gate.margin)).maximum(0.0) / scale
    largest = offset.apply("Abs").reduce("ReduceMax", 1)
    along_axis = (largest - np.asarray(gate.axis_margin)) / np.asarray(gate.axis_scale)
    opening = (beyond.maximum(along_axis) - OFFSET).apply("Sigmoid")
    return ((opening - at_zero) / (1 - at_zero)).maximum(0.0).minimum(1.0)


def student_variance(scale: OnnxValue, df: OnnxValue) -> OnnxValue:
    """Of a Student-t with more than two degrees of freedom."""
    return scale.square() * df / (df - 2.0)


def variance_member(network: VarianceNetwork, x: OnnxInputs) -> OnnxMember:
    """`VarianceNetwork.predict`."""
    mean, spread = perceptron(network.mean.mlp, input_layer(network.mean.inputs, x)), network.spread

    def part(net: Any) -> OnnxValue:
        return perceptron(net.mlp, input_layer(net.inputs, x)).apply("Softplus")

    df = None
    if isinstance(spread, InverseGammaSpread):
        df = 2.0 * (part(spread.concentration) + spread.min_concentration)
        squared = part(spread.squared_scale) + SMALLEST_VARIANCE
    else:
        squared = part(spread.variance) + SMALLEST_VARIANCE  # pyright: ignore[reportAttributeAccessIssue]
    scale = squared.apply("Sqrt") * np.asarray(network.factor)

    def toward_prior(scale: OnnxValue, share: Any) -> OnnxValue:
        variance = scale.square() if df is None else student_variance(scale, df)
        return scale * (1.0 - share + share * network.prior_variance / variance).apply("Sqrt")

    if network.gate is not None:
        gate = gate_value(network.gate, x.coordinates)
        mean = (1.0 - gate.square()) * mean if network.shrink_mean else mean
        scale = toward_prior(scale, gate)
    shrinkage = float(network.shrinkage)
    if shrinkage:
        scale, mean = toward_prior(scale, mean.graph.constant(shrinkage)), (1 - shrinkage) * mean
    return OnnxMember(mean.expand(2), scale.expand(2), df.expand(2) if df else None, None)


def log_gamma(a: OnnxValue) -> OnnxValue:
    """`sigmax.distributions.log_gamma`."""
    b = a + 6.0
    w = 1.0 / b.square()
    series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680)))) / b
    product = a
    for shift in range(1, 6):
        product = product * (a + float(shift))
    stirling = (b - 0.5) * b.apply("Log") - b + 0.5 * math.log(2 * math.pi)
    return stirling + series - product.apply("Log")


@final
class Density(NamedTuple):
    """A `WeightedStudentT`."""

    mean: OnnxValue
    df: OnnxValue
    scale: OnnxValue
    log_weight: OnnxValue

    def average(self, values: OnnxValue) -> OnnxValue:
        return (self.log_weight.apply("Exp") * values).reduce("ReduceSum", 2)

    def toward(self, prior_variance: float, share: Any, mean_share: Any) -> "Density":
        """`WeightedStudentT.toward`."""
        mean, left = self.average(self.mean), 1.0 - share
        variance = student_variance(self.scale, self.df)
        factor = (left + share * prior_variance / variance).apply("Sqrt")
        root = left.apply("Sqrt") if isinstance(left, OnnxValue) else math.sqrt(left)
        center = (1.0 - mean_share) * mean + root * (self.mean - mean)
        return self._replace(mean=center, scale=factor * self.scale)


def local_member(network: LocalNetwork, rows: TrainingSet, x: OnnxInputs) -> OnnxMember:
    """`LocalNetwork.__call__`."""
    inputs = input_layer(network.inputs, x)
    if network.trunk is not None:
        inputs = activated("silu", perceptron(network.trunk, inputs))
    in_input_space = x.coordinates / network.input_scale
    metric = inputs.graph.concatenate(
        [perceptron(network.embedding, inputs), in_input_space], axis=1
    )
    mean, gate = perceptron(network.mean, inputs), gate_value(network.gate, x.coordinates)
    prior_rows = math.exp(float(network.kernel.log_prior_rows))
    prior = local_prior(network, inputs, mean)
    by_component = gate.expand(2)
    unsupported = network.prior_variance / (1 + 1 / prior_rows)
    prior = prior.toward(unsupported, by_component, by_component.square())
    shut = 1.0 - gate
    count, total, squares = (shut * part for part in kernel_sums(network, rows, metric))
    found = local_update(prior, prior_rows, count, total, squares, mean)
    shut = shut.expand(2)
    inverse = 1.0 / found.df
    df = 1.0 / (inverse + shut * (1.0 / float(network.most_df) - inverse).maximum(0.0))
    scale = found.scale * (1.0 + (float(network.factor) - 1.0) * shut)
    found = found._replace(df=df, scale=scale)
    shrinkage = float(network.shrinkage)
    if shrinkage:
        found = found.toward(network.prior_variance, shrinkage, shrinkage)
    return OnnxMember(found.mean, found.scale, found.df, found.log_weight)


def local_prior(network: LocalNetwork, inputs: OnnxValue, mean: OnnxValue) -> Density:
    """`LocalNetwork.prior`."""
    n_outputs = np.shape(network.mean.biases[-1])[0]
    n_found = np.shape(network.spread.biases[-1])[0] // n_outputs
    found = perceptron(network.spread, inputs).reshape(0, n_outputs, n_found)
    center = mean.expand(2)
    if n_found == 2:
        concentration, squared = found.apply("Softplus").split(2, axis=2)
        logits = concentration * 0.0
    else:
        logits, offset, concentration, log_scale = found.split(4, axis=2)
        center, logits = center + COMPONENT_GAIN * offset, COMPONENT_GAIN * logits
        concentration = (concentration + 1.0).apply("Softplus")
        exponent = 2 * COMPONENT_GAIN * log_scale - 1.0
        squared = exponent.maximum(LOG_VARIANCES[0]).minimum(LOG_VARIANCES[1]).apply("Exp")
    concentration = concentration + network.min_concentration
    scale = (squared + SMALLEST_VARIANCE).apply("Sqrt")
    return Density(center, 2.0 * concentration, scale, logits.apply("LogSoftmax", axis=2))


def kernel_sums(
    network: LocalNetwork, rows: TrainingSet, metric: OnnxValue
) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Sums of 1, r and r² over the training rows: (rows, 1), and twice (rows, outputs)."""
    used = np.asarray(rows.weight) > 0
    others, residuals, weight = (
        np.asarray(part)[used] for part in (rows.coordinates, rows.residuals, rows.weight)
    )
    squared = metric.square().reduce("ReduceSum", 1) + np.sum(others**2, axis=1)
    squared = (squared - 2.0 * (metric @ others.T)).maximum(0.0)
    weights = (float(network.kernel.log_amplitude) - 0.5 * squared).apply("Exp") * weight
    return (
        weights.reduce("ReduceSum", 1),
        weights @ residuals,
        weights @ residuals**2,
    )


def local_update(
    prior: Density,
    prior_rows: float,
    count: OnnxValue,
    total: OnnxValue,
    squares: OnnxValue,
    mean: OnnxValue,
) -> Density:
    """`LocalNetwork.update`."""
    average = total / count.maximum(1e-12)
    scatter = (squares - total * average).maximum(0.0).expand(2)
    count = count.expand(2)
    strength = count + prior_rows
    shift = (mean + average).expand(2) - prior.mean
    before = prior.df * 0.5
    after = before + count * 0.5
    rate = before * prior.scale.square()
    updated = rate + scatter * 0.5 + 0.5 * prior_rows * count / strength * shift.square()
    evidence = log_gamma(after) - log_gamma(before) + before * rate.apply("Log")
    log_weight = prior.log_weight + evidence - after * updated.apply("Log")
    scale = (updated * (strength + 1.0) / strength / after).apply("Sqrt")
    center = prior.mean + count / strength * shift
    return Density(center, 2.0 * after, scale, log_weight.apply("LogSoftmax", axis=2))


def members_of(networks: Any, n_members: int) -> list[Any]:
    """Single members of stacked networks."""

    def one(member: int) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[member], networks)

    return [one(member) for member in range(n_members)]
