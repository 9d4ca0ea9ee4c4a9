"""The network of one member: mean, spread and gate, put together to one density per row."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sigmax.distributions import AbstractDistribution
from sigmax.inputs import Inputs
from sigmax.networks.extrapolation import NO_CENTER, ExtrapolationGate, blend_factor
from sigmax.networks.heads import AbstractSpread
from sigmax.networks.mlp import TabularMLP
from sigmax.networks.shrinkage import toward_prior

__all__ = ["VarianceNetwork"]


@final
class VarianceNetwork(eqx.Module):
    r"""A density around ``mean`` whose variance comes from ``spread`` and, far away, the prior.

    Everything is in standardised units, where a prior variance $\eta = 1$ is Var(y). The gate
    $\tilde\nu$ leaves the shape of the density and sets its variance to
    $(1-\tilde\nu)\sigma^2 + \tilde\nu\eta$; for the inverse-Gamma spread that is the rate
    $(1-\tilde\nu)\beta + \tilde\nu\eta(\alpha-1)$. With ``shrink_mean`` the mean, too, tends to
    what is known without x: the mean of y, which is 0. It does so as $1-\tilde\nu^2$, later than
    the variance: a row just beyond the data should become uncertain before its mean moves.

    ``factor`` multiplies every scale on the data, and ``shrinkage`` takes every prediction part of
    the way to the mean of y and the prior variance. Both are found on held-out rows after training;
    only `predict` applies the shrinkage.
    """

    mean: TabularMLP
    spread: AbstractSpread
    gate: ExtrapolationGate | None
    factor: Float[Array, ""]
    shrinkage: Float[Array, ""]
    prior_variance: float = eqx.field(static=True)
    shrink_mean: bool = eqx.field(static=True)

    def predict(self, x: Inputs) -> AbstractDistribution:
        """The density at new rows."""
        return toward_prior(self(x), self.shrinkage, self.prior_variance)

    def __call__(
        self,
        x: Inputs,
        own_center: Int[Array, " rows"] | None = None,
    ) -> AbstractDistribution:
        mean = self.mean(x)
        if self.gate is None:
            return self.spread(x, mean).widen(jnp.broadcast_to(self.factor, mean.shape))
        gate = self.gate_value(x, own_center)[:, None]
        on_data = self.spread(x, (1 - gate**2) * mean if self.shrink_mean else mean)
        on_data = on_data.widen(jnp.broadcast_to(self.factor, mean.shape))
        return on_data.widen(blend_factor(gate, self.prior_variance, on_data.variance))

    def gate_value(
        self, x: Inputs, own_center: Int[Array, " rows"] | None = None
    ) -> Float[Array, " rows"]:
        """The gate at every row: 0 on the data, 1 far from them, 0 without a gate."""
        if self.gate is None:
            return jnp.zeros(len(x))
        return self.gate(
            jnp.asarray(x.actual_coordinates),
            jnp.full(len(x), NO_CENTER) if own_center is None else own_center,
        )
