"""Where data files lie, and how they get there.

A file is looked for in the folder that ``SIGMAX_DATA`` names, then in the cache: the folder that
``SIGMAX_CACHE`` names, or ``sigmax`` in the user's cache folder. What is downloaded goes to the
cache. Reading a file runs nothing that stands in it: arrays are numbers, and pickles are refused.
"""

import hashlib
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from sigmax.errors import DataFileError

__all__ = [
    "CACHE_FOLDER",
    "DATA_FOLDER",
    "cache_folder",
    "download",
    "find_file",
    "look_up",
    "read_arrays",
    "where_to_put",
    "write_arrays",
]

DATA_FOLDER = "SIGMAX_DATA"
"""The environment variable that names the folder of data files."""
CACHE_FOLDER = "SIGMAX_CACHE"
"""The environment variable that names the folder for what is downloaded."""

TIMEOUT = 30.0
"""Seconds without an answer after which a download is given up."""
CHUNK = 1 << 16


def cache_folder() -> Path:
    """The folder for downloaded files, which need not exist yet."""
    if folder := os.environ.get(CACHE_FOLDER):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sigmax"


def look_up(name: str) -> Path | None:
    """The path of a data file by its name, or None where there is no such file."""
    data_folder = os.environ.get(DATA_FOLDER)
    folders = [Path(data_folder)] if data_folder else []
    paths = (folder / name for folder in [*folders, cache_folder()])
    return next((path for path in paths if path.is_file()), None)


def where_to_put(what: str) -> str:
    """What to do about a missing file, as half a sentence."""
    if folder := os.environ.get(DATA_FOLDER):
        return f"put {what} into {folder}"
    return (
        f"put {what} into {cache_folder()}, or into a folder of your own and set the environment "
        f"variable {DATA_FOLDER} to it"
    )


def find_file(name: str) -> Path:
    """The path of a data file by its name, or an error that says where to put it."""
    path = look_up(name)
    if path is None:
        raise DataFileError(f"The data file {name} was not found: {where_to_put('it')}.")
    return path


def download(url: str, path: Path, *, sha256: str | None = None, md5: str | None = None) -> None:
    """Fetch a file over http or https; it appears at ``path`` whole or not at all.

    Raises
    ------
    DataFileError
        If the server cannot be reached, refuses, stops answering or sends less than it announced,
        if the content has another ``sha256`` or ``md5``, or if the file cannot be written. The
        message says what to put where by hand.
    """
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError("only http and https addresses are fetched")
        request = Request(url, headers={"User-Agent": "sigmax"})
        with urlopen(request, timeout=TIMEOUT) as response, whole_file(path) as file:
            length = response.headers.get("Content-Length")
            n_expected = int(length) if length is not None else None
            expected = {"sha256": sha256, "md5": md5}
            digests = {
                name: hashlib.new(name, usedforsecurity=False)
                for name, digest in expected.items()
                if digest is not None
            }
            with progress_bar() as progress:
                task = progress.add_task(path.name, total=n_expected)
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    for digest in digests.values():
                        digest.update(chunk)
                    progress.advance(task, len(chunk))
            if n_expected is not None and file.tell() != n_expected:
                raise OSError(f"only {file.tell()} of {n_expected} bytes came")
            for name, digest in digests.items():
                if digest.hexdigest() != str(expected[name]).lower():
                    raise OSError(f"its {name} is {digest.hexdigest()}, not {expected[name]}")
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, HTTPError):
            reason = str(error)
            error.close()
        raise DataFileError(
            f"Downloading {url} failed: {reason}. Get that file by hand and save it as {path}."
        ) from error


def progress_bar() -> Progress:
    """Bytes so far and time to go, on a terminal; elsewhere nothing is shown."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which gets its name only when all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False)
    fresh = Path(file.name)
    try:
        with file:
            yield file
        fresh.chmod(0o644)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def read_arrays(path: Path, *names: str) -> list[NDArray]:
    """Arrays of numbers by their names, from an npz file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except (OSError, EOFError, ValueError, TypeError, KeyError, BadZipFile, zlib.error) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write arrays of numbers by their names to an npz file, whole or not at all."""
    try:
        with whole_file(path) as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        raise DataFileError(f"{path} cannot be written: {error}") from error
