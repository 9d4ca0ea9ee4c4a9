"""The application that commands are added to."""

from typing import Annotated

import typer

from sigmax.version import __version__

__all__ = ["app"]

app = typer.Typer(
    help="Predictive distributions you can trust.", no_args_is_help=True, add_completion=False
)


def show_version(is_wanted: bool) -> bool:
    """Print the version and end, if it is wanted."""
    if is_wanted:
        typer.echo(f"sigmax {__version__}")
        raise typer.Exit
    return is_wanted


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Predictive distributions you can trust: sharp on the data, wide off it."""
