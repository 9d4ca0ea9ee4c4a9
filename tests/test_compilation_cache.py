"""Compiled programs are kept in a folder that is the user's alone, unless the user decides."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import sigmax.compilation_cache as cache
from sigmax.compilation_cache import FOLDER, LIMITS, SWITCH, enable_cache, machine_digest, mend

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and owners are those of POSIX")
not_root = pytest.mark.skipif(
    sys.platform == "win32" or os.getuid() == 0, reason="root may write anywhere"
)

PROGRAM = """
import jax, numpy as np
from jax import monitoring
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event.endswith("cache_hits")))
from sigmax.compilation import compiled

@compiled
def cube(x):
    return x**3

assert cube(np.float32(2)) == 8
print(jax.config.jax_compilation_cache_dir, sum(hits))
"""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty cache folder, and JAX without a folder of its own."""
    before = {name: getattr(jax.config, name) for name in (FOLDER, *LIMITS)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    jax.config.update(FOLDER, None)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


def run(**environment: str) -> tuple[str, int]:
    """Where a fresh process keeps programs, and how many of them were there."""
    given = {name: value for name, value in os.environ.items() if name != SWITCH} | environment
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=600,
        env=given,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    folder, hits = done.stdout.split()
    return folder, int(hits)


@posix
def test_another_process_finds_the_programs(tmp_path):
    first, no_hits = run(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path))
    assert no_hits == 0 and Path(first).is_relative_to(tmp_path)
    assert stat.S_IMODE(Path(first).stat().st_mode) == 0o700
    assert any(Path(first).glob("jit_cube-*-cache"))
    again, hits = run(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path))
    assert again == first and hits > 0


def test_the_folder_is_private_and_finite(home):
    folder = enable_cache()
    assert folder is not None and folder == home / "sigmax" / "programs" / machine_digest()
    assert getattr(jax.config, FOLDER) == str(folder)
    assert {name: getattr(jax.config, name) for name in LIMITS} == LIMITS
    if sys.platform != "win32":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_what_the_user_has_chosen_stands(home, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "off")
        assert enable_cache() is None
    with monkeypatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(home / "theirs"))
        assert enable_cache() is None
    jax.config.update(FOLDER, str(home / "theirs"))
    assert enable_cache() is None and getattr(jax.config, FOLDER) == str(home / "theirs")
    jax.config.update(FOLDER, None)
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        assert enable_cache() is None
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert not any(home.iterdir())  # nothing was made
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    monkeypatch.setenv(name.upper(), "7")
    assert enable_cache() is not None and getattr(jax.config, name) == before


@posix
@pytest.mark.parametrize("is_parent", [False, True])
def test_a_folder_that_others_may_write_to_is_not_used(home, is_parent):
    folder = home / "sigmax" / "programs" / machine_digest()
    folder.mkdir(parents=True)
    (folder.parent if is_parent else folder).chmod(0o777)
    assert enable_cache() is None and getattr(jax.config, FOLDER) is None


@posix
def test_the_folder_of_another_user_is_not_used(home, monkeypatch):
    assert enable_cache() is not None
    jax.config.update(FOLDER, None)
    monkeypatch.setattr(os, "getuid", lambda: home.stat().st_uid + 1)
    assert enable_cache() is None


@not_root
def test_a_home_that_cannot_be_written_to_is_no_failure(home):
    home.chmod(0o500)
    assert enable_cache() is None


def test_no_home_is_no_failure(home, monkeypatch):
    (home / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setattr(cache, "user_cache_folder", lambda: home / "file" / "sigmax")
    assert enable_cache() is None
    monkeypatch.setattr(cache, "user_cache_folder", lambda: Path("~/.cache/sigmax"))
    monkeypatch.chdir(home)
    assert enable_cache() is None and not (home / "~").exists()


def test_machines_have_folders_of_their_own(monkeypatch, tmp_path):
    digests = {machine_digest()}
    info = tmp_path / "cpuinfo"
    for flags in ("avx2", "avx2 avx512f"):
        info.write_text(f"processor : 0\nflags : {flags}\n\nprocessor : 1\nflags : x\n")
        monkeypatch.setattr(cache, "CPU_INFO", info)
        digests.add(machine_digest())
    assert len(digests) == 3
    monkeypatch.setattr(cache, "CPU_INFO", tmp_path / "missing")
    assert len(machine_digest()) == 16


def test_programs_that_were_not_finished_are_removed(tmp_path):
    for name in ("whole-cache", "whole-atime", "cut-cache", "other"):
        (tmp_path / name).write_bytes(b"1")
    mend(tmp_path)
    found = {path.name for path in tmp_path.iterdir()} - {".lockfile"}
    assert found == {"whole-cache", "whole-atime", "other"}
