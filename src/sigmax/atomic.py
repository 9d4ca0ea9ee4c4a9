"""Atomic writes: a file or a folder appears complete or not at all.

Unfinished content is in the same folder under a name that begins with a dot and ends in
``.partial``. It is removed on failure, on an interruption and on SIGTERM; that of a killed
process is removed when the same file or folder is written the next time. A block that raises an
error changes nothing.
"""

import os
import re
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sigmax.errors import SigmaxError, TableFileError


@contextmanager
def new_file(path: str | Path, *, failure: type[SigmaxError] = TableFileError) -> Iterator[Any]:
    """Binary stream to a file that appears when the block ends; ``failure`` is the error class."""
    path = Path(path).expanduser().resolve()  # replace the target of a link, not the link
    if path.is_dir():
        raise failure(f"{path} is a folder: name a file in it.")
    with temporary_folder(path, failure) as folder:
        fresh = folder / "new"
        with fresh.open("w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)


@contextmanager
def new_folder(
    path: str | Path,
    *,
    force: bool = False,
    names: tuple[str, ...] = (),
    failure: type[SigmaxError] = TableFileError,
) -> Iterator[Path]:
    """Empty folder to fill, which becomes ``path`` when the block ends.

    With ``force`` an older folder is replaced; without it, only an empty one. ``names`` are those
    of the files that will be written, if known: an older folder with any other file raises
    ``failure`` before the work, and always after it, so that no file is lost.
    """
    path = Path(path).expanduser()
    check_new_folder(path, force=force, names=names, failure=failure)
    path = path.resolve()
    with temporary_folder(path, failure) as folder:
        fresh, older = folder / "new", folder / "old"
        fresh.mkdir()
        yield fresh
        check_new_folder(path, force=force, names=tuple(os.listdir(fresh)), failure=failure)
        for file in fresh.rglob("*"):
            with suppress(OSError), file.open("rb") as stream:  # folders cannot be opened
                os.fsync(stream.fileno())
        if path.exists():
            path.rename(older)
        try:
            fresh.rename(path)
        except OSError:
            if older.exists():
                older.rename(path)
            raise


def check_new_folder(
    path: str | Path,
    *,
    force: bool = False,
    names: tuple[str, ...] = (),
    failure: type[SigmaxError] = TableFileError,
) -> None:
    """Raise the error that `new_folder` raises before its block."""
    path = Path(path).expanduser()
    if path.exists() and not path.is_dir():
        raise failure(f"{path} is a file: name another folder.")
    if not path.exists() or not any(path.iterdir()):
        return
    if not force:
        raise failure(f"{path} exists: name another folder, or replace it by --force.")
    if names and (others := sorted(set(os.listdir(path)) - set(names))):
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise failure(
            f"{path} also holds {', '.join(others[:3])}{more}, which would be lost: move that away,"
            " or name another folder."
        )


@contextmanager
def temporary_folder(path: Path, failure: type[SigmaxError]) -> Iterator[Path]:
    """Folder for unfinished content in the same folder as ``path``, removed at the end."""
    folder = None
    try:
        with signals_as_exceptions():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                remove_stale(path)
                prefix = f".{path.name}.{socket.gethostname()}-{os.getpid()}-"
                folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=path.parent))
                yield folder
            finally:
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if isinstance(error, SigmaxError | BrokenPipeError):
            raise
        raise failure(f"{path} cannot be written: {reason(error)}.") from error


def remove_stale(path: Path) -> None:
    """Remove unfinished content of ``path`` whose process on this machine has ended."""
    host = re.escape(socket.gethostname())
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{host}-(\d+)-\w+\.partial")
    for name in os.listdir(path.parent):
        if found := pattern.fullmatch(name):
            try:
                os.kill(int(found[1]), 0)
            except ProcessLookupError:
                shutil.rmtree(path.parent / name, ignore_errors=True)
            except (OSError, OverflowError):  # a process of another user, or not a process number
                pass


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that unfinished content is removed."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    replaced = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                replaced[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def reason(error: BaseException) -> str:
    """Message of an error without path, number and full stop, for the end of a sentence."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.strip().rstrip(".")
