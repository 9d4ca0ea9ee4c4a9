"""The page as text: what is on it, in which order, and that data stay data."""

import base64
import hashlib
import html.parser
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from report_cases import HOSTILE, BareModel, KnownModel, make_report, make_rows

from sigmax.report.cautions import find_cautions, new_content
from sigmax.report.comparison_page import ComparedMethod, Comparison, comparison_page
from sigmax.report.headline import write_headline
from sigmax.report.page import embed_json
from sigmax.report.rows import rows_tables
from sigmax.runs.tables import ReportTable
from sigmax.tables import infer_schema
from sigmax.tables.profile import Finding


class Reader(html.parser.HTMLParser):
    """Elements and texts of a page, as a browser would find them."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.within = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.within = tag

    def handle_endtag(self, tag):
        self.within = ""

    def handle_data(self, data):
        (self.scripts if self.within == "script" else self.texts).append(data)


@pytest.fixture(scope="module")
def page() -> str:
    return make_report(200).page().to_html()


@pytest.fixture(scope="module")
def hostile() -> str:
    return make_report(200, hostile=True).page().to_html()


def test_names_and_cells_of_a_file_never_become_elements(hostile, page):
    found, plain = Reader(hostile), Reader(page)
    assert "alert(1)" in "".join(found.texts) and "alert(1)" in "".join(found.scripts)
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert {tag for tag, _ in found.tags} == {tag for tag, _ in plain.tags}
    data, code = found.scripts
    assert HOSTILE in json.loads(data)["predicted"]["x"]["label"] and "alert" not in code
    assert "</script" not in data and "<!--" not in data


def test_json_in_a_page_is_what_went_in():
    values = {HOSTILE: ["\u2028", "é", None, 1.5]}
    text = str(embed_json(values))
    assert json.loads(text) == values and not re.search("[<>&\u2028]", text)


def test_the_policy_forbids_the_network_and_knows_the_script_and_the_style(page):
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].replace("&#39;", "'").split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for name, pattern in {"script": "<script id=.script.>", "style": "<style id=.style.>"}.items():
        content = re.split(pattern, page)[1].split(f"</{name}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{name}-src"] == f"'sha256-{digest}'"
    assert not re.search(r"(src|href)=.(https?:|//)", page) and " style=" not in page


def test_the_sentence_comes_first_and_a_leak_is_the_first_warning(page):
    places = [page.index(text) for text in ("About 9 in 10", "<strong>leak", "<strong>copies")]
    assert places == sorted(places) and places[-1] < page.index("<figure")


def test_the_order_of_warnings_is_leaks_then_what_is_grave_then_the_rest():
    report = make_report(200)
    rows = report.rows
    narrow = replace(rows, lower=rows.mean - 0.1, upper=rows.mean + 0.1)
    findings = [Finding("id", ("a",), "An id."), Finding("leak", ("b",), "A leak.")]
    found = find_cautions(findings, write_headline(narrow, "y"))
    assert [warning.code for warning in found] == ["leak", "intervals too narrow", "id"]


def test_content_that_was_not_learned_is_told():
    X, _, _ = make_rows(200)
    schema = infer_schema(X)
    assert new_content(X, schema) == []
    other = X.assign(kind="c", day="2031-05-05", noise=1e9)
    levels, ranges = new_content(other, schema)
    assert "'kind' (100 %)" in levels.text
    assert "'noise' (100 %)" in ranges.text and "'day' (100 %)" in ranges.text


def test_rows_worth_a_look_are_the_extremes_with_their_training_rows():
    report = make_report(300)
    least, far = rows_tables(report.model, report.rows, "y", ["size", "kind"], report.training)
    gate = report.rows.gate
    assert gate is not None
    numbers = [int(row.cells[0].value or 0) for row in least.rows]
    assert set(gate[np.array(numbers) - 1].round(2)) >= {gate.max().round(2)}
    assert numbers[0] == np.lexsort((-report.rows.unknown_share, -gate.round(2)))[0] + 1
    worst = int(far.rows[0].cells[0].value or 0) - 1
    z = np.abs((report.rows.y - report.rows.mean) / report.rows.std)
    assert worst == z.argmax()
    details = far.rows[0].details
    assert details is not None and len(details.rows) == 5
    assert details.rows[0].cells[1].text == "50 %" and "10 %" not in details.notes[0]
    assert far.rows[0].cells[7].text in ("a", "b")


def test_a_model_that_knows_no_more_than_its_distribution_has_a_page():
    made = make_report(120, model=BareModel(KnownModel()), training=None).page()
    page = made.to_html()
    assert "unlike anything" not in made.headline
    assert "does not say how far rows are off the data" in page
    assert "does not name training rows" in page and 'class="opens"' not in page


def test_conformal_coverage_is_marked_on_the_curve():
    made = make_report(120, conformal={0.5: 0.52, 0.9: 0.91}).page()
    layers = made.parts[1].charts[0].to_json()["layers"]
    assert layers[-1]["label"] == "conformal intervals" and layers[-1]["y"] == [0.52, 0.91]


def test_few_rows_of_one_column_have_a_page():
    X = pd.DataFrame({"x": [1.0, 2.0, 3.0]})

    from sigmax.distributions import Normal, Predictive
    from sigmax.report import HeldOutRows

    class Plain:
        def predict_dist(self, X):
            return Predictive(Normal(np.zeros(len(X)), np.ones(len(X))))

        def predict_gate(self, X):
            return None

    rows = HeldOutRows.predict(Plain(), X, np.array([0.1, -0.3, 5.0]))
    changes = {"group_column": None, "time_column": None, "schema": infer_schema(X)}
    page = make_report(50, model=Plain(), rows=rows, training=None, **changes).page()
    assert page.to_html() and [part.name for part in page.parts].count("parts") == 0
    assert "These are few rows" in page.basis


def compared(name: str, crps: float, gap: float, **changes) -> ComparedMethod:
    known = {"crps_error": 0.1, "gap_error": 0.05, "coverage": 0.9, "seconds": 2.0}
    curve = np.array([0.5, 0.9])
    return ComparedMethod(name=name, crps=crps, gap=gap, **{**known, "curve": curve, **changes})


def test_a_comparison_says_which_method_is_best_and_whether_that_may_be_chance():
    table = ReportTable(title="ranked", header=["method", "CRPS"], rows=[["a", "1"]])
    known = {"title": "y of t.csv", "target": "y", "n_rows": 100, "levels": [0.5, 0.9]}
    methods = [compared("a", 1.0, 0.0), compared("b", 1.2, 0.2), compared(HOSTILE, 3.0, 2.0)]
    comparison = Comparison(methods=methods, tables=[table], **known)
    assert comparison.sentence() == (
        "a predicts y best of 3 methods; the next, b, has a 20 % larger error (CRPS), more than"
        " chance would explain."
    )
    close = Comparison(methods=[methods[0], compared("b", 1.05, 0.05)], tables=[], **known)
    assert "may well be chance" in close.sentence()
    page = comparison_page([comparison]).to_html()
    assert "<script>alert" not in page and "Seconds to fit" in page
    names = [tag for tag, found in Reader(page).tags if tag == "figure"]
    assert len(names) == 3
    both = comparison_page([comparison, close]).to_html()
    ids = [found["id"] for _, found in Reader(both).tags if "id" in found]
    assert len(ids) == len(set(ids))
