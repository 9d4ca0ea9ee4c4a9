"""Contributing guide: its example of an expert works."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np
import pandas as pd
import pytest
from jaxtyping import Float
from scipy.spatial.distance import cdist

from sigmax.distributions import Mixture, Normal
from sigmax.estimators import AbstractRegressor
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut
from sigmax.experts.rows import Rows
from sigmax.inputs import Inputs
from sigmax.random import RandomKey
from sigmax.settings import COUNT, setting, store

GUIDE = Path(__file__).parent.parent / "CONTRIBUTING.md"
IMPORTED = (dataclass, MappingProxyType, final, np, Float, RandomKey, cdist, Mixture, Normal)
IMPORTED += AbstractRegressor, AbstractExpert, AbstractFitted, HeldOut, Rows, Inputs
IMPORTED += COUNT, setting, store


@pytest.fixture(scope="module")
def regressor() -> Any:
    section = GUIDE.read_text(encoding="utf-8").split("## Add an expert")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None and len(found[1].splitlines()) <= 40
    names = dict(globals())
    exec(found[1], names)
    return names["NeighborsRegressor"]


def test_the_example_of_an_expert_is_a_regressor(regressor, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, 300)
    frame = pd.DataFrame({"x": x, "kind": np.where(rng.random(300) < 0.5, "a", "b")})
    y = np.sin(x) + (frame["kind"] == "b") + 0.1 * rng.standard_normal(300)
    model = regressor(n_neighbors=5).fit(frame[:200], y[:200])
    new, truth = frame[200:].reset_index(drop=True), np.asarray(y[200:])
    new.loc[0, "x"] = np.nan  # averaged over what it could be
    assert np.sqrt(np.mean((model.predict(new) - truth)[1:] ** 2)) < 0.3
    low, high = model.predict_interval(new, 0.8, method="conformal").T
    assert 0.7 < np.mean((low <= truth) & (truth <= high)) <= 0.95
    model.save(tmp_path / "model")
    again = regressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    with pytest.raises(ValueError, match="n_neighbors"):
        regressor(n_neighbors=0).fit(frame, y)
