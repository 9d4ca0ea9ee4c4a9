"""Several outputs drawn together, with the correlation of their held-out scores."""

import numpy as np
import pytest
from scipy import stats

from sigmax import GPRegressor, LinearRegressor, SigmaxRegressor
from sigmax.distributions import Predictive
from sigmax.metrics import crps, energy_score

CORRELATION = np.array([[1.0, 0.8], [0.8, 1.0]])


def table(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two outputs whose noise is correlated."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    noise = rng.multivariate_normal([0, 0], CORRELATION, size=n)
    return X, X + noise


@pytest.mark.parametrize(
    "model",
    [SigmaxRegressor("quick", random_state=0), LinearRegressor(), GPRegressor(random_state=0)],
    ids=lambda model: type(model).__name__,
)
def test_draws_have_the_correlation_of_the_noise(model):
    X, y = table(300, 0)
    new, truth = table(300, 1)
    if isinstance(model, SigmaxRegressor):  # it also predicts a skewed output
        y[:, 1], truth[:, 1] = np.exp(y[:, 1] / 2), np.exp(truth[:, 1] / 2)
    dist = model.fit(X, y).predict_dist(new)
    draws = dist.sample(400, random_state=0)
    assert draws.shape == (400, 300, 2)
    ranks = [
        np.corrcoef(stats.rankdata(own, axis=0).T)[0, 1] for own in draws[:, ::10].swapaxes(0, 1)
    ]
    assert np.mean(ranks) == pytest.approx(6 / np.pi * np.arcsin(0.8 / 2), abs=0.1)
    # Each output alone has its own distribution, and together they predict better.
    for output in range(2):
        levels = dist.cdf(draws[0])[:, output]
        assert stats.kstest(levels, "uniform").pvalue > 1e-3
    independent = Predictive(dist.dist)
    assert energy_score(truth, dist) < 0.99 * energy_score(truth, independent)
    assert dist[:5].sample(3, random_state=1).shape == (3, 5, 2)


def test_the_energy_score_of_one_output_is_the_crps():
    X, y = table(200, 2)
    model = LinearRegressor().fit(X, y[:, 0])
    new, truth = table(300, 3)
    dist = model.predict_dist(new)
    found = energy_score(truth[:, 0], dist, n_samples=2000)
    assert found == pytest.approx(crps(truth[:, 0], dist), rel=0.02)


def test_few_rows_are_drawn_independently():
    X, y = table(8, 4)
    assert LinearRegressor().fit(X, y).predict_dist(X).correlation is None
