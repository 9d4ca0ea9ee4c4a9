"""One contract for every estimator: scikit-learn's own checks, and ours, over one list."""

import inspect
import pickle
import re
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from estimator_list import ESTIMATORS, FRAME, NETWORKS, SMALLEST, X, Y, fitted, fresh, name_of
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from sigmax import scorers
from sigmax.errors import ModelFileError, TrainingWarning
from sigmax.estimators import AbstractRegressor

STOCHASTIC = "members draw their batches at random, so weights and repeats agree in the mean only"
PRECISION = "a weight is the precision of a row; a repeated row also says that the noise is small"


def expected_failures(estimator):
    reason = STOCHASTIC if hasattr(estimator, "n_steps") else PRECISION
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@parametrize_with_checks(SMALLEST, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(params=ESTIMATORS, ids=name_of)
def estimator(request):
    return fresh(request.param)


@pytest.fixture
def model(estimator):
    """Fitted to ``X`` and ``Y`` by an earlier test or now: not to be changed."""
    return fitted(estimator)


NO_SETTINGS = {"preset", "random_state", "verbose", "categorical_features", "numeric_features"}


def test_settings_names_every_setting_in_force_and_no_other(estimator):
    settings = estimator.settings()
    assert set(settings) == set(estimator.get_params()) - NO_SETTINGS
    # From the data, from the number of rows, and no limit.
    without_default = {"gate_scale", "n_steps", "time_limit"}
    assert {name for name, value in settings.items() if value is None} <= without_default
    for name, value in estimator.get_params().items():
        if name in settings and value is not None:
            assert settings[name] == value


def test_help_names_every_argument_and_method_and_has_an_example(estimator):
    text = str(type(estimator).__doc__)
    arguments = re.sub(r" : .*", "", text.split("Parameters\n")[1]).replace(",", " ").split()
    assert set(estimator.get_params()) <= set(arguments)
    assert ">>>" in text
    public = [name for name in vars(AbstractRegressor) | vars(type(estimator)) if name[0] != "_"]
    methods = [getattr(type(estimator), name) for name in public]
    assert all(inspect.getdoc(each) for each in methods if inspect.isfunction(each))


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_the_contract_holds_with_recalibration_on(network):
    assert getattr(network.expert(), "recalibrate", True) is True


def test_predictions_are_views_of_one_distribution(model):
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


def test_shift_and_scale_of_y_shift_and_scale_the_prediction(estimator, model):
    mean, std = model.predict(X, return_std=True)
    mean_2, std_2 = estimator.fit(X, 512 * Y - 4096).predict(X, return_std=True)
    np.testing.assert_allclose(mean_2, 512 * mean - 4096, rtol=1e-3, atol=0.5)
    np.testing.assert_allclose(std_2, 512 * std, rtol=1e-3)


def test_units_of_a_column_change_nothing(estimator, model):
    scale, shift = np.array([4.0, 0.25, 1024.0]), np.array([8.0, 0.0, -2.0])
    found = estimator.fit(X * scale + shift, Y).predict(X * scale + shift)
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-3, atol=1e-3)


def test_same_seed_same_prediction(estimator, model):
    np.testing.assert_array_equal(estimator.fit(X, Y).predict(X), model.predict(X))


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_other_seed_other_prediction(network):
    other = fresh(network).set_params(random_state=1).fit(X, Y)
    assert not np.allclose(other.predict(X), fitted(network).predict(X))


def test_outputs_have_their_own_variances(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 2))  # so many that few rows need no allowance
    Y = np.stack([X[:, 0] + 0.05 * rng.normal(size=250), 5 * rng.normal(size=250)], axis=1)
    model = estimator.fit(X, Y)
    mean, std = model.predict(X[:9], return_std=True)
    assert mean.shape == std.shape == (9, 2)
    assert std[:, 0].mean() < 0.7 < 3 < std[:, 1].mean()
    assert model.predict_interval(X[:9]).shape == (9, 2, 2)
    assert model.predict_quantiles(X[:9], alpha=[0.2, 0.5, 0.7]).shape == (9, 2, 3)
    assert model.score(X, Y) > 0.2


def test_one_column_of_y_keeps_its_column(estimator):
    assert estimator.fit(X, Y[:, None]).predict(X).shape == (120, 1)


def test_weights_move_the_prediction(estimator):
    is_odd = np.arange(120) % 2 == 1
    y, weight = np.where(is_odd, 1.0, -1.0), np.where(is_odd, 50.0, 1.0)
    mean = fresh(estimator).fit(X, y, sample_weight=weight).predict(X).mean()
    assert mean > 0.5
    assert abs(fresh(estimator).fit(X, y).predict(X).mean()) < 0.3


