"""Experiments: a definition is all that a run and its report need."""

import subprocess
import sys
from collections import Counter

from engine_cases import InProcessEngine
from matplotlib.figure import Figure

from sigmax.cli.compare import COMPARISON
from sigmax.paper import PAPER, paper_experiments
from sigmax.paper.curves import TOY
from sigmax.report.tables import ReportTable
from sigmax.runs.experiments import Choice, Experiment
from sigmax.runs.records import RecordFile, Task, done, read_records
from sigmax.runs.report import run_experiment


def make_experiment() -> tuple[Experiment, Counter]:
    """Experiment with two data sets and one number each, and the counts of its calls."""
    calls = Counter()

    def run(job):
        calls["jobs"] += 1
        return [done(task, scores={"answer": 42.0}) for task in job]

    def tables(records):
        rows = [[record.task.dataset, str(record.scores["answer"])] for record in records]
        return [ReportTable(title="answers", header=["data set", "answer"], rows=rows)]

    def figures(records):
        calls["figures"] += 1
        return {"tiny_picture": Figure()}

    experiment = Experiment(
        name="tiny",
        about="two data sets, one number each",
        datasets=("a", "b"),
        methods=("nn",),
        n_splits=1,
        run=run,
        tables=tables,
        figures=figures,
    )
    return experiment, calls


def test_a_definition_makes_an_experiment(tmp_path, monkeypatch):
    n_read = Counter()

    def count_reads(path):
        n_read[path.name] += 1
        return read_records(path)

    for module in ("records", "report"):
        monkeypatch.setattr(f"sigmax.runs.{module}.read_records", count_reads)
    experiment, calls = make_experiment()
    folder = tmp_path / "out"
    result = run_experiment(experiment, Choice(), folder, InProcessEngine())
    assert [record.status for record in result.records] == ["done", "done"]
    assert result.tables[0].rows == [["a", "42.0"], ["b", "42.0"]] and not result.failures
    assert result.figures == [folder / "tiny_picture.png"]
    assert result.figures[0].read_bytes().startswith(b"\x89PNG")
    page = result.report.read_text(encoding="utf-8")
    assert "tiny: two data sets, one number each" in page and "tiny picture" in page
    assert (calls["jobs"], calls["figures"]) == (2, 1) and not n_read  # there were no records yet
    result = run_experiment(experiment, Choice(datasets=["b"]), folder, InProcessEngine())
    assert [record.task.dataset for record in result.records] == ["b"]
    assert (calls["jobs"], calls["figures"]) == (2, 2)  # nothing is run again
    assert n_read == {"records.jsonl": 1}


def test_the_report_includes_other_experiments_of_the_folder(tmp_path):
    task = Task(experiment="toy", dataset="toy", method="nn", split=1)
    names = ("log_likelihood", "excess", "std_error", "coverage", "std_left", "std_right")
    with RecordFile.open(tmp_path) as file:
        file.append(done(task, scores=dict.fromkeys(names, 0.5)))
    experiment, _ = make_experiment()
    run = run_experiment(experiment, Choice(), tmp_path, InProcessEngine(), others={"toy": TOY})
    page = run.report.read_text(encoding="utf-8")
    assert "toy problem: 500 points" in page and "tiny: two data sets" in page
    run = run_experiment(experiment, Choice(), tmp_path, InProcessEngine())
    page = run.report.read_text(encoding="utf-8")
    assert "Records of an unknown experiment or method, not shown: 1." in page


def test_every_experiment_of_the_paper_has_its_name_and_can_be_imported_by_workers():
    experiments = paper_experiments()
    assert list(experiments) == list(PAPER)
    for name, experiment in [*experiments.items(), ("compare", COMPARISON)]:
        assert experiment.name == name
        assert set(experiment.methods) <= set(experiment.known_methods)
        assert experiment.run.__module__.startswith("sigmax.")
        assert (name in PAPER) == experiment.run.__module__.startswith("sigmax.paper.")
        assert "<" not in experiment.run.__qualname__


def test_runs_and_the_comparison_import_neither_matplotlib_nor_the_paper():
    code = (
        "import sys, sigmax.runs.report, sigmax.cli.compare;"
        "found = {name for name in sys.modules if name in ('matplotlib', 'pooch', 'sigmax.paper')};"
        "sys.exit(', '.join(found) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
