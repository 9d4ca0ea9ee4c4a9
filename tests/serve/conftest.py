"""One model that all tests of the server share."""

import pytest
from serve_cases import json_rows, make_table
from typer.testing import CliRunner

from sigmax.cli import app as command_line
from sigmax.serve.app import create_app
from sigmax.serve.limits import ServeOptions
from sigmax.table_model import load_folder


@pytest.fixture(scope="session")
def frame():
    return make_table()


@pytest.fixture(scope="session")
def table(frame, tmp_path_factory):
    """CSV file of the table."""
    path = tmp_path_factory.mktemp("served") / "deliveries.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def folder(table):
    """Folder of a stack of quick experts, trained on all rows."""
    out = table.parent / "model"
    command = ["fit", str(table), "--target", "minutes", "--effort", "quick", "--out", str(out)]
    result = CliRunner().invoke(command_line, command)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def saved(folder):
    return load_folder(folder)


@pytest.fixture(scope="session")
def app(saved):
    """Application, called without a socket."""
    return create_app(saved, ServeOptions(request_seconds=600.0), warm_up=False)


@pytest.fixture(scope="session")
def rows(frame):
    """Rows of a JSON request."""
    return json_rows(frame)
