"""The engine: members, folds, weights, padding, checkpoints and devices."""

import os
import subprocess
import sys
from dataclasses import replace

import device_cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import special

from sigmax.experts.combined import (
    InverseGammaSpread,
    VarianceNetwork,
    negative_log_likelihood,
    negative_squared_error,
    squared_error,
)
from sigmax.inputs import Inputs
from sigmax.neighbors import neighbor_graph
from sigmax.networks import TabularMLP
from sigmax.random import named_key
from sigmax.sampling import draw_batches
from sigmax.training import (
    AVERAGED,
    AbstractStage,
    Fold,
    Part,
    Phase,
    Stage,
    TrainingData,
    row_weights,
    start_members,
    train_chunk,
    train_stage,
)

N_MEMBERS = 3


def log_likelihood(network, batch, data):
    return -negative_log_likelihood(network, batch, data)


MEAN = Phase(
    parts=(Part(name="mean", learning_rate=1e-2),),
    objective=squared_error,
    graph="single",
    n_primary=32,
    n_secondary=1,
)
SPREAD = Phase(
    parts=(Part(name="spread", learning_rate=1e-2),),
    objective=negative_log_likelihood,
    graph="neighbors",
    n_primary=4,
    n_secondary=5,
)
STAGE = Stage(
    name="test",
    phases=(MEAN, SPREAD),
    n_cycles=40,
    cycles_per_chunk=10,
    score=log_likelihood,
    keep_best=True,
    patience=0,
)


def make_data(n=100, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).astype(np.float32)
    y = np.stack([X[:, 0], X[:, 1] ** 2], axis=1) + 0.1 * rng.normal(size=(n, 2))
    graphs = {"single": [np.arange(n)[:, None]], "neighbors": [neighbor_graph(X, 8)]}
    return TrainingData.create([Inputs(X)], [y.astype(np.float32)], [np.full(n, -1)], graphs)


