"""The application on a socket: uvicorn, with limits on the time of clients."""

import asyncio
import gc
import logging
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sigmax.commands.folder import load_folder
from sigmax.errors import InvalidArgumentError, TableFileWarning
from sigmax.serve.app import create_app
from sigmax.serve.guards import LONGEST_HEADERS
from sigmax.serve.options import TOKEN_VARIABLE, ServeOptions

__all__ = ["create_server", "run_server"]

KEEP_ALIVE_SECONDS = 15
SWITCH_SECONDS = 0.001
"""After which a computing thread lets the event loop have its turn, a fifth of what is usual."""


@final
class PatientProtocol(H11Protocol):
    """HTTP by h11, whose patience with clients has an end.

    uvicorn itself waits for ever for headers, and for clients to take what they were sent before a
    connection is closed. h11 also limits the length of headers, which the faster parser that
    uvicorn could use does not.
    """

    patience = 10.0
    """Seconds."""
    header_timer: asyncio.TimerHandle | None = None
    closing_timer: asyncio.TimerHandle | None = None
    was_closing = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.start_timer()
        self.watch_closing()

    def watch_closing(self) -> None:
        """Drop a connection that should have been closed one round ago."""
        if self.was_closing:
            self.transport.abort()
        else:
            self.was_closing = self.transport.is_closing()
            self.closing_timer = self.loop.call_later(self.patience, self.watch_closing)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # headers are complete, or wrong
            self.stop_timer()
        elif self.header_timer is None and self.timeout_keep_alive_task is None:
            self.start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        if self.closing_timer is not None:
            self.closing_timer.cancel()
        super().connection_lost(exc)

    def start_timer(self) -> None:
        self.header_timer = self.loop.call_later(self.patience, self.transport.abort)

    def stop_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None


def create_server(app: Any, options: ServeOptions, *, access_log: bool = False) -> uvicorn.Server:
    """A server that is not started yet."""

    def protocol(*arguments: Any, **settings: Any) -> PatientProtocol:
        made = PatientProtocol(*arguments, **settings)
        made.patience = options.stall_seconds
        return made

    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http=protocol,  # pyright: ignore[reportArgumentType]
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=options.max_connections,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(options.shutdown_seconds)),
        h11_max_incomplete_event_size=LONGEST_HEADERS,
    )
    return uvicorn.Server(config)


def run_server(
    folder: Path,
    options: ServeOptions,
    *,
    show: Callable[[str], None],
    access_log: bool = False,
) -> None:
    """Load a model, and serve it until the process is told to stop.

    Raises
    ------
    SigmaxError
        If an option or the folder cannot be used.
    """
    options.check()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn.access").setLevel(logging.INFO if access_log else logging.WARNING)
    warnings.simplefilter("ignore", TableFileWarning)  # for those who sent the file, not for us
    if not options.is_loopback and options.token is None:
        show(
            f"warning: everybody who can reach {options.host} can use this server;"
            f" {TOKEN_VARIABLE}=... asks for a token"
        )
    sys.setswitchinterval(SWITCH_SECONDS)
    saved = load_folder(folder)
    show(f"loaded {folder}: {saved.target} from {len(saved.features)} columns; compiling")
    server = create_server(create_app(saved, options), options, access_log=access_log)
    gc.collect()
    gc.freeze()  # what is there now stays: no later search for garbage has to look through it
    asyncio.run(serve_and_tell(server, options, show))


async def serve_and_tell(
    server: uvicorn.Server, options: ServeOptions, show: Callable[[str], None]
) -> None:
    """Serve, and say where as soon as the socket is open."""
    task = asyncio.ensure_future(serve(server, options))
    while not server.started and not task.done():
        await asyncio.sleep(0.02)
    if server.started:
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        place = f"[{host}]" if ":" in host else host
        show(f"http://{place}:{port}/ is open; Ctrl+C closes it")
    await task


async def serve(server: uvicorn.Server, options: ServeOptions) -> None:
    # uvicorn stops by these signals, and then sends them on to whoever handled them before: to be
    # stopped in this way is no failure.
    before = {number: signal.signal(number, ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        await server.serve()
    except SystemExit:  # uvicorn's way to say that the socket cannot be had
        place = f"{options.host}:{options.port}"
        raise InvalidArgumentError(
            f"`--host` and `--port`: cannot listen at {place}; is another server there?"
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore(number: int, frame: Any) -> None:
    """Do nothing."""
