"""The perceptron with batch norm that every network of an autoencoder is.

While it learns, a layer is normalised by the rows of the batch; otherwise by running moments. The
moments are a value like any other: `learn` returns the network with newer ones.
"""

import itertools
from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["AbstractFrozen", "Moments", "NormalizedMLP"]

MOMENTUM = 0.99
"""Share of the old running moments that a step keeps."""

SMALLEST_VARIANCE = 1e-5


class AbstractFrozen(eqx.Module):
    """Arrays that belong to a model and that no optimiser touches."""


@final
class Moments(AbstractFrozen):
    """Mean and variance of every unit of one layer, before its activation."""

    mean: Float[Array, " units"]
    variance: Float[Array, " units"]

    @classmethod
    def of(cls, x: Float[Array, "rows units"]) -> "Moments":
        return cls(jnp.mean(x, axis=0), jnp.var(x, axis=0))

    def blend(self, newer: "Moments", keep: float | Float[Array, ""]) -> "Moments":
        """``keep`` of these and the rest of the newer ones; no gradient flows through them."""
        return jax.tree.map(
            lambda old, new: keep * old + (1 - keep) * lax.stop_gradient(new), self, newer
        )

    def normalize(self, x: Float[Array, "rows units"]) -> Float[Array, "rows units"]:
        return (x - self.mean[None]) * lax.rsqrt(self.variance + SMALLEST_VARIANCE)[None]


@final
class NormalizedMLP(eqx.Module):
    """Linear layers, each but the last followed by batch norm and a ReLU.

    Examples
    --------
    >>> network = NormalizedMLP.create(np.random.default_rng(0), 3, (50,), 2)
    >>> outputs, newer = network.learn(jnp.eye(3))
    >>> outputs.shape, network(jnp.eye(3)).shape
    ((3, 2), (3, 2))
    """

    weights: tuple[Float[Array, "_ _"], ...]
    gains: tuple[Float[Array, " _"], ...]
    shifts: tuple[Float[Array, " _"], ...]
    bias: Float[Array, " outputs"]
    moments: tuple[Moments, ...]

    @classmethod
    def create(
        cls,
        rng: np.random.Generator,
        n_inputs: int,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        output_bias: float | np.ndarray = 0.0,
        output_gain: float = 1.0,
    ) -> "NormalizedMLP":
        """Random layers, drawn on the host; shifts are spread so that kinks lie among the rows."""
        sizes = [n_inputs, *hidden_sizes, n_outputs]

        def single(values: Any) -> Array:
            return jnp.asarray(values, dtype=jnp.float32)

        weights = [
            rng.normal(0, 1 / fan_in**0.5, (fan_in, fan_out))
            for fan_in, fan_out in itertools.pairwise(sizes)
        ]
        weights[-1] *= output_gain
        return cls(
            tuple(map(single, weights)),
            tuple(single(np.ones(size)) for size in hidden_sizes),
            tuple(single(rng.uniform(-1, 1, size)) for size in hidden_sizes),
            single(np.broadcast_to(output_bias, (n_outputs,))),
            tuple(Moments(single(np.zeros(s)), single(np.ones(s))) for s in hidden_sizes),
        )

    def __call__(self, x: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
        """Outputs by the running moments: every row on its own."""
        for weight, gain, shift, moments in self._hidden():
            x = jax.nn.relu(moments.normalize(x @ weight) * gain[None] + shift[None])
        return x @ self.weights[-1] + self.bias[None]

    def learn(
        self,
        x: Float[Array, "rows inputs"],
        *,
        n_reference: int | None = None,
        keep: float | Float[Array, ""] = MOMENTUM,
    ) -> tuple[Float[Array, "rows outputs"], "NormalizedMLP"]:
        """Outputs by the moments of the batch, and the network with newer running moments.

        With ``n_reference``, only that many first rows are the batch whose moments count: the
        others may then come from anywhere, a few neighbourhoods say, and are normalised alike.
        """
        newer = []
        for weight, gain, shift, moments in self._hidden():
            x = x @ weight
            batch = Moments.of(x[:n_reference])
            newer.append(moments.blend(batch, keep))
            x = jax.nn.relu(batch.normalize(x) * gain[None] + shift[None])
        outputs = x @ self.weights[-1] + self.bias[None]
        return outputs, eqx.tree_at(lambda n: n.moments, self, tuple(newer))

    def _hidden(self):
        return zip(self.weights[:-1], self.gains, self.shifts, self.moments, strict=True)
