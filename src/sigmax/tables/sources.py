"""Sources of tables: files, standard input, folders, patterns, and stores that pyarrow can reach.

A `Source` is a local file that can be read twice; standard input and pipes are copied to a
temporary file first. Its format is detected by content, and nothing in a file is executed. Other
functions take a path or an address such as ``s3://bucket/folder``, for which pyarrow finds the file
system and its credentials.
"""

import bz2
import gzip
import lzma
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, final

from pyarrow import fs
from rich import filesize

from sigmax.atomic import new_file, reason
from sigmax.errors import SigmaxError, TableFileError

STANDARD_STREAM = "-"
"""Name of standard input and output."""

BLOCK = 1 << 20
MAX_EXPANSION = 200
"""Largest ratio of uncompressed to compressed size of a file."""
ALWAYS_ALLOWED = 1 << 27
"""Uncompressed size in bytes up to which any ratio is allowed."""

WILDCARD = re.compile(r"[*?\[]")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@final
class Format(StrEnum):
    """Format of a table file."""

    TEXT = "delimited text"
    PARQUET = "Parquet"
    EXCEL = "Excel (.xlsx)"


FORMATS = {b"PAR1": Format.PARQUET, b"PK\x03\x04": Format.EXCEL}
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
UNSUPPORTED = {
    b"PK\x05\x06": "an empty zip file",
    b"(\xb5/\xfd": "compressed by Zstandard: unpack it first",
    b"\xd0\xcf\x11\xe0": "an old Excel file, or protected by a password:"
    " save it as an .xlsx file without a password",
}
OPENERS: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
SUFFIXES = {
    **{".parquet": Format.PARQUET, ".pq": Format.PARQUET},
    **{".xlsx": Format.EXCEL, ".xlsm": Format.EXCEL},
    **{".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"},
}
"""Format or compression of each suffix."""
TABLE_SUFFIXES = (*SUFFIXES, ".csv", ".tsv", ".txt")
"""Suffixes of the files that are read from a folder."""


@final
@dataclass(frozen=True)
class Source:
    """A file that can be read repeatedly, with its format."""

    name: str
    """Name for messages."""
    path: Path
    format: Format
    compression: str | None

    def blocks(self) -> Iterator[bytes]:
        """Uncompressed content in blocks; a file that expands too much raises TableFileError."""
        n_read, limit = 0, max(ALWAYS_ALLOWED, MAX_EXPANSION * self.path.stat().st_size)
        with self.open() as stream:
            while block := self.read(stream):
                n_read += len(block)
                if self.compression and n_read > limit:
                    raise TableFileError(
                        f"{self.name} becomes more than {MAX_EXPANSION} times as long when it is"
                        " uncompressed. If you trust it, uncompress it first."
                    )
                yield block

    def open(self) -> Any:
        return OPENERS[self.compression](self.path) if self.compression else self.path.open("rb")

    def read(self, stream: Any, size: int = BLOCK) -> bytes:
        try:
            return stream.read(size)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            kind = f"{self.compression} file" if self.compression else "file"
            raise TableFileError(f"{self.name} is a damaged {kind}: {reason(error)}.") from error


@contextmanager
def translate_errors(name: str, format: Format) -> Iterator[None]:
    """Raise any error of a library that reads a damaged file as TableFileError."""
    try:
        yield
    except SigmaxError:
        raise
    except Exception as error:
        text = reason(error).splitlines()[0]
        raise TableFileError(f"{name} is a damaged {format} file: {text}.") from error


@contextmanager
def open_source(source: str | Path) -> Iterator[Source]:
    """File of a path, or standard input for ``-``, with the format of its content."""
    name, path = str(source), Path(source).expanduser()
    if is_address(name):
        raise TableFileError(f"{source} is an address: download it first, then name the file.")
    with ExitStack() as stack:
        try:
            if name == STANDARD_STREAM:
                copy = stack.enter_context(temporary_copy(sys.stdin.buffer))
                found = identify("standard input", copy, "")
            else:
                mode = path.stat().st_mode
                if stat.S_ISDIR(mode):
                    raise TableFileError(f"{path} is a folder: name a file in it.")
                if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
                    raise TableFileError(f"{path} is a device, not a file.")
                copy = path
                if stat.S_ISFIFO(mode):
                    with path.open("rb") as stream:
                        copy = stack.enter_context(temporary_copy(stream))
                found = identify(str(path), copy, path.suffix)
        except FileNotFoundError as error:
            raise TableFileError(f"{path} does not exist.") from error
        except TableFileError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
            raise TableFileError(f"{path} cannot be read: {reason(error)}.") from error
        yield found


@contextmanager
def temporary_copy(stream: Any) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sigmax-") as folder:
        path = Path(folder) / "table"
        try:
            with path.open("wb") as copy:
                shutil.copyfileobj(stream, copy, BLOCK)
        except OSError as error:
            raise TableFileError(f"Standard input cannot be copied: {reason(error)}.") from error
        yield path


def identify(name: str, path: Path, suffix: str) -> Source:
    """Source with the format and compression of its content, which must agree with ``suffix``."""
    with path.open("rb") as stream:
        head = stream.read(16)
    if not head:
        raise TableFileError(f"{name} is empty.")
    compression, format = look_up(COMPRESSIONS, head), look_up(FORMATS, head)
    source = Source(name, path, format or Format.TEXT, compression)
    expected = SUFFIXES.get(suffix.lower())
    if unsupported := look_up(UNSUPPORTED, head):
        raise TableFileError(f"{name} is {unsupported}.")
    if expected is not None and expected not in (compression, format):
        raise TableFileError(f"{name} is not a {expected} file, as its name says.")
    if compression:
        with source.open() as stream:
            if inner := look_up(FORMATS, source.read(stream, 16)):
                raise TableFileError(f"{name} is a compressed {inner} file: uncompress it first.")
    return source


