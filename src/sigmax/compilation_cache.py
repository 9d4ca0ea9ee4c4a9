"""Cache of compiled functions on disk, so that a new process need not compile them again.

JAX writes and reads the cache; this module gives it a folder in the user's cache folder, unless the
user has chosen another one or none. Its content is executed, so the folder belongs to the user and
nobody else may write to it. Functions compiled on one machine may not run on another that shares
the folder, so there is one folder for each kind of processor; versions of JAX and its compiler, and
their flags, are part of JAX's own keys.
"""

import hashlib
import os
import platform
import sys
from pathlib import Path

import filelock
import jax

SWITCH = "SIGMAX_PROGRAM_CACHE"
"""Environment variable that disables the cache, with the value ``off``."""

FOLDER, ENABLED = "jax_compilation_cache_dir", "jax_enable_compilation_cache"
"""JAX's names for the folder, and for the switch of the cache."""

LIMITS = {
    "jax_compilation_cache_max_size": 2**28,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
"""Size of a folder in bytes, beyond which the least recently used functions are removed; small
functions are cached, too."""

CPU_INFO = Path("/proc/cpuinfo")
CPU_KEYS = {"model name", "flags", "Features", "CPU implementer", "CPU part", "isa"}


def enable_cache() -> Path | None:
    """Let JAX cache compiled functions; return the folder, or None if there is no cache of ours.

    Settings of the user have priority: a folder, or a cache that is switched off, by JAX's
    variables, its configuration or ours. Without a private folder, nothing is cached.
    """
    has_chosen = FOLDER.upper() in os.environ or getattr(jax.config, FOLDER)
    is_off = os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")
    root = user_cache_folder()
    if has_chosen or is_off or not getattr(jax.config, ENABLED) or not root.is_absolute():
        return None
    folder = root / "programs" / machine_digest()
    if not make_private(folder):
        return None
    mend(folder)
    for name, value in LIMITS.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    jax.config.update(FOLDER, str(folder))
    return folder


def user_cache_folder() -> Path:
    """Folder of sigmax among the caches of the user, which need not exist yet."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser() / "sigmax"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/sigmax").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sigmax"


def machine_digest() -> str:
    found = [platform.system(), platform.machine(), platform.processor()]
    try:
        text = CPU_INFO.read_text(encoding="utf-8", errors="replace")
        for line in text.partition("\n\n")[0].splitlines():  # all other processors have the same
            name, _, value = line.partition(":")
            if name.strip() in CPU_KEYS:
                found.append(value.strip())
    except OSError:
        pass  # not Linux
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def make_private(folder: Path) -> bool:
    """Create the folder if necessary; True if the user, and nobody else, may write to it."""
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for own in (folder.parent, folder):
            own.mkdir(mode=0o700, exist_ok=True)
            status = own.stat()
            if sys.platform != "win32" and (status.st_uid != os.getuid() or status.st_mode & 0o022):
                return False
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def mend(folder: Path) -> None:
    """Remove unfinished files of a killed process, at which JAX would fail.

    JAX writes a function, and then in another file the time of its last use.
    """
    try:
        with filelock.FileLock(folder / ".lockfile", timeout=0):
            names = set(os.listdir(folder))
            for name in names:
                stem = name.removesuffix("-cache")
                if stem != name and f"{stem}-atime" not in names:
                    (folder / name).unlink()
    except (OSError, filelock.Timeout):
        pass  # another process uses the folder
