"""Records: one line of JSON for every task of an experiment, whatever became of it.

A run that is killed at any point and started again redoes only what has no line. Only one process
writes a file, each line in one go; a last line that was torn off is cut away before the next.
"""

import gzip
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from filelock import FileLock, Timeout

from sigmax.errors import RecordFileError
from sigmax.version import __version__

__all__ = [
    "FILE_NAME",
    "Job",
    "Record",
    "RecordFile",
    "Task",
    "describe_machine",
    "done",
    "failed",
    "group_done",
    "infeasible",
    "read_records",
]

FILE_NAME = "records.jsonl"
STATUSES = ("done", "failed", "infeasible")

Key = TypeVar("Key")


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """One fit, or one run of a few that belong together."""

    experiment: str
    dataset: str
    method: str
    split: int = 0
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """What is set differently from the method's defaults, as JSON takes it."""

    @property
    def key(self) -> str:
        """The same text for the same task, also in another process."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def label(self) -> str:
        """What a progress bar says."""
        return f"{self.experiment}, {Path(self.dataset).name}: {self.method}"

    @property
    def settings_text(self) -> str:
        """What is set differently, as ``n_steps=200``."""
        return ", ".join(f"{name}={json.dumps(v)}" for name, v in sorted(self.settings.items()))


Job = tuple[Task, ...]
"""Tasks that one call runs together."""


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """What became of a task."""

    task: Task
    status: str
    """``done``, ``failed`` (with the error) or ``infeasible`` (with the reason)."""
    scores: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    """Scores along something: rounds, steps, days."""
    seconds: dict[str, float] = field(default_factory=dict)
    """``fit`` and ``predict`` without compilation, ``compile``; and ``together``, the number of
    tasks that shared one training, over which it was divided."""
    data: dict[str, Any] = field(default_factory=dict)
    """Hash and shape of the data."""
    reason: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    finished: str = ""

    def to_line(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Record":
        values = json.loads(line)
        return cls(**{**values, "task": Task(**values["task"])})


def finished_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def done(task: Task, *, scores: dict[str, float], **parts: Any) -> Record:
    """The record of a task that gave scores; numbers that are not finite make it a failure."""
    scores = {name: float(value) for name, value in scores.items()}
    curves = {name: rounded(values) for name, values in parts.pop("curves", {}).items()}
    numbers = [*scores.values(), *(value for values in curves.values() for value in values)]
    if not np.isfinite(numbers).all():
        bad = [name for name, value in scores.items() if not np.isfinite(value)]
        return failed(task, f"not finite: {', '.join(bad) or 'a curve'}", **parts)
    return Record(
        task=task, status="done", scores=scores, curves=curves, finished=finished_now(), **parts
    )


def failed(task: Task, reason: str, **parts: Any) -> Record:
    return Record(task=task, status="failed", reason=reason, finished=finished_now(), **parts)


def infeasible(task: Task, reason: str, **parts: Any) -> Record:
    return Record(task=task, status="infeasible", reason=reason, finished=finished_now(), **parts)


def rounded(values: Iterable[float]) -> list[float]:
    """Six digits are enough for a picture."""
    return [float(f"{value:.6g}") for value in values]


def in_order(records: Sequence[Record], methods: Iterable[str]) -> list[Record]:
    """Records by data set as they come, then by method in the given order, then by split."""
    datasets = list(dict.fromkeys(record.task.dataset for record in records))
    order = {name: number for number, name in enumerate(methods)}

    def place(record: Record) -> tuple[int, int, int]:
        task = record.task
        return datasets.index(task.dataset), order.get(task.method, len(order)), task.split

    return sorted(records, key=place)


def group_done(records: Iterable[Record], key: Callable[[Task], Key]) -> dict[Key, list[Record]]:
    """Records with scores by a key of their tasks, in the order in which keys come."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        if record.status == "done":
            groups.setdefault(key(record.task), []).append(record)
    return groups


def read_records(path: Path) -> list[Record]:
    """All records of a file (also gzipped), the last of each task; a torn last line is skipped."""
    if not path.is_file():
        raise RecordFileError(f"There are no records at {path}.")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    records = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = Record.from_line(line)
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                continue
            raise RecordFileError(f"{path}, line {number}, is no record: {error!r}") from error
        records[record.task.key] = record
    return list(records.values())


@final
class RecordFile:
    """A file of records that this process alone may write to."""

    def __init__(self, path: Path):
        self.path = path
        self.records: dict[str, Record] = {}

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator["RecordFile"]:
        """Open or make the file of a folder, repair its end, and keep other processes out."""
        folder.mkdir(parents=True, exist_ok=True)
        file = cls(folder / FILE_NAME)
        try:
            lock = FileLock(folder / ".lock").acquire(blocking=False)
        except Timeout as error:
            raise RecordFileError(f"Another run is writing to {folder}.") from error
        with lock:
            file.repair()
            if file.path.exists():
                file.records = {record.task.key: record for record in read_records(file.path)}
            yield file

    def repair(self) -> None:
        """Cut away what follows the last whole line."""
        if not self.path.exists():
            return
        with open(self.path, "rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)

    def append(self, record: Record) -> None:
        """Add a line, and see to it that it is on the disk."""
        with open(self.path, "ab") as file:
            file.write(record.to_line().encode())
            file.flush()
            os.fsync(file.fileno())
        self.records[record.task.key] = record

    def is_settled(self, task: Task, *, retry_failed: bool = False) -> bool:
        """Whether the task needs no run."""
        record = self.records.get(task.key)
        return record is not None and not (retry_failed and record.status == "failed")


def describe_machine() -> dict[str, Any]:
    """Versions and hardware, for the record."""
    import jax

    device, packages = jax.devices()[0], ("jax", "numpy", "scikit-learn")
    versions = {"python": platform.python_version(), "sigmax": __version__}
    versions |= {package: version(package) for package in packages}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"device": device.device_kind, "cores": cores, **versions}
