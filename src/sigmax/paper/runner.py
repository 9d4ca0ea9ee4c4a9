"""The runner: what has no record yet is made into jobs, run, and recorded as it comes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sigmax.paper.engines import AbstractEngine, Job
from sigmax.paper.records import Record, RecordFile, Task

__all__ = ["Progress", "run_tasks"]


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    n_done: int
    n_tasks: int
    label: str
    n_failed: int


def run_tasks(
    tasks: Sequence[Task],
    make_jobs: Callable[[Sequence[Task]], list[Job]],
    folder: Path,
    engine: AbstractEngine,
    *,
    retry_failed: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
) -> list[Record]:
    """The records of all tasks, of which only those without one (or failed, on request) are run.

    Killed or interrupted at any point, the same call goes on where it was.
    """
    with RecordFile.open(folder) as file:
        left = [task for task in tasks if not file.is_settled(task, retry_failed=retry_failed)]
        n_done, n_failed = len(tasks) - len(left), 0
        report(Progress(n_done, len(tasks), "", n_failed))
        for job, records in engine.run(make_jobs(left)):
            for record in records:
                file.append(record)
            n_done += len(job)
            n_failed += sum(record.status == "failed" for record in records)
            report(Progress(n_done, len(tasks), job[0].label, n_failed))
        return [file.records[task.key] for task in tasks]
