"""Who is heard for a prediction: every training row, or of very many only the nearest.

An accelerator looks at all rows quicker than it could choose among them. On a CPU, many rows are
searched in every member's learned metric: the time for a prediction hardly grows with their number.
"""

import math
from functools import partial
from importlib.util import find_spec
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from sigmax.distributions import StudentT
from sigmax.estimators.nearest_rows import NearestRows
from sigmax.estimators.networks import by_blocks
from sigmax.networks import ROWS_PER_BLOCK, Evidence, LocalNetwork, Memory, Sums, View, listen_to
from sigmax.training import bucket_size, pad_rows

__all__ = ["Hearing"]

ROWS_AT_ONCE = 1024
"""Rows that are predicted in one call: each looks at a block of training rows in every member."""

LARGEST_HEARD = 2**15
"""On a CPU, more training rows than these are searched."""

LARGEST_SHIFT = 0.03
"""By how much of their scale a search may move predictions, and of itself that scale: the root mean
square over training rows, each left out. That is a thousandth of a nat."""

SEARCHES = ((64, 16), (64, 32), (256, 16), (256, 32), (256, 64), (1024, 64), (1024, 256))
"""Rows to hear and cells to look into, the cheapest first."""

N_SAMPLED = 256
"""Training rows at which a search is compared with hearing everybody."""

SMALLEST_HEARD = 1e-3
"""What less than this many training rows say changes no prediction."""

SHARES_AT_ONCE = 2**27
"""Shares of training rows in predictions that are held at once to find the largest: 512 MiB."""

MEMBER = eqx.if_array(0)


