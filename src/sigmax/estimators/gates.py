"""Gates that fit the data: shut on them, open beyond."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sigmax.compilation import compiled
from sigmax.estimators.blocks import ROWS_PER_CALL, padded
from sigmax.estimators.inducing_points import k_means_centers
from sigmax.networks import NO_CENTER, ExtrapolationGate
from sigmax.random import named_generator
from sigmax.training import bucket_size

__all__ = ["create_gate"]


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
    return shut_on_rows(gate, *padded(some, bucket_size(len(some[0])))), own_center


@compiled
def shut_on_rows(
    gate: ExtrapolationGate,
    x: Float[Array, "slots features"],
    own_center: Int[Array, " slots"],
    is_row: Bool[Array, " slots"],
) -> ExtrapolationGate:
    """The gate with the width that suits some rows of the data."""
    return gate.shut_on(jnp.where(is_row, gate.distance(x, own_center), jnp.nan))


def inducing_points(
    X: np.ndarray, n_inducing: int, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the data, and for every row the centre that it is itself, if any.

    All rows where there are few, else the centres of k-means on a sample.
    """
    if len(X) <= n_inducing:
        return X, np.arange(len(X))
    rng = named_generator(key, "inducing points")
    sample = X[rng.choice(len(X), min(len(X), 100 * n_inducing), replace=False)]
    centers = k_means_centers(sample, n_inducing, int(rng.integers(2**31))).astype(np.float32)
    return centers, np.full(len(X), NO_CENTER)
