"""Run an experiment and report it: one HTML page, Markdown tables and pictures from its records.

The page is a single file that loads nothing. Text of records, which may come from strangers, is
escaped.
"""

import base64
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from sigmax.errors import RecordFileError
from sigmax.report.tables import ReportTable
from sigmax.runs.engines import AbstractEngine
from sigmax.runs.experiments import Choice, Experiment, Observer, run_tasks
from sigmax.runs.records import FILE_NAME, STATUSES, Record, Task, read_records

PAGE_NAME = "report.html"
MAX_ROWS = 300
"""Maximum number of rows of the lists of failed and missing tasks."""

Experiments = Mapping[str, Experiment]
"""Experiments by name."""


@final
@dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """Result of a run."""

    records: list[Record]
    """Records of the chosen tasks."""
    tables: list[ReportTable]
    """Tables of these records."""
    figures: list[Path]
    """Pictures of all records of the experiment in the folder."""
    report: Path
    """Page of the folder."""

    @property
    def failures(self) -> list[Record]:
        return [record for record in self.records if record.status == "failed"]


def run_experiment(
    experiment: Experiment,
    choice: Choice,
    folder: Path,
    engine: AbstractEngine,
    *,
    others: Experiments | None = None,
    retry_failed: bool = False,
    observe: Observer = lambda progress: None,
) -> ExperimentResult:
    """Run the tasks without a record in the folder, then write figures, tables and the report.

    The same call resumes a run that was killed or interrupted. The report includes records of
    ``others``, experiments that were run with the same folder.
    """
    tasks = experiment.choose(choice)
    found = run_tasks(experiment, tasks, folder, engine, retry_failed=retry_failed, observe=observe)
    records = [found[task.key] for task in tasks]
    experiments = {**(others or {}), experiment.name: experiment}
    sections = save_report(folder, list(found.values()), experiments)
    pictures = sections[experiment.name].pictures if experiment.name in sections else {}
    figures = {folder / f"{stem}.png": content for stem, content in pictures.items()}
    for path, content in figures.items():
        path.write_bytes(content)
    return ExperimentResult(
        records=records,
        tables=experiment.tables(records),
        figures=list(figures),
        report=folder / PAGE_NAME,
    )


def write_report(folder: Path, experiments: Experiments) -> Path:
    """Write ``report.html`` and ``tables.md`` from the records of a folder; return the page."""
    path = folder / FILE_NAME
    records = read_records(path if path.exists() else folder / f"{FILE_NAME}.gz")
    save_report(folder, records, experiments)
    return folder / PAGE_NAME


@final
@dataclass(frozen=True)
class Section:
    """Section of a page: tables, and pictures below them."""

    heading: str
    tables: list[ReportTable]
    pictures: dict[str, bytes] = field(default_factory=dict)
    """Name -> content of a PNG file."""


def save_report(
    folder: Path, records: Sequence[Record], experiments: Experiments
) -> dict[str, Section]:
    """Write the page and the tables of records; return the sections by experiment."""
    known = [record for record in records if is_known(record, experiments)]
    try:
        found = experiment_sections(known, experiments)
        sections = [
            Section("Experiments", [run_table(records, len(records) - len(known), experiments)]),
            *found.values(),
            Section("Failed tasks", [failure_table(records, experiments)]),
            Section("Missing tasks", [missing_table(records, experiments)]),
            Section("Versions and machine", [machine_table(records)]),
        ]
        names = list(dict.fromkeys(record.task.experiment for record in records))
        is_single = len(names) == 1 and len(known) == len(records)
        make_page = experiments[names[0]].page if is_single else None
        title = f"sigmax: {', '.join(names) or 'no records'}"
        page = make_page(folder, records) if make_page else render_page(title, sections)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordFileError(
            f"The records in {folder} are incomplete or invalid: {error!r}"
        ) from error
    markdown = [
        f"## {section.heading}\n\n" + "\n".join(table.to_markdown() for table in section.tables)
        for section in sections
    ]
    (folder / "tables.md").write_text("\n".join(markdown), encoding="utf-8")
    (folder / PAGE_NAME).write_text(page, encoding="utf-8")
    return found


def experiment_sections(records: Sequence[Record], experiments: Experiments) -> dict[str, Section]:
    """Tables and pictures of each experiment that has records, in the order of ``experiments``."""
    sections = {}
    for name, experiment in experiments.items():
        own = [record for record in records if record.task.experiment == name]
        if own:
            pictures = {}
            for stem, figure in experiment.figures(own).items():
                file = io.BytesIO()
                figure.savefig(file, format="png", dpi=130)
                pictures[stem] = file.getvalue()
            sections[name] = Section(
                f"{name}: {experiment.about}", experiment.tables(own), pictures
            )
    return sections


def render_page(title: str, sections: Sequence[Section]) -> str:
    """HTML page of some sections; all text is escaped, and ``**text**`` is bold."""

    def bold(text: str) -> Markup:
        return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text))))

    environment = Environment(autoescape=True, loader=PackageLoader("sigmax.runs"))
    environment.filters["bold"] = bold
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    return environment.get_template("report.html").render(title=title, sections=sections)