def look_up(signatures: dict[bytes, Any], head: bytes) -> Any:
    return next((kind for start, kind in signatures.items() if head.startswith(start)), None)


def available_memory() -> int | None:
    """Free bytes of memory of the system or the container, or None if Linux does not say."""
    sizes = []
    with suppress(OSError, KeyError, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        size = dict(line.split(":") for line in lines)["MemAvailable"]
        sizes.append(1024 * int(size.split()[0]))
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # without a container, or with the limit "max"
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        sizes.append(max(limit - used, 0))
    return min(sizes, default=None)


def check_memory(name: str, needed: int) -> None:
    """Raise TableFileError if reading the table ``name`` needs more memory than is free."""
    available = available_memory()
    if available is not None and needed > available:
        have, want = map(filesize.decimal, (available, needed))
        raise TableFileError(
            f"{name} needs about {want} of memory and {have} are free: use fewer rows or columns."
        )


@final
@dataclass(frozen=True)
class FoundFile:
    """A file with its size and modification time, to detect changes."""

    address: str
    size: int
    modified: int | None
    """Modification time in nanoseconds since 1970, if the store provides it."""


def is_address(path: str) -> bool:
    return ADDRESS.match(path) is not None


def is_many_files(source: str) -> bool:
    """True for a pattern, a folder or an address, False for one local file."""
    if is_address(source):
        return True
    path = os.path.expanduser(source)
    return os.path.isdir(path) or (WILDCARD.search(source) is not None and not os.path.exists(path))


def absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def file_system(path: str) -> tuple[Any, str]:
    """File system of a path or an address, and the path in it."""
    if not is_address(path):
        return fs.LocalFileSystem(), absolute(path)
    try:
        return fs.FileSystem.from_uri(path)
    except (OSError, ValueError, NotImplementedError) as error:
        raise TableFileError(f"{path} cannot be reached: {reason(error)}.") from error


def join_path(folder: str, name: str) -> str:
    """Path or address of a file in a folder; the query of an address stays at its end."""
    if not is_address(folder):
        return os.path.join(absolute(folder), name)
    base, mark, query = folder.partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def find_files(source: str) -> list[FoundFile]:
    """Files of a pattern or a folder, sorted by name, or the one file of that name.

    In a pattern, ``*``, ``?`` and ``[...]`` match parts of a name and ``**`` any folders; in an
    address, ``?`` begins the query. Hidden files are left out, and from a folder those without the
    suffix of a table.
    """
    base, pattern = split_pattern(source)
    system, path = file_system(base)
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File and not pattern:
            return [FoundFile(base, info.size, info.mtime_ns)]
        is_folder = info.type == fs.FileType.Directory
        is_deep = not pattern or len(pattern) > 1 or "**" in pattern
        selector = fs.FileSelector(path, recursive=is_deep)
        inside = system.get_file_info(selector) if is_folder else []
    except OSError as error:
        raise TableFileError(f"{source} cannot be read: {reason(error)}.") from error
    if not is_folder:
        raise TableFileError(f"{source} does not exist.")
    found = []
    for info in inside:
        names = info.path[len(path) :].strip("/").split("/")
        is_hidden = any(name.startswith((".", "_")) for name in names)
        is_table = not is_hidden and names[-1].lower().endswith(TABLE_SUFFIXES)
        if info.type == fs.FileType.File and (matches(names, pattern) if pattern else is_table):
            found.append(FoundFile(join_path(base, "/".join(names)), info.size, info.mtime_ns))
    if not found:
        problem = "matches no file" if pattern else "is a folder without tables"
        raise TableFileError(f"{source} {problem}.")
    return sorted(found, key=lambda file: file.address)


def split_pattern(source: str) -> tuple[str, list[str]]:
    """Folder before the first name with a wildcard, and the names from there on."""
    mark = query = ""
    if is_address(source):
        source, mark, query = source.partition("?")
    else:
        source = absolute(source)
        if os.path.exists(source):
            return source, []
    names = source.split("/")
    first = next((i for i, name in enumerate(names) if WILDCARD.search(name)), len(names))
    return ("/".join(names[:first]) or "/") + mark + query, names[first:]


def matches(names: list[str], pattern: list[str]) -> bool:
    """True if names of folders and a file match a pattern."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        rest = pattern[1:] or ["*"]
        return any(matches(names[i:], rest) for i in range(len(names)))
    if not names or (names[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatchcase(names[0], pattern[0]) and matches(names[1:], pattern[1:])


def list_folder(folder: str) -> list[str]:
    """Sorted names of the files in a folder, empty if it does not exist."""
    system, path = file_system(folder)
    try:
        inside = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    except OSError as error:
        raise TableFileError(f"{folder} cannot be read: {reason(error)}.") from error
    return sorted(info.base_name for info in inside)


def open_input(path: str) -> Any:
    system, path = file_system(path)
    return system.open_input_file(path)


@contextmanager
def new_output(path: str) -> Iterator[Any]:
    """Binary stream to a new file, which appears when the block ends without an error."""
    if not is_address(path):
        with new_file(path) as stream:
            yield stream
        return
    system, inner_path = file_system(path)
    with tempfile.TemporaryFile() as stream:
        yield stream
        stream.seek(0)
        try:
            with system.open_output_stream(inner_path) as sent:
                shutil.copyfileobj(stream, sent)
        except OSError as error:
            raise TableFileError(f"{path} cannot be written: {reason(error)}.") from error
