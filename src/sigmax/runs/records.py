"""Records: one line of JSON per task of an experiment, so that a killed run can be resumed.

A resumed run repeats only the tasks without a line. One process writes the file, one line per
write; an incomplete last line is removed before the next one is appended.
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
from typing import Any, final

import numpy as np
from filelock import FileLock, Timeout

from sigmax.errors import RecordFileError
from sigmax.version import __version__

FILE_NAME = "records.jsonl"
STATUSES = ("done", "failed", "infeasible")


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """One fit of one method to one split of a data set."""

    experiment: str
    dataset: str
    method: str
    split: int = 0
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the defaults of the method, as JSON values."""

    @property
    def key(self) -> str:
        """Text that identifies the task, also across processes."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def label(self) -> str:
        return f"{self.experiment}, {Path(self.dataset).name}: {self.method}"

    @property
    def settings_text(self) -> str:
        """The settings as text: ``n_steps=200``."""
        return ", ".join(f"{name}={json.dumps(v)}" for name, v in sorted(self.settings.items()))


Job = tuple[Task, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """Result of a task."""

    task: Task
    status: str
    """``done``, ``failed`` (with the error) or ``infeasible`` (with the reason)."""
    scores: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    """Scores by round, step or day."""
    seconds: dict[str, float] = field(default_factory=dict)
    """``fit`` and ``predict`` without compilation, ``compile``, and ``together``: the number of
    tasks trained in one call, by which the time was divided."""
    data: dict[str, Any] = field(default_factory=dict)
    """Metadata of the data set: hash, number of rows and columns."""
    reason: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    finished: str = ""

    def to_line(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Record":
        values = json.loads(line)
        return cls(**{**values, "task": Task(**values["task"])})


def done(task: Task, *, scores: dict[str, float], **parts: Any) -> Record:
    """Record of a task with scores; it is a failed one if a score or curve is not finite."""
    scores = {name: float(value) for name, value in scores.items()}
    curves = {  # six digits are enough for a plot
        name: [float(f"{value:.6g}") for value in values]
        for name, values in parts.pop("curves", {}).items()
    }
    numbers = [*scores.values(), *(value for values in curves.values() for value in values)]
    if not np.isfinite(numbers).all():
        bad = [name for name, value in scores.items() if not np.isfinite(value)]
        return failed(task, f"not finite: {', '.join(bad) or 'a curve'}", **parts)
    return finished(task, "done", scores=scores, curves=curves, **parts)


def failed(task: Task, reason: str, **parts: Any) -> Record:
    return finished(task, "failed", reason=reason, **parts)


def infeasible(task: Task, reason: str, **parts: Any) -> Record:
    return finished(task, "infeasible", reason=reason, **parts)


def finished(task: Task, status: str, **parts: Any) -> Record:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(task=task, status=status, finished=now, **parts)


def in_order(records: Sequence[Record], methods: Iterable[str]) -> list[Record]:
    """Sort by data set (in order of appearance), method (in the given order) and split."""
    datasets = list(dict.fromkeys(record.task.dataset for record in records))
    order = {name: number for number, name in enumerate(methods)}

    def position(record: Record) -> tuple[int, int, int]:
        task = record.task
        return datasets.index(task.dataset), order.get(task.method, len(order)), task.split

    return sorted(records, key=position)


def group_done(records: Iterable[Record], *keys: Callable[[Task], Any]) -> dict[Any, Any]:
    """Lists of the records with status ``done``, in one level of dictionaries per key."""
    groups: dict[Any, Any] = {}
    for record in records:
        if record.status == "done":
            groups.setdefault(keys[0](record.task), []).append(record)
    return {k: group_done(v, *keys[1:]) for k, v in groups.items()} if keys[1:] else groups


def read_records(path: Path) -> list[Record]:
    """Last record of each task in a file, maybe gzipped; an incomplete last line is ignored."""
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
            raise RecordFileError(f"{path}, line {number}, is not a record: {error!r}") from error
        records[record.task.key] = record
    return list(records.values())


@final
class RecordFile:
    """File of records that only this process may write to."""

    def __init__(self, path: Path):
        self.path = path
        self.records: dict[str, Record] = {}

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator["RecordFile"]:
        """Lock a folder, open or create its file, and remove an incomplete last line."""
        folder.mkdir(parents=True, exist_ok=True)
        file = cls(folder / FILE_NAME)
        try:
            lock = FileLock(folder / ".lock").acquire(blocking=False)
        except Timeout as error:
            raise RecordFileError(f"Another run is writing to {folder}.") from error
        with lock:
            if file.path.exists():
                with open(file.path, "rb+") as opened:
                    opened.truncate(opened.read().rfind(b"\n") + 1)
                file.records = {record.task.key: record for record in read_records(file.path)}
            yield file

    def append(self, record: Record) -> None:
        with open(self.path, "ab") as file:
            file.write(record.to_line().encode())
            file.flush()
            os.fsync(file.fileno())
        self.records[record.task.key] = record

    def is_settled(self, task: Task, *, retry_failed: bool = False) -> bool:
        """True if the task need not be run."""
        record = self.records.get(task.key)
        return record is not None and not (retry_failed and record.status == "failed")


def describe_machine() -> dict[str, Any]:
    import jax

    device, packages = jax.devices()[0], ("jax", "numpy", "scikit-learn")
    versions = {"python": platform.python_version(), "sigmax": __version__}
    versions |= {package: version(package) for package in packages}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"device": device.device_kind, "cores": cores, **versions}
