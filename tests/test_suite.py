"""The runner of comparisons: scores of forecasts, tests over tables, and the page of ranks."""

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad

from sigmax.distributions import Normal, Predictive

ROOT = Path(__file__).parent.parent
PATH = ROOT / "benchmarks" / "suite.py"


@pytest.fixture(scope="module")
def suite():
    spec = importlib.util.spec_from_file_location("suite", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["suite"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["suite"]


@pytest.fixture(scope="module")
def forecast(suite):
    """Quantiles of two skewed densities and one with a jump at 1."""
    skewed = stats.gamma(2.0).ppf(suite.LEVELS), 3 * stats.expon.ppf(suite.LEVELS)
    return suite.QuantileForecast([*skewed, np.maximum(skewed[0], 1.0)])


@pytest.mark.parametrize("y", [-0.7, 0.02, 1.0, 1.7, 9.0, 30.0])
def test_crps_of_quantiles_is_the_integral_over_the_cdf(forecast, y):
    def squared(t, row):
        return (forecast.cdf(np.full(3, t))[row] - (t >= y)) ** 2

    for row, found in enumerate(forecast.crps(np.full(3, y))):
        ends = np.unique([-40.0, *forecast.q[row], y, 90.0])
        parts = [quad(squared, a, b, args=(row,))[0] for a, b in pairwise(ends)]
        assert found == pytest.approx(sum(parts), rel=1e-6)


def test_cdf_of_quantiles_has_their_levels_jumps_where_they_are_tied_and_goes_from_0_to_1(forecast):
    for column, level in enumerate(forecast.levels):
        at = forecast.q[:, column]
        assert forecast.cdf(at)[:2] == pytest.approx([level, level])
    jump = forecast.cdf(np.full(3, 1.0))[2] - forecast.cdf(np.full(3, 1.0 - 1e-6))[2]
    n_tied = int(np.sum(forecast.q[2] == 1.0))
    assert jump == pytest.approx(n_tied / 100, abs=1e-6)  # with the lower tail
    assert forecast.cdf(np.full(3, -200.0)) == pytest.approx(0)
    assert forecast.cdf(np.full(3, 200.0)) == pytest.approx(1)


def test_scores_of_the_quantiles_of_a_normal_are_near_those_of_the_normal(suite):
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(2, 4000)) * [[1.0], [0.2]] + [[0.0], [1.0]]
    y = mean + std * rng.normal(size=4000)
    exact = suite.scores(y, Predictive(Normal(mean, std)), 2.0)
    quantiles = mean[:, None] + std[:, None] * stats.norm.ppf(suite.LEVELS)
    found = suite.scores(y, suite.QuantileForecast(quantiles), 2.0)
    for name, value in exact.items():
        assert found[name] == pytest.approx(value, rel=5e-3, abs=2e-3), name
    density = np.mean(stats.norm.logpdf(y, mean, std)) + np.log(2)
    assert exact["log_score"] == pytest.approx(density, abs=1e-3)
    assert exact["coverage"] == pytest.approx(0.9, abs=0.024)  # 5 standard errors
    assert exact["pit_ks"] < 0.03


def test_forecasts_with_residuals_cover_new_rows_of_any_noise(suite):
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(size=(400, 2)), rng.uniform(size=(2000, 2))
    y, y_new = (np.sin(6 * A[:, 0]) + rng.standard_t(3, len(A)) / 4 for A in (X, X_new))
    low, high = suite.BOOSTED(X, y, X_new).interval(0.9).T
    assert np.mean((low <= y_new) & (y_new <= high)) == pytest.approx(0.9, abs=0.04)


def test_categories_and_missing_values_reach_rivals_as_numbers(suite):
    X = pd.DataFrame({"a": [1.0, np.nan, 3.0, 4.0] * 10, "b": ["x", "y", None, "x"] * 10})
    _, predict = suite.RIVALS["ridge"]
    new = pd.DataFrame({"a": [np.nan, 2.0], "b": ["never seen", None]})
    assert np.isfinite(predict(X, np.arange(40.0), new).mean).all()


def test_critical_difference_is_that_of_the_table_of_demsar(suite):
    assert suite.critical_difference(5, 30) == pytest.approx(2.728 * np.sqrt(30 / 180), rel=1e-3)


def test_holm_rejects_what_the_step_down_rule_rejects(suite):
    p = np.array([0.012, 0.2, 0.001, 0.03, 0.024])
    rejected, order = np.zeros(5, bool), np.argsort(p)
    for step, index in enumerate(order):
        if p[index] > 0.05 / (5 - step):
            break
        rejected[index] = True
    assert np.array_equal(suite.holm(p) <= 0.05, rejected)


def test_a_method_that_is_not_installed_is_skipped_by_name(suite, monkeypatch, capsys):
    monkeypatch.setitem(suite.RIVALS, "absent", ("no-such-package", None))
    assert not suite.is_available("absent")
    assert capsys.readouterr().out == "absent: skipped, no-such-package is not installed\n"
    with pytest.raises(SystemExit, match="no method 'nothing'"):
        suite.is_available("nothing")


@pytest.mark.parametrize("part", ["panel", "subsets"])
def test_tables_of_the_page_are_those_of_the_records(suite, part):
    records = suite.load([ROOT / "docs" / "suite" / f"{part}.jsonl"])
    averages = {method: suite.means(own) for method, own in suite.common(records).items()}
    page = (ROOT / "docs" / "which_method.md").read_text(encoding="utf-8")
    for name in ("losses", "ranks", "kinds"):
        text = getattr(suite, name)(averages)
        assert suite.refreshed(page, {f"{part} {name}": text}) == page
        assert text in page
    low = averages["quick"]["coverage"]
    stated = f'on {low.idxmin()} the 90 % intervals of "quick" contain {100 * low.min():.0f} % of'
    assert part != "subsets" or stated in page
