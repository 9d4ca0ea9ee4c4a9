"""`sigmax serve`: a model as a web page and a JSON API."""

import os
from dataclasses import asdict, dataclass
from typing import Annotated, final

import typer
from rich.markup import escape

from sigmax.cli.app import ModelFolder
from sigmax.cli.terminal import report_errors, show_status
from sigmax.serve.limits import TOKEN_VARIABLE, ServeOptions
from sigmax.serve.server import run_server


@final
@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes and times that protect the server."""

    max_rows: Annotated[int, typer.Option(help="Largest number of rows in a JSON request.")] = 1000
    max_body: Annotated[float, typer.Option(help="Largest size of a JSON request in MiB.")] = 4.0
    max_upload: Annotated[float, typer.Option(help="Largest size of a file in MiB.")] = 100.0
    max_upload_rows: Annotated[int, typer.Option(help="Largest number of rows in a file.")] = (
        1_000_000
    )
    max_parallel: Annotated[int, typer.Option(help="JSON requests at the same time.")] = 64
    max_uploads: Annotated[int, typer.Option(help="Uploads at the same time.")] = 2
    max_connections: Annotated[int, typer.Option(help="Open connections.")] = 512
    request_seconds: Annotated[float, typer.Option(help="Time limit of a JSON request.")] = 10.0
    upload_seconds: Annotated[float, typer.Option(help="Time limit of an upload.")] = 900.0
    body_seconds: Annotated[float, typer.Option(help="Time limit to send a request.")] = 60.0
    stall_seconds: Annotated[
        float, typer.Option(help="Time limit to send headers, or to send or receive a part.")
    ] = 10.0
    shutdown_seconds: Annotated[
        float, typer.Option(help="Time limit for open requests when the server stops.")
    ] = 10.0


@report_errors(stopped="Stopped.")
def serve(
    model: ModelFolder,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Host name that browsers may use for the server; may be repeated."),
    ] = None,
    limits: Limits,
    show_rows: Annotated[
        bool | None,
        typer.Option(
            "--show-rows/--hide-rows",
            help="Show the values of training rows, or only their numbers and weights. By default"
            " values are shown on a loopback address only.",
            show_default=False,
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request to standard error.")
    ] = False,
) -> None:
    """Serve a model as a web page and a JSON API; set SIGMAX_TOKEN to require a token."""
    options = ServeOptions(
        host=host,
        port=port,
        allowed_hosts=tuple(allow_host or ()),
        token=os.environ.get(TOKEN_VARIABLE) or None,
        show_rows=show_rows,
        **asdict(limits),
    )
    run_server(model, options, show=lambda text: show_status(escape(text)), access_log=access_log)
