"""How much memory is left, so that what cannot fit is refused before it is begun."""

import os
from pathlib import Path

from sigmax.errors import TableFileError

__all__ = ["available_memory", "check_memory", "in_words"]


def available_memory() -> int | None:
    """Bytes that can still be used, or None where the system does not tell."""
    known = [size for size in (system_memory(), container_memory()) if size is not None]
    return min(known, default=None)


def check_memory(name: str, needed: int) -> None:
    """Refuse to read the table ``name`` whole if it needs more memory than there is.

    Raises
    ------
    TableFileError
        If it needs more; the message says how much it needs and how much there is.
    """
    available = available_memory()
    if available is not None and needed > available:
        raise TableFileError(
            f"{name} needs about {in_words(needed)} of memory and {in_words(available)} are free:"
            " take fewer rows or columns."
        )


def in_words(n_bytes: int) -> str:
    """A size as people say it.

    Examples
    --------
    >>> in_words(3 * 2**30)
    '3.0 GiB'
    """
    size = float(n_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def system_memory() -> int | None:
    """What the system has left for new programs, or its free pages, or None."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        facts = dict(line.split(":") for line in lines)
        return int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on every system
        return None


def container_memory() -> int | None:
    """What a control group of Linux has left, or None where there is no limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (
            int((folder / name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no such files, or "max"
        return None
    return max(limit - used, 0)
