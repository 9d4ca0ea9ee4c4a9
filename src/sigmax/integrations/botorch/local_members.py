"""The members of a fitted `LocalRegressor`, correlated across points by their learned metric."""

import copy
from dataclasses import dataclass
from typing import final

import torch
from botorch.exceptions import UnsupportedError
from torch import Size, Tensor

from sigmax.estimators import LocalRegressor
from sigmax.integrations.botorch.bridge import FittedMembers, moments
from sigmax.integrations.botorch.members import AbstractMembers, JointMoments

__all__ = ["LocalMembers"]


@final
@dataclass(frozen=True, eq=False)
class LocalMembers(AbstractMembers):
    r"""Members whose uncertainty at two points is correlated by their kernel.

    With the standard deviation $s_m(x)$ of member m, its covariance is
    $s_m(x) s_m(x') \exp(-\frac12 \|z_m(x) - z_m(x')\|^2)$ in the learned metric.
    """

    estimator: LocalRegressor
    fitted: FittedMembers

    @classmethod
    def of(cls, estimator: LocalRegressor) -> "LocalMembers":
        """Refuses what has no gradient, or no variance in closed form."""
        return cls(estimator, FittedMembers.of(estimator))

    @property
    def batch_shape(self) -> Size:
        return Size()

    def joint(self, X: Tensor) -> JointMoments:
        *batch, q, d = X.shape
        found = moments(self.estimator, self.fitted, X.reshape(-1, d))

        def by_batch(values: Tensor) -> Tensor:
            """Members behind the batch, before the points."""
            shaped = values.reshape(len(values), *batch, q, *values.shape[2:])
            return shaped.movedim(0, len(batch))

        std, z = by_batch(found.own_variance).sqrt(), by_batch(found.coordinates)
        z = z - z.mean(dim=-2, keepdim=True)  # or differences lose their digits
        norm = (z**2).sum(dim=-1)
        products = z @ z.transpose(-1, -2)
        squared = (norm.unsqueeze(-1) + norm.unsqueeze(-2) - 2 * products).clamp(min=0)
        identity = torch.eye(q, dtype=X.dtype, device=X.device)
        kernel = torch.exp(-0.5 * squared) * (1 - identity) + identity
        covariance = std.unsqueeze(-1) * kernel * std.unsqueeze(-2)
        return JointMoments(by_batch(found.mean), covariance, by_batch(found.noise_variance))

    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> "LocalMembers":
        """By `LocalRegressor.partial_remember`, which learns the noise itself."""
        if X.ndim != 2:
            raise UnsupportedError(
                "A LocalRegressor is conditioned on one batch of rows at a time."
            )
        rows = X.detach().cpu().numpy(), y.detach().cpu().numpy()
        return LocalMembers.of(copy.deepcopy(self.estimator).partial_remember(*rows))
