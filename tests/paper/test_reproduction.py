"""Pages of results agree with their records."""

import pytest
from paper_cases import load_script, make_record

from sigmax.runs.records import read_records


@pytest.fixture(scope="module")
def script():
    return load_script("reproduction")


def test_tables_of_the_pages_agree_with_the_records(script):
    for page, least in zip(script.PAGES, (10, 8, 2), strict=True):
        text = page.path.read_text(encoding="utf-8")
        assert len(script.MARKED.findall(text)) >= least
        assert page.refreshed(text) == text


def test_records_are_replaced_or_merged_on_the_page_that_holds_them(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "DOCS", tmp_path)
    reproduction, _, local = script.PAGES

    def make(method, split, score):
        return make_record("yacht", method, split, {"log_likelihood": score})

    def committed(page):
        found = read_records(page.records)
        return {(r.task.method, r.task.split): r.scores["log_likelihood"] for r in found}

    first = [make("local", 0, 1.0), make("local", 1, 1.0), make("gp", 0, 2.0), make("gp", 1, 2.0)]
    for page in (reproduction, local):
        page.commit(first)
    assert committed(local) == {("local", 0): 1.0, ("local", 1): 1.0}
    assert committed(reproduction) == {("gp", 0): 2.0, ("gp", 1): 2.0}
    reproduction.commit([make("gp", 1, 3.0), make("gp", 1, 4.0)], merge=True)
    assert committed(reproduction) == {("gp", 0): 2.0, ("gp", 1): 4.0}
    reproduction.commit([make("gp", 1, 5.0)])
    assert committed(reproduction) == {("gp", 1): 5.0}
    assert len(local.read()) == 3


def test_no_committed_record_has_failed(script):
    for page, least in zip(script.PAGES, (2000, 60, 100), strict=True):
        records = read_records(page.records)
        assert {record.status for record in records} <= {"done", "infeasible"}
        assert len(records) > least
