"""Spreads: networks that give the noise at x, as a density around a mean."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from sigmax.distributions import AbstractDistribution, Normal, StudentT
from sigmax.inputs import Inputs, InputShape
from sigmax.networks.mlp import TabularMLP

__all__ = ["AbstractSpread", "InverseGammaSpread", "NormalSpread", "inverse_softplus"]

SMALLEST_VARIANCE = 1e-7
"""Floor under every variance, in units of Var(y): about what float32 residuals resolve."""

INITIAL_VARIANCE = 0.3
INITIAL_CONCENTRATION = 4.0


def inverse_softplus(value: float | np.ndarray) -> Any:
    """The x with softplus(x) = ``value``."""
    return np.log(np.expm1(value))


class AbstractSpread(eqx.Module):
    """The noise around a mean."""

    @abstractmethod
    def __call__(self, x: Inputs, mean: Float[Array, "rows outputs"]) -> AbstractDistribution:
        """The density around ``mean`` at every row and output."""


@final
class InverseGammaSpread(AbstractSpread):
    r"""A variance with an inverse-Gamma distribution, hence a Student-t around the mean.

    $\alpha = \alpha_0 + \text{softplus}(\cdot)$ with $\alpha_0 > 1$, so that
    $E[\sigma^2] = \beta/(\alpha-1)$ exists, and $\beta = \alpha\,\text{softplus}(\cdot)$: the
    second network is the squared scale.
    """

    concentration: TabularMLP
    squared_scale: TabularMLP
    min_concentration: float = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        shape: InputShape,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
        min_concentration: float = 1.1,
    ) -> "InverseGammaSpread":
        def network(value: float) -> TabularMLP:
            return TabularMLP.create(
                rng,
                shape,
                hidden_sizes,
                n_outputs,
                activation=activation,
                output_bias=inverse_softplus(value),
            )

        above_least = max(INITIAL_CONCENTRATION - min_concentration, 1.0)
        return cls(network(above_least), network(INITIAL_VARIANCE), min_concentration)

    def __call__(self, x: Inputs, mean: Float[Array, "rows outputs"]) -> StudentT:
        concentration = self.min_concentration + jax.nn.softplus(self.concentration(x))
        squared_scale = jax.nn.softplus(self.squared_scale(x)) + SMALLEST_VARIANCE
        return StudentT.from_inverse_gamma(mean, concentration, concentration * squared_scale)


@final
class NormalSpread(AbstractSpread):
    """One variance per row: the mean-variance network of Nix and Weigend."""

    variance: TabularMLP

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        shape: InputShape,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
    ) -> "NormalSpread":
        return cls(
            TabularMLP.create(
                rng,
                shape,
                hidden_sizes,
                n_outputs,
                activation=activation,
                output_bias=inverse_softplus(INITIAL_VARIANCE),
            )
        )

    def __call__(self, x: Inputs, mean: Float[Array, "rows outputs"]) -> Normal:
        variance = jax.nn.softplus(self.variance(x)) + SMALLEST_VARIANCE
        return Normal(mean, variance**0.5)
