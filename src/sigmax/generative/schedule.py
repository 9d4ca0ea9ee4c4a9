"""How an autoencoder is trained: a stage of warm-up, then one in which held-out scores count."""

from dataclasses import dataclass, replace
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sigmax.generative.autoencoder import Autoencoder
from sigmax.generative.data import GenerativeData, ModelRows
from sigmax.generative.objective import Vectors, bound_loss, take_apart, variance_loss
from sigmax.generative.refresh import move_gates, refresh_all_moments
from sigmax.sampling import draw_batches
from sigmax.training import AbstractStage, name_keys

__all__ = ["Step", "VAEStage", "create_stages"]

Step = Literal["joint", "mean", "split"]
"""What a step trains: everything at once; encoder and mean under one common std; or encoder and
mean first, then, on a locality batch, the variance."""


@final
@dataclass(frozen=True, kw_only=True)
class VAEStage(AbstractStage):
    """Steps of one kind. Steps and chunks are counted through from the first stage to the last."""

    step: Step
    n_steps: int
    """A multiple of the steps of a chunk."""
    steps_per_chunk: int
    first_chunk: int = 0
    """Chunks of earlier stages."""
    n_warm_up: int = 0
    """Steps, from the first of all, over which the weight of the divergence grows from 0 to 1."""
    batch_size: int
    learning_rate: float
    n_primary: int = 1
    """Neighbourhoods of a locality batch."""
    n_secondary: int = 1
    """Rows taken of each."""

    @property
    def n_chunks(self) -> int:
        return self.n_steps // self.steps_per_chunk

    def one_chunk(self) -> "VAEStage":
        n_steps = self.steps_per_chunk
        return replace(super().one_chunk(), n_steps=n_steps, first_chunk=0, n_warm_up=0)

    def key_name(self, chunk: int) -> str:
        return f"chunk {self.first_chunk + chunk}"

    def clock(self, chunk: int) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Steps before the chunk, and steps until the divergence has its full weight."""
        n_before = (self.first_chunk + chunk) * self.steps_per_chunk
        return jnp.asarray(n_before), jnp.asarray(self.n_warm_up)

    def divergence_weights(
        self, n_before: Int[Array, ""], n_warm_up: Int[Array, ""]
    ) -> Float[Array, " steps"]:
        """The weight of the divergence in every step of a chunk."""
        done = n_before + 1 + jnp.arange(self.steps_per_chunk)
        return jnp.minimum(done / jnp.maximum(n_warm_up, 1), 1.0)

    def n_batch(self, folds: ModelRows) -> int:
        """Rows of an ordinary batch, reduced where the data are smaller."""
        return min(self.batch_size, folds.learned.shape[-1])

    def start(self, network: Autoencoder) -> Any:
        return tuple(map(optax.adam(self.learning_rate).init, take_apart(network)[0]))

    def run_chunk(self, network, states, key, fold: ModelRows, data: GenerativeData, clock):
        optimizer, n_batch = optax.adam(self.learning_rate), self.n_batch(fold)
        vectors, rest, rebuild = take_apart(network)
        share = self.locality_shares(fold, data)

        def update(slope, state, vector):
            updates, state = optimizer.update(slope, state)
            return vector + jnp.asarray(updates), state

        def take_step(carry, draws):
            (body, spread), rest, (body_state, spread_state) = carry
            picks, near, noise, weight = draws
            x = fold.take(data, picks)

            def negative_bound(vectors: Vectors):
                model = rebuild(vectors, rest)
                is_warm_up = self.step == "mean"
                loss, aux = bound_loss(model, x, noise[:n_batch], weight, is_warm_up=is_warm_up)
                newer, *others = aux
                return loss, (take_apart(newer)[1], *others)

            slopes, (rest, codes, parts) = jax.grad(negative_bound, has_aux=True)((body, spread))
            body, body_state = update(slopes[0], body_state, body)
            if self.step == "joint":
                spread, spread_state = update(slopes[1], spread_state, spread)
            if self.step == "split":
                local = data.X[fold.data_set, near], noise[n_batch:], share[near]
                slope = jax.grad(lambda s: variance_loss(rebuild((body, s), rest), *local, codes))
                spread, spread_state = update(slope(spread), spread_state, spread)
            return ((body, spread), rest, (body_state, spread_state)), parts

        draws = self.draw_chunk(key, fold, data, network.encoder.n_latent)
        steps = *draws, self.divergence_weights(*clock)
        carry, (log_likelihood, kl) = lax.scan(take_step, (vectors, rest, states), steps)
        figures = {"log_likelihood": jnp.mean(log_likelihood), "kl": jnp.mean(kl)}
        return rebuild(*carry[:2]), carry[2], figures

    def draw_chunk(
        self, key: PRNGKeyArray, fold: ModelRows, data: GenerativeData, n_latent: int
    ) -> tuple[Array, Array, Array]:
        """All that is random in a chunk: drawn at once, which compiles and runs quicker.

        Rows of the ordinary batches, among those to learn from, rows of the locality batches, and
        the noise of the codes of both.
        """
        n_steps, n_learned, n_batch = self.steps_per_chunk, len(fold.learned), self.n_batch(fold)
        row_key, local_key, noise_key = jax.random.split(key, 3)
        singles = jnp.arange(n_learned)[:, None]
        picks = draw_batches(row_key, n_steps, singles, jnp.asarray(n_learned), n_batch, 1)
        local = jnp.zeros((n_steps, 0), dtype=jnp.int32)
        if self.step == "split":
            neighbors, n_rows = data.graph.neighbors[fold.data_set], jnp.asarray(data.n_rows)
            sizes = self.locality_sizes(data)
            local = draw_batches(local_key, n_steps, neighbors, n_rows, *sizes)
        shape = (n_steps, n_batch + local.shape[1], n_latent)
        return picks, local, jax.random.normal(noise_key, shape)

    def locality_sizes(self, data: GenerativeData) -> tuple[int, int]:
        """Neighbourhoods of a batch and rows of each, reduced where the data are smaller."""
        return min(self.n_primary, data.n_rows), min(self.n_secondary, data.graph.n_neighbors)

    def locality_shares(self, fold: ModelRows, data: GenerativeData) -> Float[Array, " rows"]:
        """What every row counts for in a locality batch, so that its sums are means of all rows.

        Held-out rows are neighbours like any other, and count for nothing.
        """
        n_primary, n_secondary = self.locality_sizes(data)
        counts, n_lists = data.graph.counts[fold.data_set], data.n_rows * data.graph.n_neighbors
        expected = n_primary * n_secondary * counts / n_lists
        share = jnp.zeros(data.n_rows).at[fold.learned].set(1 / len(fold.learned))
        return share / expected

    def judge(
        self, network, fold: ModelRows, data: GenerativeData
    ) -> tuple[Float[Array, ""], None]:
        x = data.X[fold.data_set, fold.held_out]
        log_likelihood, kl = network.elbo(x, jax.random.key(0))  # always these draws: less noise
        return jnp.mean(log_likelihood - kl), None

    def before_chunk(self, networks, keys, folds: ModelRows, data, chunk: int) -> Autoencoder:
        """Where the variance is trained, the gate moves to where the codes are now."""
        if self.step != "split":
            return networks
        if chunk == 0:
            at_switch = name_keys(keys, "switch"), folds, data, self.n_batch(folds)
            networks = refresh_all_moments(networks, *at_switch)
        gate_keys = name_keys(keys, f"gate {self.first_chunk + chunk}")
        return move_gates(networks, gate_keys, folds, data)

    def describe(self, figures: dict[str, np.ndarray]) -> str:
        return f"bound {np.mean(figures['log_likelihood'] - figures['kl']):.2f}"


def create_stages(
    *,
    n_steps: int,
    warm_up: float,
    splits: bool,
    patience: int,
    keep_best: bool,
    longest_chunk: int = 100,
    **settings: Any,
) -> tuple[VAEStage, ...]:
    """A warm-up, unless there is none, and what follows it: held-out scores count from there on.

    Chunks are all of one length, so that the last may run a few steps over, and at least two where
    a warm-up is to differ from what follows it. The stages go on with the same optimisers.

    Parameters
    ----------
    n_steps
        Steps of both together; each trains every network of its kind once.
    warm_up
        Share of the steps over which the weight of the divergence grows from 0 to 1.
    splits
        Whether mean and variance are never trained in the same step.
    """
    least = min(n_steps, 2) if splits and warm_up else 1
    n_chunks = max(least, -(-n_steps // longest_chunk))
    length = -(-n_steps // n_chunks)
    n_warm_up = round(warm_up * n_chunks)
    n_first = min(n_warm_up, n_chunks - 1)
    settings |= {"steps_per_chunk": length, "n_warm_up": n_warm_up * length, "keep_best": keep_best}
    first = VAEStage(
        name="warm-up",
        step="mean" if splits else "joint",
        n_steps=n_first * length,
        patience=0,
        **settings,
    )
    last = VAEStage(
        name="training",
        step="split" if splits else "joint",
        n_steps=(n_chunks - n_first) * length,
        first_chunk=n_first,
        patience=patience,
        **settings,
    )
    return (first, last) if n_first else (last,)
