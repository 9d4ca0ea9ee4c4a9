"""Our methods beside the published figures of tabular foundation models, at equal rows.

    python benchmarks/foundation.py run --quick --out foundation.jsonl         # two cores
    python benchmarks/foundation.py run --jobs 15 --out foundation.jsonl       # one accelerator
    python benchmarks/foundation.py run --inner --settings '{"label": "many", "n_members": 16}'
    python benchmarks/foundation.py show foundation.jsonl [--label local] [--markdown]
    python benchmarks/foundation.py show foundation.jsonl --page docs/foundation.md

Needs SIGMAX_DATA. The protocol is that of the source of the published figures: n rows drawn at
random, a random quarter of them held out, and scores of densities on a grid of 200 points; exact
scores stand beside them. At n = 50 there are ten times as many subsets. ``--inner`` holds out a
quarter of the training rows instead and never looks at the test rows: settings are chosen so. One
line is written per label, data set, n and subset; a run goes on where it was, and a file takes one
run at a time. With ``--jobs``, so many processes take the cells, largest first, and write parts
that are merged at the end, or by the next run if this one is killed. Methods are those of
`suite.py`.

`show` prints the tables of one label; ``--page`` makes those anew that a page has between
`<!-- foundation -->` and `<!-- end -->`.
"""

import argparse
import json
import math
import multiprocessing
import os
import re
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from suite import create, this_commit

from sigmax.data.store import find_file, read_npz
from sigmax.distributions import Predictive
from sigmax.metrics import crps, log_likelihood, pit, rmse
from sigmax.report.tables import ReportTable, three_decimals
from sigmax.runs.methods import stopwatch, with_settings
from sigmax.runs.records import describe_machine

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "foundation" / "published.json"

N_COLUMNS = {
    "superconduct": 81,
    "naval": 16,
    "wine_white": 11,
    "protein": 9,
    "diamonds": 9,
    "kin8nm": 8,
}
"""The data sets, with their numbers of features."""
WITHOUT_GRID_LIMIT = ("kin8nm", "protein", "superconduct", "wine_white", "diamonds")
"""All but naval, whose densities are narrower than a cell of the grid."""
CATEGORIES = ("cut", "color", "clarity")
TABPFN, REAL_TABPFN, TABICL = "TabPFN-2.5", "RealTabPFN-2.5", "TabICL-Quantiles"
QUICK_SIZES = (500, 1000)
FEW = 50
"""Number of rows with ten times as many subsets, as in the source."""

HELD_OUT = 0.25
N_GRID = 200
MARGIN = 0.05
"""How far the grid goes beyond the training targets, as a share of their range."""
LEAST_DENSITY = 1e-10
MARKED = re.compile(r"<!-- foundation -->.*?<!-- end -->", re.DOTALL)

Rows = NDArray[np.float64] | pd.DataFrame
Line = dict[str, Any]


# The data.


def load_dataset(name: str) -> tuple[Rows, NDArray]:
    """All rows without gaps, and their targets; diamonds are a table with categories."""
    if name != "diamonds":
        X, y = read_npz(find_file(f"{name}.npz"), "X", "y")
        return X, y
    frame = pd.read_csv(find_file("tables/diamonds.csv.gz")).dropna()
    y = frame.pop("price").to_numpy(dtype=np.float64)
    return frame.astype(dict.fromkeys(CATEGORIES, "category")), y


def split_rows(n_rows: int, n: int, subset: int, *, inner: bool = False) -> tuple[NDArray, NDArray]:
    """Rows to train on and rows to score: of ``n`` drawn at random, a quarter is held out.

    With ``inner``, the rows to score are a quarter of the training rows, and the held-out rows are
    in neither part.

    Examples
    --------
    >>> train, test = split_rows(8192, 500, 0)
    >>> len(train), len(test)
    (375, 125)
    >>> less, held_out = split_rows(8192, 500, 0, inner=True)
    >>> sorted([*less, *held_out]) == sorted(train)
    True
    """
    rows = np.random.default_rng([subset, n]).permutation(n_rows)[:n]
    train, test = cut(rows)
    return cut(train) if inner else (train, test)


