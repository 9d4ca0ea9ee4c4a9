"""Content of a page, its order, and the escaping of data."""

import base64
import hashlib
import html.parser
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from report_cases import HOSTILE, BareModel, KnownModel, make_report, predicted_rows

from sigmax.report.model_page import Headline, find_cautions, rows_tables
from sigmax.report.page import embed_json
from sigmax.report.tables import ReportTable, TableCell
from sigmax.tables import infer_schema
from sigmax.tables.profile import Finding


class Reader(html.parser.HTMLParser):
    """Elements and texts of a page."""

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


def test_embedded_json_is_restored_exactly():
    values = {HOSTILE: ["\u2028", "é", None, 1.5]}
    text = str(embed_json(values))
    assert json.loads(text) == values and not re.search("[<>&\u2028]", text)


def test_the_policy_forbids_the_network_and_has_the_hashes_of_script_and_style(page):
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].replace("&#39;", "'").split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for name, pattern in {"script": "<script id=.script.>", "style": "<style id=.style.>"}.items():
        content = re.split(pattern, page)[1].split(f"</{name}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{name}-src"] == f"'sha256-{digest}'"
    assert not re.search(r"(src|href)=.(https?:|//)", page) and " style=" not in page


def test_the_headline_comes_first_and_a_leak_is_the_first_warning(page):
    places = [
        page.index(text)
        for text in ("The 90\N{NO-BREAK SPACE}% intervals", "<strong>leak", "<strong>dupl")
    ]
    assert places == sorted(places) and places[-1] < page.index("<figure")


def test_warnings_are_sorted_by_leaks_then_grave_ones_then_the_rest():
    report = make_report(200)
    rows = report.rows
    narrow = replace(rows, lower=rows.mean - 0.1, upper=rows.mean + 0.1)
    findings = [Finding("id", ("a",), "An id."), Finding("leak", ("b",), "A leak.")]
    found = find_cautions(findings, Headline(narrow, "y"))
    assert [warning.code for warning in found] == ["leak", "intervals too narrow", "id"]


def test_tables_of_rows_have_the_extremes_with_their_training_rows():
    report = make_report(300)
    least, far = rows_tables(report.model, report.rows, "y", ["size", "kind"], report.training)
    gate = report.rows.gate
    assert gate is not None
    numbers = [int(row[0].value or 0) for row in least.cells]
    assert set(gate[np.array(numbers) - 1].round(2)) >= {gate.max().round(2)}
    assert numbers[0] == np.lexsort((-report.rows.epistemic_share, -gate.round(2)))[0] + 1
    worst = int(far.cells[0][0].value or 0) - 1
    z = np.abs((report.rows.y - report.rows.mean) / report.rows.std)
    assert worst == z.argmax()
    details = far.details[0]
    assert details is not None and len(details.rows) == 5
    assert details.rows[0][1] == "50 %" and "10 %" not in details.notes[0]
    assert far.rows[0][7] in ("a", "b")


def test_the_most_uncertain_rows_name_the_columns_that_change_their_spread():
    report = make_report(300)
    columns = ["size", "day", "noise"]
    least, far = rows_tables(report.model, report.rows, "y", columns, report.training)
    at = least.header.index("largest effects on the spread")
    texts = ["day −2, noise +0.1", "day −2, noise +1.1", "noise +2.1, day −2"]
    assert [row[at].replace("\N{NO-BREAK SPACE}", " ") for row in least.rows[:3]] == texts
    assert "largest effects on the spread" not in far.header


def test_a_model_without_gate_and_neighbors_has_a_page():
    made = make_report(120, model=BareModel(KnownModel()), training=None).page()
    page = made.to_html()
    assert "out of distribution" not in made.headline
    assert "The method has no measure of distance to the training rows" in page
    assert "does not name training rows" in page and 'class="opens"' not in page


def test_conformal_coverage_is_marked_on_the_curve():
    made = make_report(120, conformal={0.5: 0.52, 0.9: 0.91}).page()
    layers = made.parts[1].charts[0].to_json()["layers"]
    assert layers[-1]["label"] == "conformal intervals" and layers[-1]["y"] == [0.52, 0.91]


def test_few_rows_of_one_column_have_a_page():
    X = pd.DataFrame({"x": [1.0, 2.0, 3.0]})

    from sigmax.distributions import Normal, Predictive

    class Plain:
        def predict_dist(self, X):
            return Predictive(Normal(np.zeros(len(X)), np.ones(len(X))))

        def predict_gate(self, X):
            return None

        def explain_uncertainty(self, X, part="total", columns=()):
            return pd.DataFrame(np.full((len(X), len(columns)), np.nan), columns=columns)

    rows = predicted_rows(Plain(), X, np.array([0.1, -0.3, 5.0]))
    changes = {"group_column": None, "time_column": None, "schema": infer_schema(X)}
    page = make_report(50, model=Plain(), rows=rows, training=None, **changes).page()
    assert page.to_html() and [part.name for part in page.parts].count("parts") == 0
    assert "These are few rows" in page.basis


def test_cells_show_their_text_and_are_sorted_by_their_numbers():
    rows = [["a", TableCell("**-12,346 ± 79**", -12345.6)], ["b", "none"]]
    table = ReportTable(title="Scores", header=["method", "CRPS"], rows=rows, notes=["A <note>."])
    page = make_report(50, scores=[table]).page().to_html()
    assert '<td class="number" data-value="-12345.6">−12,346 ± 79</td>' in page
    assert '<td class="short">none</td>' in page and ">Scores</h3>" in page
    assert table.is_number == [False, True]
    assert table.to_markdown() == (
        "### Scores\n\n| method | CRPS |\n| --- | ---: |\n| a | **-12,346 ± 79** |\n"
        "| b | none |\n\nA &lt;note&gt;.\n"
    )
