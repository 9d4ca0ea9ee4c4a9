"""Experiments by name: their tasks, jobs, records, tables and figures.

The module of an experiment registers it; the module is imported when the experiment is looked up.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, final

from matplotlib.figure import Figure

from sigmax.errors import InvalidArgumentError
from sigmax.runs import EXPERIMENTS
from sigmax.runs.methods import METHODS, Method
from sigmax.runs.records import Job, Record, Task
from sigmax.runs.tables import ReportTable

__all__ = ["Choice", "Experiment", "find_experiment", "known_experiments", "register"]

ROWS_TOGETHER = {"cpu": 20_000, "gpu": 400_000}
"""Training rows of all tasks of a job, at most: few enough to be held, and to be lost."""


@final
@dataclass(frozen=True, kw_only=True)
class Choice:
    """What to run of an experiment; empty means all that is usual."""

    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    n_splits: int | None = None
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the models that differ from the methods' own."""
    acquisitions: Sequence[str] = ()
    """Of active learning."""
    quick: bool = False
    """Whether to take the experiment's settings for a few minutes on a CPU."""


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: what its tasks are, how they are run, and what is made of the records."""

    name: str
    about: str
    datasets: Sequence[str]
    """Those that are usual."""
    methods: Sequence[str]
    """Those that are usual."""
    n_splits: int
    run: Callable[[Sequence[Task]], list[Record]]
    """Runs the tasks of one job."""
    tables: Callable[[Sequence[Record]], list[ReportTable]]
    figures: Callable[[Sequence[Record]], dict[str, Figure]] = lambda records: {}
    n_rows: Callable[[str], int] | None = None
    """Training rows of a data set, by which tasks share a job; without, each task is alone."""
    variants: Callable[[Choice], Sequence[dict[str, Any]]] = lambda choice: [{}]
    """Settings of which each data set, method and split has one task."""
    most_splits: Callable[[str], int] | None = None
    """How many splits a data set has, if there is a limit."""
    known_methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    """What may be chosen; benchmarks add methods of their own."""
    other_datasets: Collection[str] = ()
    """What may be chosen besides the usual."""
    check_dataset: Callable[[str], Any] | None = None
    """Raises an error for a data set that cannot be used, in place of a list of known ones."""
    quick: dict[str, Any] | None = None
    """Settings for a few minutes on a CPU, if it has any."""
    page: Callable[[Path, Sequence[Record]], str] | None = None
    """A page of its own, in HTML, for a folder that holds no other experiment's records."""

    def choose(self, choice: Choice) -> list[Task]:
        """The tasks of a choice, with the usual in place of what is empty."""
        datasets = choice.datasets or self.datasets
        self._check(choice, datasets)
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

    def _check(self, choice: Choice, datasets: Sequence[str]) -> None:
        known = {*self.datasets, *self.other_datasets}
        for dataset in datasets:
            if self.check_dataset is not None:
                self.check_dataset(dataset)
            elif dataset not in known:
                usual = ", ".join(self.datasets)
                raise InvalidArgumentError(f"No data set {dataset!r}: choose from {usual}.")
        for method in choice.methods:
            if method not in self.known_methods:
                usual = ", ".join(self.known_methods)
                raise InvalidArgumentError(f"No method {method!r}: choose from {usual}.")
        if choice.quick and self.quick is None:
            names = [name for name in known_experiments() if find_experiment(name).quick]
            raise InvalidArgumentError(f"`quick` is for {', '.join(names)} only.")

    def jobs(self, tasks: Sequence[Task], device: str) -> list[Job]:
        """Tasks that differ in split and seed only, as many in a job as their rows allow.

        ``device`` is ``cpu`` or ``gpu``. A method that is no network is run one task at a time.
        """
        alike: dict[str, list[Task]] = {}
        for task in tasks:
            kind = f"{task.dataset} {task.method} {task.settings_text}"
            alike.setdefault(kind, []).append(task)
        jobs: list[Job] = []
        for group in alike.values():
            n_together = 1
            if self.n_rows is not None and self.known_methods[group[0].method].is_network:
                n_together = max(1, ROWS_TOGETHER[device] // self.n_rows(group[0].dataset))
            jobs += [tuple(group[i : i + n_together]) for i in range(0, len(group), n_together)]
        return jobs


_REGISTERED: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known in this process, in place of an earlier one of its name."""
    _REGISTERED[experiment.name] = experiment
    return experiment


def known_experiments() -> list[str]:
    """The names of the package's experiments, then of all others that were registered."""
    return list(dict.fromkeys([*EXPERIMENTS, *_REGISTERED]))


def find_experiment(name: str) -> Experiment:
    """The experiment of a name; its module is imported now if it has not been yet."""
    if name in EXPERIMENTS:
        import_module(EXPERIMENTS[name])
    if name not in _REGISTERED:
        known = ", ".join(known_experiments())
        raise InvalidArgumentError(f"No experiment {name!r}: choose from {known}.")
    return _REGISTERED[name]
