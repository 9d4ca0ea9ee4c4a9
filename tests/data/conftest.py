"""A temporary cache and a local server: no test uses the files of the user or the network."""

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.fixture
def closed_url() -> str:
    """An address on this machine without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def cache(tmp_path, monkeypatch, closed_url) -> Path:
    """An empty cache, no data folder, and an archive that cannot be reached."""
    monkeypatch.setenv("SIGMAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SIGMAX_DATA", raising=False)
    monkeypatch.setattr("sigmax.data.uci.ARCHIVE_URL", closed_url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """A server of one file: ``serve(content, length=...)`` returns its address.

    ``length`` is what the server announces, if it is not the truth; ``"stall"`` as content makes
    it accept a request and never answer.
    """
    release, servers = threading.Event(), []

    def start(content: bytes | str, *, path: str = "/file", length: int | None = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if isinstance(content, str):
                    release.wait(600)
                elif self.path != path:
                    self.send_error(404)
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(length or len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, format, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    release.set()
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join(10)
