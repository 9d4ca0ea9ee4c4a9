"""Compiled programs are forgotten in time, and models go on working."""

import sys

import numpy as np
import pytest

from sigmax import MeanVarianceRegressor
from sigmax.compilation import MAPS, clear_if_full

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory maps are Linux's")


def count_maps() -> int:
    return MAPS.read_bytes().count(b"\n")


@linux
def test_programs_are_forgotten_when_there_are_many_and_not_before():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    settings = {"hidden_sizes": (8,), "n_steps": 40, "warmup_fraction": 0.0, "random_state": 0}
    model = MeanVarianceRegressor(**settings).fit(X, y)
    before, mean = count_maps(), model.predict(X)
    assert not clear_if_full(share=1.0)
    assert clear_if_full(share=0.0)
    assert count_maps() < before
    np.testing.assert_array_equal(model.predict(X), mean)


def test_elsewhere_there_is_nothing_to_forget(monkeypatch, tmp_path):
    monkeypatch.setattr("sigmax.compilation.LIMIT", tmp_path / "missing")
    assert not clear_if_full(share=0.0)
