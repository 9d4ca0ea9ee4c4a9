"""An autoencoder: its networks, its likelihoods, and the model that a fit returns.

Every network is a perceptron with batch norm. In training a layer is normalised by the moments of
the batch, otherwise by running moments, which are part of the network: `learn` returns the network
with newer ones. Encoder and decoder are such networks with a likelihood of their outputs.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.random import Generator

from sigmax.compilation import bucket_size, by_blocks, compiled, on_device, pad_rows
from sigmax.distributions import AbstractDistribution, Normal, StudentT, blend_factor
from sigmax.extrapolation import NO_CENTER, ExtrapolationGate
from sigmax.features import Standardizer
from sigmax.networks import inverse_softplus

Rows = Float[Array, "rows features"]
Codes = Float[Array, "rows latent"]
Inputs = Float[Array, "rows inputs"]
Centers = Float[Array, "centers latent"]
Outputs = tuple[Rows, ...]
Keep = float | Float[Array, ""]

MOMENTUM = 0.99  # weight of the old running moments in a step
SMALLEST_VARIANCE = 1e-5  # variance of a unit in batch norm
SMALLEST_CODE_STD, INITIAL_CODE_STD = 1e-4, 0.3
LEAST_DF, INITIAL_DF = 3.0, 8.0  # above 2: the variance is at most three times the squared scale
LLOYD_STEPS = 3  # steps of k-means each time that a gate is refitted
LARGEST_CALL = 2**26  # numbers in memory while bounds are computed: 256 MiB
LEAST_ROWS, MOST_ROWS = 32, 4096  # rows of a block


@final
class Moments(eqx.Module):
    """Mean and variance of every unit of one layer, before its activation."""

    mean: Float[Array, " units"]
    variance: Float[Array, " units"]

    def normalize(self, x: Array) -> Array:
        return (x - self.mean[None]) * lax.rsqrt(self.variance + SMALLEST_VARIANCE)[None]


@final
class NormalizedMLP(eqx.Module):
    """Linear layers, each but the last followed by batch norm and a ReLU."""

    weights: tuple[Float[Array, "_ _"], ...]
    gains: tuple[Float[Array, " _"], ...]
    shifts: tuple[Float[Array, " _"], ...]
    bias: Float[Array, " outputs"]
    moments: tuple[Moments, ...]

    @classmethod
    def create(
        cls, rng: Generator, n_inputs: int, hidden: Sequence[int], bias: np.ndarray, gain: float
    ) -> "NormalizedMLP":
        """Random layers; shifts are uniform on (-1, 1), so that kinks lie among the rows.

        The outputs start near ``bias``; ``gain`` multiplies the weights of the last layer.
        """
        sizes, single = [n_inputs, *hidden, len(bias)], partial(on_device, dtype=np.float32)
        weights = [
            rng.normal(0, 1 / fan_in**0.5, (fan_in, fan_out))
            for fan_in, fan_out in itertools.pairwise(sizes)
        ]
        weights[-1] *= gain
        return cls(
            tuple(map(single, weights)),
            tuple(single(np.ones(size)) for size in hidden),
            tuple(single(rng.uniform(-1, 1, size)) for size in hidden),
            single(bias),
            tuple(Moments(single(np.zeros(s)), single(np.ones(s))) for s in hidden),
        )

    def __call__(self, x: Inputs) -> Float[Array, "rows outputs"]:
        """Outputs by the running moments: every row on its own."""
        for weight, gain, shift, moments in self._hidden():
            x = jax.nn.relu(moments.normalize(x @ weight) * gain[None] + shift[None])
        return x @ self.weights[-1] + self.bias[None]

    def learn(
        self, x: Inputs, *, n_reference: int | None = None, keep: Keep = MOMENTUM
    ) -> tuple[Float[Array, "rows outputs"], "NormalizedMLP"]:
        """Outputs by the moments of the batch, and the network with newer running moments.

        With ``n_reference``, the moments are those of the first ``n_reference`` rows alone, and the
        other rows may come from a few neighbourhoods. No gradient flows through running moments.
        """

        def blend(old: Array, new: Array) -> Array:
            return keep * old + (1 - keep) * lax.stop_gradient(new)

        newer = []
        for weight, gain, shift, moments in self._hidden():
            x = x @ weight
            reference = x[:n_reference]
            batch = Moments(jnp.mean(reference, axis=0), jnp.var(reference, axis=0))
            newer.append(jax.tree.map(blend, moments, batch))
            x = jax.nn.relu(batch.normalize(x) * gain[None] + shift[None])
        outputs = x @ self.weights[-1] + self.bias[None]
        return outputs, eqx.tree_at(lambda n: n.moments, self, tuple(newer))

    def _hidden(self):
        return zip(self.weights[:-1], self.gains, self.shifts, self.moments, strict=True)


@final
class FeatureUnits(eqx.Module):
    """Mean and standard deviation of every feature in the data, and the floor of a decoder's."""

    mean: Float[Array, " features"]
    std: Float[Array, " features"]  # at least the floor
    floor: Float[Array, " features"]

    @classmethod
    def create(cls, X: np.ndarray, floor: np.ndarray) -> "FeatureUnits":
        std = np.maximum(X.std(axis=0, dtype=np.float64), floor)
        parts = X.mean(axis=0, dtype=np.float64), std, floor
        return cls(*(jnp.asarray(part, dtype=jnp.float32) for part in parts))

    def spread(self, output: Rows) -> Rows:
        """Standard deviation, or scale, of at least the floor."""
        return self.floor[None] + self.std[None] * jax.nn.softplus(output)

    def initial_output(self) -> np.ndarray:
        """Output at which `spread` is the standard deviation of the data, or nearly."""
        share = 1 - np.asarray(self.floor) / np.asarray(self.std)
        return inverse_softplus(np.maximum(share, 0.05))


