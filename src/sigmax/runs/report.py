"""The report of a folder, from its records alone: a page that stands alone, and Markdown tables.

A file of records may come from a stranger: what it says is shown as text, and nothing more.
"""

import io
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from sigmax.errors import RecordFileError
from sigmax.runs.html import Section, render_page
from sigmax.runs.methods import Method
from sigmax.runs.records import FILE_NAME, STATUSES, Record, Task, read_records
from sigmax.runs.registry import find_experiment, known_experiments
from sigmax.runs.tables import ReportTable

__all__ = [
    "PAGE_NAME",
    "failure_table",
    "machine_table",
    "missing_table",
    "save_report",
    "write_report",
]

PAGE_NAME = "report.html"
MOST_ROWS = 300
"""Of a list of what failed or is missing."""


def write_report(folder: Path) -> Path:
    """Write ``report.html`` and ``tables.md`` from the records of a folder; the page's path."""
    path = folder / FILE_NAME
    records = read_records(path if path.exists() else folder / f"{FILE_NAME}.gz")
    save_report(folder, records)
    return folder / PAGE_NAME


def save_report(folder: Path, records: Sequence[Record]) -> dict[str, Section]:
    """Write the page and the tables of some records; the sections of experiments by name."""
    known = list(filter(can_be_shown, records))
    try:
        experiments = experiment_sections(known)
        sections = [
            Section("What was run", [run_table(records, len(records) - len(known))]),
            *experiments.values(),
            Section("What failed", [failure_table(records)]),
            Section("What is missing", [missing_table(records)]),
            Section("Versions and machine", [machine_table(records)]),
        ]
        page = own_page(folder, records)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordFileError(
            f"The records in {folder} are not as they should be: {error!r}"
        ) from error
    markdown = [
        f"## {section.heading}\n\n" + "\n".join(table.to_markdown() for table in section.tables)
        for section in sections
    ]
    (folder / "tables.md").write_text("\n".join(markdown), encoding="utf-8")
    names = ", ".join(dict.fromkeys(record.task.experiment for record in records))
    if page is None:
        page = render_page(f"sigmax: {names or 'no records'}", sections)
    (folder / PAGE_NAME).write_text(page, encoding="utf-8")
    return experiments


def own_page(folder: Path, records: Sequence[Record]) -> str | None:
    """The page that an experiment makes itself, if all records are its own."""
    names = {record.task.experiment for record in records}
    if len(names) != 1 or not all(map(can_be_shown, records)):
        return None
    make = find_experiment(names.pop()).page
    return None if make is None else make(folder, records)


def experiment_sections(records: Sequence[Record]) -> dict[str, Section]:
    """The tables and pictures of every experiment that has records."""
    sections = {}
    for name in known_experiments():
        own = [record for record in records if record.task.experiment == name]
        if own:
            experiment = find_experiment(name)
            pictures = {stem: as_png(fig) for stem, fig in experiment.figures(own).items()}
            heading = f"{name}: {experiment.about}"
            sections[name] = Section(heading, experiment.tables(own), pictures)
    return sections


def as_png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def known_methods(experiment: str) -> Mapping[str, Method]:
    """The methods of an experiment by name; there are none where the experiment is not known."""
    return find_experiment(experiment).known_methods if experiment in known_experiments() else {}


def can_be_shown(record: Record) -> bool:
    """Whether the tables of an experiment can show a record."""
    task = record.task
    return record.status in STATUSES and task.method in known_methods(task.experiment)


def method_title(task: Task) -> str:
    method = known_methods(task.experiment).get(task.method)
    return method.title if method else task.method


