"""A fit to more rows than are kept, in bounded memory: seconds, memory and what more rows buy.

    python benchmarks/stream.py [--rows 100000 10000000] [--features 20] [--preset fast]
    python benchmarks/stream.py --rows 1000 10000 100000 1000000 10000000 --out docs/scale
    python benchmarks/stream.py --rows 10000000 --parquet          # from Parquet files
    python benchmarks/stream.py --picture docs/scale               # stream.png from what was kept

Made-up rows, those of `scale.py`, are written to a memory-mapped file a block at a time, or to
Parquet files. A model is fitted to the first so many of them, and scored on other rows.
Memory is the largest that the process had, before and after the fit, pages of the mapped file that
happen to be in memory included.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from rich.console import Console
from scale import make_rows

from sigmax import LocalRegressor, fit_parquet
from sigmax.runs.methods import stopwatch

ROWS_PER_BLOCK = 2**18

FILE_NAME = "stream.jsonl"

FITTED_FROM = 10_000
"""Rows from which the exponent is fitted: fewer are trained for as many steps as 2,304."""


def write_rows(folder: Path, n_rows: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets in files, mapped for reading."""
    sizes = {"X": (n_rows, n_features), "y": (n_rows,)}
    files = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, shape)
        for name, shape in sizes.items()
    }
    for block, start in enumerate(range(0, n_rows, ROWS_PER_BLOCK)):
        here = slice(start, min(start + ROWS_PER_BLOCK, n_rows))
        files["X"][here], files["y"][here] = make_rows(here.stop - start, n_features, 1000 + block)
    del files
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in sizes)
    return X, y


def write_parquet(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    """The rows in files of one row group each."""
    for start in range(0, len(X), ROWS_PER_BLOCK):
        here = slice(start, start + ROWS_PER_BLOCK)
        frame = as_frame(X[here]).assign(y=y[here])
        frame.to_parquet(folder / f"rows-{start // ROWS_PER_BLOCK:05d}.parquet", index=False)


def as_frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({f"x{i}": column for i, column in enumerate(X.T)})


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(
    X: np.ndarray, y: np.ndarray, preset: str | None, n_new: int, verbose: int, folder: Path | None
) -> dict:
    """One fit, to Parquet files if they have a folder, and its scores on new rows."""
    before = peak_gib()
    model = LocalRegressor(preset, random_state=0, verbose=verbose)
    X_new, y_new = make_rows(n_new, X.shape[1], seed=99)
    with stopwatch() as watch:
        if folder is None:
            model.fit(X, y)
        else:
            fit_parquet(model, str(folder), "y")
            X_new = as_frame(X_new)
    begin = time.perf_counter()
    dist = model.predict_dist(X_new)
    seconds = time.perf_counter() - begin
    lower, upper = dist.interval(0.9)[..., 0], dist.interval(0.9)[..., 1]
    return {
        "device": jax.devices()[0].device_kind,
        "preset": preset or "default",
        "rows": len(X),
        "features": X.shape[1],
        "kept": model.n_rows_,
        "learned": model.n_learned_,
        "compile": watch.compile,
        "fit": watch.run,
        "microseconds_per_row": 1e6 * watch.run / len(X),
        "predictions_per_second": n_new / seconds,
        "gib_before": before,
        "gib": peak_gib(),
        "log_likelihood": float(np.mean(dist.log_prob(y_new))),
        "crps": float(np.mean(dist.crps(y_new))),
        "rmse": float(np.sqrt(np.mean((dist.mean - y_new) ** 2))),
        "coverage": float(np.mean((lower <= y_new) & (y_new <= upper))),
    }


def draw(folder: Path) -> None:
    """Seconds and scores against the number of rows, with the exponent of the larger ones."""
    from matplotlib.figure import Figure

    lines = (folder / FILE_NAME).read_text(encoding="utf-8").splitlines()
    records = sorted(map(json.loads, lines), key=lambda record: record["rows"])
    figure = Figure(figsize=(10.4, 4.4), layout="constrained")
    seconds, scores = figure.subplots(1, 2)
    for device in sorted({record["device"] for record in records}):
        found = [record for record in records if record["device"] == device]
        rows, fit = (np.array([record[name] for record in found]) for name in ("rows", "fit"))
        many = rows >= FITTED_FROM
        slope = np.polyfit(np.log(rows[many]), np.log(fit[many]), 1)[0] if many.sum() > 1 else None
        exponent = "" if slope is None else f": exponent {slope:.2f} from {FITTED_FROM:,} rows"
        seconds.loglog(rows, fit, marker="o", label=f"{device}{exponent}")
        scores.semilogx(rows, [record["crps"] for record in found], marker="o", label=device)
    seconds.set(xlabel="training rows", ylabel="seconds to fit, without compilation")
    scores.set(xlabel="training rows", ylabel="CRPS of 20,000 new rows")
    for panel in (seconds, scores):
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.savefig(folder / "stream.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--predict", type=int, default=20_000)
    parser.add_argument("--verbose", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--parquet", action="store_true")
    given = parser.parse_args()
    if given.picture:
        draw(given.picture)
        return
    console = Console(width=160)
    with tempfile.TemporaryDirectory() as name:
        begin = time.perf_counter()
        X, y = write_rows(Path(name), max(given.rows), given.features)
        console.print(f"made {len(X):,} rows in {time.perf_counter() - begin:.0f} s")
        for n_rows in given.rows:
            folder = Path(name) / f"parquet-{n_rows}" if given.parquet else None
            rows = X[:n_rows], y[:n_rows]
            if folder is not None:
                folder.mkdir()
                write_parquet(folder, *rows)
            found = measure(*rows, given.preset, given.predict, given.verbose, folder)
            found["source"] = "parquet" if given.parquet else "memory-mapped"
            console.print_json(json.dumps(found))
            if given.out:
                given.out.mkdir(parents=True, exist_ok=True)
                with (given.out / FILE_NAME).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
