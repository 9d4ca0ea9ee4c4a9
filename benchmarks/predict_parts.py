"""Rows per second and memory of `sigmax predict` of many files, in this process or through Ray.

    python benchmarks/predict_parts.py [--rows 300000] [--engine ray] [--workers 2] [--model folder]

Makes Parquet files in a temporary folder, a block of rows at a time, fits a small model to a few
rows, and runs the command while it watches the memory of the command and of all processes that it
starts. Flat memory means that the largest of the last third is that of the middle third; the first
third has the compilation.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from predict_memory import make_rows, run_command, write_rows

ROWS_PER_GROUP = 65_536
ROWS_PER_FILE = 1_048_576


def write_files(folder: Path, n_rows: int, n_columns: int) -> int:
    """Parquet files, of which never more than a row group is in memory; how many they are."""
    rng, n_files = np.random.default_rng(1), 0
    for first in range(0, n_rows, ROWS_PER_FILE):
        n_left, writer = min(ROWS_PER_FILE, n_rows - first), None
        while n_left:
            frame = make_rows(rng, min(ROWS_PER_GROUP, n_left), n_columns)
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if writer is None:
                writer = pq.ParquetWriter(folder / f"new-{n_files:04d}.parquet", table.schema)
            writer.write_table(table)
            n_left -= len(frame)
        if writer is not None:
            writer.close()
        n_files += 1
    return n_files


def watch(command: list[str]) -> tuple[float, float, list[float]]:
    """Seconds of wall time and of all cores, and the largest memory of a worker over time in GiB.

    A worker is the command, or one of the processes of Ray that predict.
    """
    begin, memory, cores = time.perf_counter(), [], {}
    process = psutil.Popen(command)
    while process.poll() is None:
        largest = 0
        for one in [process, *children(process)]:
            try:
                name = " ".join(one.cmdline())
                times = one.cpu_times()
                cores[one.pid] = times.user + times.system
                if one.pid == process.pid or "MapWorker" in name:
                    largest = max(largest, one.memory_info().rss)
            except psutil.Error:
                continue
        memory.append(largest / 2**30)
        time.sleep(0.5)
    if process.returncode:
        raise SystemExit("sigmax predict failed")
    return time.perf_counter() - begin, sum(cores.values()), memory


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--training-rows", type=int, default=2000)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--workers", type=int, default=2, help="of Ray")
    parser.add_argument("--model", help="a folder of an earlier `sigmax fit` of such rows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training, new, model = folder / "training.csv", folder / "new", given.model
        new.mkdir()
        n_files = write_files(new, given.rows, given.columns)
        print(f"{given.rows:,} rows x {given.columns} columns in {n_files} Parquet files")
        if model is None:
            model = str(folder / "model")
            write_rows(training, given.training_rows, given.columns, seed=0)
            run_command("fit", str(training), "--target", "y", "--preset", "fast", "--out", model)
        engine = ["--engine", "ray", "--workers", str(given.workers)]
        out = folder / "out"
        command = [sys.executable, "-m", "sigmax", "predict", model, str(new), "--out", str(out)]
        seconds, busy, memory = watch(command + (engine if given.engine == "ray" else []))
        n_cores = os.cpu_count() or 1
        rate = given.rows / seconds
        print(f"{seconds:,.0f} s, start and compilation included: {rate:,.0f} rows per second,")
        print(
            f"{rate / n_cores:,.0f} for each of {n_cores} cores, and {given.rows / busy:,.0f} for a"
            f" second of one core at work"
        )
        third = max(1, len(memory) // 3)
        thirds = [memory[:third], memory[third : 2 * third], memory[-third:]]
        shown = ", ".join(f"{max(part):.2f}" for part in thirds)
        print(f"largest memory of a worker by thirds of the time: {shown} GiB")
        print(f"{len(list(out.glob('part-*.parquet')))} parts")
        again = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"the same command again: {again.stdout.strip().splitlines()[-1].split(':')[0]}")


if __name__ == "__main__":
    main()