def make_networks():
    def create(seed):
        rng = np.random.default_rng(seed)
        return VarianceNetwork(
            mean=TabularMLP.create(rng, Inputs(np.zeros((1, 2))), (8,), 2, activation="tanh"),
            spread=InverseGammaSpread.create(
                rng, Inputs(np.zeros((1, 2))), (8,), 2, activation="tanh"
            ),
            gate=None,
            factor=jnp.ones(()),
            prior_variance=1.0,
            shrink_mean=False,
        )

    members = [create(seed) for seed in range(N_MEMBERS)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


@pytest.fixture
def run():
    """Networks, keys, folds and data of three members."""
    data = make_data()
    keys = jax.random.split(jax.random.key(7), N_MEMBERS)
    held_out = [np.arange(10 * i, 10 * i + 10) for i in range(N_MEMBERS)]
    folds = Fold.create([np.ones(100)], held_out, [0] * N_MEMBERS, data.n_slots)
    return make_networks(), keys, folds, data


def pick(i):
    return lambda leaf: leaf[i] if eqx.is_array(leaf) else leaf


def test_members_trained_together_equal_members_trained_alone(run):
    networks, keys, folds, data = run
    started = start_members(networks, None, STAGE)
    together, figures = train_chunk(started, keys, (folds, data), STAGE, 0)
    for i in range(N_MEMBERS):
        one, expected = jax.tree.map(pick(slice(i, i + 1)), ((networks, keys, folds), together))
        network, key, fold = one  # of which none is mapped over
        member = start_members(network, None, STAGE)
        alone, found = train_chunk(member, key, (fold, data), STAGE, 0)
        assert eqx.tree_equal(alone, expected, rtol=1e-4, atol=1e-5)
        assert found["score"][0] == pytest.approx(float(figures["score"][i]), abs=1e-4)


def test_a_member_equals_a_plain_loop_with_optax(run):
    """The compiled chunk against steps written out: same batches, one optimiser per part."""
    networks, keys, folds, data = run
    network, fold = jax.tree.map(pick(0), (networks, folds))
    stage = replace(STAGE, phases=(replace(MEAN, n_primary=128),), n_cycles=3, cycles_per_chunk=3)
    alone, first_keys, folds = jax.tree.map(pick(slice(1)), (networks, keys, folds))
    started = start_members(alone, None, stage)
    found, _ = train_chunk(started, first_keys, (folds, data), stage, 0)
    optimizer = optax.adam(1e-2)
    mean, state = network.mean, optimizer.init(eqx.filter(network.mean, eqx.is_array))
    X, y = data.X[0, :100], data.y[0, :100]
    for step in range(3):
        # 128 draws walk over 100 rows: all rows once, and the first 28 of the order again
        index = np.asarray(batch_indices(named_key(keys[0], "test 0"), data, stage)[step])
        counts = np.bincount(index, minlength=100)
        assert set(counts) == {1, 2}
        weight = fold.weight[:100] * counts / 1.28

        def loss(mean, weight=weight):
            return jnp.sum(weight * 0.5 * jnp.sum((y - mean(X)) ** 2, axis=1))

        updates, state = optimizer.update(eqx.filter_grad(loss)(mean), state)
        mean = eqx.apply_updates(mean, updates)
    found = jax.tree.map(pick(0), found.network.mean)
    assert eqx.tree_equal(found, mean, rtol=1e-4, atol=1e-5)


def batch_indices(key, data, stage):
    """The batches that a chunk draws, by the same keys."""
    (phase,) = stage.phases
    return draw_batches(
        jax.random.split(key, 1)[0],
        stage.n_drawn,
        data.graphs[phase.graph].neighbors[0],
        data.n_rows[0],
        phase.n_primary,
        phase.n_secondary,
    )


def test_batch_weights_estimate_the_training_objective(run):
    """Mean over many locality batches of the weighted sum: the full sum over training rows.

    1,000 batches, 5 standard errors: fails for under 1 seed in 10,000.
    """
    _, keys, folds, data = run
    fold = jax.tree.map(pick(1), folds)
    values = jnp.asarray(np.random.default_rng(1).normal(size=data.n_slots), dtype=jnp.float32)
    index = draw_batches(keys[0], 1000, data.graphs["neighbors"].neighbors[0], data.n_rows[0], 4, 5)
    weight = row_weights(fold, data, SPREAD)
    estimates = np.asarray(jnp.sum(weight[index] * values[index], axis=1))
    expected = float(jnp.sum(fold.weight * values))
    error = estimates.std() / np.sqrt(len(estimates))
    assert abs(estimates.mean() - expected) < 5 * error


def test_held_out_rows_and_padding_weigh_nothing(run):
    _, _, folds, data = run
    assert data.n_slots == 256
    for member in range(N_MEMBERS):
        held_out = folds.validation[member][folds.validation_weight[member] > 0]
        assert len(held_out) == 10
        assert (folds.weight[member, held_out] == 0).all()
        assert (folds.weight[member, 100:] == 0).all()
        assert folds.weight[member].sum() == pytest.approx(1, abs=1e-5)


def test_a_phase_leaves_the_other_parts_alone(run):
    networks, keys, folds, data = run
    stage = replace(STAGE, phases=(SPREAD,))
    trained = train_stage(networks, keys, folds, data, stage)[0].best
    assert eqx.tree_equal(trained.mean, networks.mean)
    assert not np.allclose(
        trained.spread.concentration.mlp.biases[0], networks.spread.concentration.mlp.biases[0]
    )


def test_best_checkpoint_is_that_of_the_best_score(run):
    networks, keys, folds, data = run
    worse = replace(STAGE, phases=(replace(MEAN, objective=negative_squared_error),))
    members, (figures,) = train_stage(networks, keys, folds, data, worse)
    best, history = members.best, figures["score"]

    @eqx.filter_vmap(in_axes=(eqx.if_array(0), eqx.if_array(0), None))
    def score(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        return jnp.sum(rows.weight * log_likelihood(network, rows, data))

    np.testing.assert_allclose(score(best, folds, data), history.max(axis=0), rtol=1e-3)
    assert (history[-1] < history.max(axis=0) - 1e-3).all()  # the last was not the best


def test_training_stops_when_no_member_gets_better(run):
    networks, keys, folds, data = run
    still = replace(
        STAGE,
        phases=(replace(MEAN, parts=(Part(name="mean", learning_rate=1e-12),)),),
        n_cycles=1000,
        patience=3,
    )
    reports: list[tuple[AbstractStage, int]] = []

    def note(stage, chunk, figures):
        reports.append((stage, chunk))

    _, (figures,) = train_stage(networks, keys, folds, data, still, note)
    history = figures["score"]
    assert len(history) < 20
    assert [chunk for _, chunk in reports] == list(range(len(history) + 1))
    assert reports[0][0].n_chunks == 100


def test_a_member_that_breaks_keeps_its_best_checkpoint(run):
    networks, keys, folds, data = run
    explode = replace(
        STAGE, phases=(replace(MEAN, parts=(Part(name="mean", learning_rate=1e30),)),)
    )
    best = train_stage(networks, keys, folds, data, explode)[0].best
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(best))


def test_growing_data_trace_once_per_bucket(run):
    networks, keys, _, _ = run
    traces, n_traces = [], []

    def counted(network, batch, data):
        traces.append(None)
        return squared_error(network, batch, data)

    stage = replace(STAGE, phases=(replace(MEAN, objective=counted),), n_cycles=30)
    for n in (100, 101, 150, 256):
        data = make_data(n)
        folds = Fold.create([np.ones(n)], [np.arange(10)] * 3, [0] * 3, data.n_slots)
        train_stage(networks, keys, folds, data, stage)
        n_traces.append(len(traces))
    assert n_traces == [1, 1, 1, 1]  # nor does a second chunk trace again


def test_groups_train_as_if_each_were_alone(run):
    """Two data sets in one call: a member sees its own group only."""
    networks, keys, _, _ = run
    one, two = make_data(100, seed=0), make_data(100, seed=1)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), one, two)
    held_out = [np.arange(10)] * 3
    folds = Fold.create([np.ones(100)] * 2, held_out, [0, 1, 0], 256)
    together = train_stage(networks, keys, folds, both, STAGE)[0].best
    alone_folds = Fold.create([np.ones(100)], held_out, [0] * 3, 256)
    alone = train_stage(networks, keys, alone_folds, two, STAGE)[0].best
    assert eqx.tree_equal(
        *(jax.tree.map(pick(1), t) for t in (together, alone)), rtol=1e-4, atol=1e-5
    )