class AbstractLikelihood(eqx.Module):
    """Densities from the outputs of networks, that of the mean first, at the inputs ``z``."""

    mean_gain: ClassVar[float] = 0.1
    """Factor on the initial weights of the last layer of the mean's network."""

    @abstractmethod
    def __call__(self, outputs: Outputs, z: Inputs) -> AbstractDistribution: ...

    @abstractmethod
    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        """Initial output of every network, by feature."""


@final
class CodeLikelihood(AbstractLikelihood):
    """Normal q(z | x) of the encoder, with a standard deviation for every row and dimension."""

    mean_gain = 1.0
    n_latent: int = eqx.field(static=True)

    def __call__(self, outputs: Outputs, z: Inputs) -> Normal:
        return Normal(outputs[0], SMALLEST_CODE_STD + jax.nn.softplus(outputs[1]))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        return np.zeros(self.n_latent), np.full(self.n_latent, inverse_softplus(INITIAL_CODE_STD))


@final
class NormalLikelihood(AbstractLikelihood):
    """Normal with a standard deviation for every row and feature."""

    units: FeatureUnits

    def __call__(self, outputs: Outputs, z: Inputs) -> Normal:
        return Normal(outputs[0], self.units.spread(outputs[1]))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        return np.asarray(self.units.mean), self.units.initial_output()


@final
class SharedLikelihood(AbstractLikelihood):
    """Normal with one learned standard deviation for all rows and features: the σ-VAE."""

    units: FeatureUnits
    log_std: Float[Array, ""]

    @classmethod
    def create(cls, units: FeatureUnits) -> "SharedLikelihood":
        """Start from the root mean square of the standard deviations of the features."""
        mean_square = np.mean(np.asarray(units.std, dtype=np.float64) ** 2)
        return cls(units, on_device(np.log(mean_square) / 2, np.float32))

    def __call__(self, outputs: Outputs, z: Inputs) -> Normal:
        std = self.units.floor + jnp.exp(self.log_std)
        return Normal(outputs[0], jnp.broadcast_to(std[None], outputs[0].shape))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        return (np.asarray(self.units.mean),)