def cut(rows: NDArray) -> tuple[NDArray, NDArray]:
    """All but the last quarter, which is rounded up, and the last quarter."""
    n_train = len(rows) - math.ceil(HELD_OUT * len(rows))
    return rows[:n_train], rows[n_train:]


def take(X: Rows, rows: NDArray) -> Rows:
    return X.iloc[rows].reset_index(drop=True) if isinstance(X, pd.DataFrame) else X[rows]


# The scores.


def exact_scores(y: NDArray, dist: Predictive) -> dict[str, float]:
    """Scores of the densities themselves.

    A PIT value is drawn between the probability of less than y and that of at most y, which are one
    but where values have probabilities; so it is uniform also for rounded targets.
    """
    less = dist.cdf(np.nextafter(y, -np.inf))
    values = less + np.random.default_rng(0).uniform(size=len(y)) * (pit(y, dist) - less)
    covered = {
        f"coverage_{level}": float(np.mean(np.abs(2 * values - 1) <= level / 100))
        for level in (50, 80, 90)
    }
    return {
        "log_likelihood": log_likelihood(y, dist),
        "crps": crps(y, dist),
        "rmse": rmse(y, dist),
        "pit_ks": ks_distance(values),
        **covered,
    }


def ks_distance(values: NDArray) -> float:
    """The Kolmogorov-Smirnov distance of values in [0, 1] from the uniform distribution.

    Examples
    --------
    >>> ks_distance(np.array([0.5]))
    0.5
    """
    return float(stats.kstest(values, "uniform").statistic)


def make_grid(y_train: NDArray) -> NDArray:
    """The points at which the source of the published figures knows a density."""
    low, high = y_train.min(), y_train.max()
    margin = MARGIN * (high - low)
    return np.linspace(low - margin, high + margin, N_GRID)


def densities_on(grid: NDArray, dist: Predictive) -> NDArray:
    """One row of densities per prediction."""
    return np.exp(np.stack([dist.log_prob(point) for point in grid], axis=1))


def grid_scores(y: NDArray, density: NDArray, grid: NDArray) -> dict[str, float]:
    """Scores as the source of the published figures computes them from densities on a grid.

    The sum of a density times the step of the grid is made 1, and the cdf at a point is the sum up
    to it and with it. So the cdf is that of half a step farther on, which narrow densities feel.
    """
    step = grid[1] - grid[0]
    total = step * density.sum(axis=1, keepdims=True)
    density = density / np.where(total > 0, total, 1.0)
    cdf = step * np.cumsum(density, axis=1)
    at_y = interpolate(y, grid, density)
    above = grid >= y[:, None]
    squared = (np.minimum(cdf, 1.0) - above) ** 2
    lower, upper = (np.array([np.interp(q, row, grid) for row in cdf]) for q in (0.05, 0.95))
    return {
        "log_likelihood": float(np.mean(np.log(np.maximum(at_y, LEAST_DENSITY)))),
        "crps": float(np.mean(np.trapezoid(squared, grid, axis=1))),
        "pit_ks": ks_distance(np.clip(interpolate(y, grid, cdf), 0.0, 1.0)),
        "coverage_90": float(np.mean((lower <= y) & (y <= upper))),
        "interval_width": float(np.mean(upper - lower)),
    }


def interpolate(y: NDArray, grid: NDArray, values: NDArray) -> NDArray:
    """Each row of values at its own y, linear between the points and constant beyond them."""
    return np.array([np.interp(at, grid, row) for at, row in zip(y, values, strict=True)])


