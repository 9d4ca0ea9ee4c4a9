"""The fitted local model: prediction from stored training rows, and rows added after the fit.

An accelerator sums over all rows faster than it could choose among them. On a CPU, the nearest of
many rows are searched in every member's learned metric: the time of a prediction hardly grows with
the number of training rows. Sums over rows that were added after the fit are exact.
"""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.special import logsumexp

from sigmax.calibration import LEVELS, few_rows_factor
from sigmax.compilation import (
    bucket_size,
    by_blocks,
    compiled,
    on_all_devices,
    on_device,
    pad_rows,
    padded,
)
from sigmax.distributions import Mixture
from sigmax.experts.base import AbstractFitted, HeldOut, StoredRows
from sigmax.experts.ensemble import LARGEST_FACTOR, mean_gates
from sigmax.experts.local.network import (
    ROWS_PER_BLOCK,
    EmbeddedRows,
    LocalNetwork,
    LocalPosterior,
    Sums,
    TrainingSet,
    WeightedStudentT,
)
from sigmax.experts.rows import duplicate_groups
from sigmax.extrapolation import NO_CENTER, with_centers
from sigmax.inputs import Inputs
from sigmax.neighbors import import_faiss

MEMBER = eqx.if_array(0)
ROWS_AT_ONCE = 1024
"""Rows that are predicted in one call: each with a block of training rows per member."""