def run_table(records: Sequence[Record], n_unknown: int) -> ReportTable:
    """What there is of each experiment."""
    rows = []
    for name in dict.fromkeys(record.task.experiment for record in records):
        own = [record for record in records if record.task.experiment == name]
        counts = Counter(record.status for record in own)
        datasets = sorted({record.task.dataset for record in own})
        found, known = {record.task.method for record in own}, known_methods(name)
        methods = [method.title for key, method in known.items() if key in found]
        rows.append(
            [
                name,
                ", ".join(datasets),
                ", ".join(methods + sorted(found - known.keys())),
                str(len(own)),
                ", ".join(f"{count} {status}" for status, count in counts.items()),
            ]
        )
    finished = sorted(record.finished for record in records if record.finished)
    notes = [f"Finished between {finished[0]} and {finished[-1]}."] if finished else []
    if n_unknown:
        notes.append(f"In no table, being of an unknown experiment or method: {n_unknown}.")
    return ReportTable(
        title="experiments",
        header=["experiment", "data sets", "methods", "records", "of which"],
        rows=rows,
        notes=notes,
        in_words=True,
    )


def failure_table(records: Sequence[Record]) -> ReportTable:
    """What gave no scores, and why; alike ones counted together."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for record in sorted(records, key=lambda r: (r.status, r.task.experiment, r.task.dataset)):
        if record.status != "done":
            task = record.task
            kind = (task.experiment, task.dataset, method_title(task), task.settings_text)
            groups.setdefault((*kind, record.status, record.reason), []).append(task.split)
    rows = [
        [*kind, str(len(splits)), spans(splits), status, reason]
        for (*kind, status, reason), splits in groups.items()
    ]
    header = ["experiment", "data set", "method", "settings", "tasks", "splits", "what", "reason"]
    return listing("tasks without scores", header, iter(rows), "Nothing failed.")


def missing_table(records: Sequence[Record]) -> ReportTable:
    """Combinations that other records suggest, but that have no record.

    In every experiment, each method is expected on each data set, with each split that any method
    has there, and with all settings of the same names.
    """
    header = ["experiment", "data set", "method", "settings", "splits"]
    return listing("combinations without a record", header, missing_rows(records), "Nothing.")


def missing_rows(records: Sequence[Record]) -> Iterator[list[str]]:
    designs: dict[tuple[str, ...], list[Task]] = {}
    for task in (record.task for record in records):
        designs.setdefault((task.experiment, *sorted(task.settings)), []).append(task)
    for (experiment, *_), tasks in designs.items():
        splits: dict[str, set[int]] = {}
        there: dict[tuple[str, str, str], set[int]] = {}
        for task in tasks:
            splits.setdefault(task.dataset, set()).add(task.split)
            kind = (task.dataset, task.method, task.settings_text)
            there.setdefault(kind, set()).add(task.split)
        methods = {task.method: method_title(task) for task in tasks}
        settings = dict.fromkeys(task.settings_text for task in tasks)
        for dataset, method, setting in itertools.product(splits, methods, settings):
            left = splits[dataset] - there.get((dataset, method, setting), set())
            if left:
                yield [experiment, dataset, methods[method], setting, spans(left)]


def listing(title: str, header: list[str], rows: Iterator[list[str]], nothing: str) -> ReportTable:
    """A table of words that is never endless."""
    shown = list(itertools.islice(rows, MOST_ROWS + 1))
    notes = [] if shown else [nothing]
    if len(shown) > MOST_ROWS:
        notes = [f"The first {MOST_ROWS}; there are more."]
    return ReportTable(
        title=title, header=header, rows=shown[:MOST_ROWS], notes=notes, in_words=True
    )


def spans(splits: Sequence[int] | set[int]) -> str:
    """Numbers in few words.

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
    """All that records say about versions and hardware, one row for each that differs."""
    names = dict.fromkeys(name for record in records for name in record.machine)
    counts = Counter(
        tuple(str(record.machine.get(name, "")) for name in names) for record in records
    )
    return ReportTable(
        title="where the records were made",
        header=["records", *names],
        rows=[[str(count), *values] for values, count in counts.most_common()],
        in_words=True,
    )