# The run.


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One fit: some settings of a method, a data set, a number of rows and a subset of so many."""

    label: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    dataset: str
    n: int
    subset: int
    inner: bool = False


def run_cell(cell: Cell) -> Line:
    """Fit, predict and score; seconds of compilation are kept apart."""
    X, y = load_dataset(cell.dataset)
    train, test = split_rows(len(y), cell.n, cell.subset, inner=cell.inner)
    model = with_settings(create(cell.method, cell.subset), cell.method, cell.settings)
    with stopwatch() as fit:
        model.fit(take(X, train), y[train])
    with stopwatch() as predict:
        dist = model.predict_dist(take(X, test))
    grid = make_grid(y[train])
    return asdict(cell) | {
        "n_train": len(train),
        "n_test": len(test),
        "exact": exact_scores(y[test], dist),
        "grid": grid_scores(y[test], densities_on(grid, dist), grid),
        "fit_s": round(fit.run, 3),
        "predict_s": round(predict.run, 3),
        "compile_s": round(fit.compile + predict.compile, 3),
    }


def run(options: argparse.Namespace) -> None:
    """Write one line per cell that has none yet."""
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    known = {key_of(line) for line in merge(out)}
    cells = [cell for cell in choose(options) if key_of(asdict(cell)) not in known]
    deadline = time.time() + options.seconds
    about = {"commit": options.commit, "jobs": options.jobs}
    if options.jobs == 1:
        work(iter(cells), part_of(out, 0), deadline, about)
    else:
        work_together(cells, out, deadline, about)
    print(f"{len(merge(out)) - len(known)} of {len(cells)} cells done", flush=True)


def choose(options: argparse.Namespace) -> list[Cell]:
    """The cells of a run: those with published figures, the largest of every subset first.

    Processes that begin together so compile programs of different shapes, which are kept for the
    other subsets.
    """
    sizes = QUICK_SIZES if options.quick else ()
    sizes = tuple(map(int, options.sizes.split(","))) if options.sizes else sizes
    datasets = options.datasets.split(",")
    n_subsets = options.subsets or (1 if options.quick else 4)
    cells = [
        Cell(dataset=dataset, n=n, subset=subset, inner=options.inner, **variant)
        for dataset, n in published_cells()
        if dataset in datasets and (n in sizes or not sizes)
        for subset in range(10 * n_subsets if n == FEW else n_subsets)
        for variant in variants(options)
    ]
    return sorted(cells, key=lambda cell: (cell.subset, -cell.n, -N_COLUMNS[cell.dataset]))


def variants(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Label, method and settings of everything that is to be fitted."""
    if not options.settings:
        return [{"label": name, "method": name} for name in options.methods.split(",")]
    found = []
    for text in options.settings:
        settings = json.loads(text)
        method = settings.pop("method", "local")
        label = settings.pop("label", f"{method} {json.dumps(settings, sort_keys=True)}")
        found.append({"label": label, "method": method, "settings": settings})
    return found


def work(cells: Iterable[Cell], part: Path, deadline: float, about: Line) -> None:
    """Run cells until there is none, or less time than the last one took; a failure costs one."""
    last = 0.0
    for cell in cells:
        begin = time.time()
        if begin + last > deadline:
            return
        what = f"{cell.label}, {cell.dataset}, n = {cell.n}, subset {cell.subset}"
        try:
            line = run_cell(cell) | about | {"machine": describe_machine()}
        except Exception:
            print(f"{what}: failed\n{traceback.format_exc()}", flush=True)
            continue
        last = time.time() - begin
        with part.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{what}: CRPS {line['grid']['crps']:.5g}, {last:.0f} s", flush=True)


