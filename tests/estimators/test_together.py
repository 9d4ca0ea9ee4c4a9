"""Models that are trained in one call end as if each had been fitted alone."""

import numpy as np
import pytest
from estimator_list import NETWORKS, fresh

from sigmax.errors import InvalidArgumentError
from sigmax.estimators import fit_together


def make_splits(n_splits=3, n_rows=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows + 20, 3))
    y = X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.normal(size=len(X))
    rows = [rng.permutation(len(X))[:n_rows] for _ in range(n_splits)]
    return X, [(X[some], y[some]) for some in rows]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda e: type(e).__name__)
def test_together_is_alone(network):
    X, splits = make_splits()
    settings = {"patience": 3, "n_steps": 200}
    models = [fresh(network).set_params(random_state=seed, **settings) for seed in range(3)]
    fit_together(models, splits)
    for seed, (model, split) in enumerate(zip(models, splits, strict=True)):
        alone = fresh(network).set_params(random_state=seed, **settings).fit(*split)
        for name, history in alone.history_.items():
            assert model.history_[name].shape == history.shape
            np.testing.assert_allclose(model.history_[name], history, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-3, atol=1e-3)
        dist, expected = model.predict_dist(X), alone.predict_dist(X)
        np.testing.assert_allclose(dist.std, expected.std, rtol=2e-3)


def test_each_stops_at_its_own_time():
    _, splits = make_splits()
    settings = {
        "patience": 2,
        "n_steps": 400,
        "learning_rate": 0.05,
        "variance_learning_rate": 0.05,
    }
    models = [fresh(NETWORKS[0]).set_params(random_state=seed, **settings) for seed in range(3)]
    fit_together(models, splits)
    assert len({len(model.history_["distribution"]) for model in models}) > 1


def test_weights_go_with_their_split():
    X, splits = make_splits(2)
    weight = np.where(np.arange(120) < 100, 1.0, 2.0)
    network = NETWORKS[0]
    models = [fresh(network), fresh(network)]
    fit_together(models, [(*splits[0], weight), splits[1]])
    alone = fresh(network).fit(*splits[0], sample_weight=weight)
    np.testing.assert_allclose(models[0].predict(X), alone.predict(X), rtol=1e-3, atol=1e-3)


def test_unequal_models_are_refused():
    _, splits = make_splits(2)
    models = [fresh(NETWORKS[0]), fresh(NETWORKS[0]).set_params(n_steps=77)]
    with pytest.raises(InvalidArgumentError, match="same settings"):
        fit_together(models, splits)
    with pytest.raises(InvalidArgumentError, match="same shape"):
        fit_together([fresh(NETWORKS[0])] * 2, [splits[0], (splits[1][0][:50], splits[1][1][:50])])
