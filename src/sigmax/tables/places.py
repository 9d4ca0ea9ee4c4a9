"""Places of files: folders of this machine, and stores that pyarrow reaches by an address.

A place is an absolute path, or an address as ``s3://bucket/folder``, for which pyarrow finds the
file system and its credentials. The same pattern gives the same files in the same order.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, final

from pyarrow import fs

from sigmax.errors import TableFileError
from sigmax.tables.partial import new_file
from sigmax.tables.sources import reason

__all__ = [
    "FoundFile",
    "find_files",
    "is_address",
    "is_many",
    "joined",
    "names_in",
    "open_place",
    "system_of",
    "whole_file",
]

ENDINGS = (
    ".parquet",
    ".pq",
    ".csv",
    ".tsv",
    ".txt",
    ".gz",
    ".bz2",
    ".xz",
    ".xlsx",
    ".xlsm",
    ".xls",
)
"""Of the files of a folder that are taken for tables."""

WILD = re.compile(r"[*?\[]")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@final
@dataclass(frozen=True)
class FoundFile:
    """A file, and by what one sees that it is still the same."""

    address: str
    size: int
    modified: int | None
    """In nanoseconds since 1970, where the store says it."""


def is_address(place: str) -> bool:
    return ADDRESS.match(place) is not None


def is_many(source: str) -> bool:
    """Whether a source is a pattern, a folder or an address, and not one file of this machine."""
    if is_address(source):
        return True
    path = os.path.expanduser(source)
    return os.path.isdir(path) or (WILD.search(source) is not None and not os.path.exists(path))


def system_of(place: str) -> tuple[Any, str]:
    """The file system of a place, and its path in there.

    Raises
    ------
    TableFileError
        If there is no such file system.
    """
    if not is_address(place):
        return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(place))
    try:
        return fs.FileSystem.from_uri(place)
    except (OSError, ValueError, NotImplementedError) as error:
        raise TableFileError(f"{place} cannot be reached: {reason(error)}.") from error


def joined(folder: str, name: str) -> str:
    """The place of a file in a folder; what stands behind ``?`` in an address stays there."""
    if not is_address(folder):
        return os.path.join(os.path.abspath(os.path.expanduser(folder)), name)
    place, mark, query = folder.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{query}"


def find_files(source: str) -> list[FoundFile]:
    """The files of a pattern or folder, sorted by name, or the one file of that name.

    ``*``, ``?`` and ``[...]`` stand for parts of a name, ``**`` for any folders; ``?`` begins the
    settings of an address, and stands for nothing there. Hidden files are left out, and of a folder
    all files that have no ending of a table.

    Raises
    ------
    TableFileError
        If there is none, or the place cannot be read.
    """
    base, pattern = split_pattern(source)
    system, path = system_of(base)
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File and not pattern:
            return [found_file(base, info)]
        if info.type != fs.FileType.Directory:
            raise TableFileError(f"{source} does not exist.")
        is_deep = not pattern or len(pattern) > 1 or "**" in pattern
        inside = system.get_file_info(fs.FileSelector(path, recursive=is_deep))
    except OSError as error:
        if isinstance(error, TableFileError):
            raise
        raise TableFileError(f"{source} cannot be read: {reason(error)}.") from error
    found = []
    for info in inside:
        names = info.path[len(path) :].strip("/").split("/")
        if info.type == fs.FileType.File and is_wanted(names, pattern):
            found.append(found_file(joined(base, "/".join(names)), info))
    if not found:
        what = "matches no file" if pattern else "is a folder without tables"
        raise TableFileError(f"{source} {what}.")
    return sorted(found, key=lambda file: file.address)


def split_pattern(source: str) -> tuple[str, list[str]]:
    """The folder before the first name with a wild card, and the names from there on.

    Examples
    --------
    >>> split_pattern("s3://bucket/2024/*/new.parquet?region=eu-north-1")
    ('s3://bucket/2024?region=eu-north-1', ['*', 'new.parquet'])
    """
    mark = query = ""
    if is_address(source):
        source, mark, query = source.partition("?")
    elif os.path.exists(os.path.expanduser(source)):
        return os.path.abspath(os.path.expanduser(source)), []
    else:
        source = os.path.abspath(os.path.expanduser(source))
    names = source.split("/")
    first = next((i for i, name in enumerate(names) if WILD.search(name)), len(names))
    return ("/".join(names[:first]) or "/") + mark + query, names[first:]


def is_wanted(names: list[str], pattern: list[str]) -> bool:
    """Whether a path below the folder fits the pattern, or is a table if there is none."""
    if pattern:
        return matches(names, pattern)
    is_hidden = any(name.startswith((".", "_")) for name in names)
    return not is_hidden and names[-1].lower().endswith(ENDINGS)


def matches(names: list[str], pattern: list[str]) -> bool:
    """Whether names of folders and a file fit a pattern.

    Examples
    --------
    >>> matches(["a", "b", "c.csv"], ["**", "*.csv"]), matches(["a", "c.csv"], ["*.csv"])
    (True, False)
    """
    if not pattern:
        return not names
    if pattern[0] == "**":
        rest = pattern[1:] or ["*"]
        return any(matches(names[i:], rest) for i in range(len(names)))
    if not names or (names[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatchcase(names[0], pattern[0]) and matches(names[1:], pattern[1:])


def found_file(address: str, info: Any) -> FoundFile:
    return FoundFile(address, info.size, info.mtime_ns)


def names_in(folder: str) -> list[str]:
    """What a folder holds, by name; nothing if there is no such folder."""
    system, path = system_of(folder)
    try:
        inside = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    except OSError as error:
        raise TableFileError(f"{folder} cannot be read: {reason(error)}.") from error
    return sorted(info.base_name for info in inside)


@contextmanager
def open_place(place: str) -> Iterator[Any]:
    """A file as a stream in which any place can be read first."""
    system, path = system_of(place)
    with system.open_input_file(path) as stream:
        yield stream


@contextmanager
def whole_file(place: str) -> Iterator[Any]:
    """A stream to a file that appears when all is written, and not before.

    A store gets the file in one piece, after it was written on this machine.
    """
    if not is_address(place):
        with new_file(place) as stream:
            yield stream
        return
    system, path = system_of(place)
    with tempfile.TemporaryFile() as stream:
        yield stream
        stream.seek(0)
        try:
            with system.open_output_stream(path) as sent:
                shutil.copyfileobj(stream, sent)
        except OSError as error:
            raise TableFileError(f"{place} cannot be written: {reason(error)}.") from error
