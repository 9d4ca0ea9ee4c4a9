"""Run the examples and write what they print to output/, from where the documentation quotes it.

    python examples/run.py [name ...]

`tests/test_examples.py` runs them again and compares.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
import tempfile
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
NO_EXAMPLES = ("gallery", "howto", "ideas", "make_deliveries", "notebooks", "run", "screenshots")
PROGRESS = re.compile(r"^.*━━━.*\d:\d\d:\d\d.*\n", re.MULTILINE)
SECONDS = re.compile(r"^([a-z (]+\)? +[<>\d. ]+%.* )\d+\.\d *$", re.MULTILINE)
"""End of the row of an expert: the duration of its fit, which is another one every time."""


def examples() -> list[Path]:
    """The files, by name."""
    files = [*HERE.glob("*.py"), *HERE.glob("*.sh")]
    return sorted(file for file in files if file.stem not in NO_EXAMPLES)


def output_of(example: Path) -> Path:
    return HERE / "output" / f"{example.stem}.txt"


def printed_by(example: Path) -> str:
    """What an example prints, run in the working folder; a command by command."""
    if example.suffix == ".py":
        return printed_by_script(example)
    parts = []
    for line in example.read_text(encoding="utf-8").splitlines():
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "python":
            printed_by_script(HERE / arguments[0])
        elif program == "sigmax":
            start, end = (f"--8<-- [{word}:{arguments[0]}]\n" for word in ("start", "end"))
            parts.append(f"{start}{printed_by_command(arguments)}{end}")
    return "".join(parts)


def printed_by_script(path: Path) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        runpy.run_path(str(path), run_name="__main__")
    return text.getvalue()


def printed_by_command(arguments: list[str]) -> str:
    """What a command shows on a screen of 100 columns, without bars of progress."""
    from rich.console import Console
    from typer.testing import CliRunner

    from sigmax.cli import app, terminal

    with mock.patch.object(terminal, "console", Console(width=100)):
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(f"sigmax {' '.join(arguments)}: {result.output}")
    lines = SECONDS.sub(r"\1…", PROGRESS.sub("", result.output)).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def main() -> None:
    for example in examples():
        if example.stem in (sys.argv[1:] or [example.stem]):
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                text = printed_by(example)
            output_of(example).parent.mkdir(exist_ok=True)
            output_of(example).write_text(text, encoding="utf-8")
            print(f"{os.path.relpath(output_of(example))}:\n{text}")


if __name__ == "__main__":
    main()
