"""Run an experiment and report it: one HTML page, Markdown tables and pictures from its records.

The page is a single file that loads nothing. Text of records, which may be untrusted, is
escaped.
"""

import base64
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import final

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from sigmax.errors import RecordFileError
from sigmax.report.tables import ReportTable
from sigmax.runs.engines import AbstractEngine
from sigmax.runs.experiments import Choice, Experiment, Observer, run_tasks
from sigmax.runs.methods import Method
from sigmax.runs.records import FILE_NAME, STATUSES, Record, Task, read_records

PAGE_NAME = "report.html"
MAX_ROWS = 300

Experiments = Mapping[str, Experiment]


@final
@dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """Result of a run."""

    records: list[Record]
    tables: list[ReportTable]
    figures: list[Path]
    """Pictures of all records of the experiment in the folder."""
    report: Path

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
    known = [r for r in records if r.status in STATUSES and find_method(r.task, experiments)]
    found: dict[str, Section] = {}
    try:
        for name, experiment in experiments.items():
            if own := [record for record in known if record.task.experiment == name]:
                heading, pictures = f"{name}: {experiment.about}", {}
                for stem, figure in experiment.figures(own).items():
                    file = io.BytesIO()
                    figure.savefig(file, format="png", dpi=130)
                    pictures[stem] = file.getvalue()
                found[name] = Section(heading, experiment.tables(own), pictures)
        sections = [
            Section("Experiments", [run_table(records, len(records) - len(known), experiments)]),
            *found.values(),
            Section("Failed tasks", [failure_table(records, experiments)]),
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


def render_page(title: str, sections: Sequence[Section]) -> str:
    """HTML page of some sections; all text is escaped, and ``**text**`` is bold."""

    def bold(text: str) -> Markup:
        return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text))))

    environment = Environment(autoescape=True, loader=PackageLoader("sigmax.runs"))
    environment.filters["bold"] = bold
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    return environment.get_template("report.html").render(title=title, sections=sections)


def find_method(task: Task, experiments: Experiments) -> Method | None:
    """Method of a task, or None if the experiment or the method is unknown."""
    experiment = experiments.get(task.experiment)
    return experiment.known_methods.get(task.method) if experiment else None


def method_title(task: Task, experiments: Experiments) -> str:
    method = find_method(task, experiments)
    return method.title if method else task.method


def run_table(records: Sequence[Record], n_unknown: int, experiments: Experiments) -> ReportTable:
    rows = []
    for name in dict.fromkeys(record.task.experiment for record in records):
        own = [record for record in records if record.task.experiment == name]
        counts = Counter(record.status for record in own)
        known = list(experiments[name].known_methods) if name in experiments else []
        titles = {record.task.method: method_title(record.task, experiments) for record in own}
        order = [*known, *sorted(titles.keys() - set(known))]
        datasets = ", ".join(sorted({record.task.dataset for record in own}))
        methods = ", ".join(titles[method] for method in order if method in titles)
        status = ", ".join(f"{count} {status}" for status, count in counts.items())
        rows.append([name, datasets, methods, str(len(own)), status])
    finished = sorted(record.finished for record in records if record.finished)
    notes = [f"Finished between {finished[0]} and {finished[-1]}."] if finished else []
    if n_unknown:
        notes.append(f"Records of an unknown experiment or method, not shown: {n_unknown}.")
    header = ["experiment", "data sets", "methods", "records", "status"]
    return ReportTable(title="experiments", header=header, rows=rows, notes=notes, in_words=True)


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
    notes = [f"The first {MAX_ROWS}; there are more."] if len(rows) > MAX_ROWS else []
    header = ["experiment", "data set", "method", "settings", "tasks", "splits", "status", "reason"]
    return ReportTable(
        title="tasks without scores",
        header=header,
        rows=rows[:MAX_ROWS],
        notes=notes if rows else ["All tasks have scores."],
        in_words=True,
    )


def spans(splits: Iterable[int]) -> str:
    groups = groupby(enumerate(sorted(set(splits))), lambda pair: pair[1] - pair[0])
    parts = [[split for _, split in group] for _, group in groups]
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def machine_table(records: Sequence[Record]) -> ReportTable:
    """Hardware and versions of the records, one row per distinct combination."""
    names = dict.fromkeys(name for record in records for name in record.machine)
    counts = Counter(tuple(str(r.machine.get(name, "")) for name in names) for r in records)
    rows = [[str(count), *values] for values, count in counts.most_common()]
    header = ["records", *names]
    return ReportTable(title="machines and versions", header=header, rows=rows, in_words=True)
