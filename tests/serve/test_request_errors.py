"""Status and message of invalid requests."""

import json

import numpy as np
import pytest
from serve_cases import ask, get, has_words, post

from sigmax.serve.app import create_app
from sigmax.serve.columns import parse_time
from sigmax.serve.limits import ServeOptions
from sigmax.tables.table import Column, Kind, parse_times


def send(app, path, content, content_type="application/json"):
    how = {"content": content, "headers": {"content-type": content_type}}
    return ask(app, ("POST", path, how))[0]


@pytest.mark.parametrize("path", ["/predict", "/predict_dist", "/density", "/explain"])
@pytest.mark.parametrize(
    "content, status, words",
    [
        (b"{", 400, ["not JSON"]),
        (b"", 422, ["required"]),
        (b"\xff\xfe", 400, ["JSON"]),
        (b'{"row": NaN}', 422, ["nan"]),
        (b'{"row": ' + b"[" * 100_000, 400, ["parsing the body"]),
        (b'{"row": 1' + b"0" * 5000 + b"}", 400, ["parsing the body"]),
        (b"[]", 422, ["dictionary"]),
        (b"{}", 422, ["row"]),
        (b'{"row": 3}', 422, ["valid dictionary"]),
        (b'{"row": {}}', 422, ["required", "distance_km", "vehicle"]),
        (b'{"row": {}, "colour": 1}', 422, ["colour", "not permitted"]),
        (b'{"row": {}, "\\ud800": 1}', 422, ["unicode"]),
    ],
)
def test_invalid_bodies_are_an_error(app, path, content, status, words):
    assert has_words(send(app, path, content), status, *words)


@pytest.mark.parametrize(
    "cells, column, words",
    [
        ({"distance_km": "far"}, "distance_km", "valid number"),
        ({"distance_km": True}, "distance_km", "valid number"),
        ({"distance_km": [1]}, "distance_km", "valid number"),
        ({"vehicle": {"a": 1}}, "vehicle", "valid string"),
        ({"vehicle": "\ud800"}, "vehicle", "unicode"),
        ({"vehicle": "x" * 20_000}, "vehicle", "10000"),
        ({"ordered": 3}, "ordered", "time in ISO 8601, got 3"),
        ({"ordered": "2025-13-01"}, "ordered", "ISO 8601, got '2025-13-01'"),
        ({"ordered": "soon"}, "ordered", "ISO 8601"),
        ({"promised": "soon"}, "promised", "%d.%m.%Y"),
    ],
)
def test_the_error_of_a_cell_of_the_wrong_type_names_row_and_column(
    app, rows, cells, column, words
):
    body = json.dumps({"rows": [rows[0], rows[1] | cells]})
    answer = send(app, "/predict", body)
    assert has_words(answer, 422, words)
    assert answer.json()["detail"][0]["loc"] == ["body", "rows", 1, column]


def test_numbers_too_large_for_a_float_are_an_error(app, rows):
    body = json.dumps({"row": rows[0]}).replace('"distance_km": ', '"distance_km": 1e999, "x": ')
    assert has_words(send(app, "/predict", body), 422, "finite", "distance_km")
    body = body.replace("1e999", "1" + "0" * 400)
    assert has_words(send(app, "/predict", body), 422, "valid number", "distance_km")


@pytest.mark.parametrize(
    "path, field, value, words",
    [
        ("/predict", "coverage", 1, "less than 1, got 1"),
        ("/predict", "coverage", "0.9", "valid number, got '0.9'"),
        ("/predict", "coverage", True, "valid number, got True"),
        ("/predict", "method", "magic", "'distribution' or 'conformal', got 'magic'"),
        ("/predict", "method", ["conformal"], "'distribution' or 'conformal'"),
        ("/predict_dist", "probabilities", [0.5, 1.0], "less than 1"),
        ("/predict_dist", "probabilities", 0.5, "list"),
        ("/predict_dist", "probabilities", [0.5] * 100, "at most 99"),
        ("/predict_dist", "values", ["a"], "valid number"),
        ("/predict_dist", "values", [10**400], "valid number"),
        ("/density", "n_neighbors", 51, "less than or equal to 50"),
        ("/density", "n_neighbors", 1.5, "valid integer"),
        ("/density", "rows", [], "not permitted"),
    ],
)
def test_the_error_of_a_field_out_of_range_names_the_field(app, rows, path, field, value, words):
    answer = post(app, path, {"row": rows[0], field: value})
    assert has_words(answer, 422, words)
    assert answer.json()["detail"][0]["loc"][:2] == ["body", field]


