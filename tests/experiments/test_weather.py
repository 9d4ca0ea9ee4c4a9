"""The weather experiment: its errors by hand, and its table and pictures."""

import numpy as np
import pytest

from sigmax import CombinedRegressor, MeanVarianceRegressor
from sigmax.data import Station
from sigmax.experiments.methods import Method
from sigmax.experiments.weather import (
    run_weather,
    score_weather,
    weather_figures,
    weather_table,
)
from sigmax.plots import Curve


@pytest.fixture(scope="module")
def station():
    """Thirty years with a spread of 2 degrees about a mean of 10."""
    rng = np.random.default_rng(0)
    day = np.repeat(np.arange(1, 366), 30)
    return Station("somewhere", "somewhere", day, 10 + 2 * rng.standard_normal(len(day)))


def test_errors_are_the_papers(station):
    truth = Curve(station.mean(), np.sqrt(station.variance()))
    perfect = score_weather(station, truth)
    assert perfect.mean_error == 0
    assert perfect.variance_error == pytest.approx(0, abs=1e-12)
    doubled = score_weather(station, Curve(truth.mean + 1, 2 * truth.std))
    assert doubled.variance_error == pytest.approx(3 * station.variance().mean())
    assert doubled.variance_bias == pytest.approx(doubled.variance_error)
    assert doubled.std_error == pytest.approx(truth.std.mean())
    assert doubled.mean_error == pytest.approx(1)


def test_every_method_is_fitted_to_every_draw_and_shown(station):
    small = {"hidden_sizes": (8,), "n_steps": 100}
    methods = {
        "nn": Method("NN", lambda seed: MeanVarianceRegressor(random_state=seed, **small)),
        "combined": Method(
            "Combined", lambda seed: CombinedRegressor(n_members=1, random_state=seed, **small)
        ),
    }
    told = []
    result = run_weather(station, methods, [3, 4], report=told.append)
    assert len(told) == 4 and told[0] == "somewhere, draw 3: NN"
    assert all(len(scores) == 2 for scores in result.scores.values())
    table = weather_table([result])
    assert [row[0] for row in table.rows] == ["somewhere: NN", "somewhere: Combined"]
    assert "2 draws" in table.title
    figures = weather_figures(result)
    assert list(figures) == ["somewhere", "somewhere_std"]
    for figure in figures.values():
        assert "NN: Err" in figure.axes[0].get_title()


def test_heavy_tails_do_not_blow_up_the_variance():
    """Student-t data with 3 degrees of freedom: a plain α > 1 gave ten times the variance."""
    rng = np.random.default_rng(0)
    X = np.arange(365.0)[:, None]
    y = rng.standard_t(3, size=365)
    std = CombinedRegressor(random_state=0).fit(X, y).predict(X, return_std=True)[1]
    assert np.mean(std**2) < 2 * y.var()
