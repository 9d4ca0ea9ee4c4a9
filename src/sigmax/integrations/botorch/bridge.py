"""What members predict, as a function of PyTorch whose gradient JAX computes."""

from functools import partial
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array, Float

from sigmax.compilation import compiled
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import LocalRegressor
from sigmax.estimators.later_rows import LaterRows, predict_members_with_later
from sigmax.estimators.local_predictor import embed_members, predict_members
from sigmax.estimators.remembering import count_centers, widened
from sigmax.inputs import Inputs
from sigmax.integrations.botorch.members import columns_of_numbers
from sigmax.networks import LocalNetwork, TrainingSet
from sigmax.training import bucket_size

__all__ = ["FittedMembers", "MemberMoments", "moments"]

SMALLEST_BLOCK = 64
"""Rows are padded to a power of two, of at least so many: one more hardly compiles anything."""


@final
class MemberMoments(NamedTuple):
    """What every member says about the mean of y at some rows, in units of y."""

    mean: Any
    """What it expects: (members, rows)."""
    own_variance: Any
    """Its uncertainty about that: (members, rows)."""
    noise_variance: Any
    """Of y about the mean: (members, rows)."""
    coordinates: Any
    """In which its learned metric is Euclidean: (members, rows, dimensions)."""


@final
class FittedMembers(eqx.Module):
    """A fitted `LocalRegressor` in double precision, as the compiled functions take it."""

    networks: LocalNetwork
    training_sets: TrainingSet
    later: LaterRows | None
    """Rows that joined after the fit, if any."""
    factor: np.ndarray
    """On the scales of predictions that rest on such rows."""
    rim: tuple[np.ndarray, np.ndarray]
    """Bounds within which the networks see numbers."""
    unit: tuple[np.ndarray, np.ndarray]
    """Mean and scale of y."""
    scaling: tuple[np.ndarray, np.ndarray]
    """Means and scales of the columns that are numbers."""
    columns: tuple[int, ...] = eqx.field(static=True)
    """Which columns of X are numbers."""

    @classmethod
    def of(cls, estimator: LocalRegressor) -> "FittedMembers":
        """Refuses what has no gradient, or no variance in closed form."""
        if not estimator.is_single_output_:
            raise InvalidArgumentError("A BoTorch model has one target; use one for each of them.")
        if estimator.forests_ is not None or estimator.units_.spline is not None:
            rule = "fitted with `n_trees=0` and `target_map='none'`, as `fit_sigmax_model` does"
            raise InvalidArgumentError(f"`estimator` must be {rule}.")
        schema, scaling, predictor = (
            estimator.features_.schema,
            estimator.features_.scaling,
            estimator.predictor_,
        )
        columns = tuple(columns_of_numbers(schema))
        units = estimator.units_.scaling
        networks, n_later = predictor.networks, predictor.n_later
        gate, n_centers = networks.gate, count_centers(networks)
        gate = eqx.tree_at(
            lambda gate: (gate.inducing_points, gate.is_used),
            gate,
            shortened((gate.inducing_points, gate.is_used), n_centers),
        )
        fitted = cls(
            eqx.tree_at(lambda networks: networks.gate, networks, gate),
            shortened(predictor.training_sets, predictor.n_rows),
            shortened(predictor.later, n_later),
            np.asarray(estimator.memory_.factor),
            estimator._rim,
            (np.asarray(units.mean[0]), np.asarray(units.scale[0])),
            (scaling.mean, scaling.scale),
            columns,
        )
        return jax.tree.map(in_double, fitted)


def shortened(tree: Any, n_rows: int) -> Any:
    """Slots of rows, on the second axis, down to the fewest that other numbers of rows share."""
    n_slots = bucket_size(n_rows, smallest=SMALLEST_BLOCK)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, :n_slots], tree)


def in_double(leaf: Any) -> Any:
    """Numbers of an array in double precision, on the host."""
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf


def moments(estimator: LocalRegressor, fitted: FittedMembers, X: torch.Tensor) -> MemberMoments:
    """What members predict at rows ``X`` (n, d), with gradients with respect to their numbers."""
    found = MomentsFunction.apply(X, partial(inputs_at, estimator, fitted), fitted)
    return MemberMoments(*found)


