"""Experiments: their tasks and jobs, and a run that resumes from its records."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from sigmax.errors import InvalidArgumentError
from sigmax.report.tables import ReportTable
from sigmax.runs.engines import AbstractEngine
from sigmax.runs.methods import METHODS, Method
from sigmax.runs.records import Job, Record, RecordFile, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MAX_JOB_ROWS = {"auto": 20_000, "cpu": 20_000, "gpu": 400_000}
"""Maximum number of training rows of all tasks of a job, which bounds memory and lost work."""


@final
@dataclass(frozen=True, kw_only=True)
class Choice:
    """Part of an experiment to run; empty values select the defaults of the experiment."""

    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    n_splits: int | None = None
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the models that differ from the defaults of the methods."""
    acquisitions: Sequence[str] = ()
    quick: bool = False
    """True for the settings that take a few minutes on a CPU."""


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Definition of an experiment: its tasks, how to run them, and tables of the records."""

    name: str
    about: str
    datasets: Sequence[str]
    """Default data sets."""
    methods: Sequence[str]
    """Default methods."""
    n_splits: int
    run: Callable[[Sequence[Task]], list[Record]]
    """Function of a module that runs the tasks of one job; worker processes import it."""
    tables: Callable[[Sequence[Record]], list[ReportTable]]
    figures: "Callable[[Sequence[Record]], dict[str, Figure]]" = lambda records: {}
    n_rows: Callable[[str], int] | None = None
    """Number of training rows of a data set; with None, each job has one task."""
    variants: Callable[[Choice], Sequence[dict[str, Any]]] = lambda choice: [{}]
    """Settings, each of which gives one task per data set, method and split."""
    most_splits: Callable[[str], int] | None = None
    """Number of splits of a data set, or None if unlimited."""
    known_methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    other_datasets: Collection[str] = ()
    """Data sets that may be chosen in addition to the default ones."""
    check_dataset: Callable[[str], Any] | None = None
    """Function that raises an error for an unusable data set, in place of a list of names."""
    quick: dict[str, Any] | None = None
    """Settings for a few minutes on a CPU, or None."""
    page: Callable[[Path, Sequence[Record]], str] | None = None
    """HTML page of a folder that holds only records of this experiment."""

    def choose(self, choice: Choice) -> list[Task]:
        datasets = choice.datasets or self.datasets
        for dataset in datasets:
            if self.check_dataset is not None:
                self.check_dataset(dataset)
            elif dataset not in {*self.datasets, *self.other_datasets}:
                known = ", ".join(self.datasets)
                raise InvalidArgumentError(f"No data set {dataset!r}: choose from {known}.")
        for method in choice.methods:
            if method not in self.known_methods:
                known = ", ".join(self.known_methods)
                raise InvalidArgumentError(f"No method {method!r}: choose from {known}.")
        if choice.quick and self.quick is None:
            raise InvalidArgumentError(f"`quick`: {self.name} has no quick settings.")
        settings = {**((choice.quick and self.quick) or {}), **choice.settings}
        n_splits = choice.n_splits or self.n_splits
        return [
            Task(
                experiment=self.name,
                dataset=dataset,
                method=method,
                split=split,
                seed=choice.seed + split,
                settings={**settings, **variant},
            )
            for dataset in datasets
            for method in choice.methods or self.methods
            for variant in self.variants(choice)
            for split in range(
                min(n_splits, self.most_splits(dataset)) if self.most_splits else n_splits
            )
        ]

    def jobs(self, tasks: Sequence[Task], device: str) -> list[Job]:
        """Group tasks that differ in split and seed only into jobs for a device of an engine.

        A job of a method that is not a network has one task.
        """
        groups: dict[tuple[str, ...], list[Task]] = {}
        for task in tasks:
            groups.setdefault((task.dataset, task.method, task.settings_text), []).append(task)
        jobs: list[Job] = []
        for (dataset, method, _), group in groups.items():
            n_together = 1
            if self.n_rows is not None and self.known_methods[method].is_network:
                n_together = max(1, MAX_JOB_ROWS[device] // self.n_rows(dataset))
            jobs += [tuple(group[i : i + n_together]) for i in range(0, len(group), n_together)]
        return jobs


@final
@dataclass(frozen=True)
class RunProgress:
    """Progress of a run."""

    n_done: int
    n_tasks: int
    label: str
    n_failed: int


Observer = Callable[[RunProgress], None]


def run_tasks(
    experiment: Experiment,
    tasks: Sequence[Task],
    folder: Path,
    engine: AbstractEngine,
    *,
    retry_failed: bool = False,
    observe: Observer = lambda progress: None,
) -> dict[str, Record]:
    """Run the tasks without a record, or failed ones with ``retry_failed``; return all records."""
    with RecordFile.open(folder) as file:
        left = [task for task in tasks if not file.is_settled(task, retry_failed=retry_failed)]
        n_done, n_failed = len(tasks) - len(left), 0
        observe(RunProgress(n_done, len(tasks), "", n_failed))
        for job, records in engine.run(experiment.run, experiment.jobs(left, engine.device)):
            for record in records:
                file.append(record)
            n_done += len(job)
            n_failed += sum(record.status == "failed" for record in records)
            observe(RunProgress(n_done, len(tasks), job[0].label, n_failed))
        return file.records
