"""Interface of all distributions: one density per element of a batch shape, in pure JAX.

Leaves are JAX or NumPy arrays: ``affine`` and ``widen`` are plain arithmetic, so that NumPy
float64 leaves stay NumPy float64. All other methods return JAX arrays in JAX's precision, and
import JAX when they are first called; only `Stacked` never does.
"""

from abc import abstractmethod
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float

from sigmax.values import AbstractValue, AnyArray, ArrayLike, jax, jnp

Batch: TypeAlias = Float[AnyArray, "*batch"]
T = TypeVar("T", bound="AbstractDistribution")  # beartype knows no Self
Level: TypeAlias = float | Float[AnyArray, ""] | Float[AnyArray, "*batch"]


class AbstractDistribution(AbstractValue):
    """One density per element of the batch shape."""

    if TYPE_CHECKING:  # a field or a property

        @property
        def mean(self) -> Batch: ...
        @property
        def std(self) -> Batch: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Batch shape."""

    @property
    @abstractmethod
    def variance(self) -> Batch:
        """Variance; infinite where it does not exist."""

    @property
    @abstractmethod
    def aleatoric_variance(self) -> Batch:
        """Noise variance: mean of the variances of the ensemble members."""

    @property
    @abstractmethod
    def epistemic_variance(self) -> Batch:
        """Model uncertainty: variance of the means of the ensemble members."""

    @property
    @abstractmethod
    def mean_difference(self) -> Batch:
        """E|X − X'| for an independent copy X'; infinite where it does not exist."""

    @abstractmethod
    def log_prob(self, y: Batch) -> Batch:
        """Logarithm of the density at ``y``."""

    @abstractmethod
    def cdf(self, y: Batch) -> Batch:
        """P(X ≤ y), with relative accuracy in the lower tail."""

    @abstractmethod
    def solve_quantile(self, q: Batch) -> Batch:
        """Quantile at one level per element; need not be differentiable."""

    @abstractmethod
    def absolute_error(self, y: Batch) -> Batch:
        """E|X − y|; infinite where it does not exist."""

    @abstractmethod
    def sample(self, key: Any, n: int) -> Float[AnyArray, " n *batch"]:
        """``n`` independent draws, along a new first axis."""

    @abstractmethod
    def affine(self: T, shift: ArrayLike, scale: ArrayLike) -> T:
        """Distribution of ``shift + scale * X`` for ``scale > 0``.

        Both broadcast against the batch shape and must not enlarge it.
        """

    @abstractmethod
    def widen(self: T, factor: ArrayLike) -> T:
        """Multiply the scale of every component by ``factor``; its mean stays."""

    def quantile(self, q: Level) -> Batch:
        """Quantile at the level ``q``: one number, or one per element."""
        dtype = jnp.asarray(self.mean).dtype
        return _inverse_cdf()(self, jnp.broadcast_to(jnp.asarray(q, dtype), self.shape))

    def interval(self, coverage: Level) -> Float[AnyArray, "*batch 2"]:
        """Central interval with probability ``coverage``: (lower, upper) on a new last axis."""
        tail = (1 - jnp.asarray(coverage)) / 2
        return jax.vmap(self.quantile, out_axes=-1)(jnp.stack([tail, 1 - tail]))

    def crps(self, y: Batch) -> Batch:
        """Continuous ranked probability score, E|X − y| − ½ E|X − X'|: lower is better.

        Infinite where these expectations are (a Student-t with ``df <= 1``).
        """
        spread = self.mean_difference
        exists = jnp.isfinite(spread)
        error = jnp.where(exists, self.absolute_error(y), jnp.inf)
        return error - jnp.where(exists, spread, 0.0) / 2


class AbstractComponent(AbstractDistribution):
    """Density predicted by a single model, a possible component of a ``Mixture``."""

    @property
    def unit(self) -> Batch:
        """Scale parameter."""
        return self.std

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch shape."""
        return np.shape(self.mean)

    @property
    def aleatoric_variance(self) -> Batch:
        """Total variance: a single model has no epistemic part."""
        return self.variance

    @property
    def epistemic_variance(self) -> Batch:
        """Zero for a single model."""
        return jnp.zeros_like(self.mean)

    @abstractmethod
    def absolute_difference(self: T, other: T) -> Batch:
        """E|X − Y| for an independent Y of ``other``, element by element."""


def blend_factor(
    gate: Float[AnyArray, "..."] | float,
    prior_variance: float | Float[AnyArray, "..."],
    variance: Float[AnyArray, "..."],
) -> Float[AnyArray, "..."]:
    r"""The factor on scales that takes variances to $(1-\tilde\nu)\sigma^2 + \tilde\nu\eta$."""
    return jnp.sqrt(1 - gate + gate * prior_variance / variance)


@cache
def _inverse_cdf() -> Any:
    """Quantile function of a distribution, with its derivative; needs JAX only when called."""

    @jax.custom_jvp
    def invert(dist: AbstractDistribution, q: Batch) -> Batch:
        return dist.solve_quantile(q)

    @invert.defjvp
    def _differentiate(primals, tangents):
        """Derivative of the root by the implicit function theorem: (dq − dF) / f."""
        root = invert(*primals)
        _, rise = jax.jvp(lambda dist, q: q - dist.cdf(root), primals, tangents)
        density = jnp.exp(primals[0].log_prob(root))
        return root, jnp.where(density > 0, rise / jnp.where(density > 0, density, 1.0), 0.0)

    return invert
