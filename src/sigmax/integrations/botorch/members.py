"""Ensemble members of fitted estimators as functions of tensors, jointly Normal at several points.

Members of a `LocalRegressor` are compiled functions of JAX, which also computes their gradients.
Gaussian processes are tensors of PyTorch.
"""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from botorch.exceptions import UnsupportedError
from jaxtyping import Array, Float
from torch import Size, Tensor
from torch.nn.functional import pad

from sigmax.compilation import bucket_size, compiled, pad_rows, padded
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import AbstractGPRegressor, LocalRegressor
from sigmax.experts.gaussian_process import GPFitted
from sigmax.experts.gaussian_process.search import SMALLEST_JITTER
from sigmax.experts.local import LocalFitted
from sigmax.experts.local.network import LocalNetwork, TrainingSet
from sigmax.experts.local.predictor import AddedRows, embed_members, predict_members
from sigmax.inputs import Inputs
from sigmax.model import Model
from sigmax.tables import Kind

SMALLEST_BLOCK = 64
"""Rows are padded to a power of two, at least this: one more row hardly compiles anything."""

LEAST_VARIANCE = 1e-9
"""Least variance of a process as a share of its prior variance: less is rounding."""


@final
class JointMoments(NamedTuple):
    """Moments of the mean of y at q points under every member, in units of y."""

    mean: Tensor
    """(batch, members, q)."""
    covariance: Tensor
    """(batch, members, q, q)."""
    noise_variance: Tensor
    """Variance of y around its mean: (batch, members, q)."""


class AbstractMembers(ABC):
    """Members of a fitted estimator as functions of tensors in double precision."""

    estimator: Any

    @property
    def batch_shape(self) -> Size:
        """Shape of the alternative measurements that the members are conditioned on."""
        return Size()

    @abstractmethod
    def joint(self, X: Tensor) -> JointMoments:
        """Moments at the q points of every batch of ``X`` (batch, q, d), with gradients."""

    @abstractmethod
    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> Any:
        """Members given further ``y`` (batch, n) at ``X`` (batch, n, d), without training."""


def number_columns(model: Model) -> tuple[int, ...]:
    """Positions of the columns that are numbers.

    Raises
    ------
    InvalidArgumentError
        If there are several targets, or columns that are neither numbers nor categories.
    """
    if not model.is_single_output:
        raise InvalidArgumentError("A BoTorch model has one target; use one for each of them.")
    schema = model.features.schema
    if any(column.kind not in (Kind.NUMBER, Kind.CATEGORY) for column in schema):
        raise InvalidArgumentError("Columns of a BoTorch model are numbers or categories.")
    return tuple(j for j, column in enumerate(schema) if column.kind is Kind.NUMBER)


@final
class MemberMoments(NamedTuple):
    """Moments of the mean of y at single rows under every member, in units of y."""

    mean: Any
    """(members, rows)."""
    own_variance: Any
    """(members, rows)."""
    noise_variance: Any
    """Variance of y around its mean: (members, rows)."""
    coordinates: Any
    """Coordinates in which the learned metric is Euclidean: (members, rows, dimensions)."""