@final
class StudentLikelihood(AbstractLikelihood):
    """Student-t with a scale and degrees of freedom for every row and feature."""

    units: FeatureUnits

    def __call__(self, outputs: Outputs, z: Inputs) -> StudentT:
        df = LEAST_DF + jax.nn.softplus(outputs[2])
        return StudentT(outputs[0], df, self.units.spread(outputs[1]))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        df = np.full(self.units.mean.shape, inverse_softplus(INITIAL_DF - LEAST_DF))
        return np.asarray(self.units.mean), self.units.initial_output(), df


@final
class GatedStudentLikelihood(AbstractLikelihood):
    r"""Likelihood of the Comb-VAE: inverse-Gamma variance on the codes, that of the data far away.

    The Student-t has $2\alpha$ degrees of freedom and squared scale $\beta/\alpha$; the networks
    give the scale and $\alpha$. The gate $\tilde\nu(z)$ leaves its shape and sets its variance to
    $(1-\tilde\nu)\beta/(\alpha-1) + \tilde\nu\eta$ with $\eta$ the variance of the feature in the
    data.
    """

    warm_up: SharedLikelihood  # likelihood of the warm-up
    gate: ExtrapolationGate

    @classmethod
    def create(
        cls, units: FeatureUnits, n_latent: int, n_inducing: int
    ) -> "GatedStudentLikelihood":
        centers = np.zeros((n_inducing, n_latent))
        gate = ExtrapolationGate.create(centers, n_inducing, scale=1.0, margin=1.0)
        return cls(SharedLikelihood.create(units), gate)

    def gate_value(self, z: Codes) -> Float[Array, " rows"]:
        """Gate: 0 on the codes, 1 far from them."""
        return self.gate(z, jnp.full(len(z), NO_CENTER))

    def __call__(self, outputs: Outputs, z: Inputs) -> StudentT:
        units, (mean, scale, concentration) = self.warm_up.units, outputs
        gate = lax.stop_gradient(self.gate_value(z))[:, None]  # or codes would move to close it
        df = LEAST_DF + 2 * jax.nn.softplus(concentration)
        on_codes = StudentT(mean, df, units.spread(scale))
        return on_codes.widen(blend_factor(gate, units.std[None] ** 2, on_codes.variance))

    def initial_outputs(self) -> tuple[np.ndarray, ...]:
        units = self.warm_up.units
        df = np.full(units.mean.shape, inverse_softplus((INITIAL_DF - LEAST_DF) / 2))
        return np.asarray(units.mean), units.initial_output(), df


def refit_gate(
    gate: ExtrapolationGate, codes: Codes, new_codes: Codes, key: PRNGKeyArray
) -> ExtrapolationGate:
    """Gate with inducing points moved to ``codes`` by k-means, and shut on 99 % of ``new_codes``.

    Both are draws from q(z | x): the gate is shut wherever the posterior has its mass.
    """
    shape = (LLOYD_STEPS, len(gate.inducing_points))
    spare = codes[jax.random.randint(key, shape, 0, len(codes))]
    centers, _ = lax.scan(
        lambda centers, spare: (lloyd_step(centers, codes, spare), None),
        gate.inducing_points,
        spare,
    )
    moved = eqx.tree_at(lambda g: g.inducing_points, gate, centers)
    return moved.shut_on(moved.distance(new_codes, jnp.full(len(new_codes), NO_CENTER)))


def lloyd_step(centers: Centers, codes: Codes, spare: Centers) -> Centers:
    """One step of Lloyd's algorithm; a centre that is nearest to no code moves to its spare."""
    squared = jnp.sum(centers**2, axis=1)[None] - 2 * codes @ centers.T
    belongs = jax.nn.one_hot(jnp.argmin(squared, axis=1), len(centers), dtype=codes.dtype)
    counts = jnp.sum(belongs, axis=0)[:, None]
    means = belongs.T @ codes / jnp.maximum(counts, 1)
    return jnp.where(counts > 0, means, spare)