def is_known(record: Record, experiments: Experiments) -> bool:
    """True if the tables of an experiment can show the record."""
    experiment = experiments.get(record.task.experiment)
    known = experiment.known_methods if experiment else {}
    return record.status in STATUSES and record.task.method in known


def method_title(task: Task, experiments: Experiments) -> str:
    experiment = experiments.get(task.experiment)
    method = experiment.known_methods.get(task.method) if experiment else None
    return method.title if method else task.method


def run_table(records: Sequence[Record], n_unknown: int, experiments: Experiments) -> ReportTable:
    """Data sets, methods and number of records of each experiment."""
    rows = []
    for name in dict.fromkeys(record.task.experiment for record in records):
        own = [record for record in records if record.task.experiment == name]
        counts = Counter(record.status for record in own)
        titles = {record.task.method: method_title(record.task, experiments) for record in own}
        known = list(experiments[name].known_methods) if name in experiments else []
        order = [*(m for m in known if m in titles), *sorted(titles.keys() - set(known))]
        rows.append(
            [
                name,
                ", ".join(sorted({record.task.dataset for record in own})),
                ", ".join(titles[method] for method in order),
                str(len(own)),
                ", ".join(f"{count} {status}" for status, count in counts.items()),
            ]
        )
    finished = sorted(record.finished for record in records if record.finished)
    notes = [f"Finished between {finished[0]} and {finished[-1]}."] if finished else []
    if n_unknown:
        notes.append(f"Records of an unknown experiment or method, not shown: {n_unknown}.")
    return ReportTable(
        title="experiments",
        header=["experiment", "data sets", "methods", "records", "status"],
        rows=rows,
        notes=notes,
        in_words=True,
    )


def failure_table(records: Sequence[Record], experiments: Experiments) -> ReportTable:
    """Tasks without scores, with the reason; equal ones are counted together."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for record in sorted(records, key=lambda r: (r.status, r.task.experiment, r.task.dataset)):
        if record.status != "done":
            task = record.task
            title = method_title(task, experiments)
            kind = (task.experiment, task.dataset, title, task.settings_text)
            groups.setdefault((*kind, record.status, record.reason), []).append(task.split)
    rows = [
        [*kind, str(len(splits)), spans(splits), status, reason]
        for (*kind, status, reason), splits in groups.items()
    ]
    header = ["experiment", "data set", "method", "settings", "tasks", "splits", "status", "reason"]
    return listing("tasks without scores", header, rows, "All tasks have scores.")


def missing_table(records: Sequence[Record], experiments: Experiments) -> ReportTable:
    """Combinations without a record, among those that other records suggest.

    In every experiment, each method is expected on each data set, with each split that any method
    has there, and with all settings of the same names.
    """
    designs: dict[tuple[str, ...], list[Task]] = {}
    for task in (record.task for record in records):
        designs.setdefault((task.experiment, *sorted(task.settings)), []).append(task)

    def rows() -> Iterator[list[str]]:
        for (experiment, *_), tasks in designs.items():
            splits: dict[str, set[int]] = {}
            present: dict[tuple[str, str, str], set[int]] = {}
            for task in tasks:
                splits.setdefault(task.dataset, set()).add(task.split)
                kind = (task.dataset, task.method, task.settings_text)
                present.setdefault(kind, set()).add(task.split)
            methods = {task.method: method_title(task, experiments) for task in tasks}
            settings = dict.fromkeys(task.settings_text for task in tasks)
            for dataset, method, setting in itertools.product(splits, methods, settings):
                missing = splits[dataset] - present.get((dataset, method, setting), set())
                if missing:
                    yield [experiment, dataset, methods[method], setting, spans(missing)]

    header = ["experiment", "data set", "method", "settings", "splits"]
    return listing("combinations without a record", header, rows(), "None.")


def listing(title: str, header: list[str], rows: Iterable[list[str]], empty: str) -> ReportTable:
    """Table of text with at most `MAX_ROWS` rows; ``empty`` is its note if there are none."""
    shown = list(itertools.islice(rows, MAX_ROWS + 1))
    notes = [] if shown else [empty]
    if len(shown) > MAX_ROWS:
        notes = [f"The first {MAX_ROWS}; there are more."]
    return ReportTable(
        title=title, header=header, rows=shown[:MAX_ROWS], notes=notes, in_words=True
    )


def spans(splits: Iterable[int]) -> str:
    """Sorted numbers with consecutive ones abbreviated.

    Examples
    --------
    >>> spans([0, 1, 2, 5])
    '0-2, 5'
    """
    parts: list[list[int]] = []
    for split in sorted(set(splits)):
        if parts and split == parts[-1][-1] + 1:
            parts[-1].append(split)
        else:
            parts.append([split])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def machine_table(records: Sequence[Record]) -> ReportTable:
    """Hardware and versions of the records, one row per distinct combination."""
    names = dict.fromkeys(name for record in records for name in record.machine)
    counts = Counter(
        tuple(str(record.machine.get(name, "")) for name in names) for record in records
    )
    return ReportTable(
        title="machines and versions",
        header=["records", *names],
        rows=[[str(count), *values] for values, count in counts.most_common()],
        in_words=True,
    )
