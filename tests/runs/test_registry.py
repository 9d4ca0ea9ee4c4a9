"""The registry: an experiment is a module and its name in one list, and all else follows."""

from collections import Counter

import pytest

import sigmax.paper
from sigmax.runs import EXPERIMENTS, PAPER, registry
from sigmax.runs.engines import InProcessEngine
from sigmax.runs.records import read_records
from sigmax.runs.registry import Choice, find_experiment, known_experiments
from sigmax.runs.runner import run_experiment

CALLS = Counter()
"""How often functions of the experiment below were called."""

MODULE = """
from matplotlib.figure import Figure
from sigmax.runs.records import done
from sigmax.runs.registry import Experiment, register
from sigmax.runs.tables import ReportTable
from test_registry import CALLS

def run(job):
    CALLS["jobs"] += 1
    return [done(task, scores={"answer": 42.0}) for task in job]

def tables(records):
    CALLS["tables"] += 1
    rows = [[record.task.dataset, str(record.scores["answer"])] for record in records]
    return [ReportTable(title="answers", header=["data set", "answer"], rows=rows)]

def figures(records):
    CALLS["figures"] += 1
    return {"tiny_picture": Figure()}

register(
    Experiment(
        name="tiny",
        about="two data sets, one number each",
        datasets=("a", "b"),
        methods=("nn",),
        n_splits=1,
        run=run,
        tables=tables,
        figures=figures,
    )
)
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A new experiment: its module is written, and its name added to the list."""
    (tmp_path / "tiny.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sigmax.paper, "__path__", [*sigmax.paper.__path__, str(tmp_path)])
    monkeypatch.setattr(registry, "EXPERIMENTS", EXPERIMENTS | {"tiny": "sigmax.paper.tiny"})
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    CALLS.clear()


def test_a_module_and_a_name_in_the_list_make_an_experiment(tiny, tmp_path, monkeypatch):
    n_read = Counter()

    def count_reads(path):
        n_read[path.name] += 1
        return read_records(path)

    for module in ("records", "report"):
        monkeypatch.setattr(f"sigmax.runs.{module}.read_records", count_reads)
    folder = tmp_path / "out"
    result = run_experiment("tiny", Choice(), folder, InProcessEngine())
    assert [record.status for record in result.records] == ["done", "done"]
    assert result.tables[0].rows == [["a", "42.0"], ["b", "42.0"]] and not result.failures
    assert result.figures == [folder / "tiny_picture.png"]
    assert result.figures[0].read_bytes().startswith(b"\x89PNG")
    page = result.report.read_text(encoding="utf-8")
    assert "tiny: two data sets, one number each" in page and "tiny picture" in page
    assert (CALLS["jobs"], CALLS["figures"]) == (2, 1) and not n_read  # there were no records yet
    result = run_experiment("tiny", Choice(datasets=["b"]), folder, InProcessEngine())
    assert [record.task.dataset for record in result.records] == ["b"]
    assert (CALLS["jobs"], CALLS["figures"]) == (2, 2)  # nothing is run again
    assert n_read == {"records.jsonl": 1}


def test_every_experiment_is_registered_by_the_module_of_its_name():
    assert known_experiments()[: len(EXPERIMENTS)] == list(EXPERIMENTS)
    for name in EXPERIMENTS:
        experiment = find_experiment(name)
        assert experiment.name == name
        assert set(experiment.methods) <= set(experiment.known_methods)
        assert experiment.run.__module__.startswith("sigmax.")
        assert (name in PAPER) == experiment.run.__module__.startswith("sigmax.paper.")
