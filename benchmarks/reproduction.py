"""Put the tables of the committed records into docs/reproduction.md, between their markers.

    python benchmarks/reproduction.py [records.jsonl]

With a file, its records become the committed ones first. A table stands between
`<!-- table: title -->` and `<!-- end -->`; the test of this file fails when one is out of date.
"""

import gzip
import re
import sys
from pathlib import Path

from sigmax.experiments.catalogue import EXPERIMENTS
from sigmax.experiments.records import read_records

DOCS = Path(__file__).parent.parent / "docs"
PAGE, RECORDS = DOCS / "reproduction.md", DOCS / "reproduction" / "records.jsonl.gz"
MARKED = re.compile(r"<!-- table: (?P<title>.+?) -->\n.*?<!-- end -->", re.DOTALL)


def commit_records(path: Path) -> None:
    """One line per task, the last, in the order of the tasks, packed the same way every time."""
    records = sorted(read_records(path), key=lambda record: record.task.key)
    RECORDS.parent.mkdir(exist_ok=True)
    text = "".join(record.to_line() for record in records).encode()
    RECORDS.write_bytes(gzip.compress(text, mtime=0))


def refreshed(page: str) -> str:
    """The page with every marked table made anew from the records."""
    records = read_records(RECORDS)
    tables = {}
    for name, experiment in EXPERIMENTS.items():
        own = [record for record in records if record.task.experiment == name]
        if own:
            tables |= {table.title: table for table in experiment.tables(own)}

    def fill(match: re.Match) -> str:
        title = match["title"]
        text = tables[title].to_markdown().split("\n\n", 1)[1].strip()
        return f"<!-- table: {title} -->\n\n{text}\n\n<!-- end -->"

    return MARKED.sub(fill, page)


def main() -> None:
    if len(sys.argv) > 1:
        commit_records(Path(sys.argv[1]))
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
