"""A sampler of Optuna: what it proposes can be tried, is good, and the same for the same seed."""

import importlib
import math
import sys
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sigmax.distributions import Mixture, Normal, Predictive
from sigmax.errors import InvalidArgumentError, MissingExtraError
from sigmax.integrations.optuna import SigmaxSampler, bounds, decoded, encoded

SPACE = {
    "rate": FloatDistribution(1e-5, 1e-1, log=True),
    "share": FloatDistribution(0.0, 1.0, step=0.25),
    "depth": IntDistribution(1, 9, step=2),
    "width": IntDistribution(8, 512, log=True),
    "kind": CategoricalDistribution(("a", None, True)),
}


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def objective(trial: optuna.Trial) -> float:
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    depth = trial.suggest_int("depth", 1, 9, step=2)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return (math.log10(rate) + 3) ** 2 + 0.1 * (depth - 5) ** 2 + (kind == "b")


def trials_of(direction: Any, sign: float, **settings) -> list[Any]:
    sampler = SigmaxSampler(seed=0, n_candidates=256, n_restarts=1, **settings)
    study = optuna.create_study(direction=direction, sampler=sampler)
    study.optimize(lambda trial: sign * objective(trial), n_trials=18)
    return study.trials


@pytest.fixture(scope="module")
def minimised() -> list[optuna.trial.FrozenTrial]:
    return trials_of("minimize", 1.0)


def test_later_trials_are_better_than_random_ones(minimised):
    values: Any = [trial.value for trial in minimised]
    assert np.median(values[10:]) < np.median(values[:10])
    assert min(values[10:]) < min(values[:10])
    for trial in minimised:
        for name, value in trial.params.items():
            distribution = trial.distributions[name]
            assert distribution._contains(distribution.to_internal_repr(value))


def test_the_same_seed_gives_the_same_trials_in_either_direction(minimised):
    again = trials_of("maximize", -1.0)
    assert [trial.params for trial in again] == [trial.params for trial in minimised]


def test_rows_are_parameters_and_back():
    rng = np.random.default_rng(0)
    for _ in range(200):
        row = np.array([rng.uniform(*bounds(each)) for each in SPACE.values()])
        found = decoded(row, SPACE)
        for name, each in SPACE.items():
            assert each._contains(each.to_internal_repr(found[name])), (name, found[name])
        assert decoded(np.array(encoded(found, SPACE)), SPACE) == pytest.approx(found)
    assert encoded({"rate": 1e-2, "kind": None}, {k: SPACE[k] for k in ("rate", "kind")}) == [
        pytest.approx(math.log(1e-2)),
        1.0,
    ]


class Flat:
    """A model that expects nothing, and keeps what it was given."""

    def __init__(self, X, y, **settings):
        self.y, self.settings = list(y), settings

    def predict(self, X):
        return np.zeros(len(X))

    def predict_dist(self, X):
        return Predictive(Mixture(Normal(np.zeros((2, len(X))), np.ones((2, len(X))))))


def test_a_model_is_fitted_to_the_finished_trials(monkeypatch):
    models = []

    def fit(X, y, **settings):
        models.append(Flat(X, y, **settings))
        return models[-1]

    monkeypatch.setattr("sigmax.integrations.optuna.fit_surrogate", fit)

    def fails(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        trial.suggest_categorical("kind", ["a", "b"])
        if trial.number % 3 == 1:
            raise optuna.TrialPruned
        return float("nan") if trial.number % 3 == 2 else trial.number

    study = optuna.create_study(sampler=SigmaxSampler(seed=0, n_startup_trials=4))
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # of trials that fail
    study.optimize(fails, n_trials=26)
    assert models[0].y == [-0.0, -3.0, -6.0, -9.0]
    assert models[-1].y == [-3.0 * number for number in range(9)]
    assert models[0].settings["categorical_features"] == [0]  # by name, "kind" comes first


def test_several_objectives_are_refused():
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=SigmaxSampler(seed=0))
    with pytest.raises(InvalidArgumentError, match="optimises one value"):
        study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=2)


def test_settings_out_of_range_are_refused():
    with pytest.raises(InvalidArgumentError, match="`n_candidates` must be"):
        SigmaxSampler(n_candidates=0)


def test_without_optuna_one_sentence_says_what_to_install(monkeypatch):
    loaded = [name for name in sys.modules if name.split(".")[0] == "optuna"]
    for name in ("optuna", *loaded):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "sigmax.integrations.optuna")
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module("sigmax.integrations.optuna")
    message = 'sigmax.integrations.optuna needs Optuna: pip install "sigmax[optuna]".'
    assert str(caught.value) == message
