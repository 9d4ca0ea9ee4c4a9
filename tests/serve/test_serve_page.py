"""The form of the page."""

import re

import pytest
from serve_cases import get

from sigmax.serve.columns import RowFormat, form_field, format_time
from sigmax.serve.limits import ServeOptions


def test_the_form_has_the_right_input_for_every_column(app, saved, frame):
    rows = RowFormat(saved)
    fields = {column.name: form_field(column, rows.typical[column.name]) for column in rows.columns}
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


def test_times_are_rounded_to_the_resolution_of_their_column():
    assert format_time(1_740_816_480.4, 60.0) == "2025-03-01T08:08"
    assert format_time(1_740_816_480.4, 86_400.0) == "2025-03-01"


def test_only_loopback_addresses_are_of_this_machine():
    assert ServeOptions().is_loopback and not ServeOptions(host="0.0.0.0").is_loopback
