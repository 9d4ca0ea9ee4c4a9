"""Predictions of local networks: kernel sums over all training rows, or over the nearest ones.

An accelerator sums over all rows faster than it could choose among them. On a CPU, the nearest of
many rows are searched in every member's learned metric: the time of a prediction hardly grows with
the number of training rows. Sums over rows that were added after the fit are exact.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.special import logsumexp

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
from sigmax.experts.local.density import WeightedStudentT
from sigmax.experts.local.network import (
    ROWS_PER_BLOCK,
    EmbeddedRows,
    LocalNetwork,
    LocalPosterior,
    Sums,
    TrainingSet,
)
from sigmax.inputs import Inputs
from sigmax.neighbors import import_faiss

ROWS_AT_ONCE = 1024
"""Rows that are predicted in one call: each with a block of training rows per member."""

LARGEST_EXHAUSTIVE = 2**15
"""Number of training rows up to which sums on a CPU run over all of them."""

LARGEST_SHIFT = 0.03
"""Largest change of predictions by a search, in their standard deviations, and of the logarithm of
these: root mean squares over training rows, each left out. It costs a thousandth of a nat."""

SEARCHES = ((64, 16), (64, 32), (256, 16), (256, 32), (256, 64), (1024, 64), (1024, 256))
"""Numbers of neighbours and of cells to search, the cheapest first."""

N_SAMPLED = 256
"""Training rows at which a search is compared with the sums over all rows."""

SMALLEST_COUNT = 1e-3
"""Sums of smaller kernel weights change no prediction."""

SHARES_AT_ONCE = 2**27
"""Contributions of training rows that are held at once to find the largest: 512 MiB."""

MEMBER = eqx.if_array(0)


@final
class StoredRows(eqx.Module):
    """Training rows in standardised units: those of the fit, then those that were added."""

    X: Inputs
    y: Float[np.ndarray, "rows outputs"]
    weight: Float[np.ndarray, " rows"]
    """Sample weights over the mean weight of the fit."""
    indices: Int[np.ndarray, " rows"]
    """Positions among the rows given to `fit`; added rows are numbered on."""

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> "StoredRows":
        return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self)

    def joined(self, others: "StoredRows") -> "StoredRows":
        """These rows and others after them."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), self, others)

    def check(self) -> None:
        """Raise ValueError unless all rows are complete and have a weight."""
        if any(len(leaf) != len(self.y) for leaf in jax.tree.leaves(self)):
            raise ValueError("arrays of the training rows differ in their number of rows")
        if not (self.weight >= 0).all():
            raise ValueError("weights of training rows must be at least 0")


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
    """Rows of the fit, padded."""
    n_rows: int
    """Number of rows of the fit."""
    nearest: "NearestRows | None" = None
    """Index of the rows of the fit, if sums run over the nearest ones."""
    added: AddedRows | None = None
    n_added: int = 0

    @classmethod
    def create(cls, networks: LocalNetwork, rows: StoredRows) -> "LocalPredictor":
        """Embed the rows of the fit, and index them if they are many."""
        embedded = embed_rows(networks, rows, slots_for(len(rows)))
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
        embedded = embed_rows(networks, rows, n_slots)
        novelty = pad_rows(novelty.astype(np.float32), n_slots)
        added = AddedRows(embedded, on_device(np.tile(novelty, (len(networks.factor), 1))))
        networks, added = on_all_devices((networks, added))
        return replace(self, networks=networks, added=added, n_added=len(rows))

    def predict(self, X: Inputs) -> LocalPosterior:
        """Predictions of all members at standardised rows: leaves (members, rows, ...)."""
        if self.nearest is None:
            parts = self.networks, self.training_sets, self.added
            predict = partial(predict_members, *parts)
        else:
            predict = self._predict_by_nearest
        return by_blocks(predict, X, axis=1, rows_per_call=ROWS_AT_ONCE)

    def contributors(
        self, X: Inputs, k: int, leaf_rows: np.ndarray | None = None, share: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k training rows that contribute most to each prediction, and their shares.

        ``leaf_rows`` (n, trees) are the training rows of the leaves of forests that have a
        ``share`` in the mixture.
        """
        of_forests, sets = np.float32(share), self.training_sets
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
            if leaf_rows is not None:
                is_of_fit = leaf_rows < self.n_rows
                leaf_rows = np.where(is_of_fit, leaf_rows, leaf_rows + n_slots - self.n_rows)

        def largest(block: tuple[Inputs, Array | None]) -> tuple[Array, Array]:
            return largest_contributions(self.networks, sets, is_row, k, *block, of_forests)

        n_at_once = SHARES_AT_ONCE // sets.weight.size
        rows_per_call = max(64, min(ROWS_AT_ONCE, 1 << n_at_once.bit_length() >> 1))
        rows, shares = by_blocks(largest, (X, leaf_rows), axis=0, rows_per_call=rows_per_call)
        return np.where(rows < n_slots, rows, rows - n_slots + self.n_rows), shares

    def _predict_by_nearest(self, X: Inputs) -> LocalPosterior:
        assert self.nearest is not None
        embedded, gates = embed_members(self.networks, X)
        found = self.nearest(embedded.coordinates)
        sums = list_sums_of_members(self.networks, self.training_sets, *found)
        return posterior_members(self.networks, embedded, gates, sums, self.added)


def slots_for(n_rows: int, smallest: int = 256) -> int:
    """Padded number of rows: a power of two, or a multiple of `ROWS_PER_BLOCK`."""
    n_slots = bucket_size(n_rows, smallest=smallest)
    if n_slots > ROWS_PER_BLOCK:
        n_slots = math.ceil(n_rows / ROWS_PER_BLOCK) * ROWS_PER_BLOCK
    return n_slots


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


def embed_rows(networks: LocalNetwork, rows: StoredRows, n_slots: int) -> TrainingSet:
    """Rows in every member's metric, padded."""
    return embed_training_sets(networks, *padded((rows.X, rows.y, rows.weight), n_slots))


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
) -> LocalPosterior:
    """One member's prediction from sums over the rows of the fit, and over the added rows."""
    if added is None:
        return network.posterior(rows, gate, sums)
    new = eqx.tree_at(lambda own: own.weight, added.rows, added.rows.weight * added.novelty)
    of_added = network.kernel_sums(rows.coordinates, added.rows)
    new_count = network.kernel_sums(rows.coordinates, new).count
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
    leaf_rows: Int[Array, "rows trees"] | None,
    of_forests: Float[Array | np.ndarray, ""],
) -> tuple[Int[Array, "rows {k}"], Float[Array, "rows {k}"]]:
    """The k training rows with the largest share in the updated mean, averaged over the members.

    Slots other than ``is_row`` are padding. The rows of the leaves share the forests' part of the
    mean.
    """

    def share(network: LocalNetwork, training_set: TrainingSet) -> tuple[Array, Array]:
        embedded, gate = network.embed(X), network.gate_value(X)
        weights = network.kernel_weights(embedded.coordinates, training_set.coordinates)
        weights = weights * training_set.weight[None]
        kept = 1 - network.edges.fade * gate**2
        own = jnp.exp(network.kernel.log_prior_rows)
        return weights * (kept / (own + jnp.sum(weights, axis=1)))[:, None], gate

    shares, gates = eqx.filter_vmap(share)(networks, training_sets)
    shares = jnp.mean(shares, axis=0)
    if leaf_rows is not None:
        kept = 1 - networks.edges.fade[0] * jnp.mean(gates, axis=0) ** 2
        own = of_forests * kept / leaf_rows.shape[1]
        shares = jnp.asarray((1 - of_forests) * shares)
        shares = shares.at[jnp.arange(len(leaf_rows))[:, None], leaf_rows].add(own[:, None])
    ranked, rows = lax.top_k(jnp.where(is_row[None], shares, -1.0), k)
    return rows, ranked


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
        """Index rows by their coordinates in every member's metric."""
        return cls(tuple(build_index(np.asarray(rows)) for rows in coordinates))

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


