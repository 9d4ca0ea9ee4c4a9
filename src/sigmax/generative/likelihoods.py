"""What the outputs of a decoder mean: one density per row and feature.

Everything is in the units of the networks. A std is ``floor + unit * softplus(output)``, where
``unit`` is the feature's own standard deviation in the data, so that training starts from it.
"""

import math
from abc import abstractmethod
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from sigmax.distributions import AbstractDistribution, Normal, StudentT
from sigmax.generative.batch_norm import AbstractFrozen
from sigmax.generative.bernoulli import Bernoulli
from sigmax.networks import NO_CENTER, ExtrapolationGate, blend_factor, inverse_softplus

__all__ = [
    "LIKELIHOODS",
    "AbstractLikelihood",
    "BernoulliLikelihood",
    "FeatureUnits",
    "GatedStudentLikelihood",
    "NormalLikelihood",
    "SharedLikelihood",
    "StudentLikelihood",
]

Outputs = tuple[Float[Array, "rows features"], ...]

LEAST_DF = 3.0
"""Above 2, so that the variance exists: at most three times the squared scale."""

INITIAL_DF = 8.0


@final
class FeatureUnits(AbstractFrozen):
    """What is known of every feature before training."""

    mean: Float[Array, " features"]
    std: Float[Array, " features"]
    """Of the data, at least the floor."""
    floor: Float[Array, " features"]
    """Least standard deviation of a decoder."""

    @classmethod
    def create(cls, X: np.ndarray, floor: np.ndarray) -> "FeatureUnits":
        std = np.maximum(X.std(axis=0, dtype=np.float64), floor)
        parts = X.mean(axis=0, dtype=np.float64), std, floor
        return cls(*(jnp.asarray(part, dtype=jnp.float32) for part in parts))

    def spread(self, output: Float[Array, "rows features"]) -> Float[Array, "rows features"]:
        """A standard deviation, or a scale, of at least the floor."""
        return self.floor[None] + self.std[None] * jax.nn.softplus(output)

    def initial_output(self) -> np.ndarray:
        """The output at which `spread` is the standard deviation of the data, or nearly."""
        share = 1 - np.asarray(self.floor) / np.asarray(self.std)
        return inverse_softplus(np.maximum(share, 0.05))


class AbstractLikelihood(eqx.Module):
    """Densities from the outputs of the decoder's networks, the one of the mean first."""

    @abstractmethod
    def __call__(
        self, outputs: Outputs, z: Float[Array, "rows latent"]
    ) -> AbstractDistribution: ...

    @abstractmethod
    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        """What every network should give at first, by feature."""


@final
class NormalLikelihood(AbstractLikelihood):
    """A Normal with a standard deviation of its own for every row and feature."""

    units: FeatureUnits

    def __call__(self, outputs: Outputs, z: Float[Array, "rows latent"]) -> Normal:
        return Normal(outputs[0], self.units.spread(outputs[1]))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        return np.asarray(self.units.mean), self.units.initial_output()


@final
class SharedLikelihood(AbstractLikelihood):
    """A Normal with one learned standard deviation for everything, above the floor: the σ-VAE."""

    units: FeatureUnits
    log_std: Float[Array, ""]

    @classmethod
    def create(cls, units: FeatureUnits) -> "SharedLikelihood":
        return cls(units, initial_log_std(units))

    def __call__(self, outputs: Outputs, z: Float[Array, "rows latent"]) -> Normal:
        return shared_normal(outputs[0], self.log_std, self.units)

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        return (np.asarray(self.units.mean),)


def initial_log_std(units: FeatureUnits) -> Float[Array, ""]:
    rms = math.sqrt(float(np.mean(np.asarray(units.std, dtype=np.float64) ** 2)))
    return jnp.asarray(math.log(rms), dtype=jnp.float32)


def shared_normal(
    mean: Float[Array, "rows features"], log_std: Float[Array, ""], units: FeatureUnits
) -> Normal:
    """One standard deviation for every row and feature."""
    std = units.floor + jnp.exp(log_std)
    return Normal(mean, jnp.broadcast_to(std[None], mean.shape))


@final
class BernoulliLikelihood(AbstractLikelihood):
    """0 or 1, or grey values taken for probabilities; the output is the log-odds."""

    units: FeatureUnits

    def __call__(self, outputs: Outputs, z: Float[Array, "rows latent"]) -> Bernoulli:
        return Bernoulli(outputs[0])

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        share = np.clip(np.asarray(self.units.mean, dtype=np.float64), 0.01, 0.99)
        return (np.log(share / (1 - share)),)


@final
class StudentLikelihood(AbstractLikelihood):
    """A Student-t whose scale and degrees of freedom vary with row and feature."""

    units: FeatureUnits

    def __call__(self, outputs: Outputs, z: Float[Array, "rows latent"]) -> StudentT:
        df = LEAST_DF + jax.nn.softplus(outputs[2])
        return StudentT(outputs[0], df, self.units.spread(outputs[1]))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        df = np.full(self.units.mean.shape, inverse_softplus(INITIAL_DF - LEAST_DF))
        return np.asarray(self.units.mean), self.units.initial_output(), df


@final
class GatedStudentLikelihood(AbstractLikelihood):
    r"""The Comb-VAE's: an inverse-Gamma variance on the codes, that of the data away from them.

    The Student-t has $2\alpha$ degrees of freedom and squared scale $\beta/\alpha$; the networks
    give the scale and $\alpha$. The gate $\tilde\nu(z)$ leaves its shape and sets its variance to
    $(1-\tilde\nu)\beta/(\alpha-1) + \tilde\nu\eta$ with $\eta$ the variance of the feature in the
    data.
    """

    units: FeatureUnits
    log_std: Float[Array, ""]
    """Of the warm-up, in which all share one standard deviation."""
    gate: ExtrapolationGate

    @classmethod
    def create(
        cls, units: FeatureUnits, n_latent: int, n_inducing: int
    ) -> "GatedStudentLikelihood":
        centers = np.zeros((n_inducing, n_latent))
        gate = ExtrapolationGate.create(centers, n_inducing, scale=1.0, margin=1.0)
        return cls(units, initial_log_std(units), gate)

    @property
    def prior_variance(self) -> Float[Array, " features"]:
        """Variance far from all codes."""
        return self.units.std**2

    def warm_up(self, mean: Float[Array, "rows features"]) -> Normal:
        """The density of the warm-up."""
        return shared_normal(mean, self.log_std, self.units)

    def gate_value(self, z: Float[Array, "rows latent"]) -> Float[Array, " rows"]:
        """The gate: 0 on the codes, 1 far from them."""
        return self.gate(z, jnp.full(len(z), NO_CENTER))

    def __call__(self, outputs: Outputs, z: Float[Array, "rows latent"]) -> StudentT:
        mean, scale, concentration = outputs
        gate = lax.stop_gradient(self.gate_value(z))[:, None]  # codes are not to flee from it
        df = LEAST_DF + 2 * jax.nn.softplus(concentration)
        on_codes = StudentT(mean, df, self.units.spread(scale))
        return on_codes.widen(blend_factor(gate, self.prior_variance[None], on_codes.variance))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        df = np.full(self.units.mean.shape, inverse_softplus((INITIAL_DF - LEAST_DF) / 2))
        return np.asarray(self.units.mean), self.units.initial_output(), df


LIKELIHOODS = {
    "bernoulli": BernoulliLikelihood,
    "normal": NormalLikelihood,
    "shared": SharedLikelihood.create,
    "student": StudentLikelihood,
}
"""Those of a plain VAE, by name; each is made from the units of the features."""
