"""`sigmax serve`: a model as a web page and a JSON API."""

import os
from dataclasses import replace
from typing import Annotated

import typer
from rich.markup import escape

from sigmax.cli.app import ModelFolder
from sigmax.cli.terminal import report_errors, show_status
from sigmax.serve.limits import TOKEN_VARIABLE, ServeOptions
from sigmax.serve.server import run_server


@report_errors(stopped="Stopped.")
def serve(
    model: ModelFolder,
    options: ServeOptions,
    *,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request to standard error.")
    ] = False,
) -> None:
    """Serve a model as a web page and a JSON API; set SIGMAX_TOKEN to require a token."""
    options = replace(options, token=os.environ.get(TOKEN_VARIABLE) or None)
    run_server(model, options, show=lambda text: show_status(escape(text)), access_log=access_log)