@final
class LocalFitted(AbstractFitted):
    """Trained members and stored training rows; the prediction is the mixture of the members."""

    networks: LocalNetwork
    """Ensemble members along the first axis of all arrays."""
    rows: StoredRows
    held_out: HeldOut
    history: dict[str, np.ndarray]
    """Validation scores (chunks, members) by stage."""
    n_fitted: int
    """Number of stored rows that the networks learned from: the first ones."""
    n_learned: int
    """Number of rows that the networks learned from, also of those that are not stored."""
    n_centers: int
    """Number of inducing points of the gate of the fit: the first ones."""
    n_inducing: int
    """Number of inducing points up to which every added row becomes one."""
    added_factor: float = 1.0
    """Factor on the scales of predictions from added rows away from the data of the fit."""

    @cached_property
    def predictor(self) -> "LocalPredictor":
        """Members with the stored rows in their metrics."""
        fitted = LocalPredictor.create(self.networks, self.rows[: self.n_fitted])
        return fitted.with_added(self.networks, self.added, self.novelty)

    @property
    def added(self) -> StoredRows:
        return self.rows[self.n_fitted :]

    @property
    def novelty(self) -> Float[np.ndarray, " added"]:
        """Gate of the fit at the rows that were added later."""
        gate = self.networks.gate
        is_used = np.asarray(gate.is_used) & (np.arange(gate.is_used.shape[1]) < self.n_centers)
        networks = eqx.tree_at(lambda n: n.gate.is_used, self.networks, is_used)
        return mean_gates(networks, self.added.X) if len(self.added) else np.zeros(0)

    @cached_property
    def bounds(self) -> tuple[Float[np.ndarray, " numbers"], Float[np.ndarray, " numbers"]]:
        """Least and largest value of every number in the stored rows, standardised."""
        numbers = np.asarray(self.rows.X.numbers)
        return numbers.min(axis=0), numbers.max(axis=0)

    def within_bounds(self, X: Inputs) -> Inputs:
        """Rows in single precision, moved into the range of the training data.

        Networks that extrapolate oscillate, each in its own way. `Edges` are the trends beyond the
        range; the gate sees the rows where they are.
        """
        n_reals = self.networks.edges.slope.shape[-2]
        return X.astype(np.float32).within(*self.bounds, n_reals)

    def density(self, X: Inputs) -> Mixture:
        return self.describe(X)[0]

    def gate(self, X: Inputs) -> Float[np.ndarray, " rows"]:
        return mean_gates(self.networks, self.within_bounds(X))

    def describe(self, X: Inputs) -> tuple[Mixture, dict[str, Float[np.ndarray, " rows"]]]:
        """`density`, the effective number of training rows (``evidence``) and the ``gate``."""
        X = self.within_bounds(X)
        found = self.predictor.predict(X)
        parts = {"evidence": found.count, "gate": found.gate}
        mixture = as_mixture(found.widened(self.added_factor))
        return mixture, {name: np.asarray(part).mean(axis=0) for name, part in parts.items()}

    def coordinates(self, X: Inputs) -> Float[np.ndarray, "members rows metric"]:
        """Coordinates in which the learned metric of each member is Euclidean."""
        embed = partial(embed_members, self.networks)
        embedded, _ = by_blocks(embed, self.within_bounds(X), axis=1, rows_per_call=ROWS_AT_ONCE)
        return embedded.coordinates

    def explain_neighbors(
        self, X: Inputs, k: int
    ) -> tuple[Int[np.ndarray, "rows k"], Float[np.ndarray, "rows k"]]:
        """Training rows that contribute most to each prediction, and their shares in the mean."""
        rows, shares = self.predictor.contributors(self.within_bounds(X), min(k, len(self.rows)))
        return self.rows.indices[rows.astype(int)], shares

    def with_rows(self, new: StoredRows) -> "LocalFitted":
        """Value with more stored rows.

        Networks and kernels stay as they are. The kernel sums, the gate, and the width of
        predictions that rest on new rows follow the new rows.
        """
        stored = jax.tree.map(lambda own, like: own.astype(like.dtype), new, self.rows)
        coordinates = np.asarray(stored.X.coordinates)
        gate = with_centers(self.networks.gate, coordinates, self.n_inducing)
        networks = eqx.tree_at(lambda n: n.gate, self.networks, gate)
        found = replace(self, networks=networks, rows=self.rows.joined(stored))
        predictor = self.predictor.with_added(networks, found.added, found.novelty)
        found = replace(found, added_factor=choose_factor(found, predictor))
        vars(found)["predictor"] = predictor  # the cached property, which shares the fitted rows
        return found

    def prediction_shape(self, X: Inputs) -> tuple[int, ...]:
        def predict(networks: LocalNetwork, rows: StoredRows, X: Inputs) -> Array:
            training_sets = embed_training_sets(networks, rows.X, rows.y, rows.weight)
            return predict_members(networks, training_sets, None, X).dist.mean

        some = self.networks, self.rows[:1], self.within_bounds(X)
        return eqx.filter_eval_shape(predict, *some).shape[1:]

    def check(self) -> None:
        if not np.all(np.asarray(self.networks.factor) > 0):
            raise ValueError("factors on scales must be above 0")
        is_sound = 0 < self.n_fitted <= len(self.rows) and self.n_inducing > 0
        is_sound &= 0 < self.n_centers <= np.sum(np.asarray(self.networks.gate.is_used)[0])
        if not (is_sound and self.added_factor >= 1):
            raise ValueError("numbers of rows and of inducing points do not fit the stored rows")

    def __getstate__(self) -> dict[str, Any]:
        """Fields alone: the predictor may have an index that cannot be pickled."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def as_mixture(found: LocalPosterior) -> Mixture:
    """Equal mixture of the members' predictions, each with its uncertainty about its mean."""
    n_members, *batch, n_parts = found.dist.log_weight.shape

    def flat(leaf: Any) -> np.ndarray:
        """Components of all members along the first axis."""
        return np.moveaxis(leaf, -1, 1).reshape(n_members * n_parts, *batch)

    share = np.asarray(found.epistemic_share)[..., None, None]
    log_weight = flat(found.dist.log_weight).astype(np.float64)
    # Weights in single precision add up to 1 ± 2e-6, an error that is multiplied by the mean of y.
    log_weight = log_weight - logsumexp(log_weight, axis=0)
    return Mixture(
        jax.tree.map(flat, found.dist.components),
        flat(np.broadcast_to(share, found.dist.log_weight.shape)),
        log_weight,
        n_parts,
    )