def test_averaged_checkpoints_weigh_the_last_steps_most(run):
    """Polynomial decay: after step t of T the weights of a network count as Γ(t + 8) / Γ(t)."""
    networks, keys, folds, data = run
    stage = replace(STAGE, n_cycles=6, cycles_per_chunk=1, keep_best=False)
    found, _ = train_stage(networks, keys, folds, data, replace(stage, averages=True))
    steps = [
        train_stage(networks, keys, folds, data, replace(stage, n_cycles=n))[0].best
        for n in range(1, 7)
    ]
    t = np.arange(1, 7)
    share = special.softmax(special.gammaln(t + AVERAGED) - special.gammaln(t))
    expected = jax.tree.map(lambda *leaves: np.tensordot(share, np.stack(leaves), 1), *steps)
    assert eqx.tree_equal(found.network, steps[-1], rtol=1e-4, atol=1e-6)
    for got, leaf in zip(jax.tree.leaves(found.best), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, leaf, rtol=1e-4, atol=1e-6)
    assert not eqx.tree_equal(found.best, found.network, rtol=1e-3, atol=1e-4)


def test_an_average_is_scored_and_goes_on_over_chunks(run):
    networks, keys, folds, data = run
    stage = replace(STAGE, averages=True)
    members, (figures,) = train_stage(networks, keys, folds, data, stage)

    @eqx.filter_vmap(in_axes=(eqx.if_array(0), eqx.if_array(0), None))
    def score(network, fold, data):
        return stage.validate(network, fold, data)[0]

    np.testing.assert_allclose(
        score(members.best, folds, data), figures["score"].max(axis=0), rtol=1e-3
    )


def test_optimisers_go_on_from_one_stage_to_the_next(run):
    """Two stages that hand on the states are one stage: batches of all rows need no luck."""
    networks, keys, folds, data = run
    whole = replace(STAGE, phases=(replace(MEAN, n_primary=100),), keep_best=False)
    half = replace(whole, n_cycles=20)
    expected, _ = train_stage(networks, keys, folds, data, whole)
    first, _ = train_stage(networks, keys, folds, data, half)
    found, _ = train_stage(first.best, keys, folds, data, half, states=first.states)
    assert eqx.tree_equal(found.best, expected.best, rtol=1e-4, atol=1e-5)
    fresh, _ = train_stage(first.best, keys, folds, data, half)
    assert not eqx.tree_equal(fresh.best, expected.best, rtol=1e-4, atol=1e-5)


def test_one_member_trains_as_it_does_among_others(run):
    """Alone it is not mapped over."""
    networks, keys, folds, data = run
    one = jax.tree.map(lambda leaf: leaf[1:2] if eqx.is_array(leaf) else leaf, (networks, folds))
    together, (history,) = train_stage(networks, keys, folds, data, STAGE)
    alone, (own,) = train_stage(one[0], keys[1:2], one[1], data, STAGE)
    np.testing.assert_allclose(own["score"][:, 0], history["score"][:, 1], rtol=1e-4, atol=1e-5)
    expected = jax.tree.map(pick(slice(1, 2)), together.best)
    assert eqx.tree_equal(alone.best, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def on_four_devices(tmp_path_factory):
    """The results of `device_cases` in a process with four devices."""
    path = tmp_path_factory.mktemp("devices") / "found.npz"
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, device_cases.__file__, str(path)]
    subprocess.run(command, env=environment, timeout=600, check=True)
    return np.load(path)


def test_five_members_use_four_devices(on_four_devices):
    assert on_four_devices["devices"].tolist() == [4, 2]  # two on each: three are padding
    if jax.device_count() == 1:
        assert device_cases.devices_in_use().tolist() == [1, 5]


@pytest.mark.parametrize("case", ["train_regressors", "train_autoencoders"])
def test_padded_members_on_four_devices_end_as_they_do_on_one(on_four_devices, case):
    expected = getattr(device_cases, case)()
    for name, values in expected.items():
        np.testing.assert_allclose(
            on_four_devices[name], values, rtol=2e-3, atol=2e-3, err_msg=name
        )
    if case == "train_regressors":  # or patience and the padding of it would say nothing
        lengths = {len(expected[f"group {g}, patience 3"]) for g in range(2)}
        assert max(lengths) < 30 and len(lengths) == 2
