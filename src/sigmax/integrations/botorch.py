"""Bayesian optimisation with BoTorch, whose model is a `GPRegressor` or a `SparseGPRegressor`.

The processes of a fitted estimator, one for each draw of its hyper-parameters, become tensors of
PyTorch, which computes gradients.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from sigmax.errors import InvalidArgumentError, InvalidDataError, MissingExtraError
from sigmax.estimators import AbstractGPRegressor, AbstractRegressor
from sigmax.experts.gaussian_process import GPFitted
from sigmax.experts.gaussian_process.expert import SMALLEST_JITTER
from sigmax.integrations.surrogates import fit_surrogate
from sigmax.tables import Kind

with MissingExtraError.unless_imported("sigmax.integrations.botorch needs BoTorch", "botorch"):
    import torch
    from botorch.models.model import FantasizeMixin, Model
    from botorch.posteriors import Posterior
    from botorch.sampling.base import MCSampler
    from botorch.sampling.get_sampler import GetSampler
    from botorch.sampling.normal import IIDNormalSampler, SobolQMCNormalSampler
    from torch import Size, Tensor
    from torch.nn.functional import pad
    from torch.quasirandom import SobolEngine

__all__ = ["MemberPosterior", "SigmaxModel", "fit_sigmax_model"]

LEAST_VARIANCE = 1e-9
"""Smallest variance of a process, as a share of its prior variance; less is rounding."""

JITTER, LARGEST_JITTER = 1e-6, 1e-2
"""Reduction of the correlation of two points, without which duplicate points would make covariances
singular; increased up to the second where rounding requires it."""

Moments = tuple[Tensor, Tensor, Tensor]
"""Mean (batch, members, q) and covariance (batch, members, q, q) of the mean of y at q points under
every member, and the variance of y around its mean (batch, members, q), in units of y."""


@final
class MemberPosterior(Posterior):
    r"""Equal mixture of ensemble members, each jointly Normal at the q points of every batch.

    Member m predicts the mean $\mu_m(x)$ with the covariance $C_m(x, x')$ of its error, and noise
    of the variance $\sigma_m^2(x)$, so that

    $$\text{Cov}(f(x), f(x')) = \frac1M \sum_m C_m(x, x')
      + \text{Cov}_m(\mu_m(x), \mu_m(x')),$$

    plus the noise on the diagonal for observations. Mean and variance are those of
    `predict_dist`: there a member is a Student-t distribution or a mixture of such, here it is the
    Normal of the same mean and variance.

    Parameters
    ----------
    mean, noise_variance
        Moments of each member: (batch, members, q); without noise, the posterior of the mean of y.
    covariance
        Covariance of each member: (batch, members, q, q).
    """

    def __init__(self, mean: Tensor, covariance: Tensor, noise_variance: Tensor | None):
        self.member_means, self.own_covariance = mean, covariance
        self.noise_variance = noise_variance

    @property
    def device(self) -> torch.device:
        return self.member_means.device

    @property
    def dtype(self) -> torch.dtype:
        return self.member_means.dtype

    @property
    def batch_shape(self) -> Size:
        return self.member_means.shape[:-2]

    @property
    def event_shape(self) -> Size:
        return Size([*self.batch_shape, self.member_means.shape[-1], 1])

    @property
    def base_sample_shape(self) -> Size:
        """Shape of base samples: one number for the member, and one for every point."""
        return Size([*self.batch_shape, 1 + self.member_means.shape[-1], 1])

    @property
    def batch_range(self) -> tuple[int, int]:
        return (0, -2)

    def _extended_shape(self, sample_shape: Size = Size()) -> Size:  # noqa: B008
        return Size(sample_shape) + self.event_shape

    @property
    def mean(self) -> Tensor:
        """(batch, q, 1)."""
        return self.member_means.mean(dim=-2).unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """(batch, q, 1): epistemic, or total if it includes the noise."""
        disagreement = self.member_means.var(dim=-2, correction=0)
        return (self._member_variance.mean(dim=-2) + disagreement).unsqueeze(-1)

    @property
    def covariance_matrix(self) -> Tensor:
        """(batch, q, q)."""
        apart = self.member_means - self.member_means.mean(dim=-2, keepdim=True)
        between = apart.transpose(-1, -2) @ apart / apart.shape[-2]
        return self._member_covariance.mean(dim=-3) + between

    @property
    def _member_variance(self) -> Tensor:
        return self._member_covariance.diagonal(dim1=-2, dim2=-1)

    @property
    def _member_covariance(self) -> Tensor:
        if self.noise_variance is None:
            return self.own_covariance
        return self.own_covariance + torch.diag_embed(self.noise_variance)

    def _factors(self) -> Tensor:
        """Cholesky factors of the members' covariances: (batch, members, q, q)."""
        std = self._member_variance.sqrt().unsqueeze(-1)
        correlation = self._member_covariance / (std * std.transpose(-1, -2))
        identity = torch.eye(std.shape[-2], dtype=std.dtype, device=std.device)
        jitter = JITTER
        while True:
            less = (1 - jitter) * correlation * (1 - identity) + identity
            factors, failed = torch.linalg.cholesky_ex(less)
            if jitter >= LARGEST_JITTER or not failed.any():
                return std * factors
            jitter *= 10

    def rsample(self, sample_shape: Size | None = None) -> Tensor:
        """Draws with gradients: (sample_shape, batch, q, 1)."""
        shape = Size([1]) if sample_shape is None else sample_shape
        base = torch.randn(shape + self.base_sample_shape, dtype=self.dtype, device=self.device)
        return self.rsample_from_base_samples(shape, base)

    def rsample_from_base_samples(self, sample_shape: Size, base_samples: Tensor) -> Tensor:
        """Draws from standard Normal numbers; the first number of a draw selects the member.

        The members have equal weights for all X, so that draws are smooth functions of X.
        """
        if base_samples.shape != sample_shape + self.base_sample_shape:
            expected = tuple(sample_shape + self.base_sample_shape)
            raise ValueError(
                f"`base_samples` must have shape {expected}, got {tuple(base_samples.shape)}."
            )
        n_members, q = self.member_means.shape[-2:]
        base = base_samples.reshape(-1, *self.base_sample_shape).squeeze(-1)
        level = torch.special.ndtr(base[..., :1])
        chosen = (n_members * level).long().clamp(max=n_members - 1)
        factors, indices, parts = self._factors(), [], []
        for member in range(n_members):  # usually a draw has the same member in all batches
            own = (chosen == member).flatten(1).any(dim=1).nonzero()[:, 0]
            normal = torch.einsum(
                "...ij,s...j->s...i", factors[..., member, :, :], base[own, ..., 1:]
            )
            drawn = self.member_means[..., member, :] + normal
            parts.append(torch.where(chosen[own] == member, drawn, 0.0))
            indices.append(own)
        draws = torch.zeros(len(base), *self.batch_shape, q, dtype=self.dtype, device=self.device)
        draws = draws.index_add(0, torch.cat(indices), torch.cat(parts))
        return draws.reshape(self._extended_shape(sample_shape))


@GetSampler.register(MemberPosterior)
def normal_sampler(
    posterior: MemberPosterior, sample_shape: Size, *, seed: int | None = None
) -> MCSampler:
    """Quasi-random numbers, or random ones for more points than these have dimensions."""
    is_many = posterior.base_sample_shape[-2] > SobolEngine.MAXDIM
    sampler: Any = IIDNormalSampler if is_many else SobolQMCNormalSampler
    return sampler(sample_shape=sample_shape, seed=seed)


@final
@dataclass(frozen=True, eq=False)
class ProcessMembers:
    r"""Gaussian processes of all draws of the hyper-parameters, on standardised data.

    Given the rows $Z$, draw m has the mean $k(x, Z)\,a$ and the covariance
    $k(x, x') - (R\,k(Z, x))^\top R\,k(Z, x')$. All tensors may have batches in front.
    """

    estimator: AbstractGPRegressor  # fitted estimator
    columns: tuple[int, ...]  # positions of the columns that are numbers
    inverse_length_scale: Tensor  # (members, coordinates)
    variance: Tensor  # prior variance of the function: (members,)
    offset_variance: Tensor  # prior variance of the unknown constant: (members,)
    noise_variance: Tensor  # (members,)
    points: Tensor  # rows Z: (points, coordinates)
    coefficients: Tensor  # a: (members, points)
    reduction: Tensor  # R: (members, ranks, points)
    noise_points: Tensor  # rows that the noise was learned from: (noise points, coordinates)
    noise_coefficients: Tensor
    """Coefficients of the logarithm of the relative noise: (members, noise points)."""
    n_length_scales: int

    @classmethod
    def create(cls, estimator: AbstractRegressor) -> "ProcessMembers":
        if not isinstance(estimator, AbstractGPRegressor):
            name, kinds = type(estimator).__name__, "GPRegressor or SparseGPRegressor"
            raise InvalidArgumentError(f"`estimator` must be a fitted {kinds}, got a {name}.")
        if not estimator.model_.is_single_output:
            raise InvalidArgumentError("A BoTorch model has one target; use one for each of them.")
        schema, fitted = estimator.model_.features.schema, estimator.model_.fitted
        if schema.of_kind(Kind.TIME):
            raise InvalidArgumentError("Columns of a BoTorch model are numbers or categories.")
        columns = tuple(j for j, column in enumerate(schema) if column.kind is Kind.NUMBER)
        assert isinstance(fitted, GPFitted)
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
        return cls(estimator, columns, **tensors, n_length_scales=n_length_scales)

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

    def joint(self, X: Tensor) -> Moments:
        """Moments at the q points of every batch of ``X`` (batch, q, d), with gradients."""
        X, (center, scale) = self._coordinates(X), self._units()
        cross = self.covariance(X, self.points)
        mean = (cross @ self.coefficients.unsqueeze(-1)).squeeze(-1)
        explained = cross @ self.reduction.transpose(-1, -2)
        covariance = self.covariance(X, X) - explained @ explained.transpose(-1, -2)
        least = LEAST_VARIANCE * self.variance[:, None]
        missing = (least - covariance.diagonal(dim1=-2, dim2=-1)).clamp(min=0.0)
        covariance = covariance + torch.diag_embed(missing)
        return center + scale * mean, scale**2 * covariance, scale**2 * self.noise_at(X)

    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> "ProcessMembers":
        r"""Processes given further measurements ``y`` (batch, n) at ``X`` (batch, n, d).

        With the covariance $S$ of these measurements before, $S = L L^\top$, and their errors $e$:
        $R$ gains the rows $L^{-1} (I, -(R k)^\top R)$ and $a$ changes by $S^{-1} e$.
        """
        X, (center, scale) = self._coordinates(X), self._units()
        cross = self.covariance(X, self.points)
        explained = cross @ self.reduction.transpose(-1, -2)
        noise = self.noise_at(X)
        if noise_variance is not None:
            noise = noise_variance.unsqueeze(-2) / scale**2
        noise = noise + SMALLEST_JITTER * self.variance[:, None]  # the other rows have it, too
        S = self.covariance(X, X) - explained @ explained.transpose(-1, -2)
        factor = torch.linalg.cholesky(S + torch.diag_embed(noise))
        mean = (cross @ self.coefficients.unsqueeze(-1)).squeeze(-1)
        error = ((y - center) / scale).unsqueeze(-2) - mean
        solved = torch.cholesky_solve(error.unsqueeze(-1), factor)
        identity = torch.eye(X.shape[-2], dtype=X.dtype, device=X.device).expand_as(S)
        gained = torch.cat([-(explained @ self.reduction), identity], dim=-1)
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


def squared_distance(X: Tensor, Z: Tensor) -> Tensor:
    center = Z.mean(dim=-2, keepdim=True)  # against cancellation
    X, Z = X - center, Z - center
    squares = X.square().sum(dim=-1).unsqueeze(-1) + Z.square().sum(dim=-1).unsqueeze(-2)
    return (squares - 2 * X @ Z.transpose(-1, -2)).clamp(min=0.0)


@final
class SigmaxModel(Model, FantasizeMixin):
    """A fitted estimator of one target as a model of BoTorch.

    The posterior is a `MemberPosterior`, of the mean of y or, with ``observation_noise=True``, of
    y. Acquisition functions of BoTorch maximise; to minimise, pass ``-Y``.

    Parameters
    ----------
    estimator : GPRegressor or SparseGPRegressor
        Fitted.
    members : optional
        Processes to use in place of those of the estimator.

    Examples
    --------
    >>> import torch
    >>> X = torch.rand(20, 2, dtype=torch.double)
    >>> Y = -((X - 0.5) ** 2).sum(dim=-1, keepdim=True)
    >>> model = fit_sigmax_model(X, Y, random_state=0)
    >>> model.posterior(torch.rand(4, 3, 2, dtype=torch.double)).mean.shape
    torch.Size([4, 3, 1])
    """

    likelihood = None  # `fantasize` requires the attribute

    def __init__(self, estimator: AbstractRegressor, members: ProcessMembers | None = None):
        super().__init__()
        self.estimator = estimator
        self.members = ProcessMembers.create(estimator) if members is None else members

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> Size:
        return self.members.batch_shape

    def posterior(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """Joint posterior at the q points of every batch of ``X`` (batch, q, d).

        Parameters
        ----------
        X : Tensor
            Numbers, and categories by their numbers in the training data.
        output_indices : None or [0]
            There is one output.
        observation_noise : bool or Tensor
            False for the mean of y, True for y; a tensor is the noise variance to use.
        posterior_transform
            Applied to the posterior, if given.
        """
        if output_indices not in (None, [0]):
            raise InvalidArgumentError(f"`output_indices` must be [0], got {output_indices!r}.")
        X = self.transform_inputs(X)
        mean, covariance, noise = (part.to(X) for part in self.members.joint(X.double().cpu()))
        if isinstance(observation_noise, Tensor):
            noise = observation_noise.to(X).squeeze(-1).unsqueeze(-2).expand(mean.shape)
        elif not observation_noise:
            noise = None
        posterior = MemberPosterior(mean, covariance, noise)
        if posterior_transform is None:
            return posterior
        return posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> "SigmaxModel":
        """Return a model that is conditioned on ``Y`` (batch, n, 1) at ``X`` (batch, n, d).

        Nothing is trained: hyper-parameters stay as they are; refit every few rows. This model does
        not change. Several batches are alternatives, as in `fantasize`.

        Parameters
        ----------
        X, Y : Tensor
        noise : Tensor, optional
            Noise variance of ``Y``; by default that of the model.
        """
        rows = self.transform_inputs(X).double().cpu(), Y.double().cpu().squeeze(-1)
        variance = None if noise is None else noise.double().cpu().squeeze(-1)
        members = self.members.conditioned(*rows, variance)
        conditioned = SigmaxModel(members.estimator, members)
        if hasattr(self, "input_transform"):
            conditioned.input_transform = self.input_transform
        return conditioned.eval()


def fit_sigmax_model(
    train_X: Tensor, train_Y: Tensor, *, noise_free: bool = False, **settings: Any
) -> SigmaxModel:
    """Fit a model of BoTorch to rows ``train_X`` (n, d) with ``train_Y`` (n, 1).

    It is a `GPRegressor` averaged over its hyper-parameters, whose noise may depend on x, and with
    more than 1,000 rows a `SparseGPRegressor`.

    Parameters
    ----------
    train_X, train_Y : Tensor
        In any units: both are standardised inside.
    noise_free : bool, default False
        True if the same X always gives the same Y.
    settings
        Settings of the estimator, such as ``categorical_features`` and ``random_state``.
    """
    if train_X.ndim != 2 or train_Y.shape != (len(train_X), 1):
        shapes = f"{tuple(train_X.shape)} and {tuple(train_Y.shape)}"
        raise InvalidDataError(f"X and Y must have shapes (n, d) and (n, 1), got {shapes}.")
    X, Y = (part.detach().cpu().double().numpy() for part in (train_X, train_Y))
    fitted = fit_surrogate(X, Y[:, 0], noise_free=noise_free, **settings)
    return SigmaxModel(fitted).eval()
