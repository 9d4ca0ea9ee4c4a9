"""Gates that fit the data: shut on them, open beyond."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sigmax.compilation import compiled, on_device
from sigmax.estimators.blocks import ROWS_PER_CALL, padded
from sigmax.estimators.inducing_points import k_means_centers
from sigmax.networks import NO_CENTER, ExtrapolationGate
from sigmax.random import named_generator
from sigmax.training import bucket_size

__all__ = ["create_gate"]

SAMPLED = 32
"""Rows per inducing point that the centres are found by."""


def create_gate(
    X: np.ndarray, n_inducing: int, key: PRNGKeyArray, *, scale: float | None = None
) -> tuple[ExtrapolationGate, np.ndarray]:
    """A gate around the data, and for every row the inducing point that it is itself, if any.

    Without a ``scale`` the gate is nearly shut on the training rows, each taken as if it were new.
    """
    centers, own_center = inducing_points(X, n_inducing, key)
    gate = ExtrapolationGate.create(centers, n_inducing, scale=scale or 1.0)
    if scale is not None:
        return gate, own_center
    rows = slice(None, None, max(1, len(X) // ROWS_PER_CALL))
    some = X[rows], own_center[rows], np.ones(len(X[rows]), dtype=bool)
    sample = padded(some, bucket_size(len(some[0])))
    return shut_on_rows(gate, *sample, on_device(len(X), np.float32)), own_center


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
