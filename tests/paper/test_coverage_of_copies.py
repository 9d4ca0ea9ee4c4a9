"""The benchmark of duplicates: its records and its table."""

import json

import numpy as np
import pytest
from paper_cases import load_script
from scipy import stats

from sigmax.data import UCI_SETS, RegressionData
from sigmax.distributions import Normal, Predictive

FITS: list[list] = []


class Exact:
    """A stand-in for the regressor: a standard Normal everywhere."""

    def __init__(self, preset, random_state):
        self.random_state = random_state

    def predict_dist(self, X):
        return Predictive(Normal(np.zeros(len(X)), np.ones(len(X))))


@pytest.fixture
def script(monkeypatch):
    module = load_script("coverage_of_copies")
    X, y = np.repeat(np.arange(20.0), 2)[:, None], np.linspace(-2, 2, 40)
    train, test = np.arange(0, 21), np.arange(21, 40)  # row 21 has the X of row 20
    found = RegressionData("wine_red", X, y, [(train, test)] * 3, UCI_SETS["wine_red"])
    monkeypatch.setattr(module, "LocalRegressor", Exact)
    monkeypatch.setattr(module, "load_uci", lambda name: found)
    monkeypatch.setattr(module, "fit_together", lambda models, data: FITS.append(models))
    return module


def test_a_run_appends_what_is_missing_and_the_table_compares(script, tmp_path):
    out = tmp_path / "lines.jsonl"

    def run(label, n_splits, together):
        FITS.clear()
        script.run(label, ["wine_red"], ["fast"], n_splits, out, together=together)
        return [[model.random_state for model in models] for models in FITS]

    assert run("after", 2, together=False) == [[0], [1]]
    assert run("after", 3, together=True) == [[2]]
    assert run("after", 3, together=True) == []
    assert run("before", 2, together=True) == [[0, 1]]
    line = json.loads(out.read_text().splitlines()[0])
    assert [line[part]["n"] for part in ("copies", "new", "all")] == [1, 18, 19]
    y = np.linspace(-2, 2, 40)[22:]
    assert line["new"]["log_likelihood"] == pytest.approx(stats.norm.logpdf(y).mean())
    assert line["new"]["coverage_80"] == np.mean(y <= stats.norm.ppf(0.9))
    _, _, copies, new, _ = script.make_table(script.read_lines(out)).splitlines()
    assert copies.startswith("| wine_red, fast | copies | 2 | 2 | 100.0 → 100.0 |")
    assert new.startswith("| wine_red, fast | new | 2 | 36 |")
