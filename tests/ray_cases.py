"""How tests look at the processes of Ray, and end them."""

import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from sigmax.ray_training import RayTrainer


def busy_workers(parent: int, task: str) -> list[psutil.Process]:
    """The processes below ``parent`` that are at a task of this name."""
    found = []
    try:
        children = psutil.Process(parent).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    for process in children:
        try:
            if process.cmdline()[:1] == [f"ray::{task}"]:
                found.append(process)
        except psutil.Error:
            pass  # gone since
    return found


def once_busy(parent: int, task: str, strike: Callable[[list[psutil.Process]], None]) -> Any:
    """A thread that waits until a process is in the middle of a task, and strikes."""

    def watch() -> None:
        end = time.monotonic() + 600
        while time.monotonic() < end:
            if found := busy_workers(parent, task):
                strike(found)
                return
            time.sleep(0.002)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def after_chunks(monkeypatch, n_chunks: int, act: Callable[[], None]) -> None:
    """Let ``act`` happen once some chunks of a training on Ray are done."""
    usual, chunks = RayTrainer.advance, []

    def advance(self: RayTrainer, chunk: int) -> dict:
        found = usual(self, chunk)
        chunks.append(chunk)
        if len(chunks) == n_chunks:
            act()
        return found

    monkeypatch.setattr(RayTrainer, "advance", advance)
