"""Compiled programs on disk, so that a fresh process need not compile what another one has.

JAX keeps them; this module gives it a folder in the user's cache folder, unless the user has chosen
another one or none. A program is code that will be run: the folder is the user's own, and nobody
else may write to it. Programs of one machine may not run on another that shares the folder, so
there is one folder for each kind of machine and each version of what compiles.
"""

import hashlib
import os
import platform
import shutil
import sys
import time
from pathlib import Path

import filelock
import jax
import jaxlib.version

SWITCH = "SIGMAX_PROGRAM_CACHE"
"""The environment variable that switches the cache off, by the value ``off``."""

FOLDER, ENABLED = "jax_compilation_cache_dir", "jax_enable_compilation_cache"
"""JAX's names for the folder, and for whether there is a cache at all."""

LIMITS = {
    "jax_compilation_cache_max_size": 2**28,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
"""Bytes of all programs of one folder, of which those not used for longest are removed first; all
are worth keeping, however small."""

LONGEST_IDLE = 90 * 24 * 3600
"""Seconds after which the folder of another machine or version is removed."""

CPU_INFO = Path("/proc/cpuinfo")


def keep_programs() -> Path | None:
    """Let JAX keep compiled programs, and say where; None where it is not for us to decide.

    Settings of the user stand: a folder, or a cache that is switched off, by JAX's variables, its
    configuration or ours. Where no folder can be had that is the user's alone, nothing is kept.
    """
    has_chosen = FOLDER.upper() in os.environ or getattr(jax.config, FOLDER)
    is_off = os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")
    if has_chosen or is_off or not getattr(jax.config, ENABLED):
        return None
    folder = program_folder()
    if folder is None or not make_private(folder):
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


def program_folder() -> Path | None:
    """The folder for programs of this machine and these versions, which need not exist yet."""
    root = user_cache_folder()
    return root / "programs" / machine_digest() if root.is_absolute() else None  # no home


def machine_digest() -> str:
    """Everything that makes a program of another process invalid here, as a few letters."""
    facts = [
        platform.system(),
        platform.machine(),
        *processor_facts(),
        platform.python_version(),
        jax.__version__,
        jaxlib.version.__version__,
        *sorted(os.environ.get("XLA_FLAGS", "").split()),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def processor_facts() -> list[str]:
    """Model and abilities of the first processor, as the system tells them."""
    names = {"model name", "flags", "Features", "CPU implementer", "CPU part", "isa"}
    found = [platform.processor()]
    try:
        with CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    break  # the others are alike, and there may be hundreds
                name, _, value = line.partition(":")
                if name.strip() in names:
                    found.append(value.strip())
    except OSError:
        pass  # no Linux
    return found


def make_private(folder: Path) -> bool:
    """Make the folder, if need be, and say whether it is the user's to write to, and no other's."""
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        if not folder.exists():
            remove_idle(folder.parent)
        for own in (folder.parent, folder):
            own.mkdir(mode=0o700, exist_ok=True)
            facts = own.stat()
            if sys.platform != "win32" and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):
                return False
        os.utime(folder)  # it is in use
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def remove_idle(folders: Path) -> None:
    """Remove what nobody has used for long, such as programs of versions that are gone."""
    if not folders.is_dir():
        return
    for folder in folders.iterdir():
        if time.time() - folder.stat().st_mtime > LONGEST_IDLE:
            shutil.rmtree(folder, ignore_errors=True)


def mend(folder: Path) -> None:
    """Remove programs that a process did not finish writing, over which JAX would stumble.

    JAX writes a program, and then in another file the time of its last use.
    """
    try:
        with filelock.FileLock(folder / ".lockfile", timeout=0):
            names = set(os.listdir(folder))
            for name in names:
                stem = name.removesuffix("-cache")
                if stem != name and f"{stem}-atime" not in names:
                    (folder / name).unlink()
    except (OSError, filelock.Timeout):
        pass  # another process is at it
