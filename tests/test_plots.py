"""Displays of fitted models: what they show, where they draw, and what they refuse."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from sigmax import LinearRegressor
from sigmax.distributions import Normal, Predictive
from sigmax.errors import InvalidDataError
from sigmax.plots import CalibrationDisplay, DependenceDisplay, IntervalDisplay, PITDisplay

TARGET_DISPLAYS = (CalibrationDisplay, IntervalDisplay, PITDisplay)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2))
Y = X[:, 0] + RNG.normal(size=200)
MODEL = LinearRegressor().fit(X[:100], Y[:100])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def labels(ax) -> list[str]:
    return ax.get_legend_handles_labels()[1]


@pytest.mark.parametrize("display", TARGET_DISPLAYS)
def test_an_estimator_and_its_predictions_give_the_same_picture(display):
    ax = Figure().subplots()
    found = display.from_estimator(MODEL, X[100:], Y[100:], ax=ax)
    same = display.from_predictions(Y[100:], MODEL.predict_dist(X[100:]))
    assert found.ax_ is ax and found.figure_ is ax.figure
    assert same.figure_.number in pyplot.get_fignums()
    assert labels(found.ax_) == labels(same.ax_)
    for name in set(vars(found)) - {"ax_", "figure_"}:
        np.testing.assert_array_equal(getattr(found, name), getattr(same, name))


@pytest.mark.parametrize("display", TARGET_DISPLAYS)
def test_a_display_can_be_drawn_again(display):
    found = display.from_estimator(MODEL, X, Y, ax=Figure().subplots())
    again = Figure().subplots()
    assert found.plot(again) is found and found.ax_ is again and again.get_legend() is not None


def test_observed_coverage_is_that_of_counted_intervals():
    dist = MODEL.predict_dist(X)
    display = CalibrationDisplay.from_predictions(Y, dist, levels=[0.9, 0.5])
    counted = [np.mean(np.abs(2 * dist.cdf(Y) - 1) <= level) for level in (0.5, 0.9)]
    np.testing.assert_array_equal(display.nominal, [0.5, 0.9])
    np.testing.assert_allclose(display.observed, counted)


def test_bars_of_the_pit_count_targets():
    display = PITDisplay.from_estimator(MODEL, X, Y, bins=4)
    counts = np.histogram(MODEL.predict_dist(X).cdf(Y), 4, (0, 1))[0]
    np.testing.assert_allclose(display.density * 200 / 4, counts)
    heights = [bar.get_bbox().height for bar in display.ax_.patches]  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(heights, display.density)


def test_intervals_are_those_of_the_estimator_and_misses_are_counted():
    display = IntervalDisplay.from_estimator(MODEL, X, Y, coverage=0.5, x=X[:, 0], xlabel="a")
    lower, upper = MODEL.predict_interval(X, coverage=0.5).T
    n_inside = np.sum((lower <= Y) & (Y <= upper))
    assert labels(display.ax_)[0] == "50 % interval"
    assert labels(display.ax_)[2] == f"inside: {n_inside} of 200 targets"
    assert display.ax_.get_xlabel() == "a"


def test_calibration_and_pit_pool_several_outputs_and_intervals_refuse_them():
    y = np.zeros((5, 2))
    dist = Predictive(Normal(np.zeros((5, 2)), np.ones((5, 2))))
    assert CalibrationDisplay.from_predictions(y, dist).n_targets == 10
    assert PITDisplay.from_predictions(y, dist).n_targets == 10
    with pytest.raises(InvalidDataError, match=r"one output per row, got shapes \(5, 2\)"):
        IntervalDisplay.from_predictions(y, dist)


def test_dependence_of_a_linear_model_is_its_slope_and_its_categories():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=200), "kind": rng.choice(["a", "b"], 200)})
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(200), unit="D")
    y = 3 * frame["size"] + 2 * (frame["kind"] == "b") + 0.1 * rng.normal(size=200)
    model = LinearRegressor().fit(frame, y)
    ax = Figure().subplots()
    size = DependenceDisplay.from_estimator(model, frame, "size", ax=ax)
    np.testing.assert_allclose(np.diff(size.mean) / np.diff(size.values), 3, atol=0.1)
    assert np.all(size.interval[:, 0] < size.mean) and np.all(size.mean < size.interval[:, 1])
    assert size.ax_ is ax and ax.get_xlabel() == "size"
    kind = DependenceDisplay.from_estimator(model, frame, 1)
    assert kind.values.tolist() == ["b", "a"]
    assert kind.mean[0] - kind.mean[1] == pytest.approx(2, abs=0.1)
    day = DependenceDisplay.from_estimator(model, frame, "day")
    assert day.values.dtype.kind == "M" and day.ax_.get_xlabel() == "day"


def test_dependence_of_a_model_of_arrays_takes_a_position():
    display = DependenceDisplay.from_estimator(MODEL, X, 0)
    assert display.ax_.get_xlabel() == "x0"
    assert display.mean[-1] - display.mean[0] > 2
