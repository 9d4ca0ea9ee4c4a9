"""Models that are trained in one call end as if each had been fitted alone."""

import numpy as np
import pytest
from estimator_list import NETWORKS, changed, fresh, name_of

from sigmax.errors import InvalidArgumentError
from sigmax.estimators import fit_together


def make_splits(n_splits=3, n_rows=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows + 20, 3))
    y = X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.normal(size=len(X))
    rows = [rng.permutation(len(X))[:n_rows] for _ in range(n_splits)]
    return X, [(X[some], y[some]) for some in rows]


def train_three(network, weight=None):
    """A model per split, all trained in one call; the first of them may have weights."""
    X, splits = make_splits()
    models = [fresh(network).set_params(random_state=seed) for seed in range(3)]
    first = splits[0] if weight is None else (*splits[0], weight)
    fit_together(models, [first, *splits[1:]])
    return X, splits, models


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_together_is_alone(network):
    # Of a mixture of priors, long steps make more of a rounding error than is allowed here.
    network = fresh(network).set_params(learning_rate=1e-2)
    X, splits, models = train_three(network)
    for seed, (model, split) in enumerate(zip(models, splits, strict=True)):
        alone = fresh(network).set_params(random_state=seed).fit(*split)
        for name, history in alone.history_.items():
            assert model.history_[name].shape == history.shape
            np.testing.assert_allclose(model.history_[name], history, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-3, atol=1e-3)
        dist, expected = model.predict_dist(X), alone.predict_dist(X)
        np.testing.assert_allclose(dist.std, expected.std, rtol=2e-3)


@pytest.mark.parametrize("network", NETWORKS[1:2], ids=name_of)
def test_each_stops_at_its_own_time(network):
    hasty = {"patience": 2, "learning_rate": 0.05, "variance_learning_rate": 0.05}
    _, _, models = train_three(changed(network, **hasty))
    assert len({len(model.history_["distribution"]) for model in models}) > 1


@pytest.mark.parametrize("network", NETWORKS[:1], ids=name_of)
def test_weights_go_with_their_split(network):
    weight = np.where(np.arange(120) < 100, 1.0, 2.0)
    X, splits, models = train_three(network, weight)
    alone = fresh(network).fit(*splits[0], sample_weight=weight)
    np.testing.assert_allclose(models[0].predict(X), alone.predict(X), rtol=1e-3, atol=1e-3)


def test_unequal_models_are_refused():
    _, splits = make_splits(2)
    models = [fresh(NETWORKS[0]), fresh(NETWORKS[0]).set_params(n_steps=77)]
    with pytest.raises(InvalidArgumentError, match="same settings"):
        fit_together(models, splits)
    with pytest.raises(InvalidArgumentError, match="same shape"):
        fit_together([fresh(NETWORKS[0])] * 2, [splits[0], (splits[1][0][:50], splits[1][1][:50])])
