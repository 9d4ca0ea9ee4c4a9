"""What goes wrong becomes one sentence and an exit code."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from sigmax.cli.showing import show_line
from sigmax.errors import (
    InvalidArgumentError,
    InvalidDataError,
    ModelFileError,
    SigmaxError,
    TableFileError,
    TableFileWarning,
    TrainingWarning,
)

__all__ = ["clear_errors", "table_errors"]

INPUT_ERRORS = (InvalidArgumentError, InvalidDataError, ModelFileError, TableFileError)


@contextmanager
def table_errors(stopped: str = "stopped; nothing was written") -> Iterator[None]:
    """One sentence for what goes wrong: exit code 2 for bad input, 1 for a failed training."""
    code = 1
    try:
        with shown_notes():
            yield
        return
    except INPUT_ERRORS as error:
        text, code = str(error), 2
    except SigmaxError as error:
        text = str(error)
    except BrokenPipeError:
        raise typer.Exit(1) from None  # whoever read our output has seen enough
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        text, code = f"Cannot read or write{place}: {error.strerror or error}.", 2
    except MemoryError:
        text = "There is not enough memory; fewer rows or columns, or `--preset fast`, may help."
    except KeyboardInterrupt:
        text, code = stopped, 130
    except typer.Exit:
        raise
    except Exception as error:
        if os.environ.get("SIGMAX_TRACEBACK"):
            raise
        text = f"{type(error).__name__}: {error} (with SIGMAX_TRACEBACK=1 you see where)"
    Console(stderr=True).print(f"[red]error:[/] {escape(' '.join(text.split()))}", soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def shown_notes() -> Iterator[None]:
    """Print warnings about a table or a training in a line, on standard error."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: Any, *place: Any) -> None:
            if issubclass(category, TableFileWarning | TrainingWarning):
                Console(stderr=True).print(f"[yellow]note:[/] {escape(str(message))}")
            else:
                usual(message, category, *place)

        warnings.simplefilter("always", TableFileWarning)
        warnings.showwarning = show
        yield


@contextmanager
def clear_errors(folder: str = "--out") -> Iterator[None]:
    """What sigmax raises on purpose is a message, and so are an interruption and a full disk.

    ``folder`` is the argument that names the folder to write to.
    """
    try:
        yield
    except SigmaxError as error:
        show_line(f"[red]error:[/] {escape(str(error))}")
        raise typer.Exit(1) from error
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}", param_hint=folder) from error
    except KeyboardInterrupt:
        show_line("stopped; the same command goes on from here")
        raise typer.Exit(130) from None