LARGEST_EXHAUSTIVE = 2**15
"""Number of training rows up to which sums on a CPU run over all of them."""
SHARES_AT_ONCE = 2**27
"""Contributions of training rows that are held at once to find the largest: 512 MiB."""


@final
class AddedRows(eqx.Module):
    """Rows that were added after the fit, in the metric of every ensemble member."""

    rows: TrainingSet
    novelty: Float[Array, "*members slots"]
    """Gate of the fit at every row: 0 on its data, 1 far from them."""


@final
@dataclass(frozen=True, eq=False)
class LocalPredictor:
    """Ensemble members with the stored training rows in their metrics."""

    networks: LocalNetwork
    training_sets: TrainingSet
    n_rows: int
    nearest: "NearestRows | None" = None
    """Index of the rows of the fit, if sums run over the nearest ones."""
    added: AddedRows | None = None
    n_added: int = 0

    @classmethod
    def create(cls, networks: LocalNetwork, rows: StoredRows) -> "LocalPredictor":
        """Embed the rows of the fit, and index them if they are many."""
        parts = padded((rows.X, rows.y, rows.weight), slots_for(len(rows)))
        embedded = embed_training_sets(networks, *parts)
        networks, embedded = on_all_devices((networks, embedded))
        found = cls(networks, embedded, len(rows))
        is_large = len(rows) > LARGEST_EXHAUSTIVE and jax.default_backend() == "cpu"
        if is_large and find_spec("faiss") is not None:
            return replace(found, nearest=find_search(found, rows.X))
        return found

    def with_added(
        self, networks: LocalNetwork, rows: StoredRows, novelty: Float[np.ndarray, " added"]
    ) -> "LocalPredictor":
        """Predictor with these added rows in place of earlier ones.

        The rows of the fit are neither embedded nor indexed again. The number of added rows is
        padded, so that one more hardly ever compiles anything.
        """
        if not len(rows):
            return self
        n_slots = slots_for(len(rows), smallest=64)
        embedded = embed_training_sets(networks, *padded((rows.X, rows.y, rows.weight), n_slots))
        novelty = pad_rows(novelty.astype(np.float32), n_slots)
        added = AddedRows(embedded, on_device(np.tile(novelty, (len(networks.factor), 1))))
        networks, added = on_all_devices((networks, added))
        return replace(self, networks=networks, added=added, n_added=len(rows))

    def predict(self, X: Inputs) -> LocalPosterior:
        """Predictions of all members at standardised rows: leaves (members, rows, ...)."""

        def predict(X: Inputs) -> LocalPosterior:
            if self.nearest is None:
                return predict_members(self.networks, self.training_sets, self.added, X)
            embedded, gates = embed_members(self.networks, X)
            found = self.nearest(embedded.coordinates)
            sums = list_sums_of_members(self.networks, self.training_sets, *found)
            return posterior_members(self.networks, embedded, gates, sums, self.added)

        return by_blocks(predict, X, axis=1, rows_per_call=ROWS_AT_ONCE)

    def contributors(self, X: Inputs, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Training rows, k of them, that contribute most to each prediction, and their shares."""
        sets = self.training_sets
        n_slots = sets.weight.shape[1]
        is_row = np.arange(n_slots) < self.n_rows
        if self.added is not None:
            sets = jax.tree.map(
                lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves], axis=1),
                sets,
                self.added.rows,
            )
            is_added = np.arange(self.added.novelty.shape[1]) < self.n_added
            is_row = np.concatenate([is_row, is_added])
        n_at_once = SHARES_AT_ONCE // sets.weight.size
        rows_per_call = max(64, min(ROWS_AT_ONCE, 1 << n_at_once.bit_length() >> 1))
        largest = partial(largest_contributions, self.networks, sets, is_row, k)
        rows, shares = by_blocks(largest, X, axis=0, rows_per_call=rows_per_call)
        return np.where(rows < n_slots, rows, rows - n_slots + self.n_rows), shares


def slots_for(n_rows: int, smallest: int = 256) -> int:
    """Padded number of rows: a power of two, or a multiple of `ROWS_PER_BLOCK`."""
    n_slots = bucket_size(n_rows, smallest=smallest)
    if n_slots > ROWS_PER_BLOCK:
        n_slots = math.ceil(n_rows / ROWS_PER_BLOCK) * ROWS_PER_BLOCK
    return n_slots


embed_training_sets = compiled(
    eqx.filter_vmap(LocalNetwork.embed_training_set, in_axes=(MEMBER, None, None, None))
)
kernel_sums_of_members = compiled(eqx.filter_vmap(LocalNetwork.kernel_sums, in_axes=(MEMBER, 0, 0)))
list_sums_of_members = compiled(
    eqx.filter_vmap(LocalNetwork.sums_over_lists, in_axes=(MEMBER, 0, 0, 0))
)


@compiled
def predict_members(
    networks: LocalNetwork, training_sets: TrainingSet, added: AddedRows | None, X: Inputs
) -> LocalPosterior:
    """Every member's predictive density in standardised units, by sums over all training rows."""

    def predict(
        network: LocalNetwork, training_set: TrainingSet, added: AddedRows | None
    ) -> LocalPosterior:
        rows = network.embed(X)
        sums = network.kernel_sums(rows.coordinates, training_set)
        return with_added_sums(network, rows, network.gate_value(X), sums, added)

    return eqx.filter_vmap(predict)(networks, training_sets, added)


def with_added_sums(
    network: LocalNetwork,
    rows: EmbeddedRows,
    gate: Float[Array, " rows"],
    sums: Sums,
    added: AddedRows | None,
    *groups: Int[Array, " _"],
) -> LocalPosterior:
    """One member's prediction from sums over the rows of the fit, and over the added rows.

    ``groups`` are those of `LocalNetwork.kernel_sums`.
    """
    if added is None:
        return network.posterior(rows, gate, sums)
    new = eqx.tree_at(lambda own: own.weight, added.rows, added.rows.weight * added.novelty)
    of_added = network.kernel_sums(rows.coordinates, added.rows, *groups)
    new_count = network.kernel_sums(rows.coordinates, new, *groups).count
    total = jax.tree.map(jnp.add, sums, of_added)
    return network.posterior(rows, gate, total, new_count)


posterior_members = compiled(eqx.filter_vmap(with_added_sums, in_axes=(MEMBER, 0, 0, 0, 0)))


@compiled
def embed_members(
    networks: LocalNetwork, X: Inputs
) -> tuple[EmbeddedRows, Float[Array, "members rows"]]:
    """Rows in every member's metric, and the gates there."""
    return eqx.filter_vmap(lambda network: (network.embed(X), network.gate_value(X)))(networks)


@compiled
def largest_contributions(
    networks: LocalNetwork,
    training_sets: TrainingSet,
    is_row: Bool[Array | np.ndarray, " slots"],
    k: int,
    X: Inputs,
) -> tuple[Int[Array, "rows {k}"], Float[Array, "rows {k}"]]:
    """The k training rows with the largest share in the updated mean, averaged over the members.

    Slots other than ``is_row`` are padding.
    """

    def share(network: LocalNetwork, training_set: TrainingSet) -> Array:
        embedded, gate = network.embed(X), network.gate_value(X)
        weights = network.kernel_weights(embedded.coordinates, training_set.coordinates)
        weights = weights * training_set.weight[None]
        kept = 1 - network.edges.fade * gate**2
        own = jnp.exp(network.kernel.log_prior_rows)
        return weights * (kept / (own + jnp.sum(weights, axis=1)))[:, None]

    shares = jnp.mean(eqx.filter_vmap(share)(networks, training_sets), axis=0)
    ranked, rows = lax.top_k(jnp.where(is_row[None], shares, -1.0), k)
    return rows, ranked


LARGEST_SHIFT = 0.03
"""Largest change of predictions by a search, in their standard deviations, and of the logarithm of
these: root mean squares over training rows, each left out. It costs a thousandth of a nat."""
SEARCHES = ((64, 16), (64, 32), (256, 16), (256, 32), (256, 64), (1024, 64), (1024, 256))
"""Numbers of neighbours and of cells to search, the cheapest first."""
N_SAMPLED = 256
"""Training rows at which a search is compared with the sums over all rows."""
SMALLEST_COUNT = 1e-3
"""Sums of smaller kernel weights change no prediction."""
CELLS_PER_ROOT = 4
"""Number of cells, divided by the square root of the number of rows."""
ROWS_PER_CELL_TO_LEARN = 40
"""Size of the sample that k-means learns the cells from, per cell."""


@final
@dataclass(frozen=True, eq=False)
class NearestRows:
    """Search for the nearest training rows in cells of k-means (faiss): one index per member."""

    indexes: tuple[Any, ...]
    k: int = 64
    n_cells: int = 16
    """Number of cells that are searched."""

    @classmethod
    def build(cls, coordinates: Float[Array, "members rows metric"]) -> "NearestRows":
        """Index rows by their coordinates in every member's metric; cells are of a sample."""
        faiss: Any = import_faiss()
        _, n_rows, n_coordinates = coordinates.shape
        n_cells, indexes = round(CELLS_PER_ROOT * n_rows**0.5), []
        every = max(1, n_rows // (ROWS_PER_CELL_TO_LEARN * n_cells))
        for rows in map(np.asarray, coordinates):
            cells = faiss.IndexFlatL2(n_coordinates)
            index = faiss.IndexIVFFlat(cells, n_coordinates, n_cells)
            index.cp.niter, index.cp.min_points_per_centroid = 10, 1
            index.train(np.ascontiguousarray(rows[::every]))
            index.add(rows)
            indexes.append(index)
        return cls(tuple(indexes))

    def __call__(
        self, coordinates: Float[Array, "members queries metric"]
    ) -> tuple[Float[Array, "members queries k"], Int[Array, "members queries k"]]:
        """Squared distances to the nearest rows, and their indices; infinite where none is left."""
        squared, indices = [], []
        for index, queries in zip(self.indexes, coordinates, strict=True):
            index.nprobe = self.n_cells
            found = index.search(np.asarray(queries), self.k)
            is_missing = found[1] < 0
            squared.append(np.where(is_missing, np.float32(np.inf), found[0]))
            indices.append(np.where(is_missing, 0, found[1]).astype(np.int32))
        return jnp.asarray(np.stack(squared)), jnp.asarray(np.stack(indices))


def find_search(predictor: LocalPredictor, X: Inputs) -> NearestRows | None:
    """Cheapest search that changes predictions little; None if all of them change more."""
    networks, training_sets = predictor.networks, predictor.training_sets
    sample = np.linspace(0, predictor.n_rows - 1, N_SAMPLED).astype(int)
    embedded, gates = embed_members(networks, jax.tree.map(jnp.asarray, X[sample]))
    shape = len(embedded.coordinates), N_SAMPLED, 1
    itself = jnp.broadcast_to(jnp.asarray(sample)[:, None], shape)
    own = list_sums_of_members(networks, training_sets, jnp.zeros(shape), itself)

    def predict(sums: Sums) -> WeightedStudentT:
        """Densities as for new rows, which do not contribute to their own predictions."""
        others = jax.tree.map(jnp.subtract, sums, own)
        is_supported = others.count > SMALLEST_COUNT  # the rest is rounding

        def kept(part: Array) -> Array:
            return jnp.where(jnp.expand_dims(is_supported, range(2, part.ndim)), part, 0.0)

        others = jax.tree.map(kept, others)
        return posterior_members(networks, embedded, gates, others, None).dist

    exhaustive = predict(kernel_sums_of_members(networks, embedded.coordinates, training_sets))
    nearest = NearestRows.build(training_sets.coordinates[:, : predictor.n_rows])
    for k, n_cells in SEARCHES:
        search = replace(nearest, k=k, n_cells=n_cells)
        found = search(embedded.coordinates)
        few = predict(list_sums_of_members(networks, training_sets, *found))
        shift = (few.mean - exhaustive.mean) / jnp.sqrt(exhaustive.variance)
        stretch = 0.5 * jnp.log(few.variance / exhaustive.variance)
        if max(jnp.mean(shift**2), jnp.mean(stretch**2)) < LARGEST_SHIFT**2:
            return search
    return None


MOST_VALIDATED = 1024
"""Added rows that are left out one by one, at most: evenly spaced among all."""
N_FACTORS = 57
"""Number of factors that are tried: steps of 5 %."""


def choose_factor(fitted: LocalFitted, predictor: LocalPredictor) -> float:
    """Factor on the scales of predictions that rest on rows away from the data of the fit.

    No member has held such rows out. Each is predicted from all others: the factor is the least by
    which intervals of these predictions have their nominal coverage, shrunk to 1 the more the
    fewer the rows are, times the factor that so few rows leave unknown.
    """
    networks, added = fitted.networks, fitted.added
    X, n_fitted = fitted.rows.X, fitted.n_fitted
    columns = [X.coordinates] if X.codes is None else [X.coordinates, X.codes]
    groups = duplicate_groups(np.concatenate(columns, axis=1)).astype(np.int32)
    of_fit, of_added = groups[:n_fitted], groups[n_fitted:]
    n_validated = min(len(added), MOST_VALIDATED)
    some = np.unique(np.linspace(0, len(added) - 1, n_validated).astype(int))
    X, own = added.X[some], of_added[some]
    # Duplicates are one test: they share the weight of one row.
    weight = added.weight[some] / np.bincount(of_added)[own]
    gate = networks.gate  # of which an added row may be an inducing point
    centers = np.asarray(gate.inducing_points)[0, np.asarray(gate.is_used)[0]]
    by_content = {center.tobytes(): number for number, center in enumerate(centers)}
    inputs = np.ascontiguousarray(X.coordinates, np.float32) * np.asarray(gate.relevance)[0]
    own_center = [by_content.get(row.tobytes(), NO_CENTER) for row in inputs]
    parts = X, added.y[some], weight, own, np.array(own_center, np.int32)
    queries = padded(parts, bucket_size(len(some), smallest=64))
    training_sets, added_rows = predictor.training_sets, predictor.added
    assert added_rows is not None
    slots = training_sets.weight.shape[1], added_rows.novelty.shape[1]
    of_sets = padded(of_fit, slots[0]), padded(of_added, slots[1])
    found = validate(networks, training_sets, added_rows, of_sets, *queries)
    factor, n_rows = (float(part) for part in found)
    return factor ** (n_rows / (n_rows + 1)) * few_rows_factor(n_rows + 3)


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
        sums = network.kernel_sums(rows.coordinates, training_set, groups[0], own_group)
        return with_added_sums(network, rows, gate, sums, added, groups[1], own_group)

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
        inside = [jnp.mean(centrality <= coverage, axis=1) for coverage in LEVELS]
        total = jnp.maximum(jnp.sum(counted), 1e-12)
        covered = jnp.stack([jnp.sum(counted * own) / total for own in inside])
        return jnp.all(covered >= jnp.array(LEVELS) - 1e-6)

    steps = jnp.linspace(0.0, jnp.log(LARGEST_FACTOR), N_FACTORS)
    is_enough = lax.map(is_covering, steps)
    best = jnp.where(jnp.any(is_enough), jnp.argmax(is_enough), N_FACTORS - 1)
    return jnp.exp(steps[best]), jnp.sum(counted)
