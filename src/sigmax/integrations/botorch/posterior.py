"""The posterior of a mixture of members at several points at once."""

from typing import Any, final

import torch
from botorch.posteriors import Posterior
from botorch.sampling.base import MCSampler
from botorch.sampling.get_sampler import GetSampler
from botorch.sampling.normal import IIDNormalSampler, SobolQMCNormalSampler
from torch import Size, Tensor
from torch.quasirandom import SobolEngine

JITTER, LARGEST_JITTER = 1e-6, 1e-2
"""By so much less than a member says are two points correlated, or copies of a point would make
covariances singular; more where rounding asks for it."""


@final
class MemberPosterior(Posterior):
    r"""An equal mixture of members, each jointly Normal at the q points of every batch.

    Member m expects $\mu_m(x)$, is uncertain about it with the covariance $C_m(x, x')$, and
    expects noise of the variance $\sigma_m^2(x)$, so that

    $$\text{Cov}(f(x), f(x')) = \frac1M \sum_m C_m(x, x')
      + \text{Cov}_m(\mu_m(x), \mu_m(x')),$$

    plus the noise on the diagonal where observations are asked for. Mean and variance are those of
    `predict_dist`: there a member is a Student-t distribution or a mixture of such, here it is the
    Normal of the same mean and variance.

    Parameters
    ----------
    mean, noise_variance
        Of every member: (batch, members, q). Without noise the posterior is that of the mean of y.
    covariance
        Of every member: (batch, members, q, q).
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
        """A number that chooses the member, and one for every point."""
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
        """(batch, q, 1): epistemic, or total where the noise is in it."""
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
        """Draws from standard Normal numbers, of which the first of every draw chooses the member.

        No member is likelier than another anywhere, so that draws are smooth functions of X.
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
        factors, places, parts = self._factors(), [], []
        for member in range(n_members):  # mostly, a draw is of the same member in all batches
            place = (chosen == member).flatten(1).any(dim=1).nonzero()[:, 0]
            normal = torch.einsum(
                "...ij,s...j->s...i", factors[..., member, :, :], base[place, ..., 1:]
            )
            drawn = self.member_means[..., member, :] + normal
            parts.append(torch.where(chosen[place] == member, drawn, 0.0))
            places.append(place)
        draws = torch.zeros(len(base), *self.batch_shape, q, dtype=self.dtype, device=self.device)
        draws = draws.index_add(0, torch.cat(places), torch.cat(parts))
        return draws.reshape(self._extended_shape(sample_shape))


@GetSampler.register(MemberPosterior)
def normal_sampler(
    posterior: MemberPosterior, sample_shape: Size, *, seed: int | None = None
) -> MCSampler:
    """Quasi-random numbers, or random ones for more points than these have dimensions."""
    is_many = posterior.base_sample_shape[-2] > SobolEngine.MAXDIM
    sampler: Any = IIDNormalSampler if is_many else SobolQMCNormalSampler
    return sampler(sample_shape=sample_shape, seed=seed)
