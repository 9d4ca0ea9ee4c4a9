"""Perceptrons over rows of a table, with an input layer of periodic features and embeddings.

Periodic embeddings (Gorishniy et al. 2022, "On embeddings for numerical features") give every
number a small basis of its own: without them a network learns sharp bends along one feature slowly.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sigmax.inputs import Inputs

SMALLEST_VARIANCE = 1e-7
"""Smallest variance, in units of Var(y): about the square of float32 rounding errors."""

SINE = (6.283163951, -41.337130415, 81.340386139, -70.989933017)
"""Coefficients of sin(2 pi s) / s in powers of s squared, to 1e-6 for |s| ≤ ¼; see `wave`."""


@final
class PeriodicFeatures(eqx.Module):
    """Every feature, and rectified linear combinations of its waves.

    Examples
    --------
    >>> features = PeriodicFeatures.create(np.random.default_rng(0), 3, 16, 8, frequency=0.1)
    >>> features(jnp.ones((7, 3))).shape, features.n_outputs
    ((7, 27), 27)
    """

    frequencies: Float[Array | np.ndarray, "features waves"]
    phases: Float[Array | np.ndarray, "features waves"]
    weights: Float[Array | np.ndarray, "features waves mixtures"]
    biases: Float[Array | np.ndarray, "features mixtures"]

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        n_features: int,
        n_waves: int,
        n_mixtures: int,
        *,
        frequency: float,
    ) -> "PeriodicFeatures":
        """Draw random waves; ``frequency`` is their std, in waves per standard deviation."""
        arrays = (
            rng.normal(0, frequency, (n_features, n_waves)),
            rng.uniform(0, 1, (n_features, n_waves)),
            rng.normal(0, n_waves**-0.5, (n_features, n_waves, n_mixtures)),
            np.zeros((n_features, n_mixtures)),
        )
        return cls(*(np.asarray(array, np.float32) for array in arrays))

    @property
    def n_outputs(self) -> int:
        n_features, n_mixtures = self.biases.shape
        return n_features * (1 + n_mixtures)

    def __call__(self, x: Float[Array, "rows features"]) -> Float[Array, "rows outputs"]:
        waves = wave(x[:, :, None] * self.frequencies[None] + self.phases[None])
        mixed = jnp.einsum("rfw,fwm->rfm", waves, self.weights) + self.biases[None]
        return jnp.concatenate([x, jax.nn.relu(mixed).reshape(len(x), -1)], axis=1)


def wave(turns: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """cos(2 pi turns), to 2e-6, by a polynomial: a library's cosine would dominate a step.

    Examples
    --------
    >>> wave(jnp.array([0.0, 0.25, 0.5, 7.0])).round(3) + 0.0
    Array([ 1.,  0., -1.,  1.], dtype=float32)
    """
    s = 0.25 - jnp.abs(turns - jnp.round(turns))
    square = s * s
    polynomial = jnp.full_like(s, SINE[-1])
    for coefficient in SINE[-2::-1]:
        polynomial = polynomial * square + coefficient
    return s * polynomial


INITIAL_SPREAD = 0.5
"""Standard deviation of untrained embeddings."""


def embedding_size(n_codes: tuple[int, ...]) -> int:
    """Dimension of embeddings: about the binary logarithm of the largest number of categories.

    Examples
    --------
    >>> embedding_size((3, 5)), embedding_size((3, 40)), embedding_size((700,))
    (3, 6, 10)
    """
    return max(2, (max(n_codes) - 1).bit_length())


@final
class EmbeddedCategories(eqx.Module):
    """Learned embeddings of all categories; code 0, unseen and rare categories, starts at 0."""

    vectors: Float[Array | np.ndarray, "codes size"]
    first: tuple[int, ...] = eqx.field(static=True)
    """First row of each column in ``vectors``."""

    @classmethod
    def create(cls, rng: np.random.Generator, n_codes: tuple[int, ...]) -> "EmbeddedCategories":
        first = np.cumsum([0, *n_codes])
        vectors = rng.normal(0, INITIAL_SPREAD, (first[-1], embedding_size(n_codes)))
        vectors[first[:-1]] = 0
        return cls(np.asarray(vectors, np.float32), tuple(first[:-1].tolist()))

    @property
    def n_outputs(self) -> int:
        return len(self.first) * self.vectors.shape[-1]

    def __call__(self, codes: Int[Array, "rows categories"]) -> Float[Array, "rows outputs"]:
        found = self.vectors[codes + jnp.asarray(self.first, dtype=codes.dtype)[None]]
        return found.reshape(len(codes), self.n_outputs)


@final
class InputLayer(eqx.Module):
    """Numbers, with their periodic features if there are waves, and embedded categories."""

    periodic: PeriodicFeatures | None
    categories: EmbeddedCategories | None
    n_outputs: int = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        X: Inputs,
        *,
        n_waves: int = 0,
        n_mixtures: int = 0,
        frequency: float = 0.0,
    ) -> "InputLayer":
        """Create a layer for rows like ``X``; without ``n_waves`` and categories it has none."""
        n_numbers = X.numbers.shape[-1]
        n_extras = 0 if X.extras is None else X.extras.shape[-1]
        periodic, n_outputs = None, n_numbers + n_extras
        if n_waves and n_numbers:
            sizes = (n_numbers, n_waves, n_mixtures)
            periodic = PeriodicFeatures.create(rng, *sizes, frequency=frequency)
            n_outputs = periodic.n_outputs + n_extras
        if not X.n_codes:
            return cls(periodic, None, n_outputs)
        categories = EmbeddedCategories.create(rng, X.n_codes)
        return cls(periodic, categories, n_outputs + categories.n_outputs)

    def __call__(self, x: Inputs) -> Float[Array, "rows outputs"]:
        numbers = jnp.asarray(x.numbers)
        parts = [numbers if self.periodic is None else self.periodic(numbers)]
        if x.extras is not None:
            parts.append(jnp.asarray(x.extras))
        if self.categories is not None:
            parts.append(self.categories(jnp.asarray(x.codes)))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)


ACTIVATIONS: dict[str, Callable] = {"relu": jax.nn.relu, "silu": jax.nn.silu, "tanh": jnp.tanh}


@final
class MLP(eqx.Module):
    """Linear layers with an activation between them, over rows.

    Examples
    --------
    >>> mlp = MLP.create(np.random.default_rng(0), 3, (50,), 2, activation="relu")
    >>> mlp(jnp.ones((7, 3))).shape
    (7, 2)
    """

    weights: tuple[Float[Array | np.ndarray, "_ _"], ...]
    biases: tuple[Float[Array | np.ndarray, " _"], ...]
    activation: str = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        n_inputs: int,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
        output_bias: float = 0.0,
        output_gain: float = 0.1,
    ) -> "MLP":
        """Draw random layers: He-normal weights, and biases that put kinks among the data.

        By default the last layer starts small, near the constant ``output_bias``: standardised
        targets have mean 0, and a scale should start with one value for all rows.
        """
        sizes = [n_inputs, *hidden_sizes, n_outputs]
        weights, biases = [], []
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            is_last = i == len(sizes) - 2
            gain = output_gain if is_last else 2**0.5
            weights.append(rng.normal(0, gain / fan_in**0.5, (fan_in, fan_out)))
            biases.append(np.full(fan_out, output_bias) if is_last else rng.uniform(-1, 1, fan_out))
        as_single = [np.asarray(array, np.float32) for array in (*weights, *biases)]
        return cls(tuple(as_single[: len(weights)]), tuple(as_single[len(weights) :]), activation)

    def __call__(self, x: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
        activate = ACTIVATIONS[self.activation]
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = (activate(x) if i else x) @ weight + bias[None]
        return x


@final
class TabularMLP(eqx.Module):
    """Perceptron with an input layer for rows of a table."""

    inputs: InputLayer
    mlp: MLP

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        X: Inputs,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        activation: str,
        output_bias: float = 0.0,
    ) -> "TabularMLP":
        """Draw random layers, as `MLP.create`."""
        inputs = InputLayer.create(rng, X)
        sizes = (inputs.n_outputs, hidden_sizes, n_outputs)
        return cls(inputs, MLP.create(rng, *sizes, activation=activation, output_bias=output_bias))

    def __call__(self, x: Inputs) -> Float[Array, "rows outputs"]:
        return self.mlp(self.inputs(x))


def inverse_softplus(value: float | np.ndarray) -> Any:
    """Solution x of softplus(x) = ``value``."""
    return np.log(np.expm1(value))
