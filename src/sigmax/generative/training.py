"""Training: the steps of one autoencoder as one pure function, vmapped over seeds, compiled once.

A chunk of steps is one compiled call; the host loops over chunks to move the gate, show progress,
keep the best snapshot and stop early.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from sigmax.generative.autoencoder import Autoencoder, place_code
from sigmax.generative.latent_gate import follow_codes
from sigmax.generative.likelihoods import GatedStudentLikelihood
from sigmax.generative.objective import Vectors, bound_loss, take_apart, variance_loss
from sigmax.generative.schedule import Phase, Plan
from sigmax.random import named_key
from sigmax.sampling import draw_batches

__all__ = ["Rows", "Seed", "train"]

CODES_FOR_THE_GATE = 4096
BATCHES_FOR_THE_MOMENTS = 20
LAST_MOVES = 3
"""Moves of the gate after the last step."""


class Rows(eqx.Module):
    """The data of every set, and their neighbour lists (of one row each where none are needed)."""

    X: Float[Array, "sets rows features"]
    neighbors: Int[Array, "sets rows k"]
    counts: Float[Array, "sets rows"]
    """In how many lists each row stands."""


class Seed(eqx.Module):
    """One model in training: its set, its rows, where it is, and the best it has been."""

    group: Int[Array | np.ndarray, "*seeds"]
    learned: Int[Array | np.ndarray, "*seeds learned"]
    """Rows to learn from."""
    held_out: Int[Array | np.ndarray, "*seeds held_out"]
    model: Autoencoder
    states: Any
    """Of the optimiser of either vector; those of Adam begin as zeros."""
    best: Autoencoder
    best_score: Float[Array | np.ndarray, "*seeds"]

    @classmethod
    def create(
        cls, group: int, learned: np.ndarray, held_out: np.ndarray, model: Autoencoder
    ) -> "Seed":
        """A model before its first step."""
        shapes = jax.eval_shape(lambda m: tuple(map(optax.adam(1.0).init, take_apart(m)[0])), model)
        states = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        return cls(
            np.asarray(group, dtype=np.int32),
            np.asarray(learned, dtype=np.int32),
            np.asarray(held_out, dtype=np.int32),
            model,
            states,
            model,
            np.asarray(-np.inf, dtype=np.float32),
        )

    def rows(self, rows: Rows, picks: Int[Array, " picks"]) -> Float[Array, "picks features"]:
        """Some of the rows to learn from."""
        return rows.X[self.group, self.learned[picks]]


class Clock(eqx.Module):
    """Where in its training a chunk begins."""

    step: Int[Array, ""]
    n_warm_up: Int[Array, ""]
    """Steps until the divergence has its full weight."""
    is_judged: Bool[Array, ""]
    """Whether a better held-out score counts."""


class Draws(eqx.Module):
    """All that is random in a chunk of steps, along a first axis of steps; or in one of them."""

    picks: Int[Array, "*steps batch"]
    """Rows of the ordinary batch, among those to learn from."""
    local: Int[Array, "*steps local"]
    """Rows of the locality batch."""
    noise: Float[Array, "*steps both latent"]
    """Of the codes of both."""
    weight: Float[Array, "*steps"]
    """Of the divergence."""


def draw_chunk(
    seed: Seed, key: PRNGKeyArray, rows: Rows, clock: Clock, plan: Plan, phase: Phase
) -> Draws:
    """Batches, noise and weights of a chunk: drawn at once, which compiles and runs quicker."""
    n_steps, n_learned, n_rows = plan.steps_per_chunk, len(seed.learned), rows.X.shape[1]
    singles = jnp.arange(n_learned)[:, None]
    n_batch = min(plan.batch_size, n_learned)
    row_key, local_key, noise_key = jax.random.split(key, 3)
    picks = draw_batches(row_key, n_steps, singles, jnp.asarray(n_learned), n_batch, 1)
    local = jnp.zeros((n_steps, 0), dtype=jnp.int32)
    if phase == "split":
        sizes = locality_sizes(rows, plan)
        neighbors = rows.neighbors[seed.group]
        local = draw_batches(local_key, n_steps, neighbors, jnp.asarray(n_rows), *sizes)
    n_latent = len(seed.model.encoder.mean.bias)
    noise = jax.random.normal(noise_key, (n_steps, n_batch + local.shape[1], n_latent))
    done = clock.step + 1 + jnp.arange(n_steps)
    weight = jnp.minimum(done / jnp.maximum(clock.n_warm_up, 1), 1.0)
    return Draws(picks, local, noise, weight)


def locality_sizes(rows: Rows, plan: Plan) -> tuple[int, int]:
    """Neighbourhoods of a batch and rows of each, reduced where the data are smaller."""
    _, n_rows, k = rows.neighbors.shape
    return min(plan.n_primary, n_rows), min(plan.n_secondary, k)


def locality_shares(seed: Seed, rows: Rows, plan: Plan) -> Float[Array, " rows"]:
    """What every row counts for in a locality batch, so that its sums are means of all rows.

    Held-out rows are neighbours like any other, and count for nothing.
    """
    n_primary, n_secondary = locality_sizes(rows, plan)
    _, n_rows, k = rows.neighbors.shape
    expected = n_primary * n_secondary * rows.counts[seed.group] / (n_rows * k)
    share = jnp.zeros(n_rows).at[seed.learned].set(1 / len(seed.learned))
    return share / expected


def train_seed(
    seed: Seed,
    key: PRNGKeyArray,
    rows: Rows,
    clock: Clock,
    plan: Plan,
    phase: Phase,
) -> tuple[Seed, dict[str, Float[Array, ""]]]:
    """One chunk of steps of one model, then its held-out score: no axis of seeds in sight."""
    optimizer = optax.adam(plan.learning_rate)
    vectors, rest, rebuild = take_apart(seed.model)
    share = locality_shares(seed, rows, plan)

    def update(slope, state, vector):
        updates, state = optimizer.update(slope, state)
        return vector + jnp.asarray(updates), state

    def step(carry, draws: Draws):
        (body, spread), rest, (body_state, spread_state) = carry
        x, n_batch = seed.rows(rows, draws.picks), len(draws.picks)

        def negative_bound(vectors: Vectors):
            model = rebuild(vectors, rest)
            loss, aux = bound_loss(model, x, draws.noise[:n_batch], draws.weight, phase)
            newer, *others = aux
            return loss, (take_apart(newer)[1], *others)

        slopes, (rest, codes, parts) = jax.grad(negative_bound, has_aux=True)((body, spread))
        body, body_state = update(slopes[0], body_state, body)
        if phase == "joint":
            spread, spread_state = update(slopes[1], spread_state, spread)
        if phase == "split":
            local = rows.X[seed.group, draws.local], draws.noise[n_batch:], share[draws.local]
            slope = jax.grad(lambda s: variance_loss(rebuild((body, s), rest), *local, codes))
            spread, spread_state = update(slope(spread), spread_state, spread)
        return ((body, spread), rest, (body_state, spread_state)), parts

    draws = draw_chunk(seed, key, rows, clock, plan, phase)
    carry, (log_likelihood, kl) = lax.scan(step, (vectors, rest, seed.states), draws)
    model = rebuild(*carry[:2])
    scores = {"log_likelihood": jnp.mean(log_likelihood), "kl": jnp.mean(kl)}
    best, best_score = model, seed.best_score
    if seed.held_out.shape[0]:
        x = rows.X[seed.group, seed.held_out]
        parts = model.elbo(x, jax.random.key(0))  # the same draws every time: less noise
        score = jnp.mean(parts[0] - parts[1])
        is_better = clock.is_judged & (score > best_score)  # also False for nan
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), model, seed.best)
        best_score = jnp.where(is_better, score, best_score)
        scores["held_out"] = score
    seed = Seed(seed.group, seed.learned, seed.held_out, model, carry[2], best, best_score)
    return seed, scores


def move_gate(seed: Seed, model: Autoencoder, key: PRNGKeyArray, rows: Rows) -> Autoencoder:
    """``model`` with its gate moved to where the codes are now."""
    likelihood = model.decoder.likelihood
    assert isinstance(likelihood, GatedStudentLikelihood)
    row_key, noise_key, center_key = jax.random.split(key, 3)
    picks = jax.random.randint(row_key, (2 * CODES_FOR_THE_GATE,), 0, len(seed.learned))
    code = model.encoder(seed.rows(rows, picks))
    codes = place_code(code, jax.random.normal(noise_key, code.shape))
    half = CODES_FOR_THE_GATE
    gate = follow_codes(likelihood.gate, codes[:half], codes[half:], center_key)
    return eqx.tree_at(lambda m: m.decoder.likelihood.gate, model, gate)


def refresh_moments(
    seed: Seed, model: Autoencoder, key: PRNGKeyArray, rows: Rows, n_batch: int
) -> Autoencoder:
    """``model`` with moments averaged over ordinary batches: running ones lag behind."""
    row_key, noise_key = jax.random.split(key)
    shape = (BATCHES_FOR_THE_MOMENTS, n_batch)
    picks = jax.random.randint(row_key, shape, 0, len(seed.learned))
    noise = jax.random.normal(noise_key, (*shape, len(model.encoder.mean.bias)))
    numbers = jnp.arange(BATCHES_FOR_THE_MOMENTS, dtype=jnp.float32)

    def refresh(model, draws):
        picks, noise, number = draws
        return model.refresh(seed.rows(rows, picks), noise, number / (number + 1)), None

    return lax.scan(refresh, model, (picks, noise, numbers))[0]


def over_seeds(function: Callable, n_mapped: int) -> Callable:
    """``function`` of one model, compiled for all: its first arguments have an axis of seeds.

    The last of these are keys. One model alone is not mapped over, which on a CPU compiles a
    quarter quicker and runs up to twice as quick.
    """

    def pick(leaf):
        return leaf[0] if eqx.is_array(leaf) else leaf

    @eqx.filter_jit
    def call(*arguments):
        mapped, shared = arguments[:n_mapped], arguments[n_mapped:]
        if len(mapped[-1]) == 1:
            alone = function(*jax.tree.map(pick, mapped), *shared)
            return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, alone)
        axes = (eqx.if_array(0),) * n_mapped + (None,) * len(shared)
        return eqx.filter_vmap(function, in_axes=axes)(*arguments)

    return call


train_chunk = over_seeds(train_seed, 2)
move_gates = over_seeds(move_gate, 3)
refresh_all = over_seeds(refresh_moments, 3)
name_keys = jax.vmap(named_key, (0, None))


def train(
    seeds: Seed,
    keys: Key[Array, " seeds"],
    rows: Rows,
    plan: Plan,
    report: Callable[[int, dict[str, np.ndarray]], None],
) -> tuple[Autoencoder, list[dict[str, np.ndarray]]]:
    """All models through the plan: the finished models, and the history of each.

    A model whose held-out score has not become better for ``plan.patience`` chunks is done: it
    keeps its best snapshot, whatever the others still do.
    """
    n_seeds, keeps_best = len(keys), seeds.held_out.shape[-1] > 0
    n_batch = min(plan.batch_size, seeds.learned.shape[-1])
    history: list[dict[str, np.ndarray]] = []
    best, since_best = np.full(n_seeds, -np.inf), np.zeros(n_seeds, dtype=int)
    length = np.full(n_seeds, plan.n_chunks)
    for chunk in range(plan.n_chunks):
        fresh, phase = name_keys(keys, f"chunk {chunk}"), plan.phase(chunk)
        is_judged = chunk >= plan.first_judged_chunk
        if phase == "split":
            model = seeds.model
            if chunk == plan.first_judged_chunk:
                model = refresh_all(seeds, model, name_keys(keys, "switch"), rows, n_batch)
            model = move_gates(seeds, model, name_keys(keys, f"gate {chunk}"), rows)
            seeds = eqx.tree_at(lambda s: s.model, seeds, model)
        steps = chunk * plan.steps_per_chunk, plan.n_warm_up_chunks * plan.steps_per_chunk
        clock = Clock(jnp.asarray(steps[0]), jnp.asarray(steps[1]), jnp.asarray(is_judged))
        seeds, scores = train_chunk(seeds, fresh, rows, clock, plan.one_chunk(), phase)
        history.append({name: np.asarray(value) for name, value in scores.items()})  # the wait
        report(chunk + 1, history[-1])
        if not (keeps_best and is_judged and plan.patience is not None):
            continue
        since_best = np.where(history[-1]["held_out"] > best, 0, since_best + 1)
        best = np.fmax(best, history[-1]["held_out"])
        done = (since_best >= plan.patience) & (length == plan.n_chunks)
        length[done] = chunk + 1
        if (length <= chunk + 1).all():
            break
        final = jnp.where(jnp.asarray(done), jnp.inf, seeds.best_score)
        seeds = eqx.tree_at(lambda s: s.best_score, seeds, final)  # nothing beats infinity
    model = refresh_all(seeds, seeds.best, name_keys(keys, "finish"), rows, n_batch)
    for move in range(LAST_MOVES if plan.splits else 0):
        model = move_gates(seeds, model, name_keys(keys, f"last gate {move}"), rows)
    return model, [
        {name: np.asarray([s[name][i] for s in history[: length[i]]]) for name in history[0]}
        for i in range(n_seeds)
    ]