@final
class Hearing:
    """The members with what they remember, ready to predict."""

    def __init__(
        self, networks: LocalNetwork, X: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> None:
        self.networks, self.n_rows = networks, len(X)
        n_slots = bucket_size(len(X))
        if n_slots > ROWS_PER_BLOCK:
            n_slots = math.ceil(len(X) / ROWS_PER_BLOCK) * ROWS_PER_BLOCK
        padded = (jnp.asarray(pad_rows(rows, n_slots)) for rows in (X, y, weight))
        self.memories = remember_members(networks, *padded)
        self.nearest = None
        is_large = self.n_rows > LARGEST_HEARD and jax.default_backend() == "cpu"
        if is_large and find_spec("faiss") is not None:
            self.nearest = self._find_search(X)

    def predict(self, X: np.ndarray) -> Evidence:
        """All members' predictions at standardised rows: leaves (members, rows, ...)."""
        if self.nearest is None:
            predict = partial(predict_members, self.networks, self.memories)
        else:
            predict = self._predict_by_nearest
        return by_blocks(predict, X, axis=1, rows_per_call=ROWS_AT_ONCE)

    def loudest(self, X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k training rows that speak loudest for each row, and their shares."""
        loudest = partial(loudest_rows, self.networks, self.memories, self.n_rows, k)
        n_at_once = SHARES_AT_ONCE // self.memories.weight.size
        rows_per_call = max(64, min(ROWS_AT_ONCE, 1 << n_at_once.bit_length() >> 1))
        return by_blocks(loudest, X, axis=0, rows_per_call=rows_per_call)

    def _predict_by_nearest(self, X: Float[Array, "rows features"]) -> Evidence:
        assert self.nearest is not None
        views, gates = see_members(self.networks, X)
        squared, numbers = self.nearest(views.places)
        said = listen_members_to(self.networks, self.memories, squared, numbers)
        return conclude_members(self.networks, views, gates, said)

    def _find_search(self, X: np.ndarray) -> NearestRows | None:
        """The cheapest search that moves predictions little, or None if all of them move much."""
        sample = np.linspace(0, self.n_rows - 1, N_SAMPLED).astype(int)
        views, gates = see_members(self.networks, jnp.asarray(X[sample]))
        own = listen_members_to(
            self.networks,
            self.memories,
            jnp.zeros((len(views.places), N_SAMPLED, 1)),
            jnp.broadcast_to(jnp.asarray(sample)[:, None], (len(views.places), N_SAMPLED, 1)),
        )

        def conclude(said: Sums) -> StudentT:
            """As for new rows, which are not there to speak for themselves."""
            others = jax.vmap(without)(said, own)
            return conclude_members(self.networks, views, gates, others).dist

        everybody = conclude(listen_members(self.networks, self.memories, views.places))
        nearest = NearestRows.build(self.memories.places[:, : self.n_rows])
        for k, n_cells in SEARCHES:
            search = nearest.with_size(k, n_cells)
            found = search(views.places)
            few = conclude(listen_members_to(self.networks, self.memories, *found))
            shift = (few.mean - everybody.mean) / everybody.scale
            stretch = jnp.log(few.scale / everybody.scale)
            if max(jnp.mean(shift**2), jnp.mean(stretch**2)) < LARGEST_SHIFT**2:
                return search
        return None


@eqx.filter_jit
def remember_members(
    networks: LocalNetwork,
    X: Float[Array, "slots features"],
    y: Float[Array, "slots outputs"],
    weight: Float[Array, " slots"],
) -> Memory:
    """The training rows as every member sees them."""

    def remember(network: LocalNetwork) -> Memory:
        return network.remember(X, y, weight)

    return eqx.filter_vmap(remember, in_axes=(MEMBER,))(networks)


@eqx.filter_jit
def predict_members(
    networks: LocalNetwork, memories: Memory, X: Float[Array, "rows features"]
) -> Evidence:
    """Every member's prediction in standardised units, from all that it remembers."""

    def predict(network: LocalNetwork, memory: Memory) -> Evidence:
        return network(X, memory)

    return eqx.filter_vmap(predict, in_axes=(MEMBER, 0))(networks, memories)


@eqx.filter_jit
def see_members(
    networks: LocalNetwork, X: Float[Array, "rows features"]
) -> tuple[View, Float[Array, "members rows"]]:
    """What every member says of some rows by itself, and its gate."""

    def see(network: LocalNetwork) -> tuple[View, Float[Array, " rows"]]:
        return network.see(X), network.openness(X)

    return eqx.filter_vmap(see, in_axes=(MEMBER,))(networks)


@eqx.filter_jit
def listen_members(
    networks: LocalNetwork, memories: Memory, places: Float[Array, "members rows place"]
) -> Sums:
    """What all training rows say."""

    def listen(network: LocalNetwork, memory: Memory, places: Array) -> Sums:
        return network.listen(places, memory)

    return eqx.filter_vmap(listen, in_axes=(MEMBER, 0, 0))(networks, memories, places)


@eqx.filter_jit
def listen_members_to(
    networks: LocalNetwork,
    memories: Memory,
    squared: Float[Array, "members rows k"],
    numbers: Int[Array, "members rows k"],
) -> Sums:
    """What a few training rows say, at their squared distances from every row."""

    def listen(network: LocalNetwork, memory: Memory, squared: Array, numbers: Array) -> Sums:
        weights = network.loudness(squared) * memory.weight[numbers]
        return listen_to(weights, memory.residuals[numbers])

    return eqx.filter_vmap(listen, in_axes=(MEMBER, 0, 0, 0))(networks, memories, squared, numbers)


def without(said: Sums, own: Sums) -> Sums:
    """What the others said."""
    others = jax.tree.map(jnp.subtract, said, own)
    is_heard = others.count > SMALLEST_HEARD  # the rest is rounding
    return jax.tree.map(
        lambda sums: jnp.where(is_heard.reshape(-1, *[1] * (sums.ndim - 1)), sums, 0.0), others
    )


@eqx.filter_jit
def conclude_members(
    networks: LocalNetwork, views: View, gates: Float[Array, "members rows"], said: Sums
) -> Evidence:
    """Every member's prediction in standardised units, from what it heard."""
    return eqx.filter_vmap(LocalNetwork.conclude, in_axes=(MEMBER, 0, 0, 0))(
        networks, views, gates, said
    )


@eqx.filter_jit
def loudest_rows(
    networks: LocalNetwork,
    memories: Memory,
    n_rows: int,
    k: int,
    X: Float[Array, "rows features"],
) -> tuple[Int[Array, "rows {k}"], Float[Array, "rows {k}"]]:
    """The k training rows with the largest share in the updated mean, averaged over the members.

    Slots from ``n_rows`` on are padding.
    """

    def share(network: LocalNetwork, memory: Memory) -> Float[Array, "rows slots"]:
        weights = network.weights(network.see(X).places, memory.places) * memory.weight[None]
        weights = weights * (1 - network.openness(X))[:, None]
        own = jnp.exp(network.voice.log_strength)
        return weights / (own + jnp.sum(weights, axis=1))[:, None]

    shares = jnp.mean(eqx.filter_vmap(share, in_axes=(MEMBER, 0))(networks, memories), axis=0)
    ranked, rows = lax.top_k(shares[:, :n_rows], k)
    return rows, ranked