def work_together(cells: Sequence[Cell], out: Path, deadline: float, about: Line) -> None:
    """Run cells in processes of their own, which are stopped at the deadline."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the processes share one device
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")  # or they compile for minutes
    n_threads = max(1, (os.cpu_count() or 1) // about["jobs"])
    os.environ.setdefault("OMP_NUM_THREADS", str(n_threads))
    context = multiprocessing.get_context("spawn")
    waiting: Any = context.Queue()
    workers = [
        context.Process(target=work_from, args=(waiting, part_of(out, number), deadline, about))
        for number in range(min(about["jobs"], len(cells)))
    ]
    for cell in (*cells, *(None for _ in workers)):
        waiting.put(cell)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(None if deadline == math.inf else max(0.0, deadline - time.time()))
    finally:
        for worker in workers:
            worker.terminate()  # no effect on those that are done
            worker.join()
    waiting.cancel_join_thread()


def work_from(waiting: Any, part: Path, deadline: float, about: Line) -> None:
    """What one process does: run cells of the queue up to the first None."""
    work(iter(waiting.get, None), part, deadline, about)


# The records.


def key_of(line: Line) -> tuple:
    return tuple(line[name] for name in ("label", "dataset", "n", "subset", "inner"))


def part_of(out: Path, number: int) -> Path:
    return out.with_name(f"{out.stem}.part{number}{out.suffix}")


def read(path: Path) -> list[Line]:
    """The lines of a file, without a last one that was torn off."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def merge(out: Path) -> list[Line]:
    """Put the lines of all parts into the file, and remove the parts."""
    parts = sorted(out.parent.glob(f"{out.stem}.part*{out.suffix}"))
    found = {key_of(line): line for path in (out, *parts) for line in read(path)}
    lines = sorted(found.values(), key=key_of)
    if parts:
        whole = out.with_name(out.name + ".new")
        whole.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        whole.replace(out)
    for path in parts:
        path.unlink()
    return lines


def read_published() -> dict[tuple[str, int], dict[str, Line]]:
    """Data set and n -> method -> published figures."""
    found: dict[tuple[str, int], dict[str, Line]] = {}
    for line in json.loads(PUBLISHED.read_text(encoding="utf-8"))["results"]:
        found.setdefault((line["dataset"], line["n"]), {})[line["method"]] = line
    return found


def read_flow() -> dict[tuple[str, int], float]:
    """Data set and n -> CRPS of the best published method without pre-training, a spline flow."""
    lines = json.loads(PUBLISHED.read_text(encoding="utf-8"))["without_pretraining"]
    return {(line["dataset"], line["n"]): line["crps"] for line in lines}


def published_cells() -> list[tuple[str, int]]:
    return list(read_published())


# The tables.

SCORES = (
    ("Log-likelihood", "log_likelihood", "Mean log-density at y, in nats; higher is better."),
    (
        "PIT-KS",
        "pit_ks",
        "Kolmogorov-Smirnov distance of the PIT values from uniform; lower is better.",
    ),
    ("Coverage of central 90 % intervals", "coverage_90", "Best at 0.9."),
)
"""Title, name and note of the scores that are not in the units of y."""


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One data set at one n: our records, one per subset, and the published figures."""

    dataset: str
    n: int
    lines: list[Line]
    published: dict[str, Line]

    def ours(self, score: str, part: str = "grid") -> NDArray:
        """A score on every subset."""
        return np.array([line[part][score] for line in self.lines])

    @property
    def seconds(self) -> float:
        """Fit and prediction with compilation, on average."""
        names = ("fit_s", "predict_s", "compile_s")
        return float(np.mean([sum(line[name] for name in names) for line in self.lines]))

    def ratio(self, part: str = "grid") -> float:
        """Our mean CRPS over that of the best foundation model, which is one on the grid."""
        best = min(line["crps"] for line in self.published.values())
        return float(self.ours("crps", part).mean() / best)

    def flow_ratio(self) -> float:
        """CRPS of the spline flow over that of the best foundation model."""
        best = min(line["crps"] for line in self.published.values())
        return read_flow()[self.dataset, self.n] / best

    def is_as_calibrated(self, part: str = "grid") -> bool:
        """Whether our mean PIT-KS is at or below that of TabPFN-2.5, which is one on the grid."""
        return bool(self.ours("pit_ks", part).mean() <= self.published[TABPFN]["pit_ks"])


def compare(lines: Iterable[Line]) -> list[Comparison]:
    """What has records, in the order of the published figures."""
    by_cell: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        by_cell.setdefault((line["dataset"], line["n"]), []).append(line)
    return [
        Comparison(dataset=dataset, n=n, lines=by_cell[dataset, n], published=published)
        for (dataset, n), published in read_published().items()
        if (dataset, n) in by_cell
    ]


def geometric_mean(values: Iterable[float]) -> float:
    """
    Examples
    --------
    >>> round(geometric_mean([0.5, 2.0]), 3)
    1.0
    """
    return float(np.exp(np.mean(np.log(list(values)))))


def with_error(values: NDArray, digits: int) -> str:
    """Mean and, for more than one subset, its standard error."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


