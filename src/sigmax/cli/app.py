"""The application that commands are added to."""

import typer

__all__ = ["app"]

app = typer.Typer(
    help="Predictive distributions you can trust.", no_args_is_help=True, add_completion=False
)


@app.callback()
def main() -> None:
    """Predictive distributions you can trust: sharp on the data, wide off it."""