def inputs_at(estimator: LocalRegressor, fitted: FittedMembers, X: np.ndarray) -> Inputs:
    """Rows as networks take them, with numbers in double precision."""
    mean, scale = fitted.scaling
    numbers = (X[:, fitted.columns] - mean) / scale
    if estimator.features_.schema.is_plain:
        return Inputs(numbers, position=numbers)
    rows = estimator.features_(estimator._completed(X).table)
    n = len(fitted.columns)
    return eqx.tree_at(
        lambda rows: (rows.numbers, rows.position),
        jax.tree.map(in_double, rows),
        tuple(
            np.concatenate([numbers, part[:, n:]], axis=1)
            for part in (np.asarray(rows.numbers), np.asarray(rows.coordinates))
        ),
    )


@final
class MomentsFunction(torch.autograd.Function):
    """Forward runs a compiled function of JAX, backward its vector-Jacobian product."""

    @staticmethod
    def forward(ctx: Any, X: torch.Tensor, inputs: Any, fitted: FittedMembers) -> Any:
        ctx.save_for_backward(X)
        ctx.inputs, ctx.fitted = inputs, fitted
        # Acquisition functions repeat rows: those observed so far, beside every candidate.
        rows, place = np.unique(to_numpy(X), axis=0, return_inverse=True)
        with jax.enable_x64(True):
            found = moments_at(fitted, padded(inputs(rows)))
        return tuple(torch.from_numpy(np.asarray(leaf)[:, place.ravel()]).to(X) for leaf in found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (X,) = ctx.saved_tensors
        inputs = ctx.inputs(to_numpy(X))
        n_rows, (_, scale) = len(inputs), ctx.fitted.scaling
        with jax.enable_x64(True):
            cotangents = tuple(pad(to_numpy(part), axis=1, repeat=False) for part in gradients)
            found = np.asarray(gradient_at(ctx.fitted, padded(inputs), cotangents))[:n_rows]
        gradient = torch.zeros_like(X)
        gradient[:, ctx.fitted.columns] = torch.from_numpy(found / scale).to(X)
        return gradient, None, None


def to_numpy(values: torch.Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()


def padded(rows: Inputs) -> Inputs:
    return jax.tree.map(partial(pad, axis=0, repeat=True), rows)


def pad(values: np.ndarray, axis: int, repeat: bool) -> np.ndarray:
    """``values`` with rows up to a power of two: the last one repeated, or zeros."""
    n_rows = values.shape[axis]
    size = bucket_size(n_rows, smallest=SMALLEST_BLOCK)
    width = [(0, size - n_rows if i == axis else 0) for i in range(values.ndim)]
    return np.pad(values, width, mode="edge" if repeat and n_rows else "constant")


def predict(fitted: FittedMembers, rows: Inputs) -> MemberMoments:
    """What every member predicts: the mixture of `predict_dist`, by its moments."""
    rows = rows.within(*fitted.rim, len(fitted.scaling[0]))
    if fitted.later is None:
        found = predict_members(fitted.networks, fitted.training_sets, rows)
    else:
        members = fitted.networks, fitted.training_sets, fitted.later
        found = predict_members_with_later(*members, rows)
        found = widened(found, fitted.factor)
    weight, variance = jnp.exp(found.dist.log_weight), found.dist.components.variance
    own = found.epistemic_share * jnp.sum(weight * variance, axis=-1)[..., 0]
    noise = found.dist.variance[..., 0] - own
    embedded, _ = embed_members(fitted.networks, rows)
    mean, scale = fitted.unit
    return MemberMoments(
        mean + scale * found.dist.mean[..., 0],
        scale**2 * own,
        scale**2 * noise,
        embedded.coordinates,
    )


@compiled
def moments_at(fitted: FittedMembers, rows: Inputs) -> MemberMoments:
    return predict(fitted, rows)


@compiled
def gradient_at(
    fitted: FittedMembers, rows: Inputs, cotangents: tuple[Array, ...]
) -> Float[Array, "rows numbers"]:
    """The gradient with respect to the standardised numbers of every row."""
    n = len(fitted.columns)

    def predict_at(numbers: Array) -> MemberMoments:
        parts = tuple(
            jnp.concatenate([numbers, part[:, n:]], axis=1)
            for part in (rows.numbers, rows.coordinates)
        )
        moved = eqx.tree_at(lambda rows: (rows.numbers, rows.position), rows, parts)
        return predict(fitted, moved)

    _, pullback = jax.vjp(predict_at, jnp.asarray(rows.numbers)[:, :n])
    return pullback(MemberMoments(*cotangents))[0]
