"""`sigmax monitor`: a saved model watched on labelled files."""

import json

import numpy as np
import pandas as pd
from command_cases import run


def test_a_file_as_the_fit_had_it_is_quiet_and_a_wrong_one_is_not(model, table, tmp_path):
    state, out = tmp_path / "state.json", tmp_path / "tests.json"
    result = run("monitor", model, table, "--state", state, "--out", out)
    assert result.exit_code == 0, result.output
    assert "on 255 rows: no alarm" in result.output and "rows out of distribution" in result.output
    assert not json.loads(out.read_text())["has_alarm"]
    frame = pd.read_csv(table)
    frame["minutes"] += 2 * frame["minutes"].std()
    frame.to_csv(tmp_path / "late.csv", index=False)
    result = run("monitor", model, tmp_path / "late.csv", "--state", state, "--out", out)
    assert result.exit_code == 0, result.output
    assert "on 510 rows: ALARM since row" in result.output
    found = json.loads(out.read_text())
    first = min(test["since"] for test in found["tests"] if test["is_alarm"])
    assert found["has_alarm"] and 255 < first < 300
    frame["minutes"] = np.nan
    frame.to_csv(tmp_path / "none.csv", index=False)
    result = run("monitor", model, tmp_path / "none.csv")
    assert result.exit_code != 0 and "missing in all 260 rows" in result.output
