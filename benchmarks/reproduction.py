"""Put what the committed records say into the pages of docs, between their markers.

    python benchmarks/reproduction.py [page records.jsonl ... [--merge]]

With a page (reproduction, generative, local) and files, their records become the committed ones of
that page first: in place of all that were, or with `--merge` in place of those of the same tasks.
From a file with several methods a page takes its own: local those of LocalRegressor on UCI sets. A
table stands between `<!-- table: title -->` and `<!-- end -->`; tests fail when one is out of date.
"""

import argparse
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sigmax.paper import PAPER, paper_experiments
from sigmax.runs.records import Record, Task, read_records

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MARKED = re.compile(r"<!-- table: (?P<title>.+?) -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page, and the experiments whose records stand beside it."""

    name: str
    experiments: Sequence[str]
    keeps_curves: bool = True
    """Whether pictures can be drawn from what is committed, too."""
    methods: Sequence[str] = ()
    """Those whose records it holds, before all other pages; without, all."""
    beside: Sequence[str] = ()
    """Methods whose records are taken from the first page."""

    @property
    def path(self) -> Path:
        return DOCS / f"{self.name}.md"

    @property
    def records(self) -> Path:
        return DOCS / self.name / "records.jsonl.gz"

    def commit(self, records: Sequence[Record], *, merge: bool = False) -> None:
        """One line per task, the last, in the order of the tasks, packed the same way each time."""
        known = read_records(self.records) if merge else []
        last = {record.task.key: record for record in (*known, *records)}
        own = [record for record in last.values() if home_of(record.task) == self]
        if not self.keeps_curves:
            own = [without_pictures(record) for record in own]
        self.records.parent.mkdir(exist_ok=True)
        lines = (record.to_line() for record in sorted(own, key=lambda record: record.task.key))
        self.records.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))

    def read(self) -> list[Record]:
        """The page's own records, and those that stand beside them."""
        others = read_records(PAGES[0].records) if self.beside else []
        chosen = [record for record in others if record.task.method in self.beside]
        return read_records(self.records) + chosen

    def refreshed(self, text: str) -> str:
        """The text of the page with every marked table made anew from the records."""
        records, tables = self.read(), {}
        for name in self.experiments:
            own = [record for record in records if record.task.experiment == name]
            if own:
                tables |= {table.title: table for table in paper_experiments()[name].tables(own)}

        def fill(match: re.Match) -> str:
            title = match["title"]
            table = tables[title].to_markdown().split("\n\n", 1)[1].strip()
            return f"<!-- table: {title} -->\n\n{table}\n\n<!-- end -->"

        return MARKED.sub(fill, text)


def home_of(task: Task) -> Page | None:
    """The page beside which the records of a task stand."""
    homes = [page for page in PAGES if task.experiment in page.experiments]
    taken = [page for page in homes if task.method in (page.methods or [task.method])]
    return taken[-1] if taken else None


def without_pictures(record: Record) -> Record:
    data = {name: value for name, value in record.data.items() if name != "sheet"}
    return replace(record, curves={}, data=data)


GENERATIVE = ("moons", "images")
RIVALS = ("gp", "sgp", "ens-nn", "combined")
PAGES = (
    Page("reproduction", [name for name in PAPER if name not in GENERATIVE]),
    Page("generative", GENERATIVE, keeps_curves=False),
    Page("local", ["uci"], methods=("local", "local-fast"), beside=RIVALS),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("page", nargs="?", choices=[page.name for page in PAGES])
    parser.add_argument("files", nargs="*", type=Path, help="of records")
    parser.add_argument("--merge", action="store_true", help="keep records of other tasks")
    given = parser.parse_args()
    if bool(given.page) != bool(given.files):
        parser.error("a page and its files of records go together")
    for page in PAGES:
        if page.name == given.page:
            found = [record for file in given.files for record in read_records(file)]
            page.commit(found, merge=given.merge)
        page.path.write_text(page.refreshed(page.path.read_text(encoding="utf-8")), "utf-8")


if __name__ == "__main__":
    main()
