"""Reading and writing tables (a stand-in until the readers are there)."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from sigmax.errors import DataFileError, ModelFileError


def read_table(source, *, delimiter=None, encoding=None, sheet=None, max_rows=None):
    try:
        return pd.read_csv(source, sep=delimiter or ",", encoding=encoding, nrows=max_rows)
    except (OSError, ValueError) as error:
        raise DataFileError(f"Cannot read {source}: {error}.") from error


def read_chunks(source, *, rows_per_chunk, delimiter=None, encoding=None, sheet=None) -> Iterator:
    try:
        yield from pd.read_csv(source, sep=delimiter or ",", chunksize=rows_per_chunk)
    except (OSError, ValueError) as error:
        raise DataFileError(f"Cannot read {source}: {error}.") from error


def write_table(frames: Iterable[pd.DataFrame], path) -> None:
    with open(path, "w", newline="") as file:
        for i, frame in enumerate(frames):
            frame.to_csv(file, header=i == 0, index=False)


@contextmanager
def new_folder(path: Path, force: bool):
    path = Path(path)
    if path.exists() and not force:
        raise ModelFileError(f"{str(path)!r} exists.")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield fresh
        if path.exists():
            shutil.rmtree(path)
        fresh.rename(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