def build_index(rows: Float[np.ndarray, "rows metric"]) -> Any:
    """Index with cells of k-means on a sample."""
    faiss: Any = import_faiss()
    n_cells = round(CELLS_PER_ROOT * len(rows) ** 0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], n_cells)
    every = max(1, len(rows) // (ROWS_PER_CELL_TO_LEARN * n_cells))
    index.cp.niter, index.cp.min_points_per_centroid = 10, 1
    index.train(np.ascontiguousarray(rows[::every]))
    index.add(rows)
    return index


def find_search(predictor: LocalPredictor, X: Inputs) -> NearestRows | None:
    """The cheapest search that changes predictions little; None if all of them change more."""
    networks, training_sets = predictor.networks, predictor.training_sets
    sample = np.linspace(0, predictor.n_rows - 1, N_SAMPLED).astype(int)
    embedded, gates = embed_members(networks, jax.tree.map(jnp.asarray, X[sample]))
    shape = len(embedded.coordinates), N_SAMPLED, 1
    itself = jnp.broadcast_to(jnp.asarray(sample)[:, None], shape)
    own = list_sums_of_members(networks, training_sets, jnp.zeros(shape), itself)

    def predict(sums: Sums) -> WeightedStudentT:
        """As for new rows, which do not contribute to their own predictions."""
        others = jax.vmap(without)(sums, own)
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


def without(sums: Sums, own: Sums) -> Sums:
    """Sums without the rows' own contributions."""
    others = jax.tree.map(jnp.subtract, sums, own)
    is_supported = others.count > SMALLEST_COUNT  # the rest is rounding
    return jax.tree.map(
        lambda part: jnp.where(is_supported.reshape(-1, *[1] * (part.ndim - 1)), part, 0.0), others
    )
