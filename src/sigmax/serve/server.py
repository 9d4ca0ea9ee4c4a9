"""uvicorn server of one model."""

import gc
import logging
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from sigmax.errors import InvalidArgumentError, TableFileWarning
from sigmax.serve.app import create_app
from sigmax.serve.limits import MAX_HEADER_BYTES, TOKEN_VARIABLE, ServeOptions
from sigmax.table_model import load_folder


def create_server(app: Any, options: ServeOptions, *, access_log: bool = False) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http="h11",  # which limits the length of headers
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=options.max_connections,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    return uvicorn.Server(config)


def run_server(
    folder: Path, options: ServeOptions, *, show: Callable[[str], None], access_log: bool = False
) -> None:
    """Load a model and serve it until the process receives SIGINT or SIGTERM."""
    options.check()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn.access").setLevel(logging.INFO if access_log else logging.WARNING)
    warnings.simplefilter("ignore", TableFileWarning)  # about files of clients
    if not options.is_loopback and options.token is None:
        show(
            f"warning: everybody who can reach {options.host} can use this server; set"
            f" {TOKEN_VARIABLE} to require a token"
        )
    sys.setswitchinterval(0.001)  # seconds until a computing thread lets the event loop run
    saved = load_folder(folder)
    show(f"Loaded {folder}: {saved.target} from {len(saved.features)} columns. Compiling.")
    server = create_server(create_app(saved, options), options, access_log=access_log)
    gc.collect()
    gc.freeze()  # later collections skip the objects that exist now
    with open_socket(options) as listener:
        host, port = listener.getsockname()[:2]
        show(f"Open http://{f'[{host}]' if ':' in host else host}:{port}/ (Ctrl+C to stop)")
        # uvicorn stops on these signals and then raises them again for the previous handlers.
        numbers = (signal.SIGTERM, signal.SIGINT)
        handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}
        try:
            server.run(sockets=[listener])
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def open_socket(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidArgumentError(
            f"`--host` and `--port`: cannot listen on {options.host}:{options.port}:"
            f" {error.strerror or error}."
        ) from None
