"""Rows that join the memory of a fitted local model, without a fit.

Networks, kernels and units stay as they are. What rests on single rows follows the new ones: the
kernel sums, the gate, the leaves of forests, and what is known about the width of predictions that
rest on new rows. Every new row is predicted from all other rows, itself and its copies left out:
the networks never saw it, so that this is what a fresh row near it would get.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.stats import norm, t
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_sample_weight, _check_y, check_is_fitted

from sigmax.compilation import compiled
from sigmax.errors import InvalidCellError, InvalidDataError
from sigmax.estimators.blocks import padded
from sigmax.estimators.gates import gate_values, with_centers
from sigmax.estimators.kept_rows import KeptRows, Memory
from sigmax.estimators.later_rows import LaterRows, posterior_with_later
from sigmax.estimators.local_predictor import LocalPredictor
from sigmax.inputs import Inputs
from sigmax.networks import (
    NO_CENTER,
    ROWS_PER_BLOCK,
    LocalNetwork,
    LocalPosterior,
    Sums,
    TrainingSet,
    weighted_sums,
)
from sigmax.tables import Table
from sigmax.training import bucket_size

__all__ = ["count_centers", "predictor_of", "remember", "rim", "widened"]

MEMBER = eqx.if_array(0)

MOST_JUDGED = 1024
"""Rows from after the fit that are left out one by one, at most: evenly spaced among all."""

LEVELS = (0.5, 0.8, 0.9)
"""Of central intervals that should hold what they say."""

LARGEST_FACTOR = 16.0
N_FACTORS = 57
"""Factors that are tried: steps of 5 %."""

Model = Any  # a `LocalRegressor`


def remember(model: Model, X: Any, y: Any, sample_weight: Any = None) -> dict[str, Any]:
    """What a fitted model has to know once more rows are in its memory, by attribute.

    The model itself is left as it is.
    """
    new, values = read_rows(model, X, y, sample_weight)
    rows, memory = model.rows_ + new, model.memory_
    first, n_before = len(model.rows_.y), len(model.rows_.y) - memory.n_fitted
    coordinates = np.asarray(rows.X.coordinates)
    n_inducing = model._recipe().n_inducing
    networks = eqx.tree_at(
        lambda n: n.gate,
        model.networks_,
        with_centers(model.networks_.gate, coordinates[first:], n_inducing),
    )
    forests = model.forests_
    if forests is not None:
        forests = forests.with_rows(coordinates, rows.weight, first, n_before)
    predictor = predictor_of(networks, rows, memory, model.predictor_)
    factor = factor_for_foreign(networks, predictor, rows, memory)
    return {
        "networks_": networks,
        "units_": model.units_.with_values(values),
        "rows_": rows,
        "forests_": forests,
        "predictor_": predictor,
        "_rim": rim(rows),
        "memory_": memory._replace(factor=factor),
    }


def read_rows(
    model: Model, X: Any, y: Any, sample_weight: Any
) -> tuple[KeptRows, Float[np.ndarray, "rows outputs"]]:
    """New rows in the units of the fit, those of weight 0 dropped, and their targets as given."""
    check_is_fitted(model)
    table = Table.read(model, X, model.features_.schema)
    y = np.asarray(_check_y(y, multi_output=True, y_numeric=True, estimator=model), np.float64)
    check_consistent_length(table.numbers, y)
    n_outputs = model.rows_.y.shape[1]
    if (y.ndim == 1) != model.is_single_output_ or y.size != len(y) * n_outputs:
        shape = "(n,)" if model.is_single_output_ else f"(n, {n_outputs})"
        raise InvalidDataError(f"`y` must have the shape {shape} of the fit, got {y.shape}.")
    y = y.reshape(len(y), -1)
    unit = model.memory_.weight_unit
    weight = np.full(len(y), unit) if sample_weight is None else sample_weight
    weight = _check_sample_weight(weight, y, dtype=np.float64, ensure_non_negative=True)
    is_unknown = model.features_.unknown_reals(table)
    if is_unknown.any():
        row, column = np.argwhere(is_unknown)[0]
        name = table.schema.reals[column].name
        raise InvalidCellError(
            f"Column {name!r} is missing in row {{row}}, but in no row of the fit: such a row"
            " cannot be added. Fit again with it.",
            int(row) + 1,
        )
    inputs = model.features_(table)
    known, kept = model.rows_.indices, np.flatnonzero(weight > 0)
    indices = max(model.n_learned_, int(known.max()) + 1) + np.arange(len(y))
    weight = (weight / unit).astype(np.float32)
    rows = KeptRows(inputs, model.units_(y), weight, indices.astype(known.dtype))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], rows), y[kept]


def predictor_of(
    networks: LocalNetwork, rows: KeptRows, memory: Memory, fitted: LocalPredictor | None = None
) -> LocalPredictor:
    """The members with all rows in their metrics; those of the fit are taken from ``fitted``."""
    n_fitted = memory.n_fitted
    if fitted is None:
        fitted = LocalPredictor(networks, *jax.tree.map(lambda leaf: leaf[:n_fitted], rows[:3]))
    if len(rows.y) == n_fitted:
        return fitted
    later = rows.since(n_fitted)
    foreign = gate_values(networks.gate, np.asarray(later.X.coordinates), memory.n_centers)
    return fitted.with_later(networks, *later[:3], foreign)


def rim(rows: KeptRows) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest numbers of all rows."""
    numbers = np.asarray(rows.X.numbers)
    return numbers.min(axis=0), numbers.max(axis=0)


