"""`sigmax demo` and its made-up table."""

import os
from functools import partial

import numpy as np
import pandas as pd
from command_cases import run

from sigmax.commands import demo
from sigmax.commands.fit_options import FitOptions
from sigmax.data.deliveries import make_deliveries


def test_deliveries_are_the_same_each_time_and_their_spread_depends_on_the_row():
    frame = make_deliveries(4000)
    pd.testing.assert_frame_equal(frame, make_deliveries(4000))
    assert frame["weather"].isna().mean() > 0.05 and frame["weight_kg"].isna().mean() > 0.05
    logs = np.log(frame["minutes"])
    calm = (frame["vehicle"] == "scooter") & (frame["weather"] == "dry")
    wild = (frame["vehicle"] == "bike") & (frame["weather"] == "snow")
    assert logs[wild].std() > logs[calm].std()


def test_the_demo_goes_from_a_file_to_intervals_and_the_toy_figure(tmp_path, monkeypatch):
    small = {"n_steps": 20, "n_members": 1, "hidden_sizes": [8]}
    monkeypatch.setattr(demo, "FitOptions", partial(FitOptions, settings=small))
    monkeypatch.setattr(demo, "TOY_MODELS", ("nn",))
    monkeypatch.setattr(demo, "TOY_SETTINGS", small)
    out = tmp_path / "demo"
    result = run("demo", "--out", out)
    assert result.exit_code == 0, result.output
    for word in ("$ sigmax fit", "$ sigmax predict", "what came", "toy.png"):
        assert word in result.output
    assert {"deliveries.csv", "new.csv", "new_predicted.csv", "model", "toy"} == {*os.listdir(out)}
    assert (out / "toy" / "toy.png").exists()
