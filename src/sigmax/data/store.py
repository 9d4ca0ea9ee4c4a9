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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from sigmax.errors import DataFileError

__all__ = [
    "CACHE_FOLDER",
    "DATA_FOLDER",
    "cache_folder",
    "content_hash",
    "download",
    "find_file",
    "look_up",
    "original_file",
    "read_npz",
    "where_to_put",
    "write_npz",
]

DATA_FOLDER = "SIGMAX_DATA"
"""The environment variable that names the folder of data files."""
CACHE_FOLDER = "SIGMAX_CACHE"
"""The environment variable that names the folder for what is downloaded."""

TIMEOUT = 30.0
"""Seconds without an answer after which a download is given up."""
CHUNK = 1 << 16
HEADERS = {"User-Agent": "sigmax", "Accept-Encoding": "identity"}
"""Files are wanted as they are: a compressed one is not to be unpacked on its way."""


def cache_folder() -> Path:
    """The folder for downloaded files, which need not exist yet."""
    if folder := os.environ.get(CACHE_FOLDER):
        return Path(folder).expanduser()
    return user_cache_path("sigmax", appauthor=False)


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


def download(url: str, path: Path, *, known_hash: str | None = None) -> None:
    """Fetch a file over http or https; it appears at ``path`` whole or not at all.

    ``known_hash`` is that of the content, as ``md5:`` or ``sha256:`` and digits.

    Raises
    ------
    DataFileError
        If the server cannot be reached, refuses, stops answering or sends less than it announced,
        if the content has another hash, or if the file cannot be written. The message says what to
        put where by hand.
    """
    import pooch  # here, for it is slow to import

    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(), chunk_size=CHUNK, timeout=TIMEOUT, headers=HEADERS
    )
    try:
        with whole_file(path) as file:
            fetch(url, file, None)
            file.flush()
            pooch.hashes.hash_matches(file.name, known_hash, strict=True, source=path.name)
    except (OSError, ValueError) as error:
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # a refused request, of which nothing was read
        reason = str(error).rstrip(".")
        raise DataFileError(
            f"Downloading {url} failed: {reason}. Get that file by hand and save it as {path}."
        ) from error


@contextmanager
def original_file(name: str, url: str, *, known_hash: str | None = None) -> Iterator[Path]:
    """A file of the data folder or the cache, or else a download that is removed after use."""
    path = look_up(name)
    if path is not None:
        yield path
        return
    path = cache_folder() / name
    download(url, path, known_hash=known_hash)
    try:
        yield path
    finally:
        path.unlink()


def content_hash(arrays: Iterable[NDArray], dtype: str) -> str:
    """The start of the sha256 of all values, as bytes of one type, array by array."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=dtype).tobytes())
    return digest.hexdigest()[:16]


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


def read_npz(path: Path, *names: str) -> list[NDArray]:
    """Arrays of numbers by their names, from an npz file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except (OSError, EOFError, ValueError, TypeError, KeyError, BadZipFile, zlib.error) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error


def write_npz(path: Path, **arrays: Any) -> None:
    """Write arrays of numbers by their names to an npz file, whole or not at all."""
    try:
        with whole_file(path) as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        raise DataFileError(f"{path} cannot be written: {error}") from error
