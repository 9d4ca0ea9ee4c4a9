"""The equal mixture of the distributions that several members predict."""

import math
from typing import final

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logit, logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.distributions.base import (
    AbstractComponent,
    AbstractDistribution,
    Batch,
)

__all__ = ["Mixture"]

PROBABILITY_TOLERANCE = 1e-7
MAX_STEPS = 200


@final
class Mixture(AbstractDistribution):
    """Members along the first axis of the components' leaves, each with the same weight.

    Examples
    --------
    >>> from sigmax.distributions import Normal
    >>> members = Normal(jnp.array([[0.0], [2.0]]), jnp.array([[1.0], [1.0]]))  # 2 members, 1 row
    >>> dist = Mixture(members)
    >>> dist.mean, dist.aleatoric_variance, dist.epistemic_variance
    (Array([1.], dtype=float32), Array([1.], dtype=float32), Array([1.], dtype=float32))
    """

    components: AbstractComponent
    epistemic_share: Batch | None = None
    """Share of each component's variance that is uncertainty about its mean; None for none."""

    @property
    def n_members(self) -> int:
        """How many distributions are mixed."""
        return self.components.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch shape, without the axis of members."""
        return self.components.shape[1:]

    @property
    def mean(self) -> Float[Array, "*batch"]:
        """The mean of the members' means."""
        return jnp.mean(self.components.mean, axis=0)

    @property
    def aleatoric_variance(self) -> Float[Array, "*batch"]:
        """The mean of the members' variances, without the uncertainty about their means."""
        share = 1.0 if self.epistemic_share is None else 1.0 - self.epistemic_share
        return jnp.mean(share * self.components.variance, axis=0)

    @property
    def epistemic_variance(self) -> Float[Array, "*batch"]:
        """The variance of the members' means, plus the mean of their own uncertainty."""
        disagreement = jnp.var(self.components.mean, axis=0)
        if self.epistemic_share is None:
            return disagreement
        return disagreement + jnp.mean(self.epistemic_share * self.components.variance, axis=0)

    @property
    def variance(self) -> Float[Array, "*batch"]:
        """Aleatoric plus epistemic: the law of total variance."""
        return self.aleatoric_variance + self.epistemic_variance

    @property
    def std(self) -> Float[Array, "*batch"]:
        """Standard deviation."""
        return jnp.sqrt(self.variance)

    @property
    def mean_difference(self) -> Float[Array, "*batch"]:
        """The mean of E|X_i − X_j| over all pairs of members: as exact as the components' are."""
        n = self.n_members

        def add_pairs(total, shift):  # of members i and i + shift; the shift n - shift has the same
            other = jax.tree.map(lambda leaf: jnp.roll(leaf, shift, axis=0), self.components)
            repeats = jnp.where(2 * shift == n, 1, 2)
            return total + repeats * self.components.absolute_difference(other).sum(axis=0), None

        same = jnp.sum(self.components.mean_difference, axis=0)
        total, _ = lax.scan(add_pairs, same, jnp.arange(1, n // 2 + 1))
        return total / n**2

    def log_prob(self, y: Batch) -> Float[Array, "*batch"]:
        """Logarithm of the mean of the members' densities at ``y``."""
        log_probs = self.components.log_prob(self._for_members(y))
        return logsumexp(log_probs, axis=0) - math.log(self.n_members)

    def cdf(self, y: Batch) -> Float[Array, "*batch"]:
        """P(X ≤ y), the mean of the members'."""
        return jnp.mean(self.components.cdf(self._for_members(y)), axis=0)

    def solve_quantile(self, q: Batch) -> Float[Array, "*batch"]:
        """Newton's method on logit(cdf), bisecting wherever it leaves the bracket or dawdles.

        The members' own quantiles are the bracket. The cdf at the root is within 1e-7 min(q, 1 - q)
        of ``q``, in float32 within 4e-6.
        """
        quantiles = self.components.quantile(self._for_members(q))
        rounding = 32 * jnp.finfo(q.dtype).eps
        tolerance = jnp.maximum(PROBABILITY_TOLERANCE * jnp.minimum(q, 1 - q), rounding * q)

        def step(state):
            x, lower, upper, last, _, n_steps = state
            cdf = self.cdf(x)
            lower, upper = jnp.where(cdf < q, x, lower), jnp.where(cdf > q, x, upper)
            residual = logit(cdf) - logit(q)
            newton = x - residual * jnp.exp(jnp.log(cdf) + jnp.log1p(-cdf) - self.log_prob(x))
            trusted = (newton > lower) & (newton < upper) & (jnp.abs(residual) < jnp.abs(last) / 2)
            done = (jnp.abs(cdf - q) <= tolerance) | (upper - lower <= rounding * jnp.abs(x))
            x = jnp.where(done, x, jnp.where(trusted, newton, lower + (upper - lower) / 2))
            return x, lower, upper, residual, done, n_steps + 1

        def unfinished(state):
            return (state[-1] < MAX_STEPS) & ~jnp.all(state[-2])

        start = jnp.mean(quantiles, axis=0), jnp.min(quantiles, axis=0), jnp.max(quantiles, axis=0)
        unknown, no = jnp.full_like(q, jnp.inf), jnp.zeros(q.shape, bool)
        return lax.while_loop(unfinished, step, (*start, unknown, no, 0))[0]

    def absolute_error(self, y: Batch) -> Float[Array, "*batch"]:
        """E|X − y|, the mean of the members'."""
        return jnp.mean(self.components.absolute_error(self._for_members(y)), axis=0)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, " n *batch"]:
        """``n`` independent draws along a new first axis, each of a member drawn for it."""
        key_member, key_draw = jax.random.split(key)
        member = jax.random.randint(key_member, (n, *self.shape), 0, self.n_members)
        components = jax.tree.map(jnp.asarray, self.components)
        drawn = jax.tree.map(lambda leaf: jnp.take_along_axis(leaf, member, axis=0), components)
        return drawn.sample(key_draw, 1)[0]

    def affine(self, shift: ArrayLike, scale: ArrayLike) -> "Mixture":
        """The distribution of ``shift + scale * X`` for ``scale > 0``."""
        return Mixture(self.components.affine(shift, scale), self.epistemic_share)

    def widen(self, factor: ArrayLike) -> "Mixture":
        """Every member widened by ``factor`` about its own mean."""
        return Mixture(self.components.widen(factor), self.epistemic_share)

    def _for_members(self, y):
        return jnp.broadcast_to(jnp.asarray(y), self.components.shape)
