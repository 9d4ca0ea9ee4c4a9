"""Where a table comes from: a file or standard input, plain or compressed, and its format.

A source is a file that can be read twice; what cannot (standard input, a pipe) is first copied to a
temporary one. Nothing is fetched from a network and nothing that stands in a file is run.
"""

import bz2
import gzip
import lzma
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, final

from sigmax.errors import TableFileError

__all__ = ["STANDARD_STREAM", "Format", "Source", "open_source"]

STANDARD_STREAM = "-"
"""The name that stands for standard input or output."""

BLOCK = 1 << 20
MAX_EXPANSION = 200
"""A compressed file may become this many times as long, or"""
ALWAYS_ALLOWED = 1 << 27
"""this long: a few bytes that become a hundred gigabytes are no table."""


@final
class Format(StrEnum):
    """How a table is written down."""

    TEXT = "delimited text"
    PARQUET = "Parquet"
    XLSX = "Excel (.xlsx)"
    XLS = "Excel (.xls)"


FORMATS = {b"PAR1": Format.PARQUET, b"PK\x03\x04": Format.XLSX, b"\xd0\xcf\x11\xe0": Format.XLS}
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
OPENERS: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
CLAIMS = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".xlsx": Format.XLSX,
    ".xlsm": Format.XLSX,
    ".xls": Format.XLS,
    ".gz": "gzip",
    ".bz2": "bzip2",
    ".xz": "xz",
}
"""What the end of a name promises; any other name is found out by content."""
OTHERS = {b"PK\x05\x06": "an empty zip file", b"(\xb5/\xfd": "compressed by Zstandard"}


@final
@dataclass(frozen=True)
class Source:
    """A file that can be read again, and what kind of file it is."""

    name: str
    """As the user knows it, for messages."""
    path: Path
    format: Format
    compression: str | None

    def blocks(self) -> Iterator[bytes]:
        """The content, uncompressed, a piece at a time.

        Raises
        ------
        TableFileError
            If the file is damaged, or becomes unreasonably long when it is uncompressed.
        """
        n_read, limit = 0, max(ALWAYS_ALLOWED, MAX_EXPANSION * self.path.stat().st_size)
        with self.open() as stream:
            while block := self.read(stream):
                n_read += len(block)
                if self.compression and n_read > limit:
                    raise TableFileError(
                        f"{self.name} becomes more than {MAX_EXPANSION} times as long when it is"
                        " uncompressed: if that is meant, uncompress it first."
                    )
                yield block

    def open(self) -> Any:
        """The content, uncompressed, as a stream."""
        return OPENERS[self.compression](self.path) if self.compression else self.path.open("rb")

    def read(self, stream: Any, size: int = BLOCK) -> bytes:
        try:
            return stream.read(size)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            what = f"{self.compression} file" if self.compression else "file"
            raise TableFileError(f"{self.name} is a damaged {what}: {reason(error)}.") from error


@contextmanager
def open_source(source: str | Path) -> Iterator[Source]:
    """The file behind a path, or behind ``-``.

    Raises
    ------
    TableFileError
        If there is no such file, if it may not be read, is empty, or is not what its name says.
    """
    if str(source) == STANDARD_STREAM:
        with copied(sys.stdin.buffer) as path:
            yield identify("standard input", path, Path())
        return
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(source)):
        raise TableFileError(f"{source} is an address: download it first, then name the file.")
    path = Path(source).expanduser()
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise TableFileError(f"{path} is a folder: name a file in it.")
        if stat.S_ISFIFO(mode):
            with path.open("rb") as stream, copied(stream) as copy:
                yield identify(str(path), copy, path)
            return
        if not stat.S_ISREG(mode):
            raise TableFileError(f"{path} is a device, not a file.")
        found = identify(str(path), path, path)
    except FileNotFoundError as error:
        raise TableFileError(f"{path} does not exist.") from error
    except TableFileError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        raise TableFileError(f"{path} cannot be read: {reason(error)}.") from error
    yield found


@contextmanager
def copied(stream: Any) -> Iterator[Path]:
    """A temporary file with all that is still to come from a stream."""
    with tempfile.TemporaryDirectory(prefix="sigmax-") as folder:
        path = Path(folder) / "table"
        try:
            with path.open("wb") as copy:
                shutil.copyfileobj(stream, copy, BLOCK)
        except OSError as error:
            raise TableFileError(f"Standard input cannot be kept: {reason(error)}.") from error
        yield path


def identify(name: str, path: Path, claimed: Path) -> Source:
    """Format and compression of a file, by content, and refused if its name says otherwise."""
    with path.open("rb") as stream:
        head = stream.read(16)
    if not head:
        raise TableFileError(f"{name} is empty.")
    compression, format = find(COMPRESSIONS, head), find(FORMATS, head)
    source = Source(name, path, format or Format.TEXT, compression)
    claim = CLAIMS.get(claimed.suffix.lower())
    if other := find(OTHERS, head):
        raise TableFileError(f"{name} is {other}: unpack it first.")
    if claim == Format.XLSX and format == Format.XLS:
        raise TableFileError(
            f"{name} is protected by a password, or an old Excel file under a new name:"
            " save it as an .xlsx file without a password."
        )
    if claim is not None and claim not in (compression, format):
        raise TableFileError(f"{name} is not a {claim} file, as its name says.")
    if compression:
        with source.open() as stream:
            if inner := find(FORMATS, source.read(stream, 16)):
                raise TableFileError(f"{name} is a compressed {inner} file: uncompress it first.")
    return source


def find(beginnings: dict[bytes, Any], head: bytes) -> Any:
    return next((what for start, what in beginnings.items() if head.startswith(start)), None)


def reason(error: BaseException) -> str:
    """What an error says, without path and number, as the end of a sentence."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.strip().rstrip(".")
