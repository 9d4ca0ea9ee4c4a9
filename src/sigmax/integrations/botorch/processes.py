"""Fitted Gaussian processes as tensors: joint posteriors, and more measurements."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Size, Tensor
from torch.nn.functional import pad

from sigmax.errors import InvalidArgumentError
from sigmax.estimators.gp_base import AbstractGPRegressor
from sigmax.estimators.gp_search import SMALLEST_JITTER
from sigmax.integrations.botorch.members import AbstractMembers, JointMoments, columns_of_numbers

__all__ = ["ProcessMembers"]

LEAST_VARIANCE = 1e-9
"""Of a process, as a share of its variance a priori: less is rounding."""


@final
@dataclass(frozen=True, eq=False)
class Processes:
    r"""The Gaussian processes of all draws of the hyper-parameters, on standardised data.

    Given the rows $Z$, draw m has the mean $k(x, Z)\,a$ and the covariance
    $k(x, x') - (R\,k(Z, x))^\top R\,k(Z, x')$. All tensors may have batches in front.
    """

    inverse_length_scale: Tensor
    """(members, coordinates)."""
    variance: Tensor
    """Of the function: (members,)."""
    offset_variance: Tensor
    """Of the unknown constant: (members,)."""
    noise_variance: Tensor
    """(members,)."""
    points: Tensor
    """The rows: (points, coordinates)."""
    coefficients: Tensor
    """a: (members, points)."""
    reduction: Tensor
    """R: (members, ranks, points)."""
    noise_points: Tensor
    """The rows that the noise was learned from: (noise points, coordinates)."""
    noise_coefficients: Tensor
    """Of the logarithm of the relative noise: (members, noise points)."""
    n_length_scales: int

    @classmethod
    def of(cls, estimator: AbstractGPRegressor) -> "Processes":
        if not estimator.is_single_output_:
            raise InvalidArgumentError("A BoTorch model has one target; use one for each of them.")
        found, hyper = estimator.posterior_, estimator.posterior_.hyper
        is_used = np.asarray(found.reduction)[0] != 0  # the rest is padding
        is_row, is_rank = is_used.any(axis=(0, 1)), is_used.any(axis=(0, 2))
        offset = hyper.offset * (np.exp(hyper.log_variance) + np.exp(hyper.log_noise))
        coefficients = found.noise_coefficients
        coefficients = np.zeros_like(found.coefficients) if coefficients is None else coefficients
        # Student-t densities by Normal ones of the same variance.
        df = estimator.df_
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
        """A priori, between the functions at ``X`` (..., q, c) and ``Z`` (..., n, c)."""
        scale = self.inverse_length_scale.unsqueeze(-2)
        X, Z = X.unsqueeze(-3) * scale, Z.unsqueeze(-3) * scale
        kernel = torch.exp(-0.5 * squared_distance(X, Z))
        variance, offset = self.variance[:, None, None], self.offset_variance[:, None, None]
        return variance * kernel + offset

    def noise_at(self, X: Tensor) -> Tensor:
        """(..., members, q)."""
        squared = squared_distance(X, self.noise_points)
        kernel = torch.exp(-0.5 * squared / self.n_length_scales)
        log_noise = (self.noise_coefficients @ kernel.transpose(-1, -2)).to(X)
        return self.noise_variance[:, None] * torch.exp(log_noise)

    def __call__(self, X: Tensor) -> JointMoments:
        """At the q points of every batch of coordinates ``X`` (batch, q, c)."""
        cross = self.covariance(X, self.points)
        mean = (cross @ self.coefficients.unsqueeze(-1)).squeeze(-1)
        explained = cross @ self.reduction.transpose(-1, -2)
        covariance = self.covariance(X, X) - explained @ explained.transpose(-1, -2)
        least = LEAST_VARIANCE * self.variance[:, None]
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        missing = (least - variance).clamp(min=0.0)
        return JointMoments(mean, covariance + torch.diag_embed(missing), self.noise_at(X))

    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> "Processes":
        r"""The processes given measurements ``y`` (batch, n) at ``X`` (batch, n, c) as well.

        With the covariance $S$ of these measurements so far, $S = L L^\top$, and their errors $e$:
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
    """Between rows: (..., q, n)."""
    center = Z.mean(dim=-2, keepdim=True)  # or differences lose their digits
    X, Z = X - center, Z - center
    squares = X.square().sum(dim=-1).unsqueeze(-1) + Z.square().sum(dim=-1).unsqueeze(-2)
    return (squares - 2 * X @ Z.transpose(-1, -2)).clamp(min=0.0)


@final
@dataclass(frozen=True, eq=False)
class ProcessMembers(AbstractMembers):
    """The processes in the units of X and y; measurements that join them need no training."""

    estimator: AbstractGPRegressor
    """As it was fitted."""
    processes: Processes

    @classmethod
    def of(cls, estimator: AbstractGPRegressor) -> "ProcessMembers":
        """Refuses several targets, and columns that are neither numbers nor categories."""
        columns_of_numbers(estimator.features_.schema)
        return cls(estimator, Processes.of(estimator))

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
        scaling = self.estimator.units_.scaling
        return float(scaling.mean[0]), float(scaling.scale[0])

    def _coordinates(self, X: Tensor) -> Tensor:
        """Where rows lie, with gradients with respect to numbers."""
        features = self.estimator.features_
        columns = columns_of_numbers(features.schema)
        mean, scale = map(torch.as_tensor, (features.scaling.mean, features.scaling.scale))
        numbers = (X[..., columns] - mean) / scale
        if features.schema.is_plain:
            return numbers
        rows = X.detach().cpu().numpy().reshape(-1, X.shape[-1])
        found = torch.from_numpy(self.estimator.coordinates(rows)).reshape(*X.shape[:-1], -1)
        return torch.cat([numbers, found[..., len(columns) :]], dim=-1)
