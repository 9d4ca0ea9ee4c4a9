"""The most memory and the speed of `sigmax predict` on a large file.

    python benchmarks/predict_memory.py [--rows 1000000] [--columns 20] [--training-rows 2000]

Makes a CSV file of numbers, categories, times and gaps in a temporary folder, fits a small model to
a few of its rows, runs the command in a process of its own, and prints that process's largest
resident memory and rows per second, start and compilation included.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

LIMIT = 1.5
"""GiB that the command may use."""
ROWS_AT_ONCE = 50_000


def make_rows(rng: np.random.Generator, n_rows: int, n_columns: int) -> pd.DataFrame:
    """Rows of which a quarter of the columns are categories, one is a time, the rest numbers."""
    n_categories = n_columns // 4
    numbers = rng.normal(size=(n_rows, n_columns - n_categories - 1)).round(4)
    frame = pd.DataFrame({f"x{i}": column for i, column in enumerate(numbers.T)})
    for i in range(n_categories):
        frame[f"level{i}"] = np.array(list("abcdefghij"))[rng.integers(0, 10, n_rows)]
    seconds = rng.integers(0, 10**8, n_rows)
    frame["when"] = pd.to_datetime(seconds, unit="s").strftime("%Y-%m-%d %H:%M:%S")
    frame["y"] = (frame["x0"] + (frame["level0"] == "a") + 0.3 * rng.normal(size=n_rows)).round(4)
    frame.loc[rng.random(n_rows) < 0.05, "x1"] = np.nan
    return frame


def write_rows(path: Path, n_rows: int, n_columns: int, seed: int) -> None:
    """A file, written a part at a time."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        for start in range(0, n_rows, ROWS_AT_ONCE):
            part = make_rows(rng, min(ROWS_AT_ONCE, n_rows - start), n_columns)
            part.to_csv(file, index=False, header=start == 0)


def run_command(*arguments: str) -> tuple[float, float]:
    """Seconds and largest resident memory in GiB of a command of sigmax."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "sigmax", *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"sigmax {arguments[0]} failed")
    in_kib = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss / 1024
    return time.perf_counter() - begin, in_kib / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--training-rows", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training, new, model = folder / "training.csv", folder / "new.csv", folder / "model"
        write_rows(training, given.training_rows, given.columns, seed=0)
        write_rows(new, given.rows, given.columns, seed=1)
        size = new.stat().st_size / 2**20
        print(f"{given.rows:,} rows x {given.columns} columns, {size:,.0f} MiB of CSV")
        run_command(
            "fit",
            str(training),
            "--target",
            "y",
            "--method",
            "local",
            "--effort",
            "quick",
            "--out",
            str(model),
        )
        seconds, memory = run_command(
            "predict", str(model), str(new), "--out", str(folder / "o.csv")
        )
        verdict = "within" if memory < LIMIT else "above"
        print(f"peak memory {memory:.2f} GiB, {verdict} {LIMIT} GiB")
        print(f"{seconds:.0f} s, {given.rows / seconds:,.0f} rows per second")


if __name__ == "__main__":
    main()
