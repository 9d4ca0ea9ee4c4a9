"""The toy problem: the default estimator against the truth, over seeds."""

import dataclasses

import numpy as np
import pytest

from sigmax import CombinedRegressor, MeanVarianceRegressor
from sigmax.data import ToyProblem
from sigmax.experiments.methods import METHODS, Method
from sigmax.experiments.toy import ToyScores, run_toy, toy_figures, toy_table


@pytest.fixture(scope="module")
def scores():
    """Scores of the default estimator on the five seeds of the aim, and their mean."""
    combined = {"combined": METHODS["combined"]}
    found = [run_toy(combined, random_state=seed) for seed in range(5)]
    rows = [dataclasses.asdict(result.scores["Combined"]) for result in found]
    return ToyScores(**{name: float(np.mean([row[name] for row in rows])) for name in rows[0]})


def test_default_estimator_finds_the_spread_on_the_data(scores):
    assert scores.std_error <= 0.12
    assert scores.excess <= 0.06
    assert 0.88 <= scores.coverage <= 0.92


def test_default_estimator_is_wide_off_the_data(scores):
    assert 0.9 <= scores.std_left <= 1.6
    assert 0.9 <= scores.std_right <= 1.6


def test_without_the_gate_the_spread_does_not_grow_to_the_left():
    method = Method(
        "no gate",
        lambda seed: CombinedRegressor(n_members=1, extrapolate=False, random_state=seed),
    )
    result = run_toy({"no gate": method})
    assert result.scores["no gate"].std_left < 0.7


def test_table_and_figures_show_every_model():
    small = {"hidden_sizes": (8,), "n_steps": 100}
    methods = {
        "nn": Method("NN", lambda seed: MeanVarianceRegressor(random_state=seed, **small)),
        "combined": Method(
            "Combined", lambda seed: CombinedRegressor(n_members=1, random_state=seed, **small)
        ),
    }
    titles = []
    result = run_toy(methods, n_rows=60, report=titles.append)
    assert titles == ["NN", "Combined"]
    assert [row[0] for row in toy_table(result).rows] == titles
    for figure in toy_figures(result).values():
        assert [axes.get_title() for axes in figure.axes] == titles


def test_noise_of_the_toy_problem_adds_in_variance():
    """100,000 draws in 10 bins: each std to 5 standard errors, 1 seed in 100,000 fails."""
    problem = ToyProblem()
    X, y = problem.sample(100_000, random_state=0)
    z = (y - problem.mean(X[:, 0])) / problem.std(X[:, 0])
    for bin_ in np.array_split(z[np.argsort(X[:, 0])], 10):
        assert bin_.std() == pytest.approx(1, abs=5 / np.sqrt(2 * len(bin_)))
