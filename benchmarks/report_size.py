"""How large a report of many held-out rows is, and how long a browser takes to open it.

    python benchmarks/report_size.py [--rows 50000] [--columns 20] [--repeats 5]

Predictions are made up, so that nothing is trained. A page is open when its script has drawn all
charts and the browser has painted them: the time is taken from the navigation to the second frame
after that, the median of some visits, each in a context of its own.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from sigmax.distributions import Normal, Predictive
from sigmax.report import HeldOutRows, LearnedRows, ModelReport
from sigmax.tables import infer_schema
from sigmax.tables.profile import profile_table

MOST_BYTES, MOST_SECONDS = 6e6, 2.0
PAINTED = "() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"


class Formula:
    """Predictions by a formula of the first columns."""

    def predict_dist(self, X: pd.DataFrame) -> Predictive:
        first, second = (X[name].to_numpy(float) for name in ("x0", "x1"))
        return Predictive(Normal(50 + 10 * first, np.exp(1 + 0.5 * second)))

    def predict_gate(self, X: pd.DataFrame) -> np.ndarray:
        return 1 / (1 + np.exp(-4 * (np.abs(X["x0"].to_numpy(float)) - 3)))

    def explain_uncertainty(self, X: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
        return pd.DataFrame(np.full((len(X), len(columns)), 0.5), columns=columns)

    def explain_neighbors(self, X: pd.DataFrame, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        return np.tile(np.arange(k), (len(X), 1)), np.full((len(X), k), 1 / (k + 1))


def make_page(n_rows: int, n_columns: int) -> str:
    """The page of a made-up table: numbers, a category of 40 levels, and dates."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({f"x{i}": rng.normal(size=n_rows).round(4) for i in range(n_columns - 2)})
    X["place"] = np.array([f"place number {i}" for i in range(40)])[rng.integers(0, 40, n_rows)]
    X["day"] = np.datetime_as_string(
        np.datetime64("2020-01-01") + rng.integers(0, 2000, n_rows).astype("timedelta64[D]")
    )
    model = Formula()
    dist = model.predict_dist(X)
    y = dist.mean + dist.std * rng.normal(size=n_rows)
    predicted = dist, dist.interval(0.9), model.predict_gate(X)
    numbers = np.arange(1, n_rows + 1)
    rows = HeldOutRows.create(X, y, *predicted, numbers=numbers, columns=X[["place", "day"]])
    return (
        ModelReport(
            title="y of a made-up table",
            subtitle=f"{n_rows:,} held-out rows",
            target="y",
            model=model,
            rows=rows,
            schema=infer_schema(X),
            scores=[],
            findings=profile_table(X.assign(y=y), "y").findings,
            training=LearnedRows(X.iloc[:100], y[:100], np.arange(1, 101)),
            group_column="place",
            time_column="day",
        )
        .page()
        .to_html()
    )


def seconds_to_open(path: Path, repeats: int) -> list[float]:
    """From the navigation to painted charts."""
    from playwright.sync_api import sync_playwright

    flags = ["--disable-gpu", "--no-sandbox", "--no-first-run", "--disable-background-networking"]
    found = []
    with sync_playwright() as program:
        browser = program.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for _ in range(repeats + 1):  # the first one warms up
            context = browser.new_context(viewport={"width": 1200, "height": 900})
            page = context.new_page()
            begin = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            page.evaluate(PAINTED)
            found.append(time.perf_counter() - begin)
            context.close()
        browser.close()
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    begin = time.perf_counter()
    page = make_page(given.rows, given.columns)
    print(f"{given.rows:,} rows, {given.columns} columns")
    print(f"made in        {time.perf_counter() - begin:8.2f} s")
    size = len(page.encode())
    print(f"size           {size / 1e6:8.2f} MB (at most {MOST_BYTES / 1e6:.0f})")
    if shutil.which("chromium") is None:
        print("opened in      unknown: there is no Chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        seconds = seconds_to_open(path, given.repeats)
    median = statistics.median(seconds)
    print(f"opened in      {median:8.2f} s, the slowest in {max(seconds):.2f} s (at most 2)")
    if size > MOST_BYTES or median > MOST_SECONDS:
        raise SystemExit("the report is too large or too slow")


if __name__ == "__main__":
    main()
