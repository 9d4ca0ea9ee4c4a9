"""Inducing points that follow the codes: k-means in latent space, as a pure function."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.networks import NO_CENTER, ExtrapolationGate

__all__ = ["follow_codes", "move_centers"]


def move_centers(
    centers: Float[Array, "centers latent"],
    codes: Float[Array, "codes latent"],
    spare: Float[Array, "centers latent"],
) -> Float[Array, "centers latent"]:
    """One step of Lloyd's algorithm; a centre that no code is nearest to jumps to its spare code.

    So no centre is ever left behind where codes once were.
    """
    squared = jnp.sum(centers**2, axis=1)[None] - 2 * codes @ centers.T
    belongs = jax.nn.one_hot(jnp.argmin(squared, axis=1), len(centers), dtype=codes.dtype)
    counts = jnp.sum(belongs, axis=0)[:, None]
    means = belongs.T @ codes / jnp.maximum(counts, 1)
    return jnp.where(counts > 0, means, spare)


def follow_codes(
    gate: ExtrapolationGate,
    codes: Float[Array, "codes latent"],
    new_codes: Float[Array, "new latent"],
    key: PRNGKeyArray,
    *,
    n_rounds: int = 3,
) -> ExtrapolationGate:
    """The gate moved to where ``codes`` are now, and shut on 99 % of ``new_codes``.

    Both are draws from q(z | x), so that what counts as on the data is where the posterior has its
    mass, not its means alone.
    """
    shape = (n_rounds, len(gate.inducing_points))
    spare = codes[jax.random.randint(key, shape, 0, len(codes))]
    centers, _ = lax.scan(
        lambda centers, spare: (move_centers(centers, codes, spare), None),
        gate.inducing_points,
        spare,
    )
    moved = eqx.tree_at(lambda g: g.inducing_points, gate, centers)
    return moved.shut_on(moved.distance(new_codes, jnp.full(len(new_codes), NO_CENTER)))