def cell_table(
    title: str,
    found: Sequence[Comparison],
    columns: dict[str, Callable[[Comparison], str]],
    notes: Sequence[str] = (),
) -> ReportTable:
    """One row per data set and n."""
    rows = [[c.dataset, f"{c.n:,}", *(text(c) for text in columns.values())] for c in found]
    return ReportTable(
        title=title, header=["data set", "n", *columns], rows=rows, notes=list(notes)
    )


def theirs(method: str, score: str, digits: int) -> Callable[[Comparison], str]:
    return lambda c: f"{c.published[method][score]:.{digits}f}"


def crps_table(found: Sequence[Comparison]) -> ReportTable:
    def digits(c: Comparison) -> int:
        return three_decimals([p["crps"] for p in c.published.values()]) + 1

    def published(method: str) -> Callable[[Comparison], str]:
        return lambda c: f"{c.published[method]['crps']:.{digits(c)}f}"

    columns: dict[str, Callable[[Comparison], str]] = {
        "subsets": lambda c: str(len(c.lines)),
        "ours, on the grid": lambda c: with_error(c.ours("crps"), digits(c)),
        **{method: published(method) for method in (TABPFN, REAL_TABPFN, TABICL)},
        "ours / best": lambda c: f"{c.ratio():.3f}",
        "ours, exact": lambda c: with_error(c.ours("crps", "exact"), digits(c)),
        "exact / best": lambda c: f"{c.ratio('exact'):.3f}",
    }
    return cell_table("CRPS", found, columns, ["In the units of y; lower is better."])


def score_table(title: str, score: str, note: str, found: Sequence[Comparison]) -> ReportTable:
    columns: dict[str, Callable[[Comparison], str]] = {
        "ours, on the grid": lambda c: with_error(c.ours(score), 3),
        **{method: theirs(method, score, 3) for method in (TABPFN, REAL_TABPFN, TABICL)},
        "ours, exact": lambda c: with_error(c.ours(score, "exact"), 3),
    }
    return cell_table(title, found, columns, [note])


def seconds_table(found: Sequence[Comparison]) -> ReportTable:
    columns: dict[str, Callable[[Comparison], str]] = {
        "ours": lambda c: f"{c.seconds:.1f}",
        "of it compilation": lambda c: f"{np.mean([x['compile_s'] for x in c.lines]):.1f}",
        "processes at once": lambda c: ", ".join(sorted({str(x["jobs"]) for x in c.lines})),
        **{m: theirs(m, "seconds", 1) for m in (TABPFN, REAL_TABPFN, TABICL)},
    }
    devices = sorted({line["machine"]["device"] for c in found for line in c.lines})
    notes = [
        f"Fit and prediction of the test rows. Ours on: {', '.join(devices)}; theirs on the GPU of"
        " the source."
    ]
    return cell_table("Seconds", found, columns, notes)


