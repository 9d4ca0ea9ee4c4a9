"""What the tests of experiments share: small runs, records made by hand, and scripts."""

import importlib.util
from pathlib import Path
from types import ModuleType

from sigmax.runs.records import Record, Task, done
from sigmax.runs.registry import Choice, find_experiment

ROOT = Path(__file__).parent.parent.parent
SMALL = {"hidden_sizes": [8], "n_steps": 60, "n_members": 1}


def run_lines(experiment: str, *, device: str = "cpu", **choice) -> list[Record]:
    """The records of a choice, read again from their lines."""
    found = find_experiment(experiment)
    jobs = found.jobs(found.choose(Choice(**choice)), device)
    return [Record.from_line(record.to_line()) for job in jobs for record in found.run(job)]


def make_record(dataset, method, split, scores, *, experiment="uci", **parts) -> Record:
    """A record of a fit that went well."""
    task = Task(experiment=experiment, dataset=dataset, method=method, split=split, seed=split)
    return done(task, scores=scores, **parts)


def load_script(name: str) -> ModuleType:
    """A file of the folder ``benchmarks`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
