"""Weather experiment: errors, table and figures."""

import numpy as np
import pytest
from paper_cases import SMALL, run_lines

from sigmax import CombinedRegressor
from sigmax.data import Station
from sigmax.paper.curves import score_weather, weather_figures, weather_tables
from sigmax.plots import Curve


@pytest.fixture(scope="module")
def station():
    """Thirty years with a spread of 2 degrees about a mean of 10."""
    rng = np.random.default_rng(0)
    day = np.repeat(np.arange(1, 366), 30)
    return Station("somewhere", day, 10 + 2 * rng.standard_normal(len(day)))


@pytest.fixture
def station_file(station, tmp_path):
    """The same as a csv file."""
    first = np.datetime64("2001-01-01")
    rows = [
        f"{str(first + day - 1).replace('2001', str(1981 + i % 30))},{value:.3f}"
        for i, (day, value) in enumerate(zip(station.day, station.tmax, strict=True))
    ]
    path = tmp_path / "somewhere.csv"
    path.write_text("\n".join(["date,tmax", *rows]))
    return str(path)


def test_errors_agree_with_the_definitions_of_the_paper(station):
    truth = Curve(station.mean(), np.sqrt(station.variance()))
    perfect = score_weather(station, truth)
    assert perfect["mean_error"] == 0
    assert perfect["variance_error"] == pytest.approx(0, abs=1e-12)
    doubled = score_weather(station, Curve(truth.mean + 1, 2 * truth.std))
    assert doubled["variance_error"] == pytest.approx(3 * station.variance().mean())
    assert doubled["variance_bias"] == pytest.approx(doubled["variance_error"])
    assert doubled["std_error"] == pytest.approx(truth.std.mean())
    assert doubled["mean_error"] == pytest.approx(1)


def test_every_method_is_fitted_to_every_draw_and_has_tables_and_figures(station_file):
    choice = {"datasets": [station_file], "methods": ["nn", "combined"], "settings": SMALL}
    records = run_lines("weather", n_splits=2, seed=3, **choice)
    assert [record.task.seed for record in records] == [3, 4, 3, 4]
    (table,) = weather_tables(records)
    assert [row[0] for row in table.rows] == ["NN", "Combined"]
    assert "2 draws" in table.title
    figures = weather_figures(records)
    assert list(figures) == ["somewhere", "somewhere_std"]
    for figure in figures.values():
        assert "NN: Err" in figure.axes[0].get_title()


@pytest.mark.long
def test_heavy_tails_do_not_inflate_the_variance(optimized):
    """Student-t data with 3 degrees of freedom: a plain α > 1 gave ten times the variance."""
    rng = np.random.default_rng(0)
    X = np.arange(365.0)[:, None]
    y = rng.standard_t(3, size=365)
    std = CombinedRegressor(random_state=0).fit(X, y).predict(X, return_std=True)[1]
    assert np.mean(std**2) < 2 * y.var()