def count_centers(networks: LocalNetwork) -> int:
    """Inducing points of the gate."""
    return int(np.sum(np.asarray(networks.gate.is_used)[0]))


def widened(found: LocalPosterior, factor: Any) -> LocalPosterior:
    """Predictions with ``factor`` on the scales, as far as they rest on rows off the fit's data.

    Arrays of NumPy, or those of a function that is being compiled.
    """
    if found.foreign_share is None or found.gate is None:
        return found
    share = found.foreign_share * (1 - found.gate)
    scale = found.dist.components.scale * (1 + (factor - 1) * share)[..., None, None]
    return eqx.tree_at(lambda rows: rows.dist.components.scale, found, scale)


def factor_for_foreign(
    networks: LocalNetwork, predictor: LocalPredictor, rows: KeptRows, memory: Memory
) -> float:
    """The factor on the scales of predictions that rest on rows off the data of the fit.

    No member has held such rows out. Each is predicted by all others: the factor is the least by
    which the intervals of these predictions hold what they say, as far as the rows are enough to
    tell, times what so few leave unknown. Forests have no part in it, but are widened by it, too.
    """
    later, labels = rows.since(memory.n_fitted), copies(rows)
    some = np.unique(np.linspace(0, len(later.y) - 1, min(len(later.y), MOST_JUDGED)).astype(int))
    X, own = later.X[some], labels[memory.n_fitted :][some]
    # Copies are one test: they share the weight of one.
    weight = later.weight[some] / np.bincount(labels[memory.n_fitted :])[own]
    n_slots = bucket_size(len(some), smallest=64)
    queries = padded((X, later.y[some], weight, own, own_centers(networks, X)), n_slots)
    fitted, later_rows = predictor.training_sets, predictor.later
    assert later_rows is not None
    slots = fitted.weight.shape[1], later_rows.foreign.shape[1]
    parts = labels[: memory.n_fitted], labels[memory.n_fitted :]
    of_sets = padded(parts[0], slots[0]), padded(parts[1], slots[1])
    found = judge(networks, fitted, later_rows, of_sets, *queries)
    factor, n_rows = (float(part) for part in found)
    return factor ** (n_rows / (n_rows + 1)) * unknown_factor(n_rows)


def unknown_factor(n_rows: float) -> float:
    """What a scale must be widened by where so many rows have told it, and what the fit knows.

    Examples
    --------
    >>> [round(unknown_factor(n), 2) for n in (0.0, 1.0, 3.0, 10.0, 100.0)]
    [1.78, 1.43, 1.23, 1.08, 1.01]
    """
    return float(t.ppf(0.95, 2 + n_rows) / norm.ppf(0.95))


def copies(rows: KeptRows) -> Int[np.ndarray, " rows"]:
    """A label for every row, the same for rows of equal coordinates and categories."""
    parts = [np.asarray(rows.X.coordinates, np.float32) + np.float32(0)]  # no negative zeros
    if rows.X.codes is not None:
        parts.append(np.asarray(rows.X.codes, np.float32))
    table = np.ascontiguousarray(np.concatenate(parts, axis=1))
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    return np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int32)


