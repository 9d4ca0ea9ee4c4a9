"""One contract for every estimator: scikit-learn's own checks, and ours, over one list."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimator_list import ESTIMATORS, NETWORKS, fresh
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from sigmax import scorers
from sigmax.errors import ModelFileError

STOCHASTIC = "members draw their batches at random, so weights and repeats agree in the mean only"
PRECISION = "a weight is the precision of a row; a repeated row also says that the noise is small"


def expected_failures(estimator):
    reason = STOCHASTIC if hasattr(estimator, "n_steps") else PRECISION
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(params=ESTIMATORS, ids=lambda e: type(e).__name__)
def estimator(request):
    return fresh(request.param)


def test_recipe_names_every_setting_in_force_and_no_other(estimator):
    settings = estimator.recipe()
    assert set(settings) == set(estimator.get_params()) - {"preset", "random_state", "verbose"}
    without_default = {"gate_scale", "n_steps"}  # from the data, and from the number of rows
    assert {name for name, value in settings.items() if value is None} <= without_default
    for name, value in estimator.get_params().items():
        if name in settings and value is not None:
            assert settings[name] == value


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.normal(size=120)


def test_predictions_are_views_of_one_distribution(estimator, rows):
    X, y = rows
    model = estimator.fit(X, y)
    dist = model.predict_dist(X[:7])
    mean, std = model.predict(X[:7], return_std=True)
    np.testing.assert_array_equal(model.predict(X[:7]), mean)
    np.testing.assert_allclose(mean, dist.mean)
    np.testing.assert_allclose(std, np.sqrt(dist.variance))
    interval = model.predict_interval(X[:7], coverage=0.8)
    assert interval.shape == (7, 2)
    np.testing.assert_allclose(dist.cdf(interval[:, 0]), 0.1, atol=1e-6)
    np.testing.assert_allclose(dist.cdf(interval[:, 1]), 0.9, atol=1e-6)
    quantiles = model.predict_quantiles(X[:7], alpha=[0.1, 0.5, 0.9])
    assert quantiles.shape == (7, 3)
    np.testing.assert_allclose(quantiles[:, [0, 2]], interval)
    parts = model.predict_uncertainty(X[:7])
    np.testing.assert_allclose(
        parts["total"] ** 2, parts["aleatoric"] ** 2 + parts["epistemic"] ** 2
    )
    np.testing.assert_allclose(parts["aleatoric"] ** 2, dist.aleatoric_variance)
    np.testing.assert_allclose(parts["epistemic"] ** 2, dist.epistemic_variance)
    assert np.all(parts["epistemic"] > 0)
    for values in (mean, std, interval, quantiles, *parts.values()):
        assert values.dtype == np.float64
        assert np.isfinite(values).all()


def test_shift_and_scale_of_y_shift_and_scale_the_prediction(estimator, rows):
    X, y = rows
    mean, std = fresh(estimator).fit(X, y).predict(X, return_std=True)
    mean_2, std_2 = fresh(estimator).fit(X, 512 * y - 4096).predict(X, return_std=True)
    np.testing.assert_allclose(mean_2, 512 * mean - 4096, rtol=1e-3, atol=0.5)
    np.testing.assert_allclose(std_2, 512 * std, rtol=1e-3)


def test_units_of_a_column_change_nothing(estimator, rows):
    X, y = rows
    scale, shift = np.array([4.0, 0.25, 1024.0]), np.array([8.0, 0.0, -2.0])
    expected = fresh(estimator).fit(X, y).predict(X)
    found = fresh(estimator).fit(X * scale + shift, y).predict(X * scale + shift)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_same_seed_same_prediction(estimator, rows):
    X, y = rows
    first = fresh(estimator).fit(X, y).predict(X)
    np.testing.assert_array_equal(fresh(estimator).fit(X, y).predict(X), first)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda e: type(e).__name__)
def test_other_seed_other_prediction(network, rows):
    X, y = rows
    first, other = (fresh(network).set_params(random_state=seed).fit(X, y) for seed in (0, 1))
    assert not np.allclose(other.predict(X), first.predict(X))


def test_outputs_have_their_own_variances(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    Y = np.stack([X[:, 0] + 0.05 * rng.normal(size=300), 5 * rng.normal(size=300)], axis=1)
    model = estimator.fit(X, Y)
    mean, std = model.predict(X[:9], return_std=True)
    assert mean.shape == std.shape == (9, 2)
    assert std[:, 0].mean() < 0.7 < 3 < std[:, 1].mean()
    assert model.predict_interval(X[:9]).shape == (9, 2, 2)
    assert model.predict_quantiles(X[:9], alpha=[0.2, 0.5, 0.7]).shape == (9, 2, 3)
    assert model.score(X, Y) > 0.2


def test_one_column_of_y_keeps_its_column(estimator, rows):
    X, y = rows
    assert estimator.fit(X, y[:, None]).predict(X).shape == (120, 1)


def test_weights_move_the_prediction(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    y = np.where(np.arange(200) % 2, 1.0, -1.0)
    weight = np.where(np.arange(200) % 2, 50.0, 1.0)
    mean = fresh(estimator).fit(X, y, sample_weight=weight).predict(X).mean()
    assert mean > 0.5
    assert abs(fresh(estimator).fit(X, y).predict(X).mean()) < 0.3


def test_rows_of_weight_zero_are_absent(estimator, rows):
    X, y = rows
    weight = np.where(np.arange(120) < 90, 1.0, 0.0)
    weighted = fresh(estimator).fit(X, y, sample_weight=weight).predict(X)
    np.testing.assert_array_equal(weighted, fresh(estimator).fit(X[:90], y[:90]).predict(X))


def test_frames_go_in_and_their_names_are_checked(estimator, rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = estimator.fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_saved_and_loaded_predicts_the_same_bits(estimator, rows, tmp_path):
    X, y = rows
    model = estimator.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    mean, std = model.predict(frame, return_std=True)
    folder = tmp_path / "model"
    model.save(folder)
    loaded = type(model).load(folder)
    for found, expected in zip(loaded.predict(frame, return_std=True), (mean, std), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert loaded.get_params() == model.get_params()
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    np.save(tmp_path / "X.npy", X)
    code = f"""
