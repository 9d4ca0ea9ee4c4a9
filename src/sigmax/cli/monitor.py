"""`sigmax monitor`: test a saved model for drift on labelled files."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sigmax.cli.app import ModelFolder, Reading, Source
from sigmax.cli.evaluate import labelled_chunks
from sigmax.cli.terminal import report_errors, show_item
from sigmax.errors import InvalidCellError
from sigmax.monitoring import Monitor
from sigmax.table_model import ROWS_PER_CHUNK, SavedTableModel, load_folder
from sigmax.tables.reading import read_chunks
from sigmax.tables.writing import new_file


@report_errors()
def monitor(
    model: ModelFolder,
    data: Source,
    *,
    alpha: Annotated[
        float, typer.Option(help="Largest probability of a false alarm without drift.")
    ] = 0.05,
    state: Annotated[
        Path | None, typer.Option(help="JSON file to continue from and to write to.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file for the result of each test.")] = None,
    reading: Reading,
) -> None:
    """Test whether predictions still hold on new labelled rows, in their order."""
    found = monitor_file(load_folder(model), data, reading.options, alpha=alpha, state=state)
    show_item(str(found))
    if out is not None:
        tests = [asdict(test) | {"is_alarm": test.is_alarm} for test in found.tests]
        content = {"rows": found.n_rows, "has_alarm": found.has_alarm, "tests": tests}
        with new_file(out) as stream:
            stream.write((json.dumps(content, indent=2) + "\n").encode())
        show_item(f"Tests saved to {out}")


def monitor_file(
    saved: SavedTableModel,
    source: str,
    reading: Mapping[str, Any],
    *,
    alpha: float = 0.05,
    state: Path | None = None,
) -> Monitor:
    """Update a monitor with the labelled rows of a file in their order.

    An existing ``state`` is continued with its ``alpha``; the state is written in any case.
    """
    monitor = Monitor(saved.model, alpha=alpha)
    if state is not None and state.exists():
        monitor = Monitor.load(state, saved.model)
    chunks = read_chunks(source, rows_per_chunk=ROWS_PER_CHUNK, **reading)
    for chunk, y, numbers, _ in labelled_chunks(saved, chunks):
        if len(y):
            with InvalidCellError.numbered(numbers):
                monitor.update(chunk[saved.features], y)
    if state is not None:
        monitor.save(state)
    return monitor