def own_centers(networks: LocalNetwork, X: Inputs) -> Int[np.ndarray, " rows"]:
    """The inducing point of the gate that each row is, if any."""
    gate = networks.gate
    centers = np.asarray(gate.inducing_points)[0, np.asarray(gate.is_used)[0]]
    by_content = {center.tobytes(): number for number, center in enumerate(centers)}
    rows = np.ascontiguousarray(X.coordinates, np.float32) * np.asarray(gate.relevance)[0]
    return np.array([by_content.get(row.tobytes(), NO_CENTER) for row in rows], np.int32)


@compiled
def judge(
    networks: LocalNetwork,
    fitted: TrainingSet,
    later: LaterRows,
    labels: tuple[Array, Array],
    X: Inputs,
    y: Float[Array, "rows outputs"],
    weight: Float[Array, " rows"],
    label: Int[Array, " rows"],
    own_center: Int[Array, " rows"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The factor by rows that are left out with their copies, and the number of rows that tell it.

    Rows that hardly rest on others off the data of the fit say little about it.
    """

    def predict(network: LocalNetwork, fitted: TrainingSet, later: LaterRows) -> LocalPosterior:
        rows = network.embed(X)
        gate = network.gate(jnp.asarray(X.coordinates), own_center)
        foreign = eqx.tree_at(lambda own: own.weight, later.rows, later.rows.weight * later.foreign)

        def sums(own: TrainingSet, of_set: Array) -> Sums:
            return sums_without_copies(network, rows.coordinates, own, of_set, label)

        of_fit, of_later = sums(fitted, labels[0]), sums(later.rows, labels[1])
        off_data = sums(foreign, labels[1]).count
        return posterior_with_later(network, rows, gate, of_fit, of_later, off_data)

    axes = (MEMBER, 0, 0)
    found = eqx.filter_vmap(predict, in_axes=axes)(networks, fitted, later)
    n_members = len(found.count)

    def pool(leaf: Array) -> Array:
        """Components of all members along the last axis."""
        return jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], -1)

    dist = jax.tree.map(pool, found.dist)
    dist = eqx.tree_at(lambda d: d.log_weight, dist, dist.log_weight - jnp.log(n_members))
    share = jnp.mean(found.foreign_share * (1 - found.gate), axis=0)
    judging = weight * share

    def holds(log_factor: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether all intervals hold what they say."""
        factor = 1 + (jnp.exp(log_factor) - 1) * jnp.broadcast_to(share[:, None], y.shape)
        centrality = jnp.abs(2 * dist.widen(factor).cdf(y) - 1)
        inside = [jnp.mean(centrality <= level, axis=1) for level in LEVELS]
        total = jnp.maximum(jnp.sum(judging), 1e-12)
        covered = jnp.stack([jnp.sum(judging * own) / total for own in inside])
        return jnp.all(covered >= jnp.array(LEVELS) - 1e-6)

    steps = jnp.linspace(0.0, jnp.log(LARGEST_FACTOR), N_FACTORS)
    is_enough = lax.map(holds, steps)
    best = jnp.where(jnp.any(is_enough), jnp.argmax(is_enough), N_FACTORS - 1)
    return jnp.exp(steps[best]), jnp.sum(judging)


def sums_without_copies(
    network: LocalNetwork,
    coordinates: Float[Array, "rows metric"],
    training_set: TrainingSet,
    labels: Int[Array, " slots"],
    label: Int[Array, " rows"],
) -> Sums:
    """Kernel sums over all rows but those with the query's own label, block by block."""
    size = min(len(labels), ROWS_PER_BLOCK)

    def add(sums: Sums, block: tuple[TrainingSet, Array]) -> tuple[Sums, None]:
        rows, of_rows = block
        weights = network.kernel_weights(coordinates, rows.coordinates) * rows.weight[None]
        weights = jnp.where(label[:, None] == of_rows[None], 0.0, weights)
        return jax.tree.map(jnp.add, sums, weighted_sums(weights, rows.residuals)), None

    blocks = jax.tree.map(
        lambda leaf: leaf.reshape(len(labels) // size, size, *leaf.shape[1:]),
        (training_set, labels),
    )
    zeros = jnp.zeros((len(coordinates), training_set.residuals.shape[1]))
    return lax.scan(add, Sums(zeros[:, 0], zeros, zeros), blocks)[0]
