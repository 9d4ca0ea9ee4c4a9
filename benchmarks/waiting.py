"""Seconds until a new process has an answer, and their ratios to CatBoost's in the same run.

    python benchmarks/waiting.py [--only quick] [--repeats 1]

Every task runs in processes of its own: the first one with an empty cache of compiled functions,
the second one with what the first has cached. Seconds are those of the whole process, from its
start to its end. CPU seconds are those of all its threads and depend less on what else the machine
does. CatBoost (``pip install "sigmax[peers]"``) fits 500 trees with a Normal output to the first
table and predicts mean and variance. The deliveries are the 900 rows of `sigmax demo`. Last, the
number of functions that a default fit of 1,000 rows and its predictions compile is printed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

ROWS = """
import numpy as np
rng = np.random.default_rng(0)
X = rng.normal(size=({rows}, 13)); y = X[:, 0] + rng.normal(size={rows})
"""
CATBOOST = (
    ROWS.format(rows=500)
    + """
from catboost import CatBoostRegressor
settings = dict(iterations=500, verbose=0, allow_writing_files=False)
CatBoostRegressor(loss_function="RMSEWithUncertainty", **settings).fit(X, y).predict(X[:50])
"""
)
STACK = (
    ROWS
    + """
from sigmax import SigmaxRegressor
SigmaxRegressor({effort!r}, random_state=0).fit(X, y).predict_interval(X[:50])
"""
)
COUNT = (
    """
import jax.monitoring
found = []
def note(event, seconds, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        found.append(event)
jax.monitoring.register_event_duration_secs_listener(note)
"""
    + STACK.format(rows=1000, effort="default")
    + "print(len(found))"
)
COMMAND = "from sigmax.cli import app; app({arguments!r}.split())"
DELIVERIES = "from sigmax.data.synthetic import make_deliveries as make; "
DELIVERIES += "make(900).to_csv('table.csv'); make(1000).drop(columns='minutes').to_csv('new.csv')"


def tasks() -> dict[str, str]:
    """Programs of the tasks by name, CatBoost first; those of predictions follow their fits."""
    found = {"CatBoost, 500 x 13": CATBOOST}
    for effort, rows in (("quick", 500), ("quick", 1000), ("default", 1000)):
        found[f"{effort}, {rows:,} x 13"] = STACK.format(rows=rows, effort=effort)
    for effort in ("quick", "default"):
        fit = f"fit table.csv --target minutes --effort {effort} --out {effort} --force"
        predict = f"predict {effort} new.csv --out {effort}.csv --overwrite"
        found[f"sigmax fit, {effort}"] = COMMAND.format(arguments=fit)
        found[f"sigmax predict, {effort}"] = COMMAND.format(arguments=predict)
    return found


def seconds(program: str, folder: Path, cache: Path) -> tuple[float, float, str]:
    """Seconds of a process, and of CPU, and what it prints."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    start, before = perf_counter(), os.times()
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        raise SystemExit(done.stderr)
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return perf_counter() - start, spent, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--only", default="", help="part of the names of tasks, besides CatBoost")
    parser.add_argument("--repeats", type=int, default=1, help="processes of which medians are")
    given = parser.parse_args()
    chosen = {k: v for k, v in tasks().items() if given.only in k or k.startswith("CatBoost")}
    found = {}
    with tempfile.TemporaryDirectory() as name:
        seconds(DELIVERIES, Path(name), Path(name))
        for task, program in chosen.items():
            runs = []
            for repeat in range(given.repeats):
                cache = Path(name) / f"cache {len(found)} {repeat}"
                runs.append([seconds(program, Path(name), cache)[:2] for _ in range(2)])
            found[task] = np.median(runs, axis=0)
        is_counted = given.only in "default, 1,000 x 13"
        counted = seconds(COUNT, Path(name), Path(name) / "cache")[2] if is_counted else ""
    table = Table(title="First process with an empty cache / second process")
    for column in ("", "seconds", "CPU seconds", "over CatBoost", "CPU over CatBoost"):
        table.add_column(column, justify="right" if column else "left")
    reference = next(iter(found.values()))
    for task, own in found.items():
        parts = [(own, ".1f"), (own / reference[1], ".1f")]
        cells = [
            " / ".join(format(part[process, kind], digits) for process in (0, 1))
            for part, digits in parts
            for kind in (0, 1)
        ]
        table.add_row(task, *cells)
    Console(width=100).print(table)
    if counted:
        print(f"Functions compiled by a default fit and its predictions: {counted.strip()}")


if __name__ == "__main__":
    main()
