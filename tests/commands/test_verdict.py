"""Verdicts: what is said of rows whose scores are known."""

import numpy as np
import pytest
from scipy import stats

from sigmax.cli.scores import score_difference, score_rows, verdict
from sigmax.distributions import Normal, Predictive


def scores(y, mean, std):
    return score_rows(y, Predictive(Normal(mean, np.full(len(y), std))))


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=400)
    return mean, mean + 0.5 * rng.normal(size=400)


def test_a_better_model_is_named_with_its_paired_error(truth):
    mean, y = truth
    model, plain = scores(y, mean, 0.5), scores(y, 0 * y, 1.1)
    gap = plain.values["crps"] - model.values["crps"]
    share = 100 * gap.mean() / plain.values["crps"].mean()
    error = 100 * stats.sem(gap) / plain.values["crps"].mean()
    expected = f"Better than a linear model: CRPS {share:.1f} ± {error:.1f} % lower."
    assert verdict(score_difference(model, plain, "linear")) == expected


def test_a_model_that_is_no_better_or_worse_is_called_so(truth):
    mean, y = truth
    rng = np.random.default_rng(1)
    same = verdict(
        score_difference(
            scores(y, mean + 0.01 * rng.normal(size=400), 0.5), scores(y, mean, 0.5), "linear"
        )
    )
    assert same.startswith("No better than a linear model: CRPS ")
    assert same.endswith("; use `--method linear`.")
    assert "log-likelihood" in same and "RMSE" in same
    worse = verdict(score_difference(scores(y, 0 * y, 1.1), scores(y, mean, 0.5), "linear"))
    assert worse.startswith("Worse than a linear model: ") and "RMSE 2." in worse


def test_one_row_that_spoils_the_rmse_is_reported(truth):
    mean, y = truth
    other = mean.copy()
    other[7] += 60.0
    found = verdict(score_difference(scores(y, other, 0.5), scores(y, 0 * y, 1.1), "linear"))
    assert "RMSE 2.6 times as high because of one row" in found
    assert "log-likelihood" in found  # one row in four hundred has no density left
