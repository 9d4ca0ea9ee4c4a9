"""How long a user waits in a fresh process: from the import to the first prediction.

    python benchmarks/waiting.py [--rows 500] [--other-rows 480] [--features 13] [--repeats 3]
                                 [--against CHECKOUT/src]

LocalRegressor with the fast preset, every figure the median of processes of their own: without kept
programs; with programs that a fit on another number of rows of the same padded size has left; and a
second fit ("again") in the same process. Seconds of CPU are those of all threads, which depend less
on what else the machine does. With --against, another checkout is measured in turns with this one.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

PROCESS = """
import time; begin, begin_cpu = time.perf_counter(), time.process_time()
import sys
import numpy as np
from sigmax import LocalRegressor
imported = time.perf_counter()
n_rows, n_features = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
X = rng.normal(size=(n_rows, n_features)); y = X[:, 0] + rng.normal(size=n_rows)
model = LocalRegressor(preset="fast", random_state=0).fit(X, y)
fitted = time.perf_counter()
model.predict(X[:50], return_std=True)
done, done_cpu = time.perf_counter(), time.process_time()
model.fit(X, y)
again, again_cpu = time.perf_counter(), time.process_time()
print(imported - begin, fitted - imported, done - fitted, done - begin, done_cpu - begin_cpu)
print(again - done, again_cpu - done_cpu)
"""
COLUMNS = ("import", "fit", "predict", "in all", "CPU", "again", "CPU again")


def seconds(source: Path, n_rows: int, n_features: int, cache: Path | None) -> list[float]:
    """What one process prints, its programs in the folder ``cache``."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    environment["JAX_COMPILATION_CACHE_DIR"] = str(cache or "")
    if cache:  # as sigmax sets them for a folder of its own
        for name in ("MIN_COMPILE_TIME_SECS", "MIN_ENTRY_SIZE_BYTES"):
            environment[f"JAX_PERSISTENT_CACHE_{name}"] = "0"
    command = [sys.executable, "-c", PROCESS, str(n_rows), str(n_features)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--other-rows", type=int, default=480)
    parser.add_argument("--features", type=int, default=13)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--against", type=Path, help="the folder src of another checkout")
    options = parser.parse_args()
    sources = {"this": Path(__file__).parent.parent / "src"}
    if options.against is not None:
        sources["other"] = options.against.resolve()

    found: dict[tuple[str, str], list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources.items():
            seconds(source, options.other_rows, options.features, Path(folder) / name)
            shutil.copytree(Path(folder) / name, Path(folder) / f"{name} filled")
        for _ in range(options.repeats):
            for name, source in sources.items():
                for kept in ("none", f"of {options.other_rows} rows"):
                    cache = None
                    if kept != "none":  # as it was: a run would find the programs of the last one
                        cache = Path(folder) / name  # always the same, for JAX goes by the path
                        shutil.rmtree(cache)
                        shutil.copytree(Path(folder) / f"{name} filled", cache)
                    run = seconds(source, options.rows, options.features, cache)
                    found.setdefault((name, kept), []).append(run)

    table = Table(title=f"seconds, {options.rows} x {options.features}, fast preset")
    table.add_column("checkout")
    table.add_column("programs kept")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for (name, kept), runs in sorted(found.items()):
        medians = np.median(runs, axis=0)
        table.add_row(name, kept, *(f"{value:.2f}" for value in medians))
    Console().print(table)


if __name__ == "__main__":
    main()
