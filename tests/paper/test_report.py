"""The report: tables of hand-made records, warnings, published values, and the page."""

import gzip
from html.parser import HTMLParser

import numpy as np
import pytest
from paper_cases import make_record

from sigmax.errors import RecordFileError
from sigmax.paper import paper_experiments
from sigmax.paper.benchmark import (
    CRPS,
    PUBLISHED,
    RMSE,
    arrange,
    by_dataset,
    excess_over_normal,
    uci_tables,
)
from sigmax.report.tables import ReportTable
from sigmax.runs.records import Record, Task, done, failed, infeasible
from sigmax.runs.report import spans, write_report

MACHINE = {"device": "cpu", "cores": 2, "jax": "0.10.2"}
FACTS = {"copies_of_X": 0.0, "n_distinct_targets": 229}


def make(dataset, method, split, log_likelihood=-2.5, *, experiment="uci", data=FACTS, **scores):
    """Record of a successful fit."""
    usual = {"rmse": 3.0, "crps": 1.5, "coverage": 0.88, "coverage_50": 0.52}
    usual |= {"interval_width": 9.0, "calibration_error": 0.03, "log_likelihood": log_likelihood}
    seconds = {"fit": 1.5, "compile": 4.0, "together": 3.0}
    parts = {"seconds": seconds, "data": data, "machine": MACHINE}
    return make_record(dataset, method, split, usual | scores, experiment=experiment, **parts)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Three data sets, four methods, three splits: one failed, some infeasible, some missing."""
    few = {"copies_of_X": 0.27, "n_distinct_targets": 6}
    found = []
    for split, luck in enumerate((-0.1, 0.0, 0.1)):  # standard error 0.058
        found += [
            make("boston", "nn-paper", split, -2.60 + luck),
            make("boston", "ens-nn", split, -2.34 + luck),
            make("boston", "combined-paper", split, -2.30 + luck),
            make("wine_red", "nn-paper", split, -0.9, data=few, rmse=0.6),
            make("wine_red", "combined-paper", split, 1.2 + luck, data=few, rmse=0.6),
        ]
        task = Task(experiment="uci", dataset="wine_red", method="gp", split=split, seed=split)
        found.append(infeasible(task, "too many rows", data=few, machine=MACHINE))
    bad = Task(experiment="uci", dataset="yacht", method="nn-paper")
    found.append(failed(bad, "<script>alert('no')</script> | no", machine=MACHINE))
    found.append(make("yacht", "ens-nn", 0, -2.6))
    return found


def find(tables: list[ReportTable], words: str) -> ReportTable:
    return next(table for table in tables if words in table.title)


def column(table: ReportTable, title: str) -> dict[str, str]:
    place = table.header.index(title)
    return {row[0]: row[place] for row in table.rows}


def test_bold_marks_the_best_and_methods_within_its_standard_error(records):
    table = find(uci_tables(records), "test log-likelihood")
    assert table.header == ["data set", "GP", "Ens-NN", "NN (paper)", "Combined (paper)"]
    assert column(table, "Combined (paper)")["boston"] == "**-2.30 ± 0.06**"
    assert column(table, "Ens-NN")["boston"] == "**-2.34 ± 0.06**"
    assert column(table, "NN (paper)")["boston"] == "-2.60 ± 0.06"


def test_lower_is_better_for_errors_and_coverage_has_no_best():
    records = [make("yacht", "nn", 0, rmse=0.5), make("yacht", "combined", 0, rmse=0.0625)]
    tables = uci_tables(records)
    assert column(find(tables, "test RMSE"), "Combined") == {"yacht": "**0.0625**"}
    assert column(find(tables, "test RMSE"), "NN") == {"yacht": "0.5000"}
    for words, text in (("90 % intervals, in", "88.0"), ("50 % intervals", "52.0")):
        assert column(find(tables, words), "NN") == {"yacht": text}


def test_infeasible_failed_and_missing_cells_differ(records):
    table = find(uci_tables(records), "test log-likelihood")
    assert column(table, "GP") == {"boston": "", "wine_red": "-", "yacht": ""}
    assert column(table, "NN (paper)")["yacht"] == "failed (1)"
    assert "Not feasible (-): GP on wine_red (too many rows)." in table.notes
    assert any("An empty cell has no record." in note for note in table.notes)


def test_warnings_name_duplicates_discrete_targets_and_scores_that_are_too_high(records):
    notes = "\n".join(find(uci_tables(records), "test log-likelihood").notes)
    assert "with the X of a training row: wine_red 27.0 %." in notes
    assert "Few distinct targets: wine_red 6." in notes
    gap = 1.2 + 0.5 * np.log(2 * np.pi * np.e * 0.6**2)
    assert f"wine_red: Combined (paper) {gap:+.2f}. Input-dependent noise" in notes
    assert "boston:" not in notes


def test_the_gap_of_a_normal_with_the_same_rmse_is_zero():
    y = np.random.default_rng(0).normal(scale=3, size=1000)
    rmse = np.sqrt(np.mean(y**2))
    score = np.mean(-0.5 * np.log(2 * np.pi * rmse**2) - 0.5 * y**2 / rmse**2)
    assert excess_over_normal(float(score), float(rmse)) == pytest.approx(0, abs=1e-12)


def test_counts_and_splits_are_abbreviated():
    assert by_dataset({"boston": 20, "protein": 5, "yacht": 20}) == "20 (protein 5)"
    assert spans([0, 1, 2, 5]) == "0-2, 5"


def test_summary_counts_leaders_and_pairs(records):
    table = find(uci_tables(records), "is best")
    best, near = (
        {m: column(table, m)[f"test log-likelihood: {words}"] for m in table.header[1:]}
        for words in ("best mean", "best or within one standard error")
    )
    assert best["Combined (paper)"] == near["Combined (paper)"] == "2 of 2"
    assert (best["Ens-NN"], near["Ens-NN"]) == ("1 of 2", "2 of 2")
    assert "Not feasible (-): GP on wine_red." in table.notes
    assert any("Combined (paper) above NN (paper) on 2 of 2 data sets" in n for n in table.notes)


def test_a_tie_has_no_best_mean():
    records = [make("boston", name, 0, crps=crps) for name, crps in (("nn", 1.0), ("bnn", 1.0))]
    (benchmark,) = arrange(records)
    assert benchmark.best("boston", CRPS) is None
    assert benchmark.leaders("boston", CRPS) == ["nn", "bnn"]


def test_methods_on_fewer_splits_are_named_with_their_sets(records):
    few = [r for r in records if not (r.task.method == "nn-paper" and r.task.split == 2)]
    for words in ("uci: test log-likelihood", "is best"):
        notes = find(uci_tables(few), words).notes
        assert "On fewer splits than others: NN (paper) (2 of 3 on boston, wine_red)." in notes


def test_pairs_are_compared_on_the_splits_that_both_have():
    records = [make("boston", "nn", i, rmse=float(i + 1)) for i in range(3)]
    records += [make("boston", "combined", i, rmse=float(i)) for i in range(1, 4)]
    (benchmark,) = arrange(records)
    np.testing.assert_allclose(benchmark.gains("boston", "combined", "nn", RMSE), [1, 1])


def test_published_values_are_as_printed():
    scores, errors, seconds = (
        {
            name: {m: tuple(v) for m, v in row.items()}
            for name, row in PUBLISHED["uci"][score].items()
        }
        for score in ("log_likelihood", "rmse", "seconds")
    )
    assert scores["boston"]["gp"] == (-1.76, 0.3)
    assert scores["boston"]["combined-paper"] == (-2.09, 0.09)
    assert scores["carbon"]["ens-nn"] == (-0.44, 7.28)
    assert scores["wine_white"]["combined-paper"] == (0.40, 0.42)
    assert "sgp" not in scores["naval"]
    assert errors["superconduct"]["bnn"] == (11.07, 1.7)
    assert errors["year"]["nn"] == (12.47, 0.96)
    assert seconds["power"]["sgp"] == (1267.82, 783.28)
    assert seconds["year"]["combined-paper"] == (2453.62, 18.7)
    for table in PUBLISHED["uci"].values():
        assert len(table) == 13
    assert [sum(map(len, table.values())) for table in PUBLISHED["uci"].values()] == [80, 80, 81]


def test_published_values_are_shown_with_ours(records):
    table = find(uci_tables(records), "the paper's test log-likelihood")
    assert column(table, "Combined (paper)")["boston"] == "-2.09 ± 0.09 (-0.21)"
    assert column(table, "GP")["yacht"] == "0.16 ± 1.22"
    assert any("wine_red: GP +2.25, Combined (paper) +2.24" in note for note in table.notes)


def test_timings_have_tables_of_seconds_only():
    tables = uci_tables([make("boston", "nn", 0, experiment="timings")])
    assert [table.title for table in tables] == [
        "timings: seconds to fit a model, without compilation",
        "timings: seconds of compilation, per model",
        "timings: the paper's seconds to fit a model, without compilation, and ours",
    ]
    assert column(tables[0], "NN") == {"boston": "**1.50**"}
    assert column(tables[2], "NN") == {"boston": "94.04 ± 2.24 (1.5)"}


def test_other_settings_have_separate_tables():
    task = Task(experiment="uci", dataset="yacht", method="nn", settings={"n_steps": 200})
    short = done(task, scores={"log_likelihood": -9.0, "rmse": 2.0})
    both = [make("yacht", "nn", 0, -1.0), short]
    scores = [t for t in uci_tables(both) if t.title.startswith("uci: test log-likelihood")]
    assert [table.rows[0][1] for table in scores] == ["**-1.00**", "**-9.00**"]
    assert scores[1].title == "uci: test log-likelihood (n_steps=200)"


class Reader(HTMLParser):
    """Tags and what they load; asserts that tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(records, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("report")
    (folder / "records.jsonl").write_text("".join(record.to_line() for record in records))
    assert write_report(folder, paper_experiments()) == folder / "report.html"
    assert "**-2.30 ± 0.06**" in (folder / "tables.md").read_text()
    assert "<script" not in (folder / "tables.md").read_text()
    return (folder / "report.html").read_text()


def test_the_page_is_valid_and_loads_nothing(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert all(load.startswith(("#", "data:image/png;base64,")) for load in reader.loads)
    assert "http://" not in page and "https://" not in page and "url(" not in page


def test_the_page_shows_all_tables_and_escapes_text_of_records(page, records):
    for table in uci_tables(records):
        assert f"<h3>{table.title.replace(chr(39), '&#39;')}</h3>" in page
    assert "<strong>-2.30 ± 0.06</strong>" in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#39;no&#39;)&lt;/script&gt; | no" in page
    for heading in ("Experiments", "Failed tasks", "Versions and machine"):
        assert f"<h2>{heading}</h2>" in page
    assert "0.10.2" in page


def test_records_of_another_version_are_counted_and_not_shown(tmp_path, records):
    strange = Task(experiment="<b>uci</b>", dataset="<i>", method="<u>")
    lines = [*records, Record(task=strange, status="done", reason="<p>")]
    with gzip.open(tmp_path / "records.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(record.to_line() for record in lines)
    page = write_report(tmp_path, paper_experiments()).read_text()
    assert "Records of an unknown experiment or method, not shown: 1." in page
    for tag in ("<b>", "<i>", "<u>"):
        assert tag not in page


def test_an_empty_folder_and_records_without_scores_raise_an_error(tmp_path):
    with pytest.raises(RecordFileError, match="no records"):
        write_report(tmp_path, paper_experiments())
    task = Task(experiment="toy", dataset="toy", method="nn")
    (tmp_path / "records.jsonl").write_text(Record(task=task, status="done").to_line())
    with pytest.raises(RecordFileError, match="incomplete or invalid"):
        write_report(tmp_path, paper_experiments())


def test_cells_cannot_break_a_table():
    table = ReportTable(
        title="t", header=["a", "b"], rows=[["x|y", "<b>\n2"]], notes=["one", "two"]
    )
    lines = table.to_markdown().splitlines()
    assert lines[4] == "| x\\|y | &lt;b&gt; 2 |"
    assert lines[-3:] == ["one", "", "two"]
