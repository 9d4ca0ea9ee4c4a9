"""The pages of results say what their records say."""

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


def test_tables_of_the_pages_are_those_of_the_records(script):
    for page, least in zip(script.PAGES, (10, 8, 2), strict=True):
        text = page.path.read_text(encoding="utf-8")
        assert len(script.MARKED.findall(text)) >= least
        assert page.refreshed(text) == text


def test_no_record_is_a_failure(script):
    for page, least in zip(script.PAGES, (2000, 60, 100), strict=True):
        records = read_records(page.records)
        assert {record.status for record in records} <= {"done", "infeasible"}
        assert len(records) > least
