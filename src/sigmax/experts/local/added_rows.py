"""Rows added to a fitted local model, without fitting again.

Networks, kernels and units stay as they are. All that rests on single rows follows the new ones:
the kernel sums, the gate, the leaves of forests, and the width of predictions that rest on new
rows. Every new row is predicted from all other rows, itself and its duplicates left out: the
networks never saw it, so that this is the prediction of another new row near it.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.stats import norm, t

from sigmax.compilation import bucket_size, compiled, padded
from sigmax.errors import InvalidCellError, InvalidDataError
from sigmax.experts.local.expert import LocalFitted
from sigmax.experts.local.network import LocalNetwork, LocalPosterior, Sums, TrainingSet
from sigmax.experts.local.predictor import AddedRows, StoredRows
from sigmax.experts.rows import duplicate_groups
from sigmax.inputs import Inputs
from sigmax.model import Model
from sigmax.networks import NO_CENTER
from sigmax.networks.gate import with_centers
from sigmax.tables import Table

MEMBER = eqx.if_array(0)

MOST_VALIDATED = 1024
"""Added rows that are left out one by one, at most: evenly spaced among all."""

COVERAGES = (0.5, 0.8, 0.9)
"""Nominal coverages of the intervals that the factor is chosen by."""

LARGEST_FACTOR = 16.0
N_FACTORS = 57
"""Number of factors that are tried: steps of 5 %."""


def add_rows(
    model: Model,
    table: Table,
    y: Float[np.ndarray, "rows ..."],
    weight: Float[np.ndarray, " rows"] | None = None,
) -> Model:
    """Model with more stored training rows; rows of weight 0 are left out.

    ``y`` and ``weight`` are in the units of the fit. Without weights, every row counts as one of
    the fit on average.

    Raises
    ------
    InvalidDataError
        If ``y`` has another shape than in the fit, or a cell is missing in a column without any
        missing value in the fit.
    """
    fitted = model.fitted
    assert isinstance(fitted, LocalFitted)
    check_rows(model, table, y)
    y, unit = y.reshape(len(y), -1), fitted.reference.weight_unit
    weight = np.full(len(y), unit) if weight is None else weight
    known, kept = fitted.rows.indices, np.flatnonzero(weight > 0)
    n_numbered = max(fitted.reference.n_learned, int(known.max()) + 1)
    new = StoredRows(
        model.features(table),
        model.target(y).astype(np.float32),
        (weight / unit).astype(np.float32),
        (n_numbered + np.arange(len(y))).astype(known.dtype),
    )
    fitted = with_rows(fitted, new[kept])
    return replace(model, target=model.target.with_values(y[kept]), fitted=fitted)


def check_rows(model: Model, table: Table, y: np.ndarray) -> None:
    """Raise InvalidDataError unless the rows can be added."""
    n_outputs = len(model.target.scaling.mean)
    if (y.ndim == 1) != model.is_single_output or y.size != len(y) * n_outputs:
        shape = "(n,)" if model.is_single_output else f"(n, {n_outputs})"
        raise InvalidDataError(f"`y` must have the shape {shape} of the fit, got {y.shape}.")
    is_unknown = model.features.unknown_reals(table)
    if is_unknown.any():
        row, column = np.argwhere(is_unknown)[0]
        name = table.schema.reals[column].name
        raise InvalidCellError(
            f"Column {name!r} is missing in row {{row}}, but in no row of the fit: such a row"
            " cannot be added. Fit again with it.",
            int(row) + 1,
        )


def with_rows(fitted: LocalFitted, new: StoredRows) -> LocalFitted:
    """Fitted value with more stored rows."""
    rows, first, reference = fitted.rows.joined(new), len(fitted.rows), fitted.reference
    coordinates = np.asarray(rows.X.coordinates)
    gate = with_centers(fitted.networks.gate, coordinates[first:], reference.n_inducing)
    networks = eqx.tree_at(lambda n: n.gate, fitted.networks, gate)
    forests = fitted.forests
    if forests is not None:
        n_before = first - reference.n_rows
        forests = forests.with_rows(coordinates, rows.weight, first, n_before)
    found = replace(fitted, networks=networks, rows=rows, forests=forests)
    predictor = fitted.predictor.with_added(networks, found.added, found.novelty)
    found = found.replaced(predictor)
    return found.replaced(predictor, added_factor=choose_factor(found))


def choose_factor(fitted: LocalFitted) -> float:
    """Factor on the scales of predictions that rest on rows away from the data of the fit.

    No member has held such rows out. Each is predicted from all others: the factor is the least by
    which intervals of these predictions have their nominal coverage, shrunk to 1 the more the
    fewer the rows are, times the factor that so few rows leave unknown. Forests have no part in
    it, but are widened by it, too.
    """
    networks, added, predictor = fitted.networks, fitted.added, fitted.predictor
    X, n_fitted = fitted.rows.X, fitted.reference.n_rows
    columns = [X.coordinates] if X.codes is None else [X.coordinates, X.codes]
    groups = duplicate_groups(np.concatenate(columns, axis=1)).astype(np.int32)
    of_fit, of_added = groups[:n_fitted], groups[n_fitted:]
    n_validated = min(len(added), MOST_VALIDATED)
    some = np.unique(np.linspace(0, len(added) - 1, n_validated).astype(int))
    X, own = added.X[some], of_added[some]
    # Duplicates are one test: they share the weight of one row.
    weight = added.weight[some] / np.bincount(of_added)[own]
    n_slots = bucket_size(len(some), smallest=64)
    queries = padded((X, added.y[some], weight, own, own_centers(networks, X)), n_slots)
    training_sets, added_rows = predictor.training_sets, predictor.added
    assert added_rows is not None
    slots = training_sets.weight.shape[1], added_rows.novelty.shape[1]
    of_sets = padded(of_fit, slots[0]), padded(of_added, slots[1])
    found = validate(networks, training_sets, added_rows, of_sets, *queries)
    factor, n_rows = (float(part) for part in found)
    return factor ** (n_rows / (n_rows + 1)) * unknown_factor(n_rows)


def unknown_factor(n_rows: float) -> float:
    """Factor for a scale that is known from so many rows, and from the fit.

    Examples
    --------
    >>> [round(unknown_factor(n), 2) for n in (0.0, 1.0, 3.0, 10.0, 100.0)]
    [1.78, 1.43, 1.23, 1.08, 1.01]
    """
    return float(t.ppf(0.95, 2 + n_rows) / norm.ppf(0.95))


def own_centers(networks: LocalNetwork, X: Inputs) -> Int[np.ndarray, " rows"]:
    """Inducing point of the gate that each row is, if any."""
    gate = networks.gate
    centers = np.asarray(gate.inducing_points)[0, np.asarray(gate.is_used)[0]]
    by_content = {center.tobytes(): number for number, center in enumerate(centers)}
    rows = np.ascontiguousarray(X.coordinates, np.float32) * np.asarray(gate.relevance)[0]
    return np.array([by_content.get(row.tobytes(), NO_CENTER) for row in rows], np.int32)


@compiled
def validate(
    networks: LocalNetwork,
    training_sets: TrainingSet,
    added: AddedRows,
    groups: tuple[Int[Array, " slots"], Int[Array, " added"]],
    X: Inputs,
    y: Float[Array, "rows outputs"],
    weight: Float[Array, " rows"],
    own_group: Int[Array, " rows"],
    own_center: Int[Array, " rows"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Factor by rows that are left out with their duplicates, and the number of such rows.

    Rows count as far as their predictions rest on others away from the data of the fit.
    """

    def predict(
        network: LocalNetwork, training_set: TrainingSet, added: AddedRows
    ) -> LocalPosterior:
        rows = network.embed(X)
        gate = network.gate(jnp.asarray(X.coordinates), own_center)
        new = eqx.tree_at(lambda own: own.weight, added.rows, added.rows.weight * added.novelty)

        def sums(own: TrainingSet, group: Array) -> Sums:
            return network.kernel_sums(rows.coordinates, own, group, own_group)

        total = jax.tree.map(jnp.add, sums(training_set, groups[0]), sums(added.rows, groups[1]))
        return network.posterior(rows, gate, total, sums(new, groups[1]).count)

    found = eqx.filter_vmap(predict, in_axes=(MEMBER, 0, 0))(networks, training_sets, added)
    n_members = len(found.count)

    def pool(leaf: Array) -> Array:
        """Components of all members along the last axis."""
        return jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], -1)

    dist = jax.tree.map(pool, found.dist)
    dist = eqx.tree_at(lambda d: d.log_weight, dist, dist.log_weight - jnp.log(n_members))
    share = jnp.mean(found.new_share * (1 - found.gate), axis=0)
    counted = weight * share

    def is_covering(log_factor: Float[Array, ""]) -> Bool[Array, ""]:
        """True if all intervals have their nominal coverage."""
        factor = 1 + (jnp.exp(log_factor) - 1) * jnp.broadcast_to(share[:, None], y.shape)
        centrality = jnp.abs(2 * dist.widen(factor).cdf(y) - 1)
        inside = [jnp.mean(centrality <= coverage, axis=1) for coverage in COVERAGES]
        total = jnp.maximum(jnp.sum(counted), 1e-12)
        covered = jnp.stack([jnp.sum(counted * own) / total for own in inside])
        return jnp.all(covered >= jnp.array(COVERAGES) - 1e-6)

    steps = jnp.linspace(0.0, jnp.log(LARGEST_FACTOR), N_FACTORS)
    is_enough = lax.map(is_covering, steps)
    best = jnp.where(jnp.any(is_enough), jnp.argmax(is_enough), N_FACTORS - 1)
    return jnp.exp(steps[best]), jnp.sum(counted)
