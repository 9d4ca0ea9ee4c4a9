"""A few Student-t components with weights: the shape that one member gives a prediction."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from sigmax.distributions import StudentT

__all__ = ["WeightedStudentT"]


@final
class WeightedStudentT(eqx.Module):
    """Student-t components along the last axis of all leaves, and the logarithms of their weights.

    Examples
    --------
    >>> components = StudentT(jnp.array([[-1.0, 3.0]]), jnp.full((1, 2), 6.0), jnp.ones((1, 2)))
    >>> dist = WeightedStudentT(components, jnp.log(jnp.array([[0.75, 0.25]])))
    >>> dist.mean, dist.variance
    (Array([0.], dtype=float32), Array([4.5], dtype=float32))
    """

    components: StudentT
    log_weight: Float[Array, "*batch components"]

    @property
    def mean(self) -> Float[Array, "*batch"]:
        """The weighted mean of the components' means."""
        return jnp.sum(jnp.exp(self.log_weight) * self.components.mean, axis=-1)

    @property
    def variance(self) -> Float[Array, "*batch"]:
        """The mean of the components' variances, plus the variance of their means."""
        spread = self.components.variance + (self.components.mean - self.mean[..., None]) ** 2
        return jnp.sum(jnp.exp(self.log_weight) * spread, axis=-1)

    def log_prob(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Logarithm of the density at ``y``."""
        y = jnp.broadcast_to(y[..., None], self.log_weight.shape)
        return logsumexp(self.log_weight + self.components.log_prob(y), axis=-1)

    def cdf(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """P(X ≤ y)."""
        y = jnp.broadcast_to(y[..., None], self.log_weight.shape)
        return jnp.sum(jnp.exp(self.log_weight) * self.components.cdf(y), axis=-1)

    def rough_crps(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """The CRPS at ``y`` as if all components were Normal with their means and variances."""
        weight, mean = jnp.exp(self.log_weight), jnp.asarray(self.components.mean)
        variance = self.components.variance
        error = absolute_normal(mean - y[..., None], variance)
        apart = absolute_normal(
            mean[..., :, None] - mean[..., None, :],
            variance[..., :, None] + variance[..., None, :],
        )
        pairs = weight[..., :, None] * weight[..., None, :] * apart
        return jnp.sum(weight * error, axis=-1) - 0.5 * jnp.sum(pairs, axis=(-2, -1))

    def widen(self, factor: ArrayLike) -> "WeightedStudentT":
        """Every component widened by ``factor`` about its own mean."""
        components = self.components.widen(of_components(factor))
        return WeightedStudentT(components, self.log_weight)

    def with_tails(self, most_df: ArrayLike, share: ArrayLike = 1.0) -> "WeightedStudentT":
        """At most ``most_df`` degrees of freedom, by a share: `StudentT.with_tails`."""
        components = self.components.with_tails(most_df, of_components(share))
        return WeightedStudentT(components, self.log_weight)

    def moved(self, shift: ArrayLike, variance: ArrayLike) -> "WeightedStudentT":
        """Every component moved by ``shift``, and its variance larger by ``variance``."""
        growth = of_components(variance) / self.components.variance
        components = StudentT(
            self.components.mean + of_components(shift),
            self.components.df,
            self.components.scale * jnp.sqrt(1 + growth),
        )
        return WeightedStudentT(components, self.log_weight)

    def toward(
        self, prior_variance: ArrayLike, share: ArrayLike, mean_share: ArrayLike | None = None
    ) -> "WeightedStudentT":
        """The mean taken to 0 and the variance to ``prior_variance``, by a share between 0 and 1.

        All components shrink to the mean, and each takes on the variance: in the end they are one,
        up to their tails. The mean may be taken by a share of its own.
        """
        mean_share = share if mean_share is None else mean_share
        mean, left = self.mean[..., None], 1 - of_components(share)
        variance = self.components.variance
        factor = jnp.sqrt(left + (1 - left) * prior_variance / variance)
        kept = (1 - of_components(mean_share)) * mean
        center = kept + jnp.sqrt(left) * (self.components.mean - mean)
        components = StudentT(center, self.components.df, factor * self.components.scale)
        return WeightedStudentT(components, self.log_weight)


def absolute_normal(
    mean: Float[Array, "*shape"], variance: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """E|X| of a Normal X."""
    std = jnp.sqrt(variance)
    z = mean / std
    return std * (2 * norm.pdf(z) + z * (2 * norm.cdf(z) - 1))


def of_components(values: ArrayLike) -> Float[Array, "..."]:
    """Values of every density, for all of its components; one number stays one."""
    values = jnp.asarray(values)
    return values[..., None] if values.ndim else values
