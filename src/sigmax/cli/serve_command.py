"""The command that serves a model: serve."""

import os
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from sigmax.cli.app import app
from sigmax.cli.failures import table_errors
from sigmax.cli.options import ModelFolder


@app.command()
def serve(
    model: ModelFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 for any free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name by which browsers may address the server; may be repeated."),
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Rows of a JSON request.")] = 1000,
    max_body: Annotated[float, typer.Option(help="MiB of a JSON request.")] = 4.0,
    max_upload: Annotated[float, typer.Option(help="MiB of a file.")] = 100.0,
    max_upload_rows: Annotated[int, typer.Option(help="Rows of a file.")] = 1_000_000,
    max_parallel: Annotated[int, typer.Option(help="JSON requests answered at once.")] = 64,
    max_uploads: Annotated[int, typer.Option(help="Files answered at once.")] = 2,
    max_connections: Annotated[int, typer.Option(help="Open connections.")] = 512,
    request_seconds: Annotated[float, typer.Option(help="For a JSON answer.")] = 10.0,
    upload_seconds: Annotated[float, typer.Option(help="For the answer to a file.")] = 900.0,
    body_seconds: Annotated[float, typer.Option(help="For a client to send a request.")] = 60.0,
    stall_seconds: Annotated[
        float, typer.Option(help="For a client to send its headers, or to send or take a part.")
    ] = 10.0,
    shutdown_seconds: Annotated[
        float, typer.Option(help="For answers under way when the server is stopped.")
    ] = 10.0,
    show_rows: Annotated[
        bool | None,
        typer.Option(
            "--show-rows/--hide-rows",
            help="Training rows with their cells, or by number and weight alone: shown at a"
            " loopback address if nothing is said.",
            show_default=False,
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="A line for every request, on standard error.")
    ] = False,
) -> None:
    """Serve a model as a web page and a JSON interface; SIGMAX_TOKEN is the token, if set."""
    with table_errors(stopped="stopped"):
        from sigmax.serve.options import TOKEN_VARIABLE, ServeOptions
        from sigmax.serve.server import run_server

        options = ServeOptions(
            host=host,
            port=port,
            allowed_hosts=tuple(allow_host or ()),
            token=os.environ.get(TOKEN_VARIABLE) or None,
            show_rows=show_rows,
            max_rows=max_rows,
            max_body=max_body,
            max_upload=max_upload,
            max_upload_rows=max_upload_rows,
            max_parallel=max_parallel,
            max_uploads=max_uploads,
            max_connections=max_connections,
            request_seconds=request_seconds,
            upload_seconds=upload_seconds,
            body_seconds=body_seconds,
            stall_seconds=stall_seconds,
            shutdown_seconds=shutdown_seconds,
        )
        shown = Console(stderr=True)

        def show(text: str) -> None:
            shown.print(escape(text), soft_wrap=True)

        run_server(model, options, show=show, access_log=access_log)