@final
class LocalArrays(eqx.Module):
    """Arrays of a fitted `LocalRegressor` in double precision, for compiled functions."""

    networks: LocalNetwork
    training_sets: TrainingSet
    added: AddedRows | None
    added_factor: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    """Range of the training data."""
    target: tuple[np.ndarray, np.ndarray]
    """Mean and scale of y."""
    scaling: tuple[np.ndarray, np.ndarray]
    """Means and scales of the columns that are numbers."""
    columns: tuple[int, ...] = eqx.field(static=True)
    """Positions of these columns."""

    @classmethod
    def create(cls, model: Model) -> "LocalArrays":
        """Raise InvalidArgumentError for models without gradient or closed-form variance."""
        columns, fitted, target = number_columns(model), model.fitted, model.target.scaling
        assert isinstance(fitted, LocalFitted)
        if fitted.forests is not None or model.target.spline is not None:
            rule = "fitted with `n_trees=0` and `target_map='none'`, as `fit_sigmax_model` does"
            raise InvalidArgumentError(f"`estimator` must be {rule}.")
        predictor, gate = fitted.predictor, fitted.networks.gate
        n_centers = int(np.sum(np.asarray(gate.is_used)[0]))
        centers = shortened((gate.inducing_points, gate.is_used), n_centers)
        networks = eqx.tree_at(
            lambda own: (own.gate.inducing_points, own.gate.is_used), fitted.networks, centers
        )
        found = cls(
            networks,
            shortened(predictor.training_sets, predictor.n_rows),
            shortened(predictor.added, predictor.n_added),
            np.asarray(fitted.added_factor),
            fitted.bounds,
            (np.asarray(target.mean[0]), np.asarray(target.scale[0])),
            (model.features.scaling.mean, model.features.scaling.scale),
            columns,
        )
        return jax.tree.map(in_double, found)


def shortened(tree: Any, n_rows: int) -> Any:
    """Arrays with the fewest slots for ``n_rows`` along their second axis."""
    n_slots = bucket_size(n_rows, smallest=SMALLEST_BLOCK)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, :n_slots], tree)


def in_double(leaf: Any) -> np.ndarray:
    """Numbers of an array in double precision, on the host."""
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf


def encode(estimator: LocalRegressor, X: np.ndarray) -> Inputs:
    """Encoded rows in double precision."""
    features = estimator.model_.features
    if features.schema.is_plain:
        return Inputs(features.scaling(X, np.float64))
    return estimator.model_.encode(estimator.read(X)).astype(np.float64)


