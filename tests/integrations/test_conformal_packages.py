"""MAPIE and crepes take our estimators, and their intervals are those of the formula."""

import numpy as np
import pytest
from crepes import ConformalPredictiveSystem, WrapRegressor
from crepes.extras import DifficultyEstimator
from mapie.conformity_scores import StdConformityScore
from mapie.regression import CrossConformalRegressor, SplitConformalRegressor

from sigmax import MeanVarianceRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(259, 2))
Y = X[:, 0] + (0.2 + (X[:, 1] > 0)) * RNG.normal(size=259)
TRAIN, HELD_OUT, TEST = slice(60), slice(60, 159), slice(159, None)


@pytest.fixture(scope="module")
def model() -> MeanVarianceRegressor:
    network = MeanVarianceRegressor(n_steps=20, hidden_sizes=(4,), n_members=2, random_state=0)
    network.fit(X[TRAIN], Y[TRAIN])
    return network


@pytest.fixture(scope="module")
def expected(model) -> np.ndarray:
    """Of 99 held-out rows, the 75th smallest of the errors in standard deviations."""
    mean, std = model.predict(X, return_std=True)
    factor = np.sort(np.abs(Y - mean)[HELD_OUT] / std[HELD_OUT])[74]
    return np.stack([mean - factor * std, mean + factor * std], axis=1)[TEST]


def test_split_intervals_of_mapie_by_our_standard_deviations(model, expected):
    wrapped = SplitConformalRegressor(
        model, confidence_level=0.75, conformity_score=StdConformityScore(), prefit=True
    )
    wrapped.conformalize(X[HELD_OUT], Y[HELD_OUT])
    points, intervals = wrapped.predict_interval(X[TEST])
    np.testing.assert_allclose(points, model.predict(X[TEST]), rtol=1e-12)
    np.testing.assert_allclose(intervals[:, :, 0], expected, rtol=1e-9)


def test_mapie_fits_copies_of_an_estimator_for_cross_conformal_intervals(model):
    wrapped = CrossConformalRegressor(model, confidence_level=0.9, cv=2)
    wrapped.fit_conformalize(X[:120], Y[:120])
    _, intervals = wrapped.predict_interval(X[TEST])
    assert np.all(intervals[:, 0] < intervals[:, 1])


def test_intervals_of_crepes_by_our_standard_deviations(model, expected):
    difficulty = DifficultyEstimator()
    difficulty.fit(X[TRAIN], f=lambda rows: model.predict(rows, return_std=True)[1], beta=0)
    wrapped = WrapRegressor(model)
    wrapped.calibrate(X[HELD_OUT], Y[HELD_OUT], de=difficulty)
    np.testing.assert_allclose(wrapped.predict_int(X[TEST], confidence=0.75), expected, rtol=1e-9)


def test_a_wrapper_of_crepes_fits_the_estimator(model):
    fresh = MeanVarianceRegressor(**model.get_params())
    wrapped = WrapRegressor(fresh)
    wrapped.fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_array_equal(wrapped.predict(X[TEST]), model.predict(X[TEST]))


def test_predictive_systems_of_crepes_have_the_quantiles_of_scaled_errors(model):
    mean, std = model.predict(X, return_std=True)
    system = ConformalPredictiveSystem()
    system.fit((Y - mean)[HELD_OUT], sigmas=std[HELD_OUT])
    rows = {"y_hat": mean[TEST], "sigmas": std[TEST]}
    median = np.ravel(system.predict_percentiles(**rows, higher_percentiles=[50]))
    scaled = np.sort((Y - mean)[HELD_OUT] / std[HELD_OUT])  # the middle one of 99 is number 50
    np.testing.assert_allclose(median, (mean + scaled[49] * std)[TEST], rtol=1e-9)
