"""One small table and one small model, which the tests of commands share."""

import os

import pytest
from command_cases import SMALL, run

from sigmax.data.synthetic import make_deliveries


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """A file with categories, times, gaps, and five rows without a target."""
    frame = make_deliveries(260)
    frame.loc[:4, "minutes"] = None
    path = tmp_path_factory.mktemp("table") / "deliveries.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def fitted(table, tmp_path_factory):
    """The output of a fit, and the folder that it wrote."""
    folder = tmp_path_factory.mktemp("fitted") / "model"
    result = run("fit", table, "--target", "minutes", "--out", folder, *SMALL)
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(folder)) == [
        *("linear", "model", "report.html", "schema.json", "scores.json")
    ]
    return result.output, folder


@pytest.fixture(scope="session")
def model(fitted):
    return fitted[1]
