"""Files and folders that appear whole or not at all.

What is being written lies beside its place under a name that begins with a dot and ends in
``.partial``. It is removed on failure, on an interruption and on a request to end; what a killed
process has left is removed when the same file or folder is written the next time.
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

from sigmax.errors import TableFileError
from sigmax.tables.sources import reason

__all__ = ["check_new_folder", "new_file", "new_folder"]


@contextmanager
def new_file(path: str | Path) -> Iterator[Any]:
    """A stream to a file that takes its place, or that of an older one, when all is written.

    Raises
    ------
    TableFileError
        If it cannot be written.
    """
    path = Path(path).expanduser().resolve()  # a link stays one, and its target is replaced
    if path.is_dir():
        raise TableFileError(f"{path} is a folder: name a file in it.")
    with workshop(path) as folder:
        fresh = folder / "new"
        with fresh.open("w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)


@contextmanager
def new_folder(
    path: str | Path, *, force: bool = False, names: tuple[str, ...] = ()
) -> Iterator[Path]:
    """An empty folder to fill, which becomes ``path`` when the block ends without an error.

    Parameters
    ----------
    path : str or Path
        Where it is to appear.
    force : bool
        Replace an older folder of that name; without it, only an empty one is replaced.
    names : tuple of str
        What the folder will hold, if that is known: an older one with anything else is then refused
        before the work and not after it. It is always refused, so that no other file is deleted.

    Raises
    ------
    TableFileError
        If there is an older folder that may not be replaced, or if nothing can be written there.
    """
    path = Path(path).expanduser()
    check_new_folder(path, force=force, names=names)
    path = path.resolve()
    with workshop(path) as folder:
        fresh, older = folder / "new", folder / "old"
        fresh.mkdir()
        yield fresh
        check_new_folder(path, force=force, names=tuple(os.listdir(fresh)))
        for file in fresh.rglob("*"):
            sync(file)
        if path.exists():
            path.rename(older)
        try:
            fresh.rename(path)
        except OSError:
            if older.exists():
                older.rename(path)
            raise


def check_new_folder(path: str | Path, *, force: bool = False, names: tuple[str, ...] = ()) -> None:
    """Refuse a place where a folder must not appear: see `new_folder`."""
    path = Path(path).expanduser()
    if path.exists() and not path.is_dir():
        raise TableFileError(f"{path} is a file: name another folder.")
    if not path.exists() or not any(path.iterdir()):
        return
    if not force:
        raise TableFileError(f"{path} exists: name another folder, or replace it by --force.")
    if names and (others := sorted(set(os.listdir(path)) - set(names))):
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise TableFileError(
            f"{path} also holds {', '.join(others[:3])}{more}, which would be lost: move that away,"
            " or name another folder."
        )


@contextmanager
def workshop(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` that is gone in the end; what is wrong with the place is told."""
    made = None
    try:
        with ended_by_signals():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                remove_stale(path)
                prefix = f".{path.name}.{socket.gethostname()}-{os.getpid()}-"
                made = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=path.parent))
                yield made
            finally:
                if made is not None:
                    shutil.rmtree(made, ignore_errors=True)
    except (TableFileError, BrokenPipeError):
        raise
    except OSError as error:
        raise TableFileError(f"{path} cannot be written: {reason(error)}.") from error


def remove_stale(path: Path) -> None:
    """Remove what processes of this machine that live no more have left of ``path``."""
    pattern = re.compile(
        rf"\.{re.escape(path.name)}\.{re.escape(socket.gethostname())}-(\d+)-\w+\.partial"
    )
    for name in os.listdir(path.parent):
        found = pattern.fullmatch(name)
        if found and not is_alive(int(found[1])):
            shutil.rmtree(path.parent / name, ignore_errors=True)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or no number of a process
        return True
    return True


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A request to end (SIGTERM, SIGHUP) becomes an exception, so that what is open is removed."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    wanted = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in wanted:
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def sync(path: Path) -> None:
    """Have the disk keep a file, as far as the system can."""
    with suppress(OSError):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
