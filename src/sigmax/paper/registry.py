"""All experiments by name: their tasks, jobs, records, tables and pictures."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from sigmax.data import IMAGE_SETS, STATIONS, UCI_SETS
from sigmax.errors import InvalidArgumentError
from sigmax.paper.ablation import ablation_figures, ablation_tables, ablation_tasks
from sigmax.paper.active import (
    active_figures,
    active_tables,
    active_tasks,
    run_active,
)
from sigmax.paper.engines import Job
from sigmax.paper.generative import GENERATIVE_METHODS
from sigmax.paper.gradients import (
    gradient_figures,
    gradient_tables,
    gradient_tasks,
    run_gradients,
)
from sigmax.paper.images import QUICK_IMAGES, image_tasks, run_images
from sigmax.paper.images_report import image_figures, image_tables
from sigmax.paper.jobs import group_alike, singly
from sigmax.paper.latent_pictures import moons_figures
from sigmax.paper.methods import METHODS, Method
from sigmax.paper.moons import N_POINTS, QUICK_MOONS, moons_tables, moons_tasks, run_moons
from sigmax.paper.records import Record, Task
from sigmax.paper.tables import Table
from sigmax.paper.toy import N_ROWS, run_toy, toy_figures, toy_tables, toy_tasks
from sigmax.paper.uci import run_splits, split_tasks
from sigmax.paper.uci_report import uci_figures, uci_tables
from sigmax.paper.weather import (
    run_weather,
    weather_figures,
    weather_tables,
    weather_tasks,
)

__all__ = ["EXPERIMENTS", "Choice", "Experiment"]


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


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: what its tasks are, how they are run, and what is made of the records."""

    about: str
    datasets: Sequence[str]
    methods: Sequence[str]
    n_splits: int
    tasks: Callable[[Choice], list[Task]]
    jobs: Callable[[Sequence[Task], str], list[Job]]
    """From tasks and the kind of device, ``cpu`` or ``gpu``."""
    run: Callable[[Sequence[Task]], list[Record]]
    tables: Callable[[Sequence[Record]], list[Table]]
    figures: Callable[[Sequence[Record]], dict[str, Figure]]
    known_methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    """What it may be asked to run; benchmarks add methods of their own."""
    other_datasets: Collection[str] | None = tuple(UCI_SETS)
    """What it takes besides its own; None is anything."""
    quick: dict[str, Any] | None = None
    """Settings for a few minutes on a CPU, if it has any."""

    def choose(self, choice: Choice) -> list[Task]:
        """The tasks of a choice, with the usual in place of what is empty."""
        for method in choice.methods:
            if method not in self.known_methods:
                known = ", ".join(self.known_methods)
                raise InvalidArgumentError(f"No method {method!r}: choose from {known}.")
        if self.other_datasets is not None:
            unknown = set(choice.datasets) - {*self.datasets, *self.other_datasets}
            for dataset in sorted(unknown):
                known = ", ".join(self.datasets)
                raise InvalidArgumentError(f"No data set {dataset!r}: choose from {known}.")
        if choice.quick and self.quick is None:
            known = ", ".join(name for name, other in EXPERIMENTS.items() if other.quick)
            raise InvalidArgumentError(f"`quick` is for {known} only.")
        return self.tasks(
            Choice(
                datasets=tuple(choice.datasets or self.datasets),
                methods=tuple(choice.methods or self.methods),
                n_splits=choice.n_splits or self.n_splits,
                seed=choice.seed,
                settings={**((choice.quick and self.quick) or {}), **choice.settings},
                acquisitions=tuple(choice.acquisitions or ("variance", "random")),
            )
        )


SIX = ("gp", "nn", "bnn", "mc-dropout", "ens-nn", "combined")
STATION_NAMES = tuple(STATIONS)
SMALL_SETS = ("boston", "concrete", "energy", "yacht", "wine_red", "superconduct")
"""The ablation's."""


