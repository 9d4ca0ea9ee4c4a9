"""The runner: from the name of an experiment to its records, tables, figures and report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sigmax.runs.engines import AbstractEngine
from sigmax.runs.records import Record, RecordFile, Task
from sigmax.runs.registry import Choice, Experiment, find_experiment
from sigmax.runs.report import PAGE_NAME, save_report
from sigmax.runs.tables import ReportTable

__all__ = ["ExperimentResult", "RunProgress", "run_experiment", "run_tasks"]


@final
@dataclass(frozen=True)
class RunProgress:
    """How far a run is."""

    n_done: int
    n_tasks: int
    label: str
    n_failed: int


@final
@dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """What a run has given."""

    records: list[Record]
    """Of the chosen tasks."""
    tables: list[ReportTable]
    """Made from these records."""
    figures: list[Path]
    """Image files, drawn from all records of the experiment that the folder holds."""
    report: Path
    """The page of the folder."""

    @property
    def failures(self) -> list[Record]:
        return [record for record in self.records if record.status == "failed"]


Observer = Callable[[RunProgress], None]


def run_experiment(
    name: str,
    choice: Choice,
    folder: Path,
    engine: AbstractEngine,
    *,
    retry_failed: bool = False,
    observe: Observer = lambda progress: None,
) -> ExperimentResult:
    """Run what has no record in the folder yet, then write figures, tables and the report.

    Killed or interrupted at any point, the same call goes on where it was.
    """
    experiment = find_experiment(name)
    tasks = experiment.choose(choice)
    found = run_tasks(experiment, tasks, folder, engine, retry_failed=retry_failed, observe=observe)
    records = [found[task.key] for task in tasks]
    sections = save_report(folder, list(found.values()))
    pictures = sections[name].pictures if name in sections else {}
    figures = {folder / f"{stem}.png": content for stem, content in pictures.items()}
    for path, content in figures.items():
        path.write_bytes(content)
    return ExperimentResult(
        records=records,
        tables=experiment.tables(records),
        figures=list(figures),
        report=folder / PAGE_NAME,
    )


def run_tasks(
    experiment: Experiment,
    tasks: Sequence[Task],
    folder: Path,
    engine: AbstractEngine,
    *,
    retry_failed: bool = False,
    observe: Observer = lambda progress: None,
) -> dict[str, Record]:
    """All records of the folder by their tasks' keys, after those tasks were run that had none.

    With ``retry_failed``, tasks that failed are run again.
    """
    with RecordFile.open(folder) as file:
        left = [task for task in tasks if not file.is_settled(task, retry_failed=retry_failed)]
        n_done, n_failed = len(tasks) - len(left), 0
        observe(RunProgress(n_done, len(tasks), "", n_failed))
        for job, records in engine.run(experiment.jobs(left, engine.kind)):
            for record in records:
                file.append(record)
            n_done += len(job)
            n_failed += sum(record.status == "failed" for record in records)
            observe(RunProgress(n_done, len(tasks), job[0].label, n_failed))
        return file.records
