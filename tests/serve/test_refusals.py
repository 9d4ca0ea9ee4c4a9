"""What the server does not answer, with the status and the words that say why."""

import json

import pytest
from serve_cases import ask, get, has_words, post

from sigmax.serve.app import create_app
from sigmax.serve.options import ServeOptions


def send(app, path, content, content_type="application/json"):
    how = {"content": content, "headers": {"content-type": content_type}}
    return ask(app, ("POST", path, how))[0]


@pytest.mark.parametrize("path", ["/predict", "/predict_dist", "/density"])
@pytest.mark.parametrize(
    "content, status, words",
    [
        (b"{", 400, ["no JSON"]),
        (b"", 400, ["no JSON"]),
        (b"\xff\xfe", 400, ["UTF-8"]),
        (b'{"row": NaN}', 400, ["NaN"]),
        (b'{"row": ' + b"[" * 100_000, 400, ["nested"]),
        (b'{"row": 1' + b"0" * 5000 + b"}", 400, ["no JSON"]),
        (b"[]", 422, ["object"]),
        (b"{}", 422, ["row"]),
        (b'{"row": 3}', 422, ["object of cells"]),
        (b'{"row": {}}', 422, ["is missing", "distance_km", "vehicle"]),
        (b'{"row": {}, "colour": 1}', 422, ["colour", "no field"]),
        (b'{"row": {}, "\\ud800": 1}', 422, ["no field"]),
    ],
)
def test_bodies_that_are_no_request_are_refused(app, path, content, status, words):
    assert has_words(send(app, path, content), status, *words)


@pytest.mark.parametrize(
    "cells, column, words",
    [
        ({"distance_km": "far"}, "distance_km", "must be a number"),
        ({"distance_km": True}, "distance_km", "must be a number"),
        ({"distance_km": [1]}, "distance_km", "must be a number"),
        ({"vehicle": {"a": 1}}, "vehicle", "must be text"),
        ({"vehicle": "\ud800"}, "vehicle", "Unicode"),
        ({"vehicle": "x" * 20_000}, "vehicle", "10,000"),
        ({"ordered": 3}, "ordered", "date or a time"),
        ({"ordered": "2025-13-01"}, "ordered", "date or a time"),
        ({"ordered": "soon"}, "ordered", "ISO 8601"),
        ({"promised": "soon"}, "promised", "%d.%m.%Y"),
    ],
)
def test_a_cell_of_another_type_is_refused_by_its_place(app, rows, cells, column, words):
    body = json.dumps({"rows": [rows[0], rows[1] | cells]})
    answer = send(app, "/predict", body)
    assert has_words(answer, 422, words)
    assert answer.json()["detail"][0]["loc"] == ["body", "rows", 1, column]


def test_numbers_too_large_to_be_finite_are_refused(app, rows):
    body = json.dumps({"row": rows[0]}).replace('"distance_km": ', '"distance_km": 1e999, "x": ')
    assert has_words(send(app, "/predict", body), 422, "finite", "distance_km")
    body = body.replace("1e999", "1" + "0" * 400)
    assert has_words(send(app, "/predict", body), 422, "finite", "distance_km")


@pytest.mark.parametrize(
    "path, field, value, words",
    [
        ("/predict", "coverage", 1, "above 0 and below 1"),
        ("/predict", "coverage", "0.9", "above 0 and below 1"),
        ("/predict", "coverage", True, "above 0 and below 1"),
        ("/predict", "method", "magic", "distribution or conformal"),
        ("/predict", "method", ["conformal"], "distribution or conformal"),
        ("/predict_dist", "probabilities", [0.5, 1.0], "below 1"),
        ("/predict_dist", "probabilities", 0.5, "list"),
        ("/predict_dist", "probabilities", [0.5] * 100, "at most 99"),
        ("/predict_dist", "values", ["a"], "list"),
        ("/predict_dist", "values", [10**400], "list"),
        ("/density", "n_neighbors", 51, "0 to 50"),
        ("/density", "n_neighbors", 1.5, "0 to 50"),
        ("/density", "rows", [], "no field"),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_its_name(app, rows, path, field, value, words):
    answer = post(app, path, {"row": rows[0], field: value})
    assert has_words(answer, 422, words)
    assert answer.json()["detail"][0]["loc"] == ["body", field]


def test_one_row_and_several_at_once_are_refused_and_so_are_none(app, rows):
    assert has_words(post(app, "/predict", {"row": rows[0], "rows": rows[:1]}), 422, "exactly one")
    assert has_words(post(app, "/predict", {"rows": []}), 422, "at least one row")
    assert has_words(post(app, "/predict", {"rows": None}), 422, "at least one row")


def test_no_more_than_twenty_problems_are_told(app):
    answer = post(app, "/predict", {"rows": [{}] * 900})
    assert answer.status_code == 422 and len(answer.json()["detail"]) == 20


def test_another_content_type_is_refused(app, rows):
    body = json.dumps({"row": rows[0]})
    for given in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert has_words(send(app, "/predict", body, given), 415, "application/json")
    assert send(app, "/predict", body, "application/json; charset=utf-8").status_code == 200
    assert has_words(send(app, "/predict_csv", b"a,b", "application/json"), 415, "text/csv")


def test_other_methods_and_paths_are_refused(app):
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
def test_files_that_are_no_table_of_the_model_are_refused(app, content, status, words):
    answer = send(app, "/predict_csv", content, "text/csv")
    assert has_words(answer, status, *words)
    assert "/tmp" not in answer.text and "rows.csv" not in answer.text  # no path of the server


def test_a_bad_cell_far_down_a_file_is_refused_before_anything_is_sent(app, frame):
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
        ("coverage=x", ["coverage", "a number"]),
        ("quantiles=0.1,x", ["quantiles"]),
        ("quantiles=0.1,0.1", ["quantiles", "differ"]),
        ("method=magic", ["method", "conformal"]),
        ("colour=1", ["colour"]),
    ],
)
def test_queries_out_of_their_range_are_refused(app, table, query, words):
    answer = send(app, f"/predict_csv?{query}", table.read_bytes(), "text/csv")
    assert has_words(answer, 422, *words)


def test_a_mistake_of_ours_is_told_without_its_cause(saved, rows, monkeypatch):
    from sigmax.serve.answers import Answers

    def fail(self, questions):
        raise RuntimeError("secret")

    monkeypatch.setattr(Answers, "answer_batch", fail)
    app = create_app(saved, ServeOptions(), warm_up=False)
    answer = post(app, "/predict", {"row": rows[0]})
    assert has_words(answer, 500, "log") and "secret" not in answer.text
