"""Predictions that rest on rows of the fit and on rows that joined later."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sigmax.compilation import compiled
from sigmax.inputs import Inputs
from sigmax.networks import EmbeddedRows, LocalNetwork, LocalPosterior, Sums, TrainingSet

__all__ = [
    "LaterRows",
    "posterior_members_with_later",
    "posterior_with_later",
    "predict_members_with_later",
]

MEMBER = eqx.if_array(0)


@final
class LaterRows(eqx.Module):
    """Rows that joined after the fit, in the metric of every member."""

    rows: TrainingSet
    foreign: Float[Array, "*members slots"]
    """How far each row is off the data of the fit, from 0 to 1."""


def posterior_with_later(
    network: LocalNetwork,
    rows: EmbeddedRows,
    gate: Float[Array, " rows"],
    sums: Sums,
    later: Sums,
    foreign: Float[Array, " rows"],
) -> LocalPosterior:
    """One member's prediction from sums over the rows of the fit and over later ones.

    ``foreign`` is the sum of the kernel weights of those off the data of the fit.
    """
    total = jax.tree.map(jnp.add, sums, later)
    share = foreign / jnp.maximum(total.count, 1e-12)
    found = network.posterior(rows, gate, total)
    return LocalPosterior(found.dist, found.count, found.epistemic_share, found.gate, share)


def later_sums(
    network: LocalNetwork, coordinates: Float[Array, "rows metric"], later: LaterRows
) -> tuple[Sums, Float[Array, " rows"]]:
    """Sums over later rows, and the kernel weights of those off the data of the fit."""
    weight = later.rows.weight * later.foreign
    foreign = eqx.tree_at(lambda rows: rows.weight, later.rows, weight)
    sums = network.kernel_sums(coordinates, later.rows)
    return sums, network.kernel_sums(coordinates, foreign).count


@compiled
def posterior_members_with_later(
    networks: LocalNetwork,
    embedded: EmbeddedRows,
    gates: Float[Array, "members rows"],
    sums: Sums,
    later: LaterRows,
) -> LocalPosterior:
    """What `posterior_members` gives, with rows from after the fit."""

    def predict(network, rows, gate, sums, later):
        return posterior_with_later(
            network, rows, gate, sums, *later_sums(network, rows.coordinates, later)
        )

    axes = (MEMBER, 0, 0, 0, 0)
    return eqx.filter_vmap(predict, in_axes=axes)(networks, embedded, gates, sums, later)


@compiled
def predict_members_with_later(
    networks: LocalNetwork, training_sets: TrainingSet, later: LaterRows, X: Inputs
) -> LocalPosterior:
    """What `predict_members` gives, with rows from after the fit."""

    def predict(network: LocalNetwork, fitted: TrainingSet, later: LaterRows) -> LocalPosterior:
        rows = network.embed(X)
        sums = network.kernel_sums(rows.coordinates, fitted)
        of_later = later_sums(network, rows.coordinates, later)
        return posterior_with_later(network, rows, network.gate_value(X), sums, *of_later)

    axes = (MEMBER, 0, 0)
    return eqx.filter_vmap(predict, in_axes=axes)(networks, training_sets, later)
