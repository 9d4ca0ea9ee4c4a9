"""A fit is all or nothing, and what went wrong in it is said."""

import io
from copy import deepcopy

import numpy as np
import pytest
from estimator_list import (
    COMBINED,
    ESTIMATORS,
    NETWORKS,
    SHORT,
    X,
    Y,
    build,
    fitted,
    fresh,
    name_of,
)
from rich.console import Console
from sklearn.exceptions import NotFittedError

from sigmax import (
    BayesianRegressor,
    CombinedRegressor,
    MCDropoutRegressor,
    MeanVarianceRegressor,
)
from sigmax.errors import TrainingError, TrainingWarning
from sigmax.experts import ensemble
from sigmax.experts.ensemble import AbstractNetworkExpert, prepare
from sigmax.experts.rows import Rows
from sigmax.random import make_key
from sigmax.training import Fold, train_stage


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 2))
    return X, X[:, 0] + 0.3 * rng.normal(size=250)


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_an_interrupted_fit_leaves_the_model_as_it_was(network, monkeypatch):
    model = deepcopy(fitted(network))
    before = model.predict(X[:9], return_std=True)

    def interrupt(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(ensemble, "train_stage", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(100 * X[:, :1], 1000 + Y)
    np.testing.assert_array_equal(model.predict(X[:9], return_std=True), before)
    unfitted = fresh(network)
    with pytest.raises(KeyboardInterrupt):
        unfitted.fit(X, Y)
    with pytest.raises(NotFittedError):
        unfitted.predict(X)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_a_refused_fit_does_not_count_as_one(estimator):
    model = fresh(estimator)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.where(X > 2, np.inf, X), Y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model, "n_features_in_")


def test_compilation_and_what_follows_the_training_have_their_names(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr("rich._console", console)
    fresh(NETWORKS[0]).set_params(verbose=1).fit(X, Y)
    shown = screen.getvalue()
    words = ("preparing rows", "compiling, first steps", "calibrating on validation rows")
    places = [shown.index(word) for word in words]
    assert places == sorted(places)


def broken(members, is_scored=True):
    """A training in which some members break down."""

    def train(*inputs, **settings):
        trained, histories = train_stage(*inputs, **settings)
        for history in histories:
            history["score"][:, members] = np.nan
        return trained, histories

    return train


def test_a_member_that_broke_down_is_named_and_left_out(monkeypatch, tmp_path):
    settings = SHORT | COMBINED | {"n_members": 3, "warmup_fraction": 0.0, "recalibrate": False}
    whole = build(CombinedRegressor, **settings).fit(X, Y)
    monkeypatch.setattr(ensemble, "train_stage", broken([1]))
    model = build(CombinedRegressor, **settings)
    with pytest.warns(TrainingWarning, match=r"1 of 3 members broke down \(number 1\)"):
        model.fit(X, Y)
    assert model.predict_dist(X[:5]).dist.n_members == 2
    members = whole.predict_dist(X[:5]).dist.components.mean
    np.testing.assert_allclose(
        model.predict_dist(X[:5]).dist.components.mean, members[[0, 2]], rtol=1e-5
    )
    model.save(tmp_path / "model")
    loaded = CombinedRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X[:5]), model.predict(X[:5]))


@pytest.mark.parametrize("network", NETWORKS[:1], ids=name_of)
def test_a_training_without_any_sound_member_is_an_error(network, monkeypatch):
    monkeypatch.setattr(ensemble, "train_stage", broken([0, 1]))
    model = fresh(network)
    with pytest.raises(TrainingError, match=r"none of 2 members.*learning_rate"):
        model.fit(X, Y)
    assert not hasattr(model, "model_")


def test_parameters_that_are_no_numbers_break_a_member_also_without_held_out_rows():
    model = CombinedRegressor(
        "paper", learning_rate=1e30, n_steps=20, hidden_sizes=(8,), random_state=0
    )
    with pytest.raises(TrainingError, match="broke down"):
        model.fit(X, Y)


@pytest.mark.parametrize("settings", [{"preset": "paper"}, {"validation_fraction": 0.0}])
def test_dropout_without_held_out_rows_finds_its_noise(rows, settings):
    X, y = rows
    settings = {"n_steps": 1000, "hidden_sizes": (20,), "random_state": 0, **settings}
    model = MCDropoutRegressor(**settings).fit(X, y)
    aleatoric = model.predict_uncertainty(X)["aleatoric"]
    np.testing.assert_allclose(aleatoric, 0.3, rtol=0.5)
    assert np.all(aleatoric < 0.6 * y.std())


def test_without_patience_all_steps_are_taken(rows):
    X, y = rows
    settings = {"n_members": 1, "hidden_sizes": (8,), "n_steps": 300, "random_state": 0}
    settings |= {"learning_rate": 0.1, "variance_learning_rate": 0.1, "warmup_fraction": 0.0}
    model = build(MeanVarianceRegressor, patience=1, **settings).fit(X, y)
    assert len(model.history_["distribution"]) < 50
    model = build(MeanVarianceRegressor, patience=0, **settings).fit(X, y)
    assert len(model.history_["distribution"]) == 50


def test_the_divergence_is_shared_by_the_rows_that_are_learned_from(rows):
    X, y = rows
    model, key = BayesianRegressor(validation_fraction=0.5), make_key(0)
    given, expert = model.read_training(X, y), model.expert()
    assert isinstance(expert, AbstractNetworkExpert)
    start = prepare(expert, Rows.encode(given, expert.target(given)), key)
    folds = Fold.create([given.weight], start.held_out, [0], 256)
    assert float(folds.n_learned[0]) == 125
