"""Normal distribution."""

# Fields override properties of the base class, and `other` has the same class.
# pyright: reportIncompatibleMethodOverride=false

import math
from typing import Any, final

from jaxtyping import Float

from sigmax.distributions.base import AbstractComponent, Batch
from sigmax.values import AnyArray, ArrayLike, jax, jax_special, jnp


@final
class Normal(AbstractComponent):
    """Normal distributions with the given means and standard deviations.

    Examples
    --------
    >>> dist = Normal(jnp.array([0.0, 5.0]), jnp.array([1.0, 2.0]))
    >>> dist.variance, dist.cdf(jnp.array([0.0, 5.0]))
    (Array([1., 4.], dtype=float32), Array([0.5, 0.5], dtype=float32))
    """

    mean: Batch
    std: Batch

    @property
    def variance(self) -> Batch:
        """Squared standard deviation."""
        return self.std**2

    @property
    def mean_difference(self) -> Batch:
        """E|X − X'| = 2 std / √π."""
        return self.std * (2 / math.sqrt(math.pi))

    def standardize(self, y: Batch) -> Float[AnyArray, "*batch"]:
        """Distance of ``y`` from the mean in standard deviations."""
        return jnp.asarray((y - self.mean) / self.std)

    def log_prob(self, y: Batch) -> Float[AnyArray, "*batch"]:
        """Logarithm of the density at ``y``."""
        return -0.5 * self.standardize(y) ** 2 - jnp.log(self.std) - 0.5 * math.log(2 * math.pi)

    def cdf(self, y: Batch) -> Float[AnyArray, "*batch"]:
        """P(X ≤ y)."""
        return jax_special.ndtr(self.standardize(y))

    def solve_quantile(self, q: Batch) -> Float[AnyArray, "*batch"]:
        """Quantile in closed form."""
        return jnp.asarray(self.mean + self.std * jax_special.ndtri(jnp.asarray(q)))

    def absolute_error(self, y: Batch) -> Float[AnyArray, "*batch"]:
        """E|X − y| = std (z erf(z/√2) + 2 φ(z)) with z = (y − mean) / std."""
        z = self.standardize(y)
        twice_density = math.sqrt(2 / math.pi) * jnp.exp(-0.5 * z**2)
        return jnp.asarray(self.std) * (z * jax_special.erf(z / math.sqrt(2)) + twice_density)

    def absolute_difference(self, other: "Normal") -> Float[AnyArray, "*batch"]:
        """E|X − Y|, exact because X − Y is Normal."""
        std = jnp.hypot(self.std, other.std)
        return Normal(self.mean - other.mean, std).absolute_error(jnp.zeros_like(std))

    def sample(self, key: Any, n: int) -> Float[AnyArray, " n *batch"]:
        """``n`` independent draws, along a new first axis."""
        mean, std = jnp.asarray(self.mean), jnp.asarray(self.std)
        noise = jax.random.normal(key, (n, *mean.shape), mean.dtype)
        return jax.vmap(lambda z: mean + std * z)(noise)

    def affine(self, shift: ArrayLike, scale: ArrayLike) -> "Normal":
        """Distribution of ``shift + scale * X`` for ``scale > 0``."""
        return Normal(shift + scale * self.mean, scale * self.std)

    def widen(self, factor: ArrayLike) -> "Normal":
        """Multiply the standard deviations by ``factor``."""
        return Normal(self.mean, factor * self.std)
