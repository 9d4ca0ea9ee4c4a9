"""The Bernoulli distribution, as autoencoders use it for grey values between 0 and 1."""

# A field where the base has a property, and a pair of one class: meant.
# pyright: reportIncompatibleMethodOverride=false

from typing import final

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.distributions import AbstractComponent
from sigmax.distributions.base import Batch
from sigmax.errors import InvalidArgumentError

__all__ = ["Bernoulli"]


@final
class Bernoulli(AbstractComponent):
    """0 or 1 with given log-odds.

    Between 0 and 1 ``log_prob`` is the usual x log p + (1 − x) log(1 − p). That is no density: it
    cannot be compared with the log-density of a model of continuous values.

    Examples
    --------
    >>> Bernoulli(jnp.array([0.0])).log_prob(jnp.array([1.0])).round(4)
    Array([-0.6931], dtype=float32)
    """

    logits: Batch

    @property
    def mean(self) -> Float[Array, "*batch"]:
        """The probability of 1."""
        return jax.nn.sigmoid(jnp.asarray(self.logits))

    @property
    def variance(self) -> Float[Array, "*batch"]:
        """p (1 − p)."""
        return self.mean * jax.nn.sigmoid(-jnp.asarray(self.logits))

    @property
    def std(self) -> Float[Array, "*batch"]:
        """Standard deviation."""
        return jnp.sqrt(self.variance)

    @property
    def mean_difference(self) -> Float[Array, "*batch"]:
        """E|X − X'| = 2 p (1 − p)."""
        return 2 * self.variance

    def log_prob(self, y: Batch) -> Float[Array, "*batch"]:
        """y log p + (1 − y) log(1 − p)."""
        logits = jnp.asarray(self.logits)
        return jnp.asarray(y * logits - jax.nn.softplus(logits))

    def cdf(self, y: Batch) -> Float[Array, "*batch"]:
        """P(X ≤ y): a step at 0 and one at 1."""
        below_one = jnp.where(y >= 0, 1 - self.mean, 0.0)
        return jnp.where(y >= 1, 1.0, below_one)

    def solve_quantile(self, q: Batch) -> Float[Array, "*batch"]:
        """0 up to the probability of 0, then 1."""
        return jnp.where(q <= 1 - self.mean, 0.0, 1.0)

    def absolute_error(self, y: Batch) -> Float[Array, "*batch"]:
        """E|X − y|."""
        return self.mean * jnp.abs(1 - y) + (1 - self.mean) * jnp.abs(y)

    def absolute_difference(self, other: "Bernoulli") -> Float[Array, "*batch"]:
        """E|X − Y|: the probability that they differ."""
        return self.mean * (1 - other.mean) + other.mean * (1 - self.mean)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, " n *batch"]:
        """``n`` independent draws of 0 or 1, along a new first axis."""
        mean = self.mean
        draws = jax.vmap(lambda k: jax.random.bernoulli(k, mean))(jax.random.split(key, n))
        return draws.astype(mean.dtype)

    def affine(self, shift: ArrayLike, scale: ArrayLike) -> "Bernoulli":
        """Refused: 0 and 1 have no other units."""
        raise InvalidArgumentError("A Bernoulli distribution has no other units than 0 and 1.")

    def widen(self, factor: ArrayLike) -> "Bernoulli":
        """Refused: the spread of a Bernoulli follows from its mean."""
        raise InvalidArgumentError("The spread of a Bernoulli distribution follows from its mean.")
