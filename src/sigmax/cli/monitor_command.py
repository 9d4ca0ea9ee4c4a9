"""The command that watches a model on new labelled rows: monitor."""

import json
from pathlib import Path
from typing import Annotated

import typer

from sigmax.cli.app import app
from sigmax.cli.failures import table_errors
from sigmax.cli.options import Delimiter, Encoding, ModelFolder, Sheet, Source
from sigmax.cli.showing import show_item


@app.command()
def monitor(
    model: ModelFolder,
    data: Source,
    alpha: Annotated[
        float, typer.Option(help="Share of streams without drift that may ever have an alarm.")
    ] = 0.05,
    state: Annotated[
        Path | None, typer.Option(help="A JSON file to go on from, and to write to.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file for what each test says.")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Say whether predictions still hold on labelled rows, in the order in which they came."""
    with table_errors():
        from dataclasses import asdict

        from sigmax.commands.folder import load_folder
        from sigmax.commands.monitor import monitor_file
        from sigmax.tables.writing import new_file

        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        found = monitor_file(load_folder(model), data, reading, alpha=alpha, state=state)
        show_item(str(found))
        if out is not None:
            tests = [asdict(test) | {"is_alarm": test.is_alarm} for test in found.tests]
            with new_file(out) as stream:
                content = {"rows": found.n_rows, "has_alarm": found.has_alarm, "tests": tests}
                stream.write((json.dumps(content, indent=2) + "\n").encode())
            show_item(f"tests: {out}")
