"""Limits on size, time and the number of parallel requests."""

import threading

import pytest
from serve_cases import ask, has_words, post

from sigmax.errors import InvalidArgumentError
from sigmax.serve.app import create_app
from sigmax.serve.limits import ServeOptions
from sigmax.serve.predictions import Predictor, predict_upload


def limited(saved, **limits):
    return create_app(saved, ServeOptions(**{"request_seconds": 600.0, **limits}), warm_up=False)


def test_too_many_bytes_or_rows_are_an_error(saved, rows, table):
    app = limited(saved, max_body=0.001, max_upload=0.01, max_rows=3, max_upload_rows=100)
    assert has_words(post(app, "/predict", {"rows": rows[:20]}), 413, "at most 1,048 bytes")

    async def parts():
        for _ in range(20):
            yield b'{"a": 1}' * 20

    headers = {"content-type": "application/json"}
    answer = ask(app, ("POST", "/predict", {"content": parts(), "headers": headers}))[0]
    assert has_words(answer, 413, "1,048") and answer.headers["connection"] == "close"
    assert has_words(post(app, "/predict", {"rows": [{}] * 4}), 413, "at most 3 items")
    sent = {"content": table.read_bytes(), "headers": {"content-type": "text/csv"}}
    assert has_words(ask(app, ("POST", "/predict_csv", sent))[0], 413, "bytes")
    app = limited(saved, max_upload_rows=100)
    assert has_words(ask(app, ("POST", "/predict_csv", sent))[0], 413, "100 rows")


def test_the_number_of_quantiles_of_a_file_is_limited(app, table):
    sent = {"content": table.read_bytes(), "headers": {"content-type": "text/csv"}}
    levels = ",".join(f"{i / 1000:g}" for i in range(1, 101))
    for path in ("/predict_csv?quantiles=" + levels, "/predict_csv?quantiles=0.5,0.5000000001"):
        assert has_words(ask(app, ("POST", path, sent))[0], 422, "quantiles")


def test_long_paths_and_headers_are_an_error(app):
    for sent in ({"headers": {"a": "x" * 70_000}}, {"params": {"a": "x" * 40_000}}):
        assert has_words(ask(app, ("GET", "/health", sent))[0], 431, "32,768 bytes")


@pytest.fixture
def slow(monkeypatch):
    """Event that all predictions wait for."""
    free = threading.Event()

    def waiting(usual):
        def wait(*arguments):
            free.wait(600)
            return usual(*arguments)

        return wait

    monkeypatch.setattr(Predictor, "predict_batch", waiting(Predictor.predict_batch))
    monkeypatch.setattr("sigmax.serve.app.predict_upload", waiting(predict_upload))
    yield free
    free.set()


def test_a_response_that_takes_too_long_is_cancelled(saved, rows, slow):
    answer = post(limited(saved, request_seconds=0.3), "/predict", {"row": rows[0]})
    assert has_words(answer, 504, "0.3 seconds") and not slow.is_set()


def test_too_many_parallel_requests_get_retry_after(saved, rows, slow):
    app = limited(saved, max_parallel=2)
    sent = [("POST", "/predict", {"json": {"row": rows[i]}}) for i in range(5)]
    answers = ask(app, *sent, n_first=3, then=slow.set)
    failed = [answer for answer in answers if answer.status_code == 429]
    assert len(failed) == 3 and sum(answer.status_code == 200 for answer in answers) == 2
    assert (
        has_words(failed[0], 429, "at most 2 requests") and failed[0].headers["retry-after"] == "1"
    )
    assert post(app, "/predict", {"row": rows[0]}).status_code == 200  # all slots are free again


def test_too_many_parallel_files_get_retry_after(saved, table, slow):
    app = limited(saved, max_uploads=1)
    sent = {"content": table.read_bytes(), "headers": {"content-type": "text/csv"}}
    answers = ask(app, *[("POST", "/predict_csv", sent)] * 3, n_first=2, then=slow.set)
    assert sorted(answer.status_code for answer in answers) == [200, 429, 429]
    assert ask(app, ("POST", "/predict_csv", sent))[0].status_code == 200


@pytest.mark.parametrize(
    "options, words",
    [
        ({"port": 70_000}, "--port"),
        ({"max_rows": 0}, "--max-rows"),
        ({"max_body": 0.0}, "--max-body"),
        ({"request_seconds": -1.0}, "--request-seconds"),
        ({"token": "short"}, "SIGMAX_TOKEN"),
        ({"token": "with a space in between"}, "SIGMAX_TOKEN"),
    ],
)
def test_invalid_limits_raise_an_error(options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        ServeOptions(**options).check()