def test_exactly_one_of_row_and_rows_is_required(app, rows):
    assert has_words(post(app, "/predict", {"row": rows[0], "rows": rows[:1]}), 422, "Exactly one")
    assert has_words(post(app, "/predict", {"rows": []}), 422, "at least 1 item")
    assert has_words(post(app, "/predict", {"rows": None}), 422, "Exactly one")


def test_a_response_has_at_most_twenty_errors(app):
    answer = post(app, "/predict", {"rows": [{}] * 900})
    assert answer.status_code == 422 and len(answer.json()["detail"]) == 20


def test_another_content_type_is_an_error(app, rows):
    body = json.dumps({"row": rows[0]})
    for given in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert has_words(send(app, "/predict", body, given), 415, "application/json")
    assert send(app, "/predict", body, "application/json; charset=utf-8").status_code == 200
    assert has_words(send(app, "/predict_csv", b"a,b", "application/json"), 415, "text/csv")


def test_unknown_methods_and_paths_are_an_error(app):
    answer = get(app, "/predict")
    assert has_words(answer, 405, "Method Not Allowed") and answer.headers["allow"] == "POST"
    assert has_words(get(app, "/nowhere"), 404, "Not Found")
    assert has_words(get(app, "/static/../app.py"), 404)
    assert has_words(get(app, "/static/%2e%2e/app.py"), 404)
    assert has_words(post(app, "/health", {}), 405)


@pytest.mark.parametrize(
    "content, status, words",
    [
        (b"", 422, ["empty"]),
        (b"a,b\n1,2\n", 422, ["no column", "'distance_km'"]),
        (b"PAR1" + b"x" * 40, 415, ["plain CSV"]),
        (b"\x1f\x8b" + b"x" * 40, 422, ["damaged"]),
        (b"PK\x03\x04" + b"x" * 40, 415, ["plain CSV"]),
    ],
)
def test_files_without_a_table_for_the_model_are_an_error(app, content, status, words):
    answer = send(app, "/predict_csv", content, "text/csv")
    assert has_words(answer, status, *words)
    assert "/tmp" not in answer.text and "rows.csv" not in answer.text  # no path on the server


def test_an_invalid_cell_at_the_end_of_a_file_is_an_error_before_anything_is_sent(app, frame):
    bad = frame.astype({"distance_km": object})
    bad.loc[245, "distance_km"] = "far"
    answer = send(app, "/predict_csv", bad.to_csv(index=False).encode(), "text/csv")
    assert has_words(answer, 422, "distance_km", "'far'")
    mixed = frame.copy()
    mixed.loc[3, "promised"] = "2025-03-09"
    answer = send(app, "/predict_csv", mixed.to_csv(index=False).encode(), "text/csv")
    assert has_words(answer, 422, "promised", "two ways", "%d.%m.%Y")


@pytest.mark.parametrize(
    "query, words",
    [
        ("coverage=2", ["coverage"]),
        ("coverage=x", ["coverage", "valid number"]),
        ("quantiles=0.1,x", ["quantiles"]),
        ("quantiles=0.1,0.1", ["quantiles", "differ"]),
        ("method=magic", ["method", "conformal"]),
        ("colour=1", ["colour"]),
    ],
)
def test_query_parameters_out_of_range_are_an_error(app, table, query, words):
    answer = send(app, f"/predict_csv?{query}", table.read_bytes(), "text/csv")
    assert has_words(answer, 422, *words)


def test_a_failure_of_the_server_hides_its_cause(saved, rows, monkeypatch):
    from sigmax.serve.predictions import Predictor

    def fail(self, questions):
        raise RuntimeError("secret")

    monkeypatch.setattr(Predictor, "predict_batch", fail)
    app = create_app(saved, ServeOptions(), warm_up=False)
    answer = post(app, "/predict", {"row": rows[0]})
    assert has_words(answer, 500, "log") and "secret" not in answer.text


@pytest.mark.parametrize(
    "text",
    [
        "2025-03-01",
        "1066-10-14 08:28",
        "2025-03-01T08:28:05.25",
        "2025-03-01 08:28Z",
        "2025-03-01T08:28:05.123456-11:00",
        "20250301T0828",
    ],
)
def test_times_of_a_request_are_read_like_those_of_a_file(text):
    expected = parse_times(np.array([text], dtype=object), "ISO8601", "t")[0]
    assert parse_time(text, Column("t", Kind.TIME)) == pytest.approx(expected, abs=1e-6)
