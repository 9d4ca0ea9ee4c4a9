"""Data files: folders, downloads and npz files.

A file is looked up in the folder named by ``SIGMAX_DATA``, then in the cache: the folder named by
``SIGMAX_CACHE``, or ``sigmax`` in the user's cache folder. Downloads go to the cache. Pickled
objects are never loaded.
"""

import hashlib
import os
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sigmax.atomic import new_file
from sigmax.compilation_cache import user_cache_folder
from sigmax.errors import DataFileError, MissingExtraError

DATA_FOLDER = "SIGMAX_DATA"
"""Environment variable for the folder of data files."""
CACHE_FOLDER = "SIGMAX_CACHE"
"""Environment variable for the folder of downloads."""

DOWNLOADED = "The downloaded set"
TIMEOUT = 30.0
"""Seconds without an answer after which a download fails."""


def cache_folder() -> Path:
    """Folder for downloaded files, which need not exist yet."""
    folder = os.environ.get(CACHE_FOLDER)
    return Path(folder).expanduser() if folder else user_cache_folder()


def read_toml(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("sigmax.data") / name).read_text(encoding="utf-8"))


def look_up(name: str) -> Path | None:
    """Path of a data file by name, or None if there is no such file."""
    folders = filter(None, [os.environ.get(DATA_FOLDER), cache_folder()])
    paths = (Path(folder) / name for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def where_to_put(file: str) -> str:
    """Advice for a missing file, as half a sentence."""
    if folder := os.environ.get(DATA_FOLDER):
        return f"put {file} into {folder}"
    return (
        f"put {file} into {cache_folder()}, or into a folder of your own and set the environment "
        f"variable {DATA_FOLDER} to it"
    )


def find_file(name: str) -> Path:
    """Path of a data file by name; the error for a missing file says where to put it."""
    path = look_up(name)
    if path is None:
        raise DataFileError(f"The data file {name} was not found: {where_to_put('it')}.")
    return path


def download(url: str, path: Path, *, known_hash: str | None = None) -> None:
    """Download a file; ``path`` is written completely or not at all.

    ``known_hash`` is the hash of the content: ``md5:`` or ``sha256:`` and digits. A download that
    fails, is incomplete or has another hash raises DataFileError.
    """
    text = f"Get {url} by hand and save it as {path}, or install pooch to download it"
    with MissingExtraError.unless_imported(text, "paper"):
        import pooch
    pooch.get_logger().setLevel("WARNING")
    # A compressed file must not be decompressed on its way: hence no encoding.
    headers = {"User-Agent": "sigmax", "Accept-Encoding": "identity"}
    show = sys.stderr.isatty()
    fetch: Any = pooch.HTTPDownloader(progressbar=show, timeout=TIMEOUT, headers=headers)
    try:
        pooch.retrieve(url, known_hash, fname=path.name, path=path.parent, downloader=fetch)
    except (OSError, ValueError) as error:
        if (response := getattr(error, "response", None)) is not None:
            response.close()
        reason = str(error).rstrip(".")
        raise DataFileError(
            f"Downloading {url} failed: {reason}. Get that file by hand and save it as {path}."
        ) from error


@contextmanager
def original_file(name: str, url: str, *, known_hash: str | None = None) -> Iterator[Path]:
    """File of the data folder or the cache, or a download that is removed after use."""
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
    """First 16 digits of the SHA-256 of all values, converted to one type."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=dtype).tobytes())
    return digest.hexdigest()[:16]


def read_npz(path: Path, *names: str) -> list[NDArray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except (OSError, EOFError, ValueError, TypeError, KeyError, BadZipFile, zlib.error) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error


def write_npz(path: Path, **arrays: Any) -> None:
    with new_file(path, failure=DataFileError) as file:
        np.savez_compressed(file, **arrays)


def load_set(
    name: str,
    names: Sequence[str],
    fetch: Callable[[], Sequence[NDArray]],
    check: Callable[[Sequence[NDArray], str], None],
    layout: str,
) -> Sequence[NDArray]:
    """Arrays of a data set from its npz file, or else from its source and then cached.

    ``layout`` describes the arrays of the file in an error message.
    """
    npz = f"{name}.npz"
    if (path := look_up(npz)) is not None:
        arrays = read_npz(path, *names)
        check(arrays, f"{path} (replace or remove it)")
        return arrays
    try:
        arrays = fetch()
    except DataFileError as error:
        advice = where_to_put(f"{npz}, with the {layout},")
        raise DataFileError(f"{error} If you have the set already, {advice}.") from error
    check(arrays, DOWNLOADED)
    write_npz(cache_folder() / npz, **dict(zip(names, arrays, strict=True)))
    return arrays