LIKELIHOODS = {
    "normal": NormalLikelihood,
    "shared": SharedLikelihood.create,
    "student": StudentLikelihood,
}
"""Likelihoods of `VAE` by name, each created from the units of the features."""


@final
class DensityNetwork(eqx.Module):
    """Densities of rows: networks, that of the mean first, and the likelihood of their outputs."""

    networks: tuple[NormalizedMLP, ...]
    likelihood: AbstractLikelihood

    @classmethod
    def create(
        cls, rng: Generator, n_inputs: int, hidden: Sequence[int], likelihood: AbstractLikelihood
    ) -> "DensityNetwork":
        """Random networks whose outputs are near the initial ones."""
        initial = likelihood.initial_outputs()
        gains = likelihood.mean_gain, *[0.1] * (len(initial) - 1)
        create = partial(NormalizedMLP.create, rng, n_inputs, hidden)
        return cls(tuple(map(create, initial, gains)), likelihood)

    def __call__(self, x: Inputs) -> AbstractDistribution:
        return self.likelihood(tuple(network(x) for network in self.networks), x)

    def learn(
        self, x: Inputs, keep: Keep = MOMENTUM
    ) -> tuple[AbstractDistribution, "DensityNetwork"]:
        """Densities by the moments of the batch, and the networks with newer running moments."""
        outputs, networks = zip(*(n.learn(x, keep=keep) for n in self.networks), strict=True)
        return self.likelihood(outputs, x), DensityNetwork(networks, self.likelihood)


@final
class Autoencoder(eqx.Module):
    """Encoder q(z | x) and decoder p(x | z) of one model."""

    encoder: DensityNetwork
    decoder: DensityNetwork

    @property
    def n_latent(self) -> int:
        return len(self.encoder.networks[0].bias)


def sample_code(code: AbstractDistribution, noise: Codes) -> Codes:
    """Draw every code from standard Normal ``noise``, differentiable in mean and std."""
    return jnp.asarray(code.mean + code.std * noise)


def divergence(code: AbstractDistribution) -> Float[Array, " rows"]:
    """KL(q(z | x) || N(0, I)) of every row."""
    mean, std = jnp.asarray(code.mean), jnp.asarray(code.std)
    return jnp.sum(0.5 * (mean**2 + std**2 - 1) - jnp.log(std), axis=1)