def test_a_table_appended_to_itself_is_the_table_with_weights(estimator):
    with pytest.warns(TrainingWarning, match="240 of 360 rows are exact duplicates"):
        repeated = fresh(estimator).fit(np.tile(X, (3, 1)), np.tile(Y, 3)).predict_dist(X)
    weighted = fresh(estimator).fit(X, Y, sample_weight=np.full(120, 3.0)).predict_dist(X)
    np.testing.assert_array_equal(repeated.mean, weighted.mean)
    np.testing.assert_array_equal(repeated.std, weighted.std)


def test_rows_of_weight_zero_are_absent(estimator):
    weight = np.where(np.arange(120) < 100, 1.0, 0.0)
    weighted = fresh(estimator).fit(X, Y, sample_weight=weight).predict(X)
    np.testing.assert_array_equal(weighted, fresh(estimator).fit(X[:100], Y[:100]).predict(X))


def test_frames_go_in_and_their_names_are_checked(estimator):
    model = fitted(estimator, frame=True)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(FRAME.rename(columns={"a": "z"}))
    np.testing.assert_array_equal(
        model.predict(FRAME), fresh(estimator).fit(FRAME, pd.Series(Y)).predict(FRAME)
    )


ANOTHER_PROGRAM = """
import sys, jax, numpy as np, pandas as pd, sigmax
for line in sys.stdin:
    name, is_optimized, folder = line.rstrip("\\n").split(" ", 2)
    jax.config.update("jax_disable_most_optimizations", is_optimized == "False")
    model = getattr(sigmax, name).load(folder + "/model")
    X = pd.DataFrame(np.load(folder + "/X.npy"), columns=["a", "b", "c"])
    np.save(folder + "/out.npy", model.predict(X, return_std=True))
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def another_program():
    """A second Python, which pays for its imports once, and how to have it predict."""
    command = [sys.executable, "-c", ANOTHER_PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        stdin, stdout = program.stdin, program.stdout
        assert stdin is not None and stdout is not None

        def predict(name, folder):
            is_optimized = not jax.config.read("jax_disable_most_optimizations")
            print(name, is_optimized, folder, file=stdin, flush=True)
            assert stdout.readline() == "done\n"
            return np.load(folder / "out.npy")

        yield predict
        stdin.close()
    assert program.returncode == 0


def test_saved_and_loaded_predicts_the_same_bits(estimator, tmp_path, another_program):
    model = fitted(estimator, frame=True)
    mean, std = model.predict(FRAME, return_std=True)
    folder = tmp_path / "model"
    model.save(folder)
    loaded = type(model).load(folder)
    for found, expected in zip(loaded.predict(FRAME, return_std=True), (mean, std), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert loaded.get_params() == model.get_params()
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    np.save(tmp_path / "X.npy", X)
    elsewhere = another_program(name_of(model), tmp_path)
    np.testing.assert_array_equal(elsewhere, np.stack([mean, std]))


def test_pickled_predicts_the_same_bits(model):
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))


def test_saving_twice_replaces_and_strangers_are_refused(model, tmp_path):
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(ModelFileError, match="not a sigmax model folder"):
        model.save(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").exists()


def test_scorers_serve_a_grid_search(estimator):
    splits = ShuffleSplit(2, train_size=100, random_state=0)
    settings: dict[str, Any] = {"cv": splits, "error_score": "raise"}
    scoring = scorers.log_likelihood
    grids = {
        "validation_fraction": [0.1, 0.3],
        "max_iter": [5, 10],
        "experts": [["linear"], ["forest"]],
    }
    grid = {name: tried for name, tried in grids.items() if name in estimator.settings()}
    search = GridSearchCV(estimator, grid, scoring=scoring, **settings).fit(X, Y)
    assert np.isfinite(search.best_score_)
    dist = search.best_estimator_.predict_dist(X)
    assert scorers.crps(search.best_estimator_, X, Y) == pytest.approx(-dist.crps(Y).mean())


def test_verbose_shows_a_bar_and_silence_is_the_default(estimator, capsys):
    fresh(estimator).fit(X, Y)
    assert capsys.readouterr().out == ""
    if "verbose" not in estimator.get_params():  # nothing to wait for
        return
    fresh(estimator).set_params(verbose=1).fit(X, Y)
    assert "━━━" in capsys.readouterr().out
