"""The leave-one-out objective: against loops, and its weights against counting."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax.inputs import Inputs, InputShape
from sigmax.networks import (
    MLP,
    Edges,
    ExtrapolationGate,
    InputLayer,
    KernelParameters,
    LocalNetwork,
    weighted_sums,
)
from sigmax.training import LeaveOneOut, TrainingData, held_out_density

N = 40


@pytest.fixture(params=[1, 3], ids=["one component", "three components"])
def network(request):
    n_components = request.param
    rng = np.random.default_rng(0)
    inputs = InputLayer.create(rng, InputShape(2), n_waves=3, n_mixtures=2, frequency=0.1)

    def create(n_outputs):
        shape = (inputs.n_outputs, (6,), n_outputs)
        return MLP.create(rng, *shape, activation="silu", output_gain=1.0)

    return LocalNetwork(
        inputs=inputs,
        trunk=None,
        embedding=create(3),
        mean=create(1),
        spread=create(2 if n_components == 1 else 4 * n_components),
        kernel=KernelParameters(jnp.asarray(0.0), jnp.asarray(-0.5)),
        gate=ExtrapolationGate.create(np.zeros((1, 2)), 1, scale=1.0, margin=100.0),
        edges=Edges.none(2, 1),
        factor=jnp.ones(()),
        most_df=jnp.asarray(jnp.inf),
        shrinkage=jnp.zeros(()),
        input_scale=1.5,
        min_concentration=1.1,
        prior_variance=1.0,
    )


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(N, 2)), rng.normal(size=(N, 1))
    order = np.argsort(((X[:, None] - X[None]) ** 2).sum(-1), axis=1)
    graphs = {"queries": [order[:, :4]], "context": [order[:, :10]]}
    weight = rng.uniform(0.5, 1.5, N)
    return TrainingData.create(
        [Inputs(X.astype(np.float32))], [y], [np.full(N, -1)], graphs, [weight]
    )


def batch_of(data, primary, held_out=()):
    index = data.graphs["context"].neighbors[0, jnp.asarray(primary)].reshape(-1)
    share = np.full(data.n_slots, 1 / N, dtype=np.float32)
    share[list(held_out)] = 0
    weight = (
        share[np.asarray(index)]
        * N
        / (len(primary) * np.asarray(data.graphs["context"].counts[0, index]))
    )
    return data.rows(jnp.asarray(0), index, jnp.asarray(weight))


def test_each_row_is_judged_by_all_others_that_are_there_once(network, data):
    primary, held_out = (3, 17), (int(data.graphs["context"].neighbors[0, 3, 2]),)
    batch = batch_of(data, primary, held_out)
    objective = LeaveOneOut(2, error_weight=0.5)
    found = np.asarray(objective(network, batch, data)).reshape(2, 10)
    assert np.all(found[:, 4:] == 0)  # at the rim, no queries
    there = np.setdiff1d(np.unique(np.asarray(batch.index)), held_out)
    X, y = data.X[0], data.y[0]
    ratio = data.graphs["context"].counts[0] / data.graphs["queries"].counts[0]
    for i, row in enumerate(np.asarray(batch.index).reshape(2, 10)[:, :4].ravel()):
        others = there[there != row]
        coordinates = network.embed(X[np.append(others, row)]).coordinates
        weights = (
            network.kernel_weights(coordinates[-1:], coordinates[:-1])
            * data.weight[0, others][None]
        )
        own = network.embed(X[row][None])
        prior = network.prior(own)
        residuals = y[others] - network.embed(X[others]).mean
        dist = network.update(prior, weighted_sums(weights, residuals), own.mean).dist
        target = y[row][None]
        misfit = 0.5 * ((target - dist.mean) ** 2 + 0.5 * (target - own.mean) ** 2)
        expected = ratio[row] * (misfit - dist.log_prob(target))
        np.testing.assert_allclose(found[i // 4, i % 4], expected[0, 0], rtol=2e-3, atol=1e-4)


def test_every_row_is_a_query_with_its_own_share_in_the_long_run(data):
    """Over all neighbourhoods, the weight of a row times how often it is a query is its share."""
    total = np.zeros(N)
    for primary in range(N):
        batch = batch_of(data, (primary,))
        index = np.asarray(batch.index)[:4]
        ratio = data.graphs["context"].counts[0, index] / data.graphs["queries"].counts[0, index]
        np.add.at(total, index, np.asarray(batch.weight)[:4] * np.asarray(ratio) / N)
    np.testing.assert_allclose(total, 1 / N, rtol=1e-5)


def test_held_out_rows_do_not_contribute_to_each_other(network, data):
    held_out = jnp.asarray([5, 6, 0])
    rows = data.rows(jnp.asarray(0), held_out, jnp.asarray([0.5, 0.5, 0.0]))  # the last is padding

    def log_density(data):
        return held_out_density(network, rows, data).log_prob(rows.y)[0, 0]

    before = log_density(data)
    changed = TrainingData.create(
        [Inputs(np.asarray(data.X.numbers[0, :N]))],
        [np.asarray(data.y[0, :N].at[6].set(50.0))],
        [np.full(N, -1)],
        {},
        [np.asarray(data.weight[0, :N])],
    )
    np.testing.assert_allclose(log_density(changed), before, rtol=1e-5)
    padding = TrainingData.create(
        [Inputs(np.asarray(data.X.numbers[0, :N]))],
        [np.asarray(data.y[0, :N].at[0].set(50.0))],
        [np.full(N, -1)],
        {},
        [np.asarray(data.weight[0, :N])],
    )
    assert log_density(padding) != pytest.approx(float(before), rel=1e-3)


def test_gradients_are_finite_also_for_copies(network, data):
    batch = batch_of(data, (3, 3))

    def loss(network):
        objective = LeaveOneOut(2, error_weight=0.5)
        return jnp.sum(batch.weight * objective(network, batch, data))

    gradients = eqx.filter_grad(loss)(network)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))


def test_a_batch_without_whole_lists_is_refused(network, data):
    batch = batch_of(data, (3, 17))
    short = data.rows(batch.group, batch.index[:18], batch.weight[:18])
    with pytest.raises(ValueError, match="whole lists of the context"):
        LeaveOneOut(2, error_weight=0.5)(network, short, data)
