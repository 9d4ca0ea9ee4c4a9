"""The example that wraps an estimator for ScoringBench: its histograms are the predictions."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

PATH = Path(__file__).parent.parent / "examples" / "scoringbench_wrapper.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("scoringbench_wrapper", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data():
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    return X, y + np.random.default_rng(0).uniform(size=len(y))  # no repeated values


@pytest.fixture(scope="module")
def fitted(script, data):
    X, y = data
    return script.SigmaxWrapper().fit(X[:150], pd.Series(y[:150]))


def test_histograms_have_the_fields_and_shapes_of_the_leader_board(fitted, data):
    X, y = data
    found = fitted.predict_distribution(X[150:200])
    assert found.probas.shape == found.bin_midpoints.shape == (50, 200)
    assert found.bin_edges.shape == (50, 201)
    assert found.probas.sum(axis=1) == pytest.approx(1)
    assert np.all(np.diff(found.bin_edges) >= 0)  # 0 where values have probabilities
    assert np.all(found.bin_midpoints >= found.bin_edges[:, :-1])
    assert found.train_range == (y[:150].min(), y[:150].max())
    assert np.array_equal(found.mean, fitted.predict(X[150:200]))


def test_mean_and_crps_of_the_histograms_are_those_of_the_densities(fitted, data):
    X, y = data[0][150:200], data[1][150:200].to_numpy()
    found, dist = fitted.predict_distribution(X), fitted.model.predict_dist(X)
    mean = np.sum(found.probas * found.bin_midpoints, axis=1)
    assert np.max(np.abs(mean - dist.mean)) < 0.02 * dist.std.mean()
    crps = np.empty(50)
    for row, edges in enumerate(found.bin_edges):  # the cdf is linear in every bin
        grid = np.linspace(edges[0] - 300, edges[-1] + 300, 40_001)
        cdf = np.interp(grid, edges, np.linspace(0, 1, 201))
        crps[row] = np.trapezoid((cdf - (grid >= y[row])) ** 2, grid)
    assert np.mean(crps) == pytest.approx(np.mean(dist.crps(y)), rel=0.005)


def test_class_of_predictions_can_be_that_of_the_leader_board(script, data):
    X, y = data
    model = script.SigmaxWrapper(n_bins=20, container=lambda **fields: fields).fit(X[:60], y[:60])
    found = model.predict_distribution(X[60:62])
    assert set(found) == {"probas", "bin_edges", "bin_midpoints", "mean", "train_range"}
    assert found["probas"] == pytest.approx(np.full((2, 20), 0.05))