SET_SIZES = {name: of_set.n_rows for name, of_set in UCI_SETS.items()}
LABELLED_SIZES = {name: n_rows * 26 // 100 for name, n_rows in SET_SIZES.items()}
"""At the end of active learning: a fifth, and a tenth of three fifths."""
IMAGE_SIZES = {name: of_set.n_train for name, of_set in IMAGE_SETS.items()}

EXPERIMENTS = {
    "toy": Experiment(
        about="known mean and spread, on the data and off them",
        datasets=("toy",),
        methods=(*SIX, "local"),
        n_splits=1,
        tasks=lambda c: toy_tasks(c.methods, c.n_splits or 1, c.seed, c.settings),
        jobs=lambda tasks, device: group_alike(tasks, {"toy": N_ROWS}, device),
        run=run_toy,
        tables=toy_tables,
        figures=toy_figures,
    ),
    "weather": Experiment(
        about="one year of temperatures to learn from, a century to be judged by",
        datasets=STATION_NAMES,
        methods=SIX,
        n_splits=5,
        tasks=lambda c: weather_tasks(c.datasets, c.methods, c.n_splits or 1, c.seed, c.settings),
        jobs=lambda tasks, device: group_alike(
            tasks, dict.fromkeys((task.dataset for task in tasks), 365), device
        ),
        run=run_weather,
        tables=weather_tables,
        figures=weather_figures,
        other_datasets=None,
    ),
    "uci": Experiment(
        about="the UCI benchmark on standard splits",
        datasets=tuple(UCI_SETS),
        methods=tuple(METHODS),
        n_splits=20,
        tasks=lambda c: split_tasks(
            "uci", c.datasets, c.methods, c.n_splits or 1, seed=c.seed, settings=c.settings
        ),
        jobs=lambda tasks, device: group_alike(tasks, SET_SIZES, device),
        run=run_splits,
        tables=uci_tables,
        figures=uci_figures,
    ),
    "timings": Experiment(
        about="every method alone on its first split, compilation apart",
        datasets=tuple(UCI_SETS),
        methods=tuple(METHODS),
        n_splits=1,
        tasks=lambda c: split_tasks(
            "timings", c.datasets, c.methods, c.n_splits or 1, seed=c.seed, settings=c.settings
        ),
        jobs=lambda tasks, device: singly(tasks),
        run=run_splits,
        tables=uci_tables,
        figures=lambda records: {},
    ),
    "ablation": Experiment(
        about="all sixteen combinations of the paper's four ideas",
        datasets=SMALL_SETS,
        methods=("combined-paper", "combined"),
        n_splits=5,
        tasks=lambda c: ablation_tasks(c.datasets, c.methods, c.n_splits or 1, c.seed, c.settings),
        jobs=lambda tasks, device: group_alike(tasks, SET_SIZES, device),
        run=run_splits,
        tables=ablation_tables,
        figures=ablation_figures,
    ),
    "active": Experiment(
        about="active learning: the rows of highest variance against rows at random",
        datasets=tuple(name for name in UCI_SETS if name != "year"),
        methods=("gp", "nn", "bnn", "mc-dropout", "ens-nn", "combined"),
        n_splits=10,
        tasks=lambda c: active_tasks(
            c.datasets, c.methods, c.acquisitions, c.n_splits or 1, c.seed, c.settings
        ),
        jobs=lambda tasks, device: group_alike(tasks, LABELLED_SIZES, device),
        run=run_active,
        tables=active_tables,
        figures=active_figures,
    ),
    "gradients": Experiment(
        about="sparsity and variance of the gradient, uniform against locality batches",
        datasets=("boston", "concrete", "wine_red", "yacht"),
        methods=("combined-paper",),
        n_splits=3,
        tasks=lambda c: gradient_tasks(c.datasets, c.n_splits or 1, c.seed, c.settings),
        jobs=lambda tasks, device: singly(tasks),
        run=run_gradients,
        tables=gradient_tables,
        figures=gradient_figures,
    ),
    "moons": Experiment(
        about="generative models of two moons in four dimensions: samples against fresh data",
        datasets=("moons",),
        methods=tuple(GENERATIVE_METHODS),
        n_splits=5,
        tasks=lambda c: moons_tasks(c.methods, c.n_splits or 1, c.seed, c.settings),
        jobs=lambda tasks, device: group_alike(
            tasks, {"moons": N_POINTS}, device, GENERATIVE_METHODS
        ),
        run=run_moons,
        tables=moons_tables,
        figures=moons_figures,
        known_methods=GENERATIVE_METHODS,
        other_datasets=(),
        quick=QUICK_MOONS,
    ),
    "images": Experiment(
        about="generative models of images: bounds, densities and the spread of pixels",
        datasets=tuple(IMAGE_SETS),
        methods=tuple(GENERATIVE_METHODS),
        n_splits=3,
        tasks=lambda c: image_tasks(c.datasets, c.methods, c.n_splits or 1, c.seed, c.settings),
        jobs=lambda tasks, device: group_alike(tasks, IMAGE_SIZES, device, GENERATIVE_METHODS),
        run=run_images,
        tables=image_tables,
        figures=image_figures,
        known_methods=GENERATIVE_METHODS,
        other_datasets=(),
        quick=QUICK_IMAGES,
    ),
}
