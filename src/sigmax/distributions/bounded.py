"""Distributions of targets with a lower or an upper bound."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from jaxtyping import Float

from sigmax.distributions.base import AbstractDistribution, Batch
from sigmax.distributions.mixture import Mixture, cuts_around, integrate_cdf
from sigmax.values import AnyArray, ArrayLike, jnp, lax

STEPS = np.linspace(-3.5, 2.8, 85)
NODES = np.exp(np.pi / 2 * np.sinh(STEPS))
NODE_WEIGHTS = (STEPS[1] - STEPS[0]) * np.pi / 2 * np.cosh(STEPS) * NODES
"""Nodes and weights of the double-exponential rule for integrals from 0 to infinity."""


@final
class Bounded(AbstractDistribution):
    """Distribution of X = clip(Y, low, high), where Y has the distribution ``base``.

    The probability beyond a bound becomes an atom at the bound. Between the bounds, density and
    quantiles do not change, so that a calibrated density stays calibrated.
    `log_prob` is that of the continuous part, also at a bound; ``cdf(low)`` is the atom at ``low``.

    Probabilities, quantiles and means are exact. Variance and CRPS are integrals with an error of
    1e-3 standard deviations. The epistemic share of the variance is that of ``base``.

    Examples
    --------
    >>> from sigmax.distributions import Normal
    >>> base = Mixture(Normal(jnp.zeros((1, 1)), jnp.ones((1, 1))))
    >>> dist = Bounded.create(base, 0.0, jnp.inf)
    >>> [round(float(value[0]), 3) for value in (dist.mean, dist.std, dist.quantile(0.7))]
    [0.399, 0.584, 0.524]
    >>> dist.quantile(0.3), dist.cdf(jnp.zeros(1))
    (Array([0.], dtype=float32), Array([0.5], dtype=float32))
    """

    base: Mixture
    low: Batch
    high: Batch

    @classmethod
    def create(cls, base: Mixture, low: ArrayLike, high: ArrayLike) -> "Bounded":
        """Create from bounds for all densities or for every output; infinite for no bound."""
        return cls(base, *(np.broadcast_to(np.asarray(b, float), base.shape) for b in (low, high)))

    @property
    def n_members(self) -> int:
        return self.base.n_members

    @property
    def components(self):
        return self.base.components

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def mean(self) -> Float[AnyArray, "*batch"]:
        below, above = self._beyond
        return jnp.clip(jnp.asarray(self.base.mean) + (below - above), self.low, self.high)

    @property
    def variance(self) -> Float[AnyArray, "*batch"]:
        mean, variance, (below, above) = self.mean, jnp.asarray(self.base.variance), self._beyond
        low, high = (jnp.where(jnp.isfinite(b), b, mean) for b in (self.low, self.high))
        beyond = 2 * ((mean - low) * below + (high - mean) * above)
        found = variance + (self.base.mean - mean) ** 2 - beyond - self._squares_beyond
        return jnp.where(jnp.isfinite(variance), jnp.maximum(found, 0.0), jnp.inf)

    @property
    def std(self) -> Float[AnyArray, "*batch"]:
        return jnp.sqrt(self.variance)

    @property
    def aleatoric_variance(self) -> Float[AnyArray, "*batch"]:
        """Noise variance; its share of the variance is that of ``base``."""
        return self.variance - self.epistemic_variance

    @property
    def epistemic_variance(self) -> Float[AnyArray, "*batch"]:
        """Epistemic variance; its share of the variance is that of ``base``."""
        share = self.base.epistemic_variance / self.base.variance
        return jnp.where(share > 0, share, 0.0) * self.variance

    @property
    def mean_difference(self) -> Float[AnyArray, "*batch"]:
        return 2 * self._integrate(lambda cdf, x: cdf * (1 - cdf), self.mean)

    def log_prob(self, y: Batch) -> Float[AnyArray, "*batch"]:
        y = jnp.broadcast_to(jnp.asarray(y), self.shape)
        return jnp.where((y >= self.low) & (y <= self.high), self.base.log_prob(y), -jnp.inf)

    def cdf(self, y: Batch) -> Float[AnyArray, "*batch"]:
        y = jnp.broadcast_to(jnp.asarray(y), self.shape)
        found = jnp.where(y < self.low, 0.0, self.base.cdf(y))
        return jnp.where(y >= self.high, 1.0, found)

    def solve_quantile(self, q: Batch) -> Float[AnyArray, "*batch"]:
        """Quantile of ``base``, clipped to the bounds."""
        return jnp.clip(self.base.solve_quantile(q), self.low, self.high)

    def absolute_error(self, y: Batch) -> Float[AnyArray, "*batch"]:
        y, (below, above) = jnp.broadcast_to(jnp.asarray(y), self.shape), self._beyond
        at = jnp.clip(y, self.low, self.high)
        return jnp.abs(y - at) + self.base.absolute_error(at) - below - above

    def crps(self, y: Batch) -> Float[AnyArray, "*batch"]:
        """Continuous ranked probability score: the integral of (F − step at y)²."""
        y = jnp.broadcast_to(jnp.asarray(y), self.shape)
        at = jnp.clip(y, self.low, self.high)
        inside = self._integrate(lambda cdf, x: jnp.where(x < at, cdf, 1 - cdf) ** 2, at)
        return jnp.abs(y - at) + inside

    def sample(self, key: Any, n: int) -> Float[AnyArray, " n *batch"]:
        return jnp.clip(self.base.sample(key, n), self.low[None], self.high[None])

    def affine(self, shift: ArrayLike, scale: ArrayLike) -> "Bounded":
        bounds = shift + scale * self.low, shift + scale * self.high
        return Bounded(self.base.affine(shift, scale), *bounds)

    def widen(self, factor: ArrayLike) -> "Bounded":
        """Multiply the scale of every component of ``base`` by ``factor``."""
        return Bounded(self.base.widen(factor), self.low, self.high)

    @property
    def _beyond(self) -> tuple[Float[AnyArray, "*batch"], Float[AnyArray, "*batch"]]:
        """E(low − Y)⁺ and E(Y − high)⁺; 0 without the bound."""
        mean, found = jnp.asarray(self.base.mean), []
        for sign, bound in ((-1, self.low), (1, self.high)):
            at = jnp.where(jnp.isfinite(bound), bound, mean)
            beyond = jnp.maximum(self.base.absolute_error(at) + sign * (mean - at), 0.0) / 2
            found.append(jnp.where(jnp.isfinite(bound), beyond, 0.0))
        return found[0], found[1]

    @property
    def _squares_beyond(self) -> Float[AnyArray, "*batch"]:
        """E((low − Y)⁺)² + E((Y − high)⁺)²."""
        has_low, has_high = jnp.isfinite(self.low), jnp.isfinite(self.high)
        low, high = jnp.where(has_low, self.low, 0.0), jnp.where(has_high, self.high, 0.0)
        unit = jnp.asarray(self.base.std)
        unit = jnp.where(jnp.isfinite(unit), unit, 1.0)

        def add(total, node):
            at, weight = node
            below = jnp.where(has_low, self.base.cdf(low - unit * at), 0.0)
            above = jnp.where(has_high, 1 - self.base.cdf(high + unit * at), 0.0)
            return total + 2 * weight * at * unit**2 * (below + above), None

        rule = tuple(jnp.asarray(part, unit.dtype) for part in (NODES, NODE_WEIGHTS))
        return lax.scan(add, jnp.zeros_like(unit), rule)[0]

    def _integrate(self, function: Callable[..., Any], at: Batch) -> Batch:
        """∫ function(F(y), y) dy between the bounds."""
        cuts = jnp.clip(cuts_around(self.components), self.low[None], self.high[None])
        return integrate_cdf(self.base, function, at, cuts)
