"""Rows per second and memory of `sigmax predict` of many files, in this process or through Ray.

    python benchmarks/predict_parts.py [--rows 300000] [--engine ray] [--workers 2] [--model folder]
    python benchmarks/predict_parts.py --rows 20000000 --commands 8

Makes Parquet files in a temporary folder, a block of rows at a time, fits a small model to a few
rows, and runs the command while it watches the memory of the command and of all processes that it
starts. With ``--commands``, so many run at once, each on its share of files and cores. Flat memory
means that the largest of the last third is that of the middle third; the first third has the
compilation.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import Parallel, delayed
from predict_memory import make_rows, run_command, write_rows

ROWS_PER_GROUP = 65_536
ROWS_PER_FILE = 1_048_576
"""At most."""


def write_files(folders: list[Path], n_rows: int, n_columns: int) -> int:
    """Parquet files in turn in the folders, written by all cores; how many they are."""
    files_each = -(-n_rows // (len(folders) * ROWS_PER_FILE))
    rows_per_file = -(-n_rows // (len(folders) * files_each))
    starts = range(0, n_rows, rows_per_file)
    Parallel(n_jobs=-1)(
        delayed(write_file)(
            folders[i % len(folders)] / f"new-{i:04d}.parquet",
            min(rows_per_file, n_rows - first),
            n_columns,
            seed=i,
        )
        for i, first in enumerate(starts)
    )
    return len(starts)


def write_file(path: Path, n_left: int, n_columns: int, seed: int) -> None:
    """A file, of which never more than a row group is in memory."""
    rng, writer = np.random.default_rng((1, seed)), None
    while n_left:
        frame = make_rows(rng, min(ROWS_PER_GROUP, n_left), n_columns)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        n_left -= len(frame)
    if writer is not None:
        writer.close()


def watch(commands: list[list[str]]) -> tuple[float, float, list[float]]:
    """Seconds of wall time and of all cores, and the largest memory of a worker over time in GiB.

    A worker is a command, or one of the processes of Ray that predict.
    """
    begin, memory, cores = time.perf_counter(), [], {}
    processes = [psutil.Popen(command) for command in commands]
    while any(process.poll() is None for process in processes):
        largest = 0
        for process in processes:
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
    if any(process.returncode for process in processes):
        raise SystemExit("sigmax predict failed")
    return time.perf_counter() - begin, sum(cores.values()), memory


def on_cores(command: list[str], number: int, n_commands: int) -> list[str]:
    """The command on its share of the cores, where the system can say so."""
    taskset, cores = shutil.which("taskset"), np.arange(os.cpu_count() or 1)
    if taskset is None or n_commands == 1 or len(cores) < n_commands:
        return command
    own = np.array_split(cores, n_commands)[number]
    return [taskset, "-c", ",".join(map(str, own)), *command]


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
    parser.add_argument("--commands", type=int, default=1, help="at once, each on its files")
    parser.add_argument("--model", help="a folder of an earlier `sigmax fit` of such rows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training, model = folder / "training.csv", given.model
        new = [folder / f"new-{i}" for i in range(given.commands)]
        for one in new:
            one.mkdir()
        n_files = write_files(new, given.rows, given.columns)
        print(f"{given.rows:,} rows x {given.columns} columns in {n_files} Parquet files")
        if model is None:
            model = str(folder / "model")
            write_rows(training, given.training_rows, given.columns, seed=0)
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
                model,
            )
        engine = ["--engine", "ray", "--workers", str(given.workers)]
        predict = [sys.executable, "-m", "sigmax", "predict", model]
        commands = [[*predict, str(one), "--out", str(one) + "-out"] for one in new]
        if given.engine == "ray":
            commands = [command + engine for command in commands]
        placed = [on_cores(command, i, len(new)) for i, command in enumerate(commands)]
        seconds, busy, memory = watch(placed)
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
        parts = list(folder.glob("new-*-out/part-*.parquet"))
        n_written = sum(pq.ParquetFile(part).metadata.num_rows for part in parts)
        print(f"{n_written:,} rows in {len(parts)} parts of {given.commands} commands")
        again = subprocess.run(commands[0], capture_output=True, text=True, check=True)
        print(f"the same command again: {again.stdout.strip().splitlines()[-1].split(':')[0]}")


if __name__ == "__main__":
    main()
