"""Small runs, records made by hand, and scripts for the tests of experiments."""

import importlib.util
from pathlib import Path
from types import ModuleType

from sigmax.paper import paper_experiments
from sigmax.runs.experiments import Choice
from sigmax.runs.records import Record, Task, done

ROOT = Path(__file__).parent.parent.parent
SMALL = {"hidden_sizes": [8], "n_steps": 60, "n_members": 1}


def run_lines(experiment: str, *, device: str = "cpu", **choice) -> list[Record]:
    """Records of a choice, read back from their lines."""
    found = paper_experiments()[experiment]
    jobs = found.jobs(found.choose(Choice(**choice)), device)
    return [Record.from_line(record.to_line()) for job in jobs for record in found.run(job)]


def make_record(dataset, method, split, scores, *, experiment="uci", **parts) -> Record:
    """Record of a successful fit."""
    task = Task(experiment=experiment, dataset=dataset, method=method, split=split, seed=split)
    return done(task, scores=scores, **parts)


def load_script(name: str) -> ModuleType:
    """Load a file of the folder ``benchmarks`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
