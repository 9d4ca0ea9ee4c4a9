"""The toy problem: the default estimator against the true distribution, over seeds."""

import numpy as np
import pytest
from paper_cases import SMALL, run_lines

from sigmax.data import ToyProblem
from sigmax.paper.curves import TOY, run_toy, toy_figures, toy_tables
from sigmax.runs.experiments import Choice


@pytest.fixture(scope="module")
def scores(optimized):
    """Mean scores of the default estimator on five seeds."""
    records = run_toy(TOY.choose(Choice(methods=["combined"], n_splits=5)))
    return {name: np.mean([r.scores[name] for r in records]) for name in records[0].scores}


@pytest.mark.long
def test_default_estimator_learns_the_standard_deviation_on_the_data(scores):
    assert scores["std_error"] <= 0.12
    assert scores["excess"] <= 0.06
    assert 0.88 <= scores["coverage"] <= 0.92


@pytest.mark.long
def test_default_estimator_has_a_large_standard_deviation_outside_the_data(scores):
    assert 0.9 <= scores["std_left"] <= 1.6
    assert 0.9 <= scores["std_right"] <= 1.6


@pytest.mark.long
def test_without_the_gate_the_standard_deviation_stays_small_on_the_left():
    settings = {"n_members": 1, "extrapolate": False}
    (record,) = run_toy(TOY.choose(Choice(methods=["combined"], settings=settings)))
    assert record.scores["std_left"] < 0.7


def test_seeds_are_trained_together_and_have_tables_and_figures():
    tasks = TOY.choose(Choice(methods=["nn", "combined", "gp"], n_splits=2, seed=7))
    jobs = TOY.jobs(tasks, "cpu")
    assert [len(job) for job in jobs] == [2, 2, 1, 1]
    records = run_lines("toy", methods=["nn", "combined"], n_splits=2, seed=7, settings=SMALL)
    assert all(record.seconds["together"] == 2 for record in records)
    (table,) = toy_tables(records)
    assert [row[0] for row in table.rows] == ["NN", "Combined"]
    assert "2 seeds" in table.title
    figures = toy_figures(records)
    assert list(figures) == ["toy", "toy_std"]
    for figure in figures.values():
        assert [axes.get_title() for axes in figure.axes] == ["NN", "Combined"]


def test_noise_of_the_toy_problem_adds_in_variance():
    """100,000 draws in 10 bins: each std to 5 standard errors, 1 seed in 100,000 fails."""
    problem = ToyProblem()
    X, y = problem.sample(100_000, random_state=0)
    z = (y - problem.mean(X[:, 0])) / problem.std(X[:, 0])
    for bin_ in np.array_split(z[np.argsort(X[:, 0])], 10):
        assert bin_.std() == pytest.approx(1, abs=5 / np.sqrt(2 * len(bin_)))