@final
class MomentsFunction(torch.autograd.Function):
    """`MemberMoments` of rows (n, d), with gradients with respect to their numbers.

    Forward runs a compiled function of JAX, backward its vector-Jacobian product.
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, estimator: LocalRegressor, arrays: LocalArrays) -> Any:
        ctx.save_for_backward(X)
        ctx.estimator, ctx.arrays = estimator, arrays
        # Acquisition functions repeat rows: each candidate comes with all observed ones.
        rows, index = np.unique(X.detach().numpy(), axis=0, return_inverse=True)
        with jax.enable_x64(True):
            found = moments_at(arrays, pad_inputs(encode(estimator, rows)))
        return tuple(torch.from_numpy(np.asarray(leaf)[:, index.ravel()]) for leaf in found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (X,), arrays = ctx.saved_tensors, ctx.arrays
        rows, (_, scale) = encode(ctx.estimator, X.detach().numpy()), arrays.scaling
        with jax.enable_x64(True):
            inputs = pad_inputs(rows)
            by_row = [part.detach().numpy().swapaxes(0, 1) for part in gradients]
            cotangents = tuple(pad_rows(part, len(inputs)).swapaxes(0, 1) for part in by_row)
            found = np.asarray(gradient_at(arrays, inputs, cotangents))[: len(rows)]
        gradient = torch.zeros_like(X)
        gradient[:, arrays.columns] = torch.from_numpy(found / scale)
        return gradient, None, None


def pad_inputs(rows: Inputs) -> Inputs:
    return padded(rows, bucket_size(len(rows), smallest=SMALLEST_BLOCK))


def predict(arrays: LocalArrays, rows: Inputs) -> MemberMoments:
    """Moments of the members of `predict_dist`."""
    rows = rows.within(*arrays.bounds, len(arrays.columns))
    found = predict_members(arrays.networks, arrays.training_sets, arrays.added, rows)
    found = found.widened(arrays.added_factor)
    weight, variance = jnp.exp(found.dist.log_weight), found.dist.components.variance
    own = found.epistemic_share * jnp.sum(weight * variance, axis=-1)[..., 0]
    noise = found.dist.variance[..., 0] - own
    embedded, _ = embed_members(arrays.networks, rows)
    mean, scale = arrays.target
    return MemberMoments(
        mean + scale * found.dist.mean[..., 0],
        scale**2 * own,
        scale**2 * noise,
        embedded.coordinates,
    )


@compiled
def moments_at(arrays: LocalArrays, rows: Inputs) -> MemberMoments:
    return predict(arrays, rows)


@compiled
def gradient_at(
    arrays: LocalArrays, rows: Inputs, cotangents: tuple[Array, ...]
) -> Float[Array, "rows numbers"]:
    """Gradient with respect to the standardised numbers of every row."""
    n = len(arrays.columns)

    def predict_at(numbers: Array) -> MemberMoments:
        def moved(part: Any) -> Array:
            return jnp.concatenate([numbers, part[:, n:]], axis=1)

        numbered = eqx.tree_at(lambda own: own.numbers, rows, moved(rows.numbers))
        if rows.position is not None:
            numbered = eqx.tree_at(lambda own: own.position, numbered, moved(rows.position))
        return predict(arrays, numbered)

    _, pullback = jax.vjp(predict_at, jnp.asarray(rows.numbers)[:, :n])
    return pullback(MemberMoments(*cotangents))[0]


@final
@dataclass(frozen=True, eq=False)
class LocalMembers(AbstractMembers):
    r"""Members of a `LocalRegressor`, correlated across points by their kernels.

    With the standard deviation $s_m(x)$ of member m, its covariance is
    $s_m(x) s_m(x') \exp(-\frac12 \|z_m(x) - z_m(x')\|^2)$ in the learned metric.
    """

    estimator: LocalRegressor
    arrays: LocalArrays

    @classmethod
    def create(cls, estimator: LocalRegressor) -> "LocalMembers":
        return cls(estimator, LocalArrays.create(estimator.model_))

    def joint(self, X: Tensor) -> JointMoments:
        *batch, q, d = X.shape
        rows: Any = X.reshape(-1, d)
        found = MemberMoments(*MomentsFunction.apply(rows, self.estimator, self.arrays))

        def by_batch(values: Tensor) -> Tensor:
            """Values with the axis of members after those of the batch, before the points."""
            shaped = values.reshape(len(values), *batch, q, *values.shape[2:])
            return shaped.movedim(0, len(batch))

        std, z = by_batch(found.own_variance).sqrt(), by_batch(found.coordinates)
        identity = torch.eye(q, dtype=X.dtype, device=X.device)
        kernel = torch.exp(-0.5 * squared_distance(z, z)) * (1 - identity) + identity
        covariance = std.unsqueeze(-1) * kernel * std.unsqueeze(-2)
        return JointMoments(by_batch(found.mean), covariance, by_batch(found.noise_variance))

    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> "LocalMembers":
        """Members after `LocalRegressor.add_rows`, which learns the noise itself."""
        if X.ndim != 2:
            message = "A LocalRegressor is conditioned on one batch of rows at a time."
            raise UnsupportedError(message)
        rows = X.detach().numpy(), y.detach().numpy()
        return LocalMembers.create(copy.deepcopy(self.estimator).add_rows(*rows))


@final
@dataclass(frozen=True, eq=False)
class Processes:
    r"""Gaussian processes of all draws of the hyper-parameters, on standardised data.

    Given the rows $Z$, draw m has the mean $k(x, Z)\,a$ and the covariance
    $k(x, x') - (R\,k(Z, x))^\top R\,k(Z, x')$. All tensors may have batches in front.
    """

    inverse_length_scale: Tensor
    """(members, coordinates)."""
    variance: Tensor
    """Prior variance of the function: (members,)."""
    offset_variance: Tensor
    """Prior variance of the unknown constant: (members,)."""
    noise_variance: Tensor
    """(members,)."""
    points: Tensor
    """Rows Z: (points, coordinates)."""
    coefficients: Tensor
    """a: (members, points)."""
    reduction: Tensor
    """R: (members, ranks, points)."""
    noise_points: Tensor
    """Rows that the noise was learned from: (noise points, coordinates)."""
    noise_coefficients: Tensor
    """Coefficients of the logarithm of the relative noise: (members, noise points)."""
    n_length_scales: int

    @classmethod
    def create(cls, fitted: GPFitted) -> "Processes":
        """Create from the fitted processes of one target."""
        found, hyper, df = fitted.posterior, fitted.posterior.hyper, fitted.df
        is_used = np.asarray(found.reduction)[0] != 0  # the rest is padding
        is_row, is_rank = is_used.any(axis=(0, 1)), is_used.any(axis=(0, 2))
        offset = hyper.offset * (np.exp(hyper.log_variance) + np.exp(hyper.log_noise))
        coefficients = found.noise_coefficients
        coefficients = np.zeros_like(found.coefficients) if coefficients is None else coefficients
        # Student-t densities become Normal ones of the same variance.
        growth = df / (df - 2) if np.isfinite(df) else 1.0
        inverse = np.exp(-np.asarray(hyper.log_length_scale))
        n_length_scales = inverse.shape[-1]
        if hyper.groups:
            inverse = inverse[..., list(hyper.groups)]
        arrays = {
            "inverse_length_scale": inverse,
            "variance": growth * np.exp(hyper.log_variance),
            "offset_variance": growth * offset,
            "noise_variance": growth * np.exp(hyper.log_noise),
            "points": np.asarray(found.points)[:, 0, is_row],
            "coefficients": np.asarray(found.coefficients)[..., is_row] / growth,
            "reduction": np.asarray(found.reduction)[..., is_rank, :][..., is_row] / growth**0.5,
            "noise_points": np.asarray(found.points)[:, 0, is_row],
            "noise_coefficients": np.asarray(coefficients)[..., is_row],
        }
        tensors = {name: torch.from_numpy(array[0].copy()) for name, array in arrays.items()}
        return cls(**tensors, n_length_scales=n_length_scales)

    @property
    def batch_shape(self) -> Size:
        return self.coefficients.shape[:-2]

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        """Prior covariance of the functions at ``X`` (..., q, c) and ``Z`` (..., n, c)."""
        scale = self.inverse_length_scale.unsqueeze(-2)
        X, Z = X.unsqueeze(-3) * scale, Z.unsqueeze(-3) * scale
        kernel = torch.exp(-0.5 * squared_distance(X, Z))
        variance, offset = self.variance[:, None, None], self.offset_variance[:, None, None]
        return variance * kernel + offset

    def noise_at(self, X: Tensor) -> Tensor:
        """Noise variance: (..., members, q)."""
        squared = squared_distance(X, self.noise_points)
        kernel = torch.exp(-0.5 * squared / self.n_length_scales)
        log_noise = (self.noise_coefficients @ kernel.transpose(-1, -2)).to(X)
        return self.noise_variance[:, None] * torch.exp(log_noise)

    def __call__(self, X: Tensor) -> JointMoments:
        """Moments at the q points of every batch of coordinates ``X`` (batch, q, c)."""
        cross = self.covariance(X, self.points)
        mean = (cross @ self.coefficients.unsqueeze(-1)).squeeze(-1)
        explained = cross @ self.reduction.transpose(-1, -2)
        covariance = self.covariance(X, X) - explained @ explained.transpose(-1, -2)
        least = LEAST_VARIANCE * self.variance[:, None]
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        missing = (least - variance).clamp(min=0.0)
        return JointMoments(mean, covariance + torch.diag_embed(missing), self.noise_at(X))

    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> "Processes":
        r"""Processes given further measurements ``y`` (batch, n) at ``X`` (batch, n, c).

        With the covariance $S$ of these measurements before, $S = L L^\top$, and their errors $e$:
        $R$ gains the rows $L^{-1} (I, -(R k)^\top R)$ and $a$ changes by $S^{-1} e$.
        """
        cross = self.covariance(X, self.points)
        explained = cross @ self.reduction.transpose(-1, -2)
        noise = self.noise_at(X) if noise_variance is None else noise_variance.unsqueeze(-2)
        noise = noise + SMALLEST_JITTER * self.variance[:, None]  # as the other rows have
        S = self.covariance(X, X) - explained @ explained.transpose(-1, -2)
        factor = torch.linalg.cholesky(S + torch.diag_embed(noise))
        error = y.unsqueeze(-2) - (cross @ self.coefficients.unsqueeze(-1)).squeeze(-1)
        solved = torch.cholesky_solve(error.unsqueeze(-1), factor)
        old = -(explained @ self.reduction)
        identity = torch.eye(X.shape[-2], dtype=X.dtype, device=X.device).expand_as(S)
        gained = torch.cat([old, identity], dim=-1)
        rows = torch.linalg.solve_triangular(factor, gained, upper=False)
        change = (solved.transpose(-1, -2) @ gained).squeeze(-2)
        batch, n_new = change.shape[:-2], X.shape[-2]

        def batched(values: Tensor, n_dims: int) -> Tensor:
            return values.expand(*batch, *values.shape[-n_dims:])

        coefficients, reduction = (
            pad(part, (0, n_new)) for part in (self.coefficients, self.reduction)
        )
        return replace(
            self,
            points=torch.cat([batched(self.points, 2), batched(X, 2)], dim=-2),
            coefficients=coefficients + change,
            reduction=torch.cat([batched(reduction, 3), batched(rows, 3)], dim=-2),
        )


def squared_distance(X: Tensor, Z: Tensor) -> Tensor:
    """Squared distances of rows: (..., q, n)."""
    center = Z.mean(dim=-2, keepdim=True)  # against cancellation
    X, Z = X - center, Z - center
    squares = X.square().sum(dim=-1).unsqueeze(-1) + Z.square().sum(dim=-1).unsqueeze(-2)
    return (squares - 2 * X @ Z.transpose(-1, -2)).clamp(min=0.0)


@final
@dataclass(frozen=True, eq=False)
class ProcessMembers(AbstractMembers):
    """Gaussian processes in the units of X and y; conditioning on measurements is exact."""

    estimator: AbstractGPRegressor
    """As it was fitted."""
    processes: Processes
    columns: tuple[int, ...]
    """Positions of the columns that are numbers."""

    @classmethod
    def create(cls, estimator: AbstractGPRegressor) -> "ProcessMembers":
        columns, fitted = number_columns(estimator.model_), estimator.model_.fitted
        assert isinstance(fitted, GPFitted)
        return cls(estimator, Processes.create(fitted), columns)

    @property
    def batch_shape(self) -> Size:
        return self.processes.batch_shape

    def joint(self, X: Tensor) -> JointMoments:
        mean, scale = self._units()
        found = self.processes(self._coordinates(X))
        return JointMoments(
            mean + scale * found.mean, scale**2 * found.covariance, scale**2 * found.noise_variance
        )

    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> "ProcessMembers":
        mean, scale = self._units()
        noise = None if noise_variance is None else noise_variance / scale**2
        rows = self._coordinates(X), (y - mean) / scale
        return replace(self, processes=self.processes.conditioned(*rows, noise))

    def _units(self) -> tuple[float, float]:
        scaling = self.estimator.model_.target.scaling
        return float(scaling.mean[0]), float(scaling.scale[0])

    def _coordinates(self, X: Tensor) -> Tensor:
        """Coordinates of rows, with gradients with respect to numbers."""
        model = self.estimator.model_
        scaling = model.features.scaling
        mean, scale = torch.as_tensor(scaling.mean), torch.as_tensor(scaling.scale)
        numbers = (X[..., self.columns] - mean) / scale
        if model.features.schema.is_plain:
            return numbers
        rows = X.detach().numpy().reshape(-1, X.shape[-1])
        found = model.encode(self.estimator.read(rows)).astype(np.float64).coordinates
        found = torch.from_numpy(np.asarray(found)).reshape(*X.shape[:-1], -1)
        return torch.cat([numbers, found[..., len(self.columns) :]], dim=-1)
