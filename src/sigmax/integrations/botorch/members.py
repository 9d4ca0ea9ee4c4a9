"""What a model of BoTorch asks of the members of a fitted estimator."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, final

from torch import Size, Tensor

from sigmax.errors import InvalidArgumentError
from sigmax.tables import Kind, Schema

__all__ = ["AbstractMembers", "JointMoments", "columns_of_numbers"]


@final
class JointMoments(NamedTuple):
    """What every member says about the mean of y at q points, in units of y."""

    mean: Tensor
    """(batch, members, q)."""
    covariance: Tensor
    """Of that: (batch, members, q, q)."""
    noise_variance: Tensor
    """Of y about the mean: (batch, members, q)."""


class AbstractMembers(ABC):
    """The members of an estimator as functions of tensors in double precision."""

    estimator: Any
    """What they are members of."""

    @property
    @abstractmethod
    def batch_shape(self) -> Size:
        """Of the measurements that joined it, if these were many alternatives."""

    @abstractmethod
    def joint(self, X: Tensor) -> JointMoments:
        """At the q points of every batch of ``X`` (batch, q, d), with gradients."""

    @abstractmethod
    def conditioned(self, X: Tensor, y: Tensor, noise_variance: Tensor | None) -> Any:
        """The members given ``y`` (batch, n) at ``X`` (batch, n, d) as well, without training."""


def columns_of_numbers(schema: Schema) -> list[int]:
    """Which columns are numbers; the others must be categories."""
    if any(column.kind not in (Kind.NUMBER, Kind.CATEGORY) for column in schema):
        raise InvalidArgumentError("Columns of a BoTorch model are numbers or categories.")
    return [j for j, column in enumerate(schema) if column.kind is Kind.NUMBER]
