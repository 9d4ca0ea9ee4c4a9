"""A saved model watched on labelled files: `sigmax monitor` without the command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sigmax.commands.folder import SavedTableModel
from sigmax.commands.predict import ROWS_PER_CHUNK, check_columns
from sigmax.errors import InvalidCellError, InvalidDataError
from sigmax.monitoring import Monitor
from sigmax.tables.reading import read_chunks
from sigmax.tables.targets import read_target

__all__ = ["monitor_file"]


def monitor_file(
    saved: SavedTableModel,
    source: str,
    reading: Mapping[str, Any],
    *,
    alpha: float = 0.05,
    state: Path | None = None,
) -> Monitor:
    """Take in the rows of a file in their order; those without a target are left out.

    A ``state`` that exists is gone on from, with its own ``alpha``, and written in any case.
    """
    monitor = Monitor(saved.model, alpha=alpha)
    if state is not None and state.exists():
        monitor = Monitor.load(state, saved.model)
    n_rows, n_known = 0, 0
    for chunk in read_chunks(source, rows_per_chunk=ROWS_PER_CHUNK, **reading):
        if not n_rows:
            check_columns(saved, chunk)
        y = read_target(chunk, saved.target, first_row=n_rows)
        n_before, n_rows = n_rows, n_rows + len(chunk)
        is_known = ~np.isnan(y)
        if is_known.any():
            n_known += int(is_known.sum())
            with InvalidCellError.numbered(n_before + np.flatnonzero(is_known) + 1):
                monitor.update(chunk.loc[is_known, saved.features], y[is_known])
    if not n_known:
        raise InvalidDataError(f"The target {saved.target!r} is missing in all {n_rows:,} rows.")
    if state is not None:
        monitor.save(state)
    return monitor
