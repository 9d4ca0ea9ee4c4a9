"""The page of the reproduction says what its records say."""

import importlib.util
from pathlib import Path

import pytest

from sigmax.experiments.records import read_records

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def script():
    path = ROOT / "benchmarks" / "reproduction.py"
    spec = importlib.util.spec_from_file_location("reproduction", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_the_page_are_those_of_the_records(script):
    page = script.PAGE.read_text(encoding="utf-8")
    assert len(script.MARKED.findall(page)) >= 10
    assert script.refreshed(page) == page


def test_no_record_is_a_failure(script):
    records = read_records(script.RECORDS)
    assert {record.status for record in records} <= {"done", "infeasible"}
    assert len(records) > 2000
