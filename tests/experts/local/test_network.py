"""Local networks: the update against a textbook, the sums and the objective against loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from sigmax.distributions import Mixture, StudentT, WeightedStudentT
from sigmax.experts.local.expert import no_edges
from sigmax.experts.local.network import (
    KernelParameters,
    LeaveOneOut,
    LocalNetwork,
    Prior,
    Sums,
    TrainingSet,
    held_out_density,
    weighted_sums,
)
from sigmax.extrapolation import ExtrapolationGate
from sigmax.inputs import Inputs
from sigmax.networks import MLP, InputLayer, PeriodicFeatures, wave
from sigmax.training import TrainingData

N_COMPONENTS = 3


def create_network(n_components=1, n_features=3, n_outputs=2, margin=2.0):
    rng = np.random.default_rng(0)
    inputs = InputLayer.create(
        rng, Inputs(np.zeros((1, n_features))), n_waves=4, n_mixtures=2, frequency=0.1
    )

    def create(n_outputs):
        shape = (inputs.n_outputs, (8,), n_outputs)
        return MLP.create(rng, *shape, activation="silu", output_gain=1.0)

    centers = rng.normal(size=(10, n_features))
    return LocalNetwork(
        inputs=inputs,
        trunk=None,
        embedding=create(5),
        mean=create(n_outputs),
        spread=create(n_outputs * (2 if n_components == 1 else 4 * n_components)),
        kernel=KernelParameters(jnp.asarray(0.3), jnp.asarray(-0.5)),
        gate=ExtrapolationGate.create(centers, 10, scale=0.3, margin=margin),
        edges=no_edges(n_features, n_outputs),
        factor=jnp.ones(()),
        most_df=jnp.asarray(jnp.inf),
        input_scale=1.5,
        min_concentration=1.1,
        prior_variance=1.0,
    )


@pytest.fixture
def network():
    return create_network()


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(64, 3)), rng.normal(size=(64, 2))
    return Inputs(jnp.asarray(X, dtype=jnp.float32)), jnp.asarray(y, dtype=jnp.float32)


def test_periodic_features_are_the_formula():
    features = PeriodicFeatures.create(np.random.default_rng(0), 2, 3, 4, frequency=0.5)
    x = np.array([[0.3, -1.2]])
    expected = [x]
    for j in range(2):
        wave = np.cos(2 * np.pi * (x[0, j] * features.frequencies[j] + features.phases[j]))
        expected.append(np.maximum(wave @ features.weights[j] + features.biases[j], 0)[None])
    np.testing.assert_allclose(features(jnp.asarray(x)), np.hstack(expected), rtol=1e-4, atol=1e-5)


def test_wave_is_the_cosine():
    turns = np.linspace(-3, 3, 2001)
    np.testing.assert_allclose(wave(jnp.asarray(turns)), np.cos(2 * np.pi * turns), atol=3e-6)
    slope = jax.vmap(jax.grad(wave))(jnp.asarray(turns[1:-1]))
    expected = -2 * np.pi * np.sin(2 * np.pi * turns[1:-1])
    np.testing.assert_allclose(slope, expected, atol=1e-3)


def make_prior(mean, alpha, beta, log_weight) -> Prior:
    """One row and one output, components along the last axis."""
    mean, alpha, beta, log_weight = (
        jnp.asarray(part, dtype=jnp.float32).reshape(1, 1, -1)
        for part in (mean, alpha, beta, log_weight)
    )
    return Prior(mean, alpha, beta, log_weight)


def test_update_with_whole_rows_is_the_textbook_posterior_predictive(network):
    """Five observations, each of weight 1, one after the other."""
    rng = np.random.default_rng(2)
    y = rng.normal(1.0, 2.0, size=5)
    mean, alpha, beta, kappa = 0.4, 2.0, 1.3, float(jnp.exp(network.kernel.log_prior_rows))
    prior = make_prior(mean, alpha, beta, 0.0)
    residuals = jnp.asarray(y - mean, dtype=jnp.float32)[:, None]
    sums = weighted_sums(jnp.ones((1, 5)), residuals)
    found = network.update(prior, sums, jnp.full((1, 1), mean))
    for value in y:
        beta += 0.5 * kappa / (kappa + 1) * (value - mean) ** 2
        mean = (kappa * mean + value) / (kappa + 1)
        kappa, alpha = kappa + 1, alpha + 0.5
    scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
    z = (0.7 - mean) / scale
    log_density = stats.t.logpdf(z, 2 * alpha) - np.log(scale)
    np.testing.assert_allclose(found.dist.log_weight, 0.0)
    np.testing.assert_allclose(found.dist.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.dist.log_prob(jnp.full((1, 1), 0.7)), log_density, rtol=1e-5)
    aleatoric, epistemic = beta / (alpha - 1), beta / (alpha - 1) / kappa
    share = epistemic / (aleatoric + epistemic)
    np.testing.assert_allclose(found.epistemic_share, share, rtol=1e-5)


MEANS, ALPHAS, BETAS = (
    np.array([-1.0, 0.4, 3.0]),
    np.array([1.5, 2.0, 6.0]),
    np.array([0.3, 2.0, 5]),
)
WEIGHTS = np.array([0.2, 0.5, 0.3])


def test_every_component_is_updated_by_whole_rows_one_after_the_other(network):
    """Its weight is multiplied by its density of each row before the update by that row."""
    y = np.random.default_rng(3).normal(1.0, 1.5, size=6)
    around = 0.7
    sums = weighted_sums(jnp.ones((1, 6)), jnp.asarray(y - around, dtype=jnp.float32)[:, None])
    prior = make_prior(MEANS, ALPHAS, BETAS, np.log(WEIGHTS))
    found = network.update(prior, sums, jnp.full((1, 1), around)).dist

    kappa = float(jnp.exp(network.kernel.log_prior_rows))
    mean, alpha, beta, weight = MEANS.copy(), ALPHAS.copy(), BETAS.copy(), WEIGHTS.copy()
    for value in y:
        scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
        weight = weight * stats.t.pdf(value, 2 * alpha, mean, scale)
        beta = beta + 0.5 * kappa / (kappa + 1) * (value - mean) ** 2
        mean = (kappa * mean + value) / (kappa + 1)
        kappa, alpha = kappa + 1, alpha + 0.5
    weight = weight / weight.sum()
    scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
    assert weight.min() > 1e-3  # or the comparison would mean nothing
    np.testing.assert_allclose(np.exp(found.log_weight[0, 0]), weight, rtol=1e-4)
    np.testing.assert_allclose(found.components.mean[0, 0], mean, rtol=1e-5)
    np.testing.assert_allclose(found.components.df[0, 0], 2 * alpha, rtol=1e-5)
    np.testing.assert_allclose(found.components.scale[0, 0], scale, rtol=1e-5)
    density = weight @ stats.t.pdf(2.2, 2 * alpha, mean, scale)
    np.testing.assert_allclose(
        found.log_prob(jnp.full((1, 1), 2.2)), np.log(density), rtol=1e-4, atol=1e-5
    )


def test_shares_of_rows_update_components_and_weights_by_the_formula(network):
    rng = np.random.default_rng(4)
    y, share, around = rng.normal(0.5, 1.0, size=7), rng.uniform(0.05, 1.2, size=7), -0.3
    residuals = jnp.asarray(y - around, dtype=jnp.float32)[:, None]
    sums = weighted_sums(jnp.asarray(share, dtype=jnp.float32)[None], residuals)
    prior = make_prior(MEANS, ALPHAS, BETAS, np.log(WEIGHTS))
    found = network.update(prior, sums, jnp.full((1, 1), around)).dist

    kappa, count = float(jnp.exp(network.kernel.log_prior_rows)), share.sum()
    average = share @ y / count
    alpha = ALPHAS + count / 2
    beta = BETAS + share @ (y - average) ** 2 / 2
    beta = beta + kappa * count * (average - MEANS) ** 2 / (2 * (kappa + count))
    log_weight = np.log(WEIGHTS) + special.gammaln(alpha) - special.gammaln(ALPHAS)
    log_weight = log_weight + ALPHAS * np.log(BETAS) - alpha * np.log(beta)
    strength = kappa + count
    mean = (kappa * MEANS + count * average) / strength
    np.testing.assert_allclose(
        found.log_weight[0, 0], special.log_softmax(log_weight), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(found.components.mean[0, 0], mean, rtol=1e-5)
    np.testing.assert_allclose(found.components.df[0, 0], 2 * alpha, rtol=1e-5)
    scale = np.sqrt(beta * (strength + 1) / (alpha * strength))
    np.testing.assert_allclose(found.components.scale[0, 0], scale, rtol=1e-5)


def test_equal_components_are_as_one(network):
    """Three copies of one prior end as that prior does alone, with the weights that they had."""
    sums = Sums(jnp.array([2.3]), jnp.array([[1.1]]), jnp.array([[4.0]]))
    around = jnp.full((1, 1), 0.2)
    copies = make_prior([0.5] * 3, [2.5] * 3, [1.2] * 3, np.log(WEIGHTS))
    found = network.update(copies, sums, around).dist
    alone = network.update(make_prior(0.5, 2.5, 1.2, 0.0), sums, around).dist
    np.testing.assert_allclose(np.exp(found.log_weight[0, 0]), WEIGHTS, rtol=1e-5)
    y = jnp.full((1, 1), 1.7)
    np.testing.assert_allclose(found.log_prob(y), alone.log_prob(y), rtol=1e-5)
    np.testing.assert_allclose(found.variance, alone.variance, rtol=1e-5)


@pytest.mark.parametrize("n_components", [1, N_COMPONENTS])
def test_gradients_of_the_update_are_finite_with_and_without_support(rows, n_components):
    X, y = rows
    network = create_network(n_components)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(network, shift):  # as in training: without the gate
        rows = network.embed(Inputs(X.numbers + shift))
        training_set = network.embed_training_set(X, y, jnp.ones(64))
        sums = network.kernel_sums(rows.coordinates, training_set)
        return jnp.mean(network.update(network.prior(rows), sums, rows.mean).dist.log_prob(y))

    for shift in (0.0, 3.0, 1e3):
        leaves = jax.tree.leaves(gradient(network, jnp.asarray(shift)))
        assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_components_of_the_prior_are_the_outputs_of_the_spread_network(rows):
    """Weights, offsets, concentrations and scales of every output, one after the other."""
    X, _ = rows
    network = create_network(N_COMPONENTS)
    embedded = network.embed(X)
    prior = network.prior(embedded)
    assert prior.log_weight.shape == (64, 2, N_COMPONENTS)
    outputs = np.asarray(network.spread(embedded.inputs)).reshape(64, 2, 4, N_COMPONENTS)
    logit, offset, concentration, log_scale = np.moveaxis(outputs, 2, 0)
    np.testing.assert_allclose(
        prior.log_weight, special.log_softmax(3 * logit, axis=-1), rtol=1e-4, atol=1e-5
    )
    mean = np.asarray(embedded.mean)[..., None] + 3 * offset
    np.testing.assert_allclose(prior.mean, mean, rtol=1e-4, atol=1e-5)
    alpha = 1.1 + np.logaddexp(0, concentration + 1)
    np.testing.assert_allclose(prior.concentration, alpha, rtol=1e-4)
    scale = np.exp(np.clip(6 * log_scale - 1, -18, 6) / 2)
    found = np.sqrt(prior.rate / prior.concentration)
    np.testing.assert_allclose(found, scale, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n_components", [1, N_COMPONENTS])
def test_without_support_the_prediction_is_the_prior(rows, n_components):
    X, _ = rows
    network = create_network(n_components)
    embedded = network.embed(X)
    prior = network.prior(embedded)
    nothing = jnp.zeros_like(embedded.mean)
    found = network.update(prior, Sums(nothing[:, 0], nothing, nothing), embedded.mean)
    components = StudentT.from_inverse_gamma(prior.mean, prior.concentration, prior.rate)
    np.testing.assert_allclose(found.dist.components.mean, prior.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.dist.log_weight, prior.log_weight, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.dist.components.df, components.df, rtol=1e-6)
    np.testing.assert_allclose(found.count, 0)
    own = np.exp(network.kernel.log_prior_rows)
    scale = components.scale * np.sqrt(1 + 1 / own)
    np.testing.assert_allclose(found.dist.components.scale, scale, rtol=1e-5)


def test_weights_are_the_formula(network, rows):
    X, _ = rows
    coordinates = network.embed(X).coordinates
    found = network.kernel_weights(coordinates[:4], coordinates)
    z, x = np.asarray(network.embedding(network.inputs(X))), np.asarray(X.numbers)
    for i in range(4):
        squared = np.sum((z[i] - z) ** 2, axis=1) + np.sum((x[i] - x) ** 2, axis=1) / 1.5**2
        np.testing.assert_allclose(found[i], np.exp(0.3 - squared / 2), rtol=1e-3, atol=1e-6)


def test_kernel_sums_by_blocks_are_those_over_all_rows(network, rows, monkeypatch):
    X, y = rows
    weight = jnp.asarray(np.random.default_rng(3).uniform(0, 2, 64), dtype=jnp.float32)
    whole = network.embed_training_set(X, y, weight)
    expected = network.kernel_sums(network.embed(X[:5]).coordinates, whole)
    monkeypatch.setattr("sigmax.experts.local.network.ROWS_PER_BLOCK", 16)
    training_set = network.embed_training_set(X, y, weight)
    found = network.kernel_sums(network.embed(X[:5]).coordinates, training_set)
    for a, b in zip(
        jax.tree.leaves((found, training_set)), jax.tree.leaves((expected, whole)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_components", [1, N_COMPONENTS])
def test_far_away_nothing_contributes_and_the_prior_is_that_of_y(rows, n_components):
    X, y = rows
    network = create_network(n_components)
    training_set = network.embed_training_set(X, y, jnp.ones(64))
    for axis in range(3):
        for step in (-30.0, 30.0):
            found = network(Inputs(X.numbers.at[:, axis].add(step)), training_set)
            assert np.all(found.count < 1e-6)
            np.testing.assert_allclose(found.dist.variance, 1.0, rtol=1e-3)
            np.testing.assert_allclose(found.dist.mean, 0.0, atol=1e-2)


def test_the_gate_lowers_the_evidence_and_moves_the_mean_by_the_share_that_fades(network, rows):
    X, y = rows
    gate = ExtrapolationGate.create(np.zeros((1, 3)), 1, scale=0.22)
    network = eqx.tree_at(lambda n: n.gate, network, gate)
    training_set = network.embed_training_set(X, y, jnp.ones(64))
    embedded, g = network.embed(X), np.asarray(network.gate_value(X))[:, None]
    sums = network.kernel_sums(embedded.coordinates, training_set)
    own, count = np.exp(network.kernel.log_prior_rows), np.asarray(sums.count)[:, None]
    average = embedded.mean + sums.total / sums.count[:, None]
    on_data = (own * embedded.mean + count * average) / (own + count)
    assert 0.1 < np.median(g) < 0.9
    for fade in (0.0, 0.3, 1.0):
        fading = eqx.tree_at(lambda n: n.edges.fade, network, jnp.asarray(fade))
        found = fading(X, training_set)
        expected = (1 - fade * g**2) * on_data
        np.testing.assert_allclose(found.dist.mean, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.count, (1 - g[:, 0]) * count[:, 0], rtol=1e-4)


def test_beyond_the_range_the_mean_follows_the_slope_and_the_variance_grows(network, rows):
    X, y = rows
    training_set = network.embed_training_set(X, y, jnp.ones(64))
    shut = eqx.tree_at(lambda n: n.gate.relevance, network, jnp.zeros(3))
    slope = jnp.zeros((2, 3, 2)).at[1, 0].set(jnp.array([2.0, -1.0]))
    excess = jnp.zeros((2, 3, 2)).at[1, 0].set(0.5)
    edged = eqx.tree_at(lambda n: (n.edges.slope, n.edges.excess), shut, (slope, excess))
    bounds = np.full(3, -9.0, np.float32), np.full(3, 9.0, np.float32)
    at = Inputs(np.asarray(X.numbers)).within(*bounds, 3)
    base = edged(at, training_set).dist
    for distance, share, growth in ((0.25, 0.25, 0.5), (1.0, 1.0, 1.0), (2.0, 1.0, 1.5)):
        beyond = np.zeros((64, 3), np.float32)
        beyond[:, 0] = distance
        found = edged(eqx.tree_at(lambda x: x.beyond, at, beyond), training_set).dist
        shift = np.tile(share * np.array([2.0, -1.0]), (64, 1))
        np.testing.assert_allclose(found.mean - base.mean, shift, atol=1e-4)
        np.testing.assert_allclose(found.variance - base.variance, 0.5 * growth, rtol=1e-3)
    below = eqx.tree_at(lambda x: x.beyond, at, -beyond)
    np.testing.assert_allclose(edged(below, training_set).dist.mean, base.mean, atol=1e-5)


def test_rows_without_weight_do_not_contribute(network, rows):
    X, y = rows
    weight = jnp.ones(64).at[10:].set(0.0)
    given = network(X, network.embed_training_set(X, y, weight)).dist
    changed = network(X, network.embed_training_set(X, y.at[10:].set(99.0), weight)).dist
    np.testing.assert_allclose(given.mean, changed.mean, rtol=1e-5)
    assert isinstance(network.embed_training_set(X, y, weight), TrainingSet)


def test_tails_are_bounded_on_the_data_only(network, rows):
    X, y = rows
    training_set = network.embed_training_set(X, y, jnp.ones(64))
    bounded = eqx.tree_at(lambda n: n.most_df, network, jnp.asarray(3.0))
    here, far = Inputs(network.gate.inducing_points), Inputs(jnp.full((10, 3), 50.0))
    predict = eqx.filter_jit(lambda network, X: network(X, training_set).dist)
    assert np.all(predict(network, here).components.df > 4)
    np.testing.assert_allclose(predict(bounded, here).components.df, 3.0, rtol=1e-2)
    expected, found = predict(network, far).components, predict(bounded, far).components
    for name in ("mean", "df", "scale"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5)


def test_hidden_layers_may_be_shared(network, rows):
    X, _ = rows
    rng = np.random.default_rng(5)
    trunk = MLP.create(rng, network.inputs.n_outputs, (), 8, activation="silu", output_gain=1.0)
    heads = [MLP.create(rng, 8, (), n, activation="silu", output_gain=1.0) for n in (5, 2, 4)]
    names = ("trunk", "embedding", "mean", "spread")
    shared = eqx.tree_at(
        lambda n: [getattr(n, name) for name in names],
        network,
        [trunk, *heads],
        is_leaf=lambda leaf: leaf is None,
    )
    found = shared.embed(X)
    hidden = jax.nn.silu(trunk(network.inputs(X)))
    np.testing.assert_allclose(found.inputs, hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.coordinates[:, :5], heads[0](hidden), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.coordinates[:, 5:], X.numbers / 1.5, rtol=1e-5)
    np.testing.assert_allclose(found.mean, heads[1](hidden), rtol=1e-4, atol=1e-5)


N = 40


@pytest.fixture(params=[1, 3], ids=["one component", "three components"])
def trained_network(request):
    return create_network(request.param, n_features=2, n_outputs=1, margin=100.0)


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


def test_each_row_is_predicted_from_all_others_of_the_batch_once(trained_network, data):
    network, primary, held_out = (
        trained_network,
        (3, 17),
        (int(data.graphs["context"].neighbors[0, 3, 2]),),
    )
    batch = batch_of(data, primary, held_out)
    objective = LeaveOneOut(2, error_weight=0.5)
    found = np.asarray(objective(network, batch, data)).reshape(2, 10)
    assert np.all(found[:, 4:] == 0)  # the outer rows are no queries
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


def test_held_out_rows_do_not_contribute_to_each_other(trained_network, data):
    network, held_out = trained_network, jnp.asarray([5, 6, 0])
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


def test_gradients_are_finite_also_for_duplicates(trained_network, data):
    batch = batch_of(data, (3, 3))

    def loss(network):
        objective = LeaveOneOut(2, error_weight=0.5)
        return jnp.sum(batch.weight * objective(network, batch, data))

    gradients = eqx.filter_grad(loss)(trained_network)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))


def test_a_batch_without_whole_lists_raises_an_error(trained_network, data):
    batch = batch_of(data, (3, 17))
    short = data.rows(batch.group, batch.index[:18], batch.weight[:18])
    with pytest.raises(ValueError, match="whole lists of the context"):
        LeaveOneOut(2, error_weight=0.5)(trained_network, short, data)


# Weighted Student-t components, compared with the mixture of the same components.

SHAPE = (6, 2)


def make(seed=0, *, equal=False) -> WeightedStudentT:
    rng = np.random.default_rng(seed)
    shape = (*SHAPE, N_COMPONENTS)
    parts = rng.normal(size=shape), rng.uniform(3, 12, shape), rng.uniform(0.1, 1.5, shape)
    components = StudentT(*(jnp.asarray(part, dtype=jnp.float32) for part in parts))
    logits = np.zeros(shape) if equal else rng.normal(size=shape)
    return WeightedStudentT(components, jax.nn.log_softmax(jnp.asarray(logits, dtype=jnp.float32)))


def as_mixture(dist: WeightedStudentT) -> Mixture:
    components, log_weight = jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf, -1, 0), (dist.components, dist.log_weight)
    )
    return Mixture(components, None, log_weight, N_COMPONENTS)


def test_moments_and_density_are_those_of_the_mixture():
    dist, y = make(), jnp.asarray(np.random.default_rng(1).normal(size=SHAPE), dtype=jnp.float32)
    mixture = as_mixture(dist)
    np.testing.assert_allclose(dist.mean, mixture.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dist.variance, mixture.variance, rtol=1e-5)
    np.testing.assert_allclose(dist.variance, mixture.aleatoric_variance, rtol=1e-5)
    np.testing.assert_allclose(mixture.epistemic_variance, 0.0, atol=1e-6)
    np.testing.assert_allclose(dist.log_prob(y), mixture.log_prob(y), rtol=1e-4, atol=1e-5)


def test_the_density_is_scipys():
    dist = make()
    parts = dist.components
    pdf = stats.t.pdf(0.3, *(np.asarray(part) for part in (parts.df, parts.mean, parts.scale)))
    expected = np.log(np.sum(np.exp(dist.log_weight) * pdf, axis=-1))
    got = dist.log_prob(jnp.full(SHAPE, 0.3))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [0.5, 3.0, "each"])
def test_widening_is_of_every_component_about_its_own_mean(factor):
    dist = make()
    factor = jnp.linspace(0.5, 2, 12).reshape(SHAPE) if factor == "each" else factor
    wide = dist.widen(factor)
    of_components = jnp.broadcast_to(jnp.asarray(factor), SHAPE)[..., None]
    np.testing.assert_allclose(wide.components.scale, of_components * dist.components.scale)
    np.testing.assert_array_equal(wide.components.mean, dist.components.mean)
    np.testing.assert_array_equal(wide.log_weight, dist.log_weight)


def test_tails_are_bounded_in_every_component():
    dist = make()
    np.testing.assert_allclose(
        dist.with_tails(5.0).components.df, np.minimum(dist.components.df, 5.0), rtol=1e-5
    )
    none = dist.with_tails(5.0, jnp.zeros((6, 1)))
    np.testing.assert_allclose(none.components.df, dist.components.df, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_leads_from_the_prediction_to_the_prior(share):
    """The variance goes along a line, whatever the components."""
    dist = make()
    got = dist.toward(4.0, share)
    np.testing.assert_allclose(got.mean, (1 - share) * dist.mean, rtol=1e-4, atol=1e-6)
    expected = (1 - share) * np.asarray(dist.variance) + share * 4
    np.testing.assert_allclose(got.variance, expected, rtol=1e-4)


def test_in_the_end_all_components_have_one_mean_and_one_variance():
    got = make().toward(2.5, jnp.ones((6, 1)))
    np.testing.assert_allclose(got.components.mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(got.components.variance, 2.5, rtol=1e-5)


def test_the_mean_may_be_moved_by_another_share():
    dist, share = make(), jnp.linspace(0, 1, 6)[:, None]
    got = dist.toward(1.0, share, mean_share=share**2)
    np.testing.assert_allclose(got.mean, (1 - share**2) * dist.mean, rtol=1e-4, atol=1e-6)
    expected = (1 - share) * dist.variance + share
    np.testing.assert_allclose(got.variance, expected, rtol=1e-4)


def test_a_share_has_finite_gradients_at_both_ends():
    dist = make()

    def score(dist, share):
        moved = dist.toward(1.0, share, mean_share=share**2)
        return jnp.sum(moved.log_prob(jnp.full(SHAPE, 0.4))) + jnp.sum(moved.variance)

    for share in (0.0, 1.0):
        gradients = jax.grad(score)(dist, jnp.full((6, 1), share))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
