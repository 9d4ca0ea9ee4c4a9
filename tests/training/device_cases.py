"""Trainings of five members, to be run on one device and on four, where they are padded to eight.

As a program it takes the name of a file to write its results to.
"""

import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sigmax.experts.combined import (
    NormalSpread,
    VarianceNetwork,
    density,
    negative_log_likelihood,
)
from sigmax.generative import CombVAE, fit_together
from sigmax.inputs import Inputs
from sigmax.networks import TabularMLP
from sigmax.training import (
    Fold,
    Part,
    Phase,
    Stage,
    TrainingData,
    spread_members,
    start_members,
    train_chunk,
    train_stage,
)

N_MEMBERS, N_ROWS = 5, 60

PHASE = Phase(
    parts=(Part(name="mean", learning_rate=0.2), Part(name="spread", learning_rate=0.2)),
    objective=negative_log_likelihood,
    graph="single",
    n_primary=32,
    n_secondary=1,
)
STAGE = Stage(
    name="test",
    phases=(PHASE,),
    n_cycles=60,
    cycles_per_chunk=2,
    predict=density,
    keep_best=True,
    patience=3,
)


def make_members() -> tuple[Any, Any, Fold, TrainingData]:
    """Five members of two groups: networks, keys, folds and data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, N_ROWS, 2)).astype(np.float32)
    y = X[..., :1] + 0.3 * rng.normal(size=(2, N_ROWS, 1))
    graphs = {"single": [np.arange(N_ROWS)[:, None]] * 2}
    data = TrainingData.create(
        [Inputs(rows) for rows in X], list(y), [np.full(N_ROWS, -1)] * 2, graphs
    )
    held_out = [rng.permutation(N_ROWS)[:20] for _ in range(N_MEMBERS)]
    folds = Fold.create([np.ones(N_ROWS)] * 2, held_out, [0, 0, 0, 1, 1], data.n_slots)
    members = [
        VarianceNetwork(
            mean=TabularMLP.create(rng, Inputs(np.zeros((1, 2))), (8,), 1, activation="tanh"),
            spread=NormalSpread.create(rng, Inputs(np.zeros((1, 2))), (8,), 1, activation="tanh"),
            gate=None,
            factor=jnp.ones(()),
            prior_variance=1.0,
            shrink_mean=False,
        )
        for _ in range(N_MEMBERS)
    ]
    networks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    return networks, jax.random.split(jax.random.key(1), N_MEMBERS), folds, data


def devices_in_use() -> np.ndarray:
    """On how many devices the results of a chunk lie, and how many members each device has."""
    networks, keys, folds, data = make_members()
    started = start_members(networks, None, STAGE)
    members, keys, folds = spread_members((started, keys, folds))
    members, _ = train_chunk(members, keys, (folds, data), STAGE, 0)
    shards = [leaf.addressable_shards for leaf in jax.tree.leaves(members.network)]
    sizes = {(len({s.device for s in own}), len(own[0].data)) for own in shards}
    assert len(sizes) == 1
    return np.array(sizes.pop())


def train_regressors() -> dict[str, np.ndarray]:
    """How five members end: those of the two groups are scored together and stop on their own."""
    found = {}
    for patience in (0, 3):
        members, histories = train_stage(*make_members(), replace(STAGE, patience=patience))
        found[f"best score, patience {patience}"] = np.asarray(members.best_score)
        found[f"weights, patience {patience}"] = np.asarray(members.best.mean.mlp.weights[0])
        for group, history in enumerate(histories):
            found[f"group {group}, patience {patience}"] = history["score"]
    return found


def train_autoencoders() -> dict[str, np.ndarray]:
    """Codes and histories of five models that were fitted together."""
    X = np.random.default_rng(0).normal(size=(50, 3))
    settings: dict[str, Any] = {"hidden_sizes": (8,), "batch_size": 16, "n_steps": 6}
    settings |= {"n_inducing": 5, "n_neighbors": 6, "n_secondary": 3}
    settings |= {"validation_fraction": 0.2}
    models = [CombVAE(**settings, random_state=seed) for seed in range(N_MEMBERS)]
    fit_together(models, [X] * N_MEMBERS)
    found = {f"codes {i}": model.encode(X) for i, model in enumerate(models)}
    found |= {f"elbo {i}": model.elbo(X) for i, model in enumerate(models)}
    for i, model in enumerate(models):
        found[f"history {i}"] = np.array(model.history_["held_out_elbo"])
    return found


if __name__ == "__main__":
    results: dict[str, Any] = train_regressors() | train_autoencoders()
    np.savez(sys.argv[1], devices=devices_in_use(), **results)
