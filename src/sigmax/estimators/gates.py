"""Gates that fit the data: shut on them, open beyond."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sigmax.compilation import compiled, on_device
from sigmax.estimators.blocks import ROWS_PER_CALL, padded
from sigmax.estimators.inducing_points import k_means_centers
from sigmax.networks import NO_CENTER, OFFSET, ExtrapolationGate
from sigmax.random import named_generator
from sigmax.training import bucket_size, pad_rows

__all__ = ["create_gate", "gate_values", "with_centers"]

SAMPLED = 32
"""Rows per inducing point that the centres are found by."""


def create_gate(
    X: np.ndarray,
    n_inducing: int,
    key: PRNGKeyArray,
    *,
    scale: float | None = None,
    relevance: np.ndarray | None = None,
) -> tuple[ExtrapolationGate, np.ndarray]:
    """A gate around the data, and for every row the inducing point that it is itself, if any.

    Without a ``scale`` the gate is nearly shut on the training rows, each taken as if it were new.
    Distances see coordinates times their ``relevance``, which is 1 by default.
    """
    relevance = np.ones(X.shape[1], np.float32) if relevance is None else relevance
    relevance = relevance.astype(np.float32)
    centers, own_center = inducing_points(X * relevance, n_inducing, key)
    gate = ExtrapolationGate.create(centers, n_inducing, scale=scale or 1.0, relevance=relevance)
    if scale is not None:
        return gate, own_center
    rows = slice(None, None, max(1, len(X) // ROWS_PER_CALL))
    some = X[rows], own_center[rows], np.ones(len(X[rows]), dtype=bool)
    sample = padded(some, bucket_size(len(some[0])))
    return shut_on_rows(gate, *sample, on_device(len(X), np.float32)), own_center


def with_centers(
    gates: ExtrapolationGate, X: Float[np.ndarray, "rows features"], n_inducing: int
) -> ExtrapolationGate:
    """The gates of all members, which are alike, with rows that are on the data from now on.

    Rows become inducing points, one after the other: all of them up to ``n_inducing``, and then
    those at which the gate is not shut. So it makes no difference whether rows come together.
    """
    n_slots, n_known = gates.is_used.shape[1], int(np.sum(gates.is_used[0]))
    margin, axis_margin = (float(part[0]) for part in (gates.margin, gates.axis_margin))
    centers = np.zeros((n_known + len(X), X.shape[1]))
    centers[:n_known] = np.asarray(gates.inducing_points)[0, :n_known]
    n_used = n_known
    for x in np.asarray(X * np.asarray(gates.relevance)[0], np.float64):
        offsets = x - centers[:n_used]
        squared = np.sum(offsets**2, axis=1)
        nearest = np.argmin(squared)
        is_shut = squared[nearest] <= margin**2 and np.abs(offsets[nearest]).max() <= axis_margin
        if squared[nearest] and not (is_shut and n_used >= n_inducing):
            centers[n_used] = x
            n_used += 1
    if n_used == n_known:
        return gates
    if n_used > n_slots:
        n_slots = bucket_size(n_used, smallest=n_slots)
    filled = pad_rows(centers[:n_used].astype(np.float32), n_slots)
    n_members = len(gates.is_used)
    return eqx.tree_at(
        lambda gate: (gate.inducing_points, gate.is_used),
        gates,
        (np.stack([filled] * n_members), np.tile(np.arange(n_slots) < n_used, (n_members, 1))),
    )


def gate_values(
    gates: ExtrapolationGate, X: Float[np.ndarray, "rows features"], n_centers: int
) -> Float[np.ndarray, " rows"]:
    """The gate of the first ``n_centers`` inducing points alone, without a compiled program."""
    gate = jax.tree.map(lambda leaf: np.asarray(leaf)[0].astype(np.float64), gates)
    centers, at_zero = gate.inducing_points[:n_centers], 1 / (1 + np.exp(OFFSET))
    found = np.empty(len(X))
    for row, x in enumerate(np.asarray(X, np.float64) * gate.relevance):
        offsets = x - centers
        squared = np.sum(offsets**2, axis=1)
        nearest = np.argmin(squared)
        beyond = max(np.sqrt(squared[nearest]) - gate.margin, 0) / np.exp(gate.log_scale)
        along = (np.abs(offsets[nearest]).max() - gate.axis_margin) / gate.axis_scale
        found[row] = 1 / (1 + np.exp(np.clip(OFFSET - max(beyond, along), -700, 700)))
    return np.clip((found - at_zero) / (1 - at_zero), 0, 1)


@compiled
def shut_on_rows(
    gate: ExtrapolationGate,
    x: Float[Array, "slots features"],
    own_center: Int[Array, " slots"],
    is_row: Bool[Array, " slots"],
    n_rows: Float[Array, ""],
) -> ExtrapolationGate:
    """The gate with the width that suits some of the ``n_rows`` rows of the data."""
    offsets = offsets_of_new_rows(gate, x, own_center, is_row, n_rows)
    return gate.shut_on_offsets(jnp.where(is_row[:, None], offsets, jnp.nan))


def offsets_of_new_rows(
    gate: ExtrapolationGate,
    x: Float[Array, "slots features"],
    own_center: Int[Array, " slots"],
    is_row: Bool[Array, " slots"],
    n_rows: Float[Array, ""],
) -> Float[Array, "slots features"]:
    """Offsets from the nearest inducing point, for rows of the data as if they were new.

    A mean of k rows lies nearer to these than to new ones: by a variance of 1 - 1/k instead of
    1 + 1/k. An inducing point that is one row alone says nothing about it.
    """
    nearest = gate.nearest(x, own_center)
    counts = jnp.zeros(len(gate.is_used)).at[nearest].add(is_row)
    k = counts[nearest] * n_rows / jnp.sum(is_row)
    is_alone = k < 1.5
    is_mean = own_center == NO_CENTER
    offsets = gate.offset(x, jnp.where(is_mean & is_alone, nearest, own_center))
    stretch = jnp.sqrt((k + 1) / jnp.maximum(k - 1, 0.5))
    return offsets * jnp.where(is_mean & ~is_alone, stretch, 1.0)[:, None]


def inducing_points(
    X: np.ndarray, n_inducing: int, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the data, and for every row the centre that it is itself, if any.

    All rows where there are few, else the centres of k-means on a sample.
    """
    if len(X) <= n_inducing:
        return X, np.arange(len(X))
    rng = named_generator(key, "inducing points")
    sample = X[rng.choice(len(X), min(len(X), SAMPLED * n_inducing), replace=False)]
    centers = k_means_centers(sample, n_inducing, int(rng.integers(2**31))).astype(np.float32)
    return centers, np.full(len(X), NO_CENTER)
