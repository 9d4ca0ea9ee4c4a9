"""Predictions for many files, as a folder of parts: `sigmax predict` of a pattern or a folder.

A run that was killed goes on where it was: parts appear whole or not at all, and finished ones are
left as they are. It ends well only if every part has as many rows as its input.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pandas as pd

from sigmax.checks import check_count
from sigmax.commands.folder import SavedTableModel, load_folder
from sigmax.commands.predict import (
    ROWS_PER_CHUNK,
    PredictOptions,
    check_columns,
    new_names,
)
from sigmax.commands.predict_ray import RayPool
from sigmax.commands.predict_run import Run, checksum, model_files
from sigmax.commands.predict_writing import predict_unit
from sigmax.errors import InvalidArgumentError
from sigmax.tables.file_units import Unit, common_columns, cut_units, read_inputs
from sigmax.tables.places import is_address, is_many

__all__ = ["ROWS_PER_PART", "PartsResult", "is_parts", "plan_parts", "predict_parts"]

ROWS_PER_PART = 16 * ROWS_PER_CHUNK
"""At most, where the row groups of a file allow it."""

Progress = Callable[[str, float], None]
"""What is told of the work: how much is done in words, and as a share."""


@final
@dataclass(frozen=True)
class PartsResult:
    """What a run has written."""

    out: str
    n_rows: int
    n_parts: int
    n_before: int
    """Parts that were there already."""

    def __str__(self) -> str:
        before = f", {self.n_before:,} of which were there" if self.n_before else ""
        parts = "part" if self.n_parts == 1 else "parts"
        return f"{self.n_rows:,} rows in {self.n_parts:,} {parts}{before}: {self.out}"


def is_parts(sources: Sequence[str], out: str | None) -> bool:
    """Whether predictions are to be a folder of parts, and not one file.

    Examples
    --------
    >>> is_parts(["new.csv"], "out.csv"), is_parts(["new/*.csv"], None), is_parts(["a.csv"], "out/")
    (False, True, True)
    """
    is_folder = out is not None and (out.endswith("/") or is_address(out) or Path(out).is_dir())
    return is_folder or len(sources) > 1 or any(map(is_many, sources))


def plan_parts(
    saved: SavedTableModel,
    model: str,
    sources: Sequence[str],
    out: str | None,
    options: PredictOptions,
    reading: Mapping[str, Any],
    rows_per_part: int = ROWS_PER_PART,
) -> Run:
    """What a run will do; whatever can be refused before any work is refused here."""
    options.check()
    check_count("--rows-per-part", rows_per_part)
    if out is None:
        raise InvalidArgumentError("Many files become a folder of parts: name it by `--out`.")
    if out == "-" or "-" in sources:
        raise InvalidArgumentError("A folder of parts is not made of standard input or output.")
    inputs = read_inputs(sources, out, reading)
    columns = common_columns(inputs)
    check_columns(saved, pd.DataFrame(columns=columns.names))
    new_names(columns.names, options)
    return Run(
        out=out,
        model=model,
        options=options,
        rows_per_part=rows_per_part,
        reading=reading,
        inputs=inputs,
        columns=columns,
        units=cut_units(inputs, rows_per_part),
    )


def predict_parts(
    folder: Path,
    sources: Sequence[str],
    out: str | None,
    options: PredictOptions,
    reading: Mapping[str, Any],
    *,
    rows_per_part: int = ROWS_PER_PART,
    pool: RayPool | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> PartsResult:
    """Predict all rows of many files, or go on with that.

    Parameters
    ----------
    folder
        That of the model.
    sources
        Files, folders and patterns, of this machine or addresses of stores.
    out
        The folder of the parts.
    pool
        Workers of a Ray cluster; without it this process predicts one part after the other.
    force
        Begin anew, also if the folder is of another run.
    progress
        Is told how much is done.

    Raises
    ------
    SigmaxError
        If anything is wrong with the inputs, the folder or the model, or if a part has not as many
        rows as its input.
    """
    saved, files = load_folder(folder), model_files(folder)
    run = plan_parts(saved, checksum(files), sources, out, options, reading, rows_per_part)
    with run.opened(force=force):
        units = run.unfinished()
        n_units, n_before = len(run.units), len(run.units) - len(units)
        done = one_by_one(saved, run, units) if pool is None else pool.predict(files, run, units)
        for i, _ in enumerate(done, start=n_before + 1):
            if progress is not None:
                progress(f"{i:,} of {n_units:,} parts", i / n_units)
        return PartsResult(run.out, run.finish(), n_units, n_before)


def one_by_one(saved: SavedTableModel, run: Run, units: Iterable[Unit]) -> Iterator[Unit]:
    for unit in units:
        predict_unit(saved, run, unit)
        yield unit
