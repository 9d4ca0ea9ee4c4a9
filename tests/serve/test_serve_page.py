"""The form of the page, made from the columns of the model."""

import re

import pytest
from serve_cases import get

from sigmax.serve.answers import Answers
from sigmax.serve.page import form_fields


def test_the_form_has_a_field_of_the_right_kind_for_every_column(app, saved, frame):
    fields = {field.name: field for field in form_fields(Answers(saved))}
    assert list(fields) == [name for name in frame.columns if name != "minutes"]
    kinds = {name: field.kind for name, field in fields.items()}
    assert kinds["distance_km"] == "number" and kinds["ordered"] == "datetime-local"
    assert kinds["promised"] == "date" and kinds["vehicle"] == "list"
    assert float(fields["distance_km"].value) == pytest.approx(frame["distance_km"].median())
    assert fields["vehicle"].value == frame["vehicle"].mode()[0]
    low, high = frame["weight_kg"].min(), frame["weight_kg"].max()
    assert fields["weight_kg"].hint == f"{low:g} to {high:g}"
    page = get(app, "/").text
    assert "<b>" not in page and "&lt;b&gt;district&lt;/b&gt;" in page
    assert not re.search(r"https?://", page)
