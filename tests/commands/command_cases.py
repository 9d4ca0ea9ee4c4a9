"""How the tests of commands run them."""

from typing import Any

from typer.testing import CliRunner

from sigmax.cli import app

SMALL = ("--effort", "quick")


def run(*arguments, stdin: str | bytes | None = None) -> Any:
    """A command in this process, on a terminal of 100 columns."""
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})
    return runner.invoke(app, list(map(str, arguments)), input=stdin)


def fails_with(result: Any, *words: str, code: int = 2) -> bool:
    """True if a command ended with one sentence that has these words, and no traceback."""
    text = " ".join(result.stderr.split())
    has_words = all(word in text for word in words)
    is_clean = "Traceback" not in result.output and text.startswith("error:")
    return result.exit_code == code and has_words and is_clean
