"""Put the tables of the committed records into the pages of docs, between their markers.

    python benchmarks/reproduction.py [page records.jsonl]

With a page (reproduction, generative, local) and a file, its records become the committed ones of
that page first. A table stands between `<!-- table: title -->` and `<!-- end -->`; the test of this
file fails when one is out of date.
"""

import gzip
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sigmax.experiments.catalogue import EXPERIMENTS
from sigmax.experiments.records import Record, read_records

DOCS = Path(__file__).parent.parent / "docs"
MARKED = re.compile(r"<!-- table: (?P<title>.+?) -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page, and the experiments whose records stand beside it."""

    name: str
    experiments: Sequence[str]
    keeps_curves: bool = True
    """Whether pictures can be drawn from what is committed, too."""
    beside: Sequence[str] = ()
    """Methods whose records are taken from the first page."""

    @property
    def path(self) -> Path:
        return DOCS / f"{self.name}.md"

    @property
    def records(self) -> Path:
        return DOCS / self.name / "records.jsonl.gz"

    def commit(self, records: Sequence[Record]) -> None:
        """One line per task, the last, in the order of the tasks, packed the same way each time."""
        own = [record for record in records if record.task.experiment in self.experiments]
        if not self.keeps_curves:
            own = [without_pictures(record) for record in own]
        self.records.parent.mkdir(exist_ok=True)
        lines = (record.to_line() for record in sorted(own, key=lambda record: record.task.key))
        self.records.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))

    def refreshed(self, text: str) -> str:
        """The text of the page with every marked table made anew from the records."""
        records, tables = read_records(self.records), {}
        if self.beside:
            others = read_records(PAGES[0].records)
            records += [record for record in others if record.task.method in self.beside]
        for name in self.experiments:
            own = [record for record in records if record.task.experiment == name]
            if own:
                tables |= {table.title: table for table in EXPERIMENTS[name].tables(own)}

        def fill(match: re.Match) -> str:
            title = match["title"]
            table = tables[title].to_markdown().split("\n\n", 1)[1].strip()
            return f"<!-- table: {title} -->\n\n{table}\n\n<!-- end -->"

        return MARKED.sub(fill, text)


def without_pictures(record: Record) -> Record:
    data = {name: value for name, value in record.data.items() if name != "sheet"}
    return replace(record, curves={}, data=data)


GENERATIVE = ("moons", "images")
PAGES = (
    Page("reproduction", [name for name in EXPERIMENTS if name not in GENERATIVE]),
    Page("generative", GENERATIVE, keeps_curves=False),
    Page("local", ["uci"], beside=("gp", "sgp", "ens-nn", "combined")),
)


def main() -> None:
    for page in PAGES:
        if page.name in sys.argv[1:2]:
            page.commit(read_records(Path(sys.argv[2])))
        page.path.write_text(page.refreshed(page.path.read_text(encoding="utf-8")), "utf-8")


if __name__ == "__main__":
    main()