import numpy as np, pandas as pd, sys
from sigmax import {type(model).__name__} as Model
frame = pd.DataFrame(np.load(sys.argv[1] + "/X.npy"), columns=["a", "b", "c"])
model = Model.load(sys.argv[1] + "/model")
np.save(sys.argv[1] + "/out.npy", model.predict(frame, return_std=True))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.stack([mean, std]))


def test_pickled_predicts_the_same_bits(estimator, rows):
    X, y = rows
    model = estimator.fit(X, y)
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))


def test_saving_twice_replaces_and_strangers_are_refused(estimator, rows, tmp_path):
    X, y = rows
    model = estimator.fit(X, y)
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(ModelFileError, match="not a sigmax model folder"):
        model.save(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").exists()


def test_scorers_serve_a_grid_search(estimator, rows):
    X, y = rows
    settings: dict[str, Any] = {"cv": 2, "error_score": "raise"}
    scoring = scorers.log_likelihood
    grid = {"n_members" if hasattr(estimator, "n_members") else "n_restarts": [1, 2]}
    search = GridSearchCV(estimator, grid, scoring=scoring, **settings).fit(X, y)
    assert np.isfinite(search.best_score_)
    dist = search.best_estimator_.predict_dist(X)
    assert scorers.crps(search.best_estimator_, X, y) == pytest.approx(-dist.crps(y).mean())


def test_verbose_shows_a_bar_and_silence_is_the_default(estimator, rows, capsys):
    X, y = rows
    fresh(estimator).fit(X, y)
    assert capsys.readouterr().out == ""
    fresh(estimator).set_params(verbose=1).fit(X, y)
    assert "━━━" in capsys.readouterr().out
