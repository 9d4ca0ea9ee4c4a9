"""Clients that are slow, disconnect or send no HTTP do not block others, on a real socket."""

import json
import threading
import time
from contextlib import suppress

import httpx
import pytest
from serve_cases import connected, served

from sigmax.serve.limits import ServeOptions
from sigmax.serve.predictions import Predictor

PATIENCE = 600.0
"""Seconds after which a test fails, even on a slow machine."""


@pytest.fixture(scope="module")
def port(saved):
    """Port of a server that waits a second for a body."""
    options = ServeOptions(
        port=0,
        body_seconds=1.0,
        request_seconds=PATIENCE,
        max_connections=40,
    )
    with served(saved, options) as port:
        yield port


@pytest.fixture(scope="module")
def patient_port(saved):
    """Port of a server that waits for slow clients and accepts 40 connections."""
    options = ServeOptions(
        port=0,
        body_seconds=PATIENCE,
        request_seconds=PATIENCE,
        max_connections=40,
    )
    with served(saved, options) as port:
        yield port


def predict(port, row):
    """Response to a client that tries again if a busy machine made it too slow."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            url = f"http://127.0.0.1:{port}/predict"
            found = httpx.post(url, json={"row": row}, timeout=PATIENCE)
        except httpx.TransportError:
            assert time.monotonic() < end
            continue
        if found.status_code != 408 or time.monotonic() > end:
            return found


def closed(connection):
    """True if the server closes a connection, and what it sent before."""
    connection.settimeout(PATIENCE)
    said = b""
    try:
        while part := connection.recv(4096):
            said += part
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False, said
    return True, said


HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("drips", [False, True])
def test_a_body_that_does_not_arrive_in_time_is_an_error(port, rows, drips):
    with connected(port) as slow:
        slow.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        if drips:
            with suppress(OSError):
                for _ in range(4):
                    time.sleep(0.2)
                    slow.sendall(b" ")
        assert predict(port, rows[0]).status_code == 200
        is_closed, said = closed(slow)
        assert is_closed and said.startswith(b"HTTP/1.1 408") and b"in time" in said


def test_many_slow_clients_do_not_block_another(patient_port, rows):
    connections = [connected(patient_port) for _ in range(25)]
    slow = [one.__enter__() for one in connections]
    try:
        for one in slow:
            one.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        assert predict(patient_port, rows[0]).status_code == 200  # while all of them wait
    finally:
        for one in connections:
            one.__exit__(None, None, None)


def test_clients_that_disconnect_free_their_slots(port, rows, table):
    whole = json.dumps({"row": rows[0]}).encode()
    for sent in (
        HEAD + b"Content-Length: 1000\r\n\r\n{",
        HEAD + b"Content-Length: %d\r\n\r\n" % len(whole) + whole,
        b"POST /predict_csv HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
        b"Content-Length: %d\r\n\r\n" % table.stat().st_size + table.read_bytes(),
    ):
        for _ in range(5):
            with connected(port) as broken:
                broken.sendall(sent)
    assert predict(port, rows[0]).status_code == 200
    assert is_free_in_time(port, table.read_bytes())


def is_free_in_time(port, content):
    """True if a file is answered; abandoned ones are computed for a while."""
    end, url = time.monotonic() + PATIENCE, f"http://127.0.0.1:{port}/predict_csv"
    how = {"headers": {"content-type": "text/csv"}, "timeout": PATIENCE}
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.post(url, content=content, **how).status_code == 200:
                return True
        time.sleep(0.2)
    return False


def test_invalid_http_is_an_error(port, rows):
    for sent in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: " + b"x" * 40_000):
        with connected(port) as broken:
            broken.sendall(sent)
            is_closed, said = closed(broken)
            assert is_closed and said.startswith(b"HTTP/1.1 4")
    assert predict(port, rows[0]).status_code == 200


def test_too_many_connections_are_an_error_until_there_are_fewer(patient_port, rows):
    port = patient_port
    connections = [connected(port) for _ in range(45)]
    opened = [one.__enter__() for one in connections]
    try:
        assert predict(port, rows[0]).status_code == 503
    finally:
        for one in connections:
            one.__exit__(None, None, None)
    assert opened
    end = time.monotonic() + PATIENCE
    while predict(port, rows[0]).status_code == 503 and time.monotonic() < end:
        time.sleep(0.1)
    assert predict(port, rows[0]).status_code == 200


def test_a_stopped_server_finishes_pending_requests(saved, rows, monkeypatch):
    began, answers = threading.Event(), []
    usual = Predictor.predict_batch

    def slow(self, questions):
        began.set()
        time.sleep(0.5)
        return usual(self, questions)

    monkeypatch.setattr(Predictor, "predict_batch", slow)
    options = ServeOptions(port=0, request_seconds=PATIENCE)
    with served(saved, options) as port:
        thread = threading.Thread(target=lambda: answers.append(predict(port, rows[0])))
        thread.start()
        assert began.wait(PATIENCE)
    thread.join(PATIENCE)
    assert answers[0].status_code == 200