@final
@dataclass(frozen=True, eq=False)
class VAEModel:
    """Fitted state of an autoencoder."""

    autoencoder: Autoencoder
    scaling: Standardizer | None
    history: dict[str, np.ndarray]  # means over every chunk of training, by name

    def encode(self, X: np.ndarray) -> AbstractDistribution:
        return by_blocks(
            partial(predict, self.autoencoder.encoder), standardized(X, self.scaling), axis=0
        )

    def decode(self, z: np.ndarray) -> AbstractDistribution:
        dist = by_blocks(partial(predict, self.autoencoder.decoder), z, axis=0)
        if self.scaling is None:
            return dist
        return dist.affine(self.scaling.mean[None], self.scaling.scale[None])

    def gate(self, z: np.ndarray) -> np.ndarray:
        """Gate of every code: 0 on the codes of the data, 1 far from them."""
        likelihood = self.autoencoder.decoder.likelihood
        assert isinstance(likelihood, GatedStudentLikelihood)
        return np.asarray(likelihood.gate_value(jnp.asarray(z)), dtype=np.float64)

    def bounds(
        self, X: np.ndarray, key: PRNGKeyArray, n_samples: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Evidence lower bound and importance-weighted bound of every row, in blocks of rows."""
        rows = standardized(X, self.scaling)
        hidden = sum(len(shift) for shift in self.autoencoder.decoder.networks[0].shifts)
        n_draws = max(LARGEST_CALL // (12 * X.shape[1] + 4 * hidden), LEAST_ROWS)
        wanted = min(max(n_draws // n_samples, LEAST_ROWS), MOST_ROWS)
        n_rows = min(1 << (wanted.bit_length() - 1), bucket_size(len(X), smallest=LEAST_ROWS))
        n_rounds = -(-n_samples // max(n_draws // n_rows, 1))
        sizes = {"n_samples": n_samples, "n_at_once": -(-n_samples // n_rounds)}
        blocks = []
        for number, start in enumerate(range(0, len(X), n_rows)):
            block = jnp.asarray(pad_rows(rows[start : start + n_rows], n_rows))
            block_key = jax.random.fold_in(key, number)
            blocks.append(bound_block(self.autoencoder, block, block_key, **sizes))
        elbo, log_prob = (np.concatenate(part)[: len(X)] for part in zip(*blocks, strict=True))
        log_unit = log_determinant(self.scaling)
        return elbo.astype(np.float64) - log_unit, log_prob.astype(np.float64) - log_unit

    def check(self) -> None:
        n_features = len(self.autoencoder.encoder.networks[0].weights[0])
        x = jax.ShapeDtypeStruct((1, n_features), np.float32)
        try:
            code = eqx.filter_eval_shape(predict, self.autoencoder.encoder, x).mean
            found = eqx.filter_eval_shape(predict, self.autoencoder.decoder, code).shape
        except (TypeError, ValueError, AssertionError) as error:
            raise ValueError(f"arrays of the networks do not fit each other: {error}") from error
        n_scaled = n_features if self.scaling is None else len(self.scaling.mean)
        if found != (1, n_features) or n_scaled != n_features:
            raise ValueError(f"densities have the shape {found}, scales are {n_scaled}")


def standardized(X: np.ndarray, scaling: Standardizer | None) -> np.ndarray:
    """Rows in the units of the networks, in single precision."""
    return X.astype(np.float32) if scaling is None else scaling(X)


def log_determinant(scaling: Standardizer | None) -> float:
    return 0.0 if scaling is None else float(np.log(scaling.scale).sum())


@compiled
def predict(network: DensityNetwork, x: Inputs) -> AbstractDistribution:
    return network(x)


@compiled
def bound_block(
    model: Autoencoder, x: Rows, key: PRNGKeyArray, *, n_samples: int, n_at_once: int
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    r"""Evidence lower bound and importance-weighted bound from the same draws.

    $\frac1S\sum_s \log p(x|z_s) - \text{KL}(q\|p)$ and
    $\log\frac1S\sum_s p(x|z_s)\,p(z_s)/q(z_s|x)$ with $z_s \sim q(z|x)$, ``n_at_once`` draws at a
    time.
    """
    code, n_rows = model.encoder(x), len(x)
    mean, std = jnp.asarray(code.mean), jnp.asarray(code.std)

    def add(totals, draws):
        total, log_total = totals
        number, draw_key = draws
        noise = jax.random.normal(draw_key, (n_at_once, *mean.shape))
        z = mean[None] + std[None] * noise
        density = model.decoder(z.reshape(-1, z.shape[-1]))
        repeated = jnp.broadcast_to(x[None], (n_at_once, *x.shape)).reshape(-1, x.shape[-1])
        log_likelihood = jnp.sum(density.log_prob(repeated), axis=1).reshape(n_at_once, n_rows)
        # log p(z) - log q(z | x): the constants cancel
        log_ratio = jnp.sum(0.5 * (noise**2 - z**2) + jnp.log(std)[None], axis=2)
        counts = (number * n_at_once + jnp.arange(n_at_once) < n_samples)[:, None]
        total = total + jnp.sum(jnp.where(counts, log_likelihood, 0.0), axis=0)
        log_weight = jnp.where(counts, log_likelihood + log_ratio, -jnp.inf)
        return (total, jnp.logaddexp(log_total, logsumexp(log_weight, axis=0))), None

    n_rounds = -(-n_samples // n_at_once)
    start = jnp.zeros(n_rows), jnp.full(n_rows, -jnp.inf)
    draws = jnp.arange(n_rounds), jax.random.split(key, n_rounds)
    (total, log_total), _ = lax.scan(add, start, draws)
    return total / n_samples - divergence(code), log_total - math.log(n_samples)
