"""A small table, and functions that send requests to the server."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pandas as pd

from sigmax.data.synthetic import make_deliveries
from sigmax.serve.app import create_app
from sigmax.serve.limits import ServeOptions
from sigmax.serve.server import create_server

TOKEN = "correct-horse-battery-staple"


def make_table() -> pd.DataFrame:
    """Categories, booleans, times, dates, numbers, missing values, and a column name with HTML."""
    frame = make_deliveries(250)
    rng = np.random.default_rng(0)
    frame["fragile"] = rng.random(len(frame)) < 0.3
    promised = pd.to_datetime(frame["ordered"]) + pd.to_timedelta(rng.integers(1, 9, 250), "D")
    frame["promised"] = promised.dt.strftime("%d.%m.%Y")
    return frame.rename(columns={"district": "<b>district</b>"})


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a JSON request."""
    return json.loads(str(frame.drop(columns="minutes").to_json(orient="records")))


def ask(
    app: Any,
    *requests: tuple[str, str, dict[str, Any]],
    n_first: int = 0,
    then: Callable[[], None] = lambda: None,
) -> list[httpx.Response]:
    """Responses of the application to parallel requests, without a socket.

    After the first ``n_first`` responses, ``then`` is called.
    """

    async def send_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=600
        ) as client:
            calls = [
                asyncio.ensure_future(client.request(method, path, **how))
                for method, path, how in requests
            ]
            for number, answer in enumerate(asyncio.as_completed(calls), start=1):
                await answer
                if number == n_first:
                    then()
            return await asyncio.gather(*calls)

    return asyncio.run(send_all())


def post(app: Any, path: str, content: Any, **how: Any) -> httpx.Response:
    """Response to one JSON request."""
    return ask(app, ("POST", path, {"json": content, **how}))[0]


def get(app: Any, path: str, **how: Any) -> httpx.Response:
    return ask(app, ("GET", path, how))[0]


def has_words(answer: httpx.Response, status: int, *words: str) -> bool:
    """True if an error response has a status, the format of errors and these words."""
    found = answer.json()
    is_formed = all({*one} == {"loc", "msg"} for one in found["detail"]) and found["detail"]
    text = json.dumps(found, ensure_ascii=False)
    return answer.status_code == status and bool(is_formed) and all(word in text for word in words)


@contextmanager
def served(saved: Any, options: ServeOptions) -> Iterator[int]:
    """Port of a server that runs in a thread."""
    server = create_server(create_app(saved, options, warm_up=False), options)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        end = time.monotonic() + 600
        while not server.started and time.monotonic() < end:
            time.sleep(0.01)
        assert server.started
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(600)
        assert not thread.is_alive()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """Plain TCP connection, for clients that misbehave."""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as made:
        yield made