def summary_table(found: Sequence[Comparison]) -> ReportTable:
    """One row per data set, one for the five whose scores the grid does not limit, one for all."""
    names = list(dict.fromkeys(c.dataset for c in found))
    few, found = ([c for c in found if (c.n == FEW) == is_few] for is_few in (True, False))
    groups = {name: [c for c in found if c.dataset == name] for name in names}
    groups["all but naval"] = [c for c in found if c.dataset in WITHOUT_GRID_LIMIT]
    groups["all"] = found
    groups[f"all but naval, n = {FEW}"] = [c for c in few if c.dataset in WITHOUT_GRID_LIMIT]
    rows = [
        [
            name,
            str(len(group)),
            f"{geometric_mean(c.ratio() for c in group):.3f}",
            f"{geometric_mean(c.ratio('exact') for c in group):.3f}",
            f"{sum(c.ratio() <= 1 for c in group)} of {len(group)}",
            f"{sum(c.is_as_calibrated() for c in group)} of {len(group)}",
            f"{sum(c.is_as_calibrated('exact') for c in group)} of {len(group)}",
            f"{geometric_mean(c.flow_ratio() for c in group):.3f}",
        ]
        for name, group in groups.items()
        if group
    ]
    return ReportTable(
        title="Summary",
        header=[
            "data set",
            "cells",
            "CRPS over that of the best foundation model, geometric mean",
            "with our exact CRPS",
            "CRPS at or below it",
            f"PIT-KS at or below that of {TABPFN}",
            "our exact PIT-KS at or below it",
            "CRPS of Flow-Spline over that of the best foundation model",
        ],
        rows=rows,
        notes=[
            "A cell is a data set at one n. Scores are on the grid but for those called exact."
            f" Rows without n are of n = {min(QUICK_SIZES)} and more. Flow-Spline has the lowest"
            " CRPS on average from n = 500 on of all published methods without pre-training."
        ],
    )


def report(lines: Sequence[Line]) -> list[ReportTable]:
    found = compare(lines)
    scores = [score_table(*given, found) for given in SCORES]
    return [summary_table(found), crps_table(found), *scores, seconds_table(found)]


def to_text(table: ReportTable) -> str:
    """The table in columns of equal width."""
    rows = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.header))]
    lines = ["  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([table.title, *lines, *table.notes]) + "\n"


def show(options: argparse.Namespace) -> None:
    """Print the tables of one label, or put them into a page."""
    lines = [line for path in options.records for line in read(Path(path))]
    lines = [line for line in lines if line["inner"] == options.inner]
    labels = list(dict.fromkeys(line["label"] for line in lines))
    label = options.label or (labels[0] if len(labels) == 1 else None)
    if label not in labels:
        raise SystemExit(f"choose one of the labels with --label: {', '.join(labels)}")
    lines = [line for line in lines if line["label"] == label]
    commits = sorted({line["commit"] or "unknown" for line in lines})
    head = f"Ours is `{label}` at commit {', '.join(commits)}.\n"
    tables = report(lines)
    markdown = "\n".join([head, *(table.to_markdown() for table in tables)])
    if options.page:
        page = Path(options.page)
        marked = f"<!-- foundation -->\n\n{markdown}\n<!-- end -->"
        page.write_text(
            MARKED.sub(lambda match: marked, page.read_text(encoding="utf-8")), encoding="utf-8"
        )
    elif options.markdown:
        print(markdown)
    else:
        print("\n".join([head, *map(to_text, tables)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--methods", default="local", help="those of suite.py")
    runner.add_argument(
        "--settings",
        action="append",
        help="instead of --methods, JSON: label, method and what is set; can be repeated",
    )
    runner.add_argument("--datasets", default=",".join(N_COLUMNS))
    runner.add_argument("--sizes", help="numbers of rows; all published ones if left out")
    runner.add_argument(
        "--subsets", type=int, help="4, or 1 with --quick; ten times as many at n = 50"
    )
    runner.add_argument("--quick", action="store_true", help="n = 500 and 1,000")
    runner.add_argument("--inner", action="store_true", help="score held-out training rows")
    runner.add_argument("--jobs", type=int, default=1, help="processes at once")
    runner.add_argument("--seconds", type=float, default=math.inf, help="when to stop")
    runner.add_argument("--commit", default=this_commit(), help="where git does not know")
    runner.add_argument("--out", default="foundation.jsonl")
    runner.set_defaults(call=run)
    shower = commands.add_parser("show")
    shower.add_argument("records", nargs="+")
    shower.add_argument("--label")
    shower.add_argument("--inner", action="store_true")
    shower.add_argument("--markdown", action="store_true")
    shower.add_argument("--page", help="put the tables there instead of printing them")
    shower.set_defaults(call=show)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
