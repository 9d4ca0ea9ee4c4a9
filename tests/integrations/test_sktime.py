"""sktime: its reductions make probabilistic forecasts of our estimators, through skpro."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.compose import YfromX, make_reduction

from sigmax import MeanVarianceRegressor
from sigmax.integrations.skpro import SkproRegressor

TIMES = pd.period_range("2020-01", periods=66, freq="M")
SEASON = np.sin(np.arange(66) * np.pi / 6)
NOISE = np.random.default_rng(0).normal(0, 0.1, 66)
SERIES: Any = pd.Series(SEASON + NOISE, index=TIMES)


@pytest.fixture
def model() -> SkproRegressor:
    network = MeanVarianceRegressor(n_steps=20, hidden_sizes=(4,), n_members=2, random_state=0)
    return SkproRegressor(network)


def test_direct_reduction_forecasts_what_the_models_of_the_last_window_predict(model):
    forecaster = make_reduction(model, strategy="direct", window_length=2)
    forecaster.fit(SERIES[:-4], fh=[1, 4])
    interval = forecaster.predict_interval(coverage=0.8)
    assert interval.index.tolist() == [TIMES[-4], TIMES[-1]]
    window = pd.DataFrame([SERIES[-6:-4].to_numpy()])
    expected = [one.predict_interval(window, coverage=0.8) for one in forecaster.estimators_]
    np.testing.assert_allclose(interval, np.concatenate(expected), rtol=1e-9)
    quantiles = forecaster.predict_quantiles(alpha=[0.2, 0.7])
    assert np.all(np.diff(quantiles.to_numpy(), axis=1) > 0)
    np.testing.assert_allclose(forecaster.predict_var() > 0, np.ones((2, 1)))


def test_a_forecast_from_known_features_is_the_regression_itself(model):
    features: Any = pd.DataFrame({"season": SEASON, "other": SEASON**2}, index=TIMES)
    forecaster: Any = YfromX(model).fit(SERIES[:-6], X=features[:-6])
    found = forecaster.predict_interval(fh=range(1, 7), X=features[-6:], coverage=0.9)
    direct = model.estimator.fit(features[:-6], SERIES[:-6].to_numpy())
    np.testing.assert_allclose(found, direct.predict_interval(features[-6:]), rtol=1e-6)
