"""LocalRegressor on test rows whose X is that of a training row, and on new rows, apart.

    python benchmarks/coverage_of_copies.py run --label after --out FILE.jsonl
        [--presets default,fast] [--datasets wine_red,wine_white,superconduct] [--splits 5]
        [--together]
    python benchmarks/coverage_of_copies.py table FILE.jsonl

Needs SIGMAX_DATA. A run appends one line per fit, and the same command goes on where a run was
stopped. With `--together` the splits of a set are fitted in one call, which is faster on an
accelerator. Only what earlier versions have, too, is used: with PYTHONPATH=CHECKOUT/src and
`--label before` the same file measures another checkout, and `table` puts labels side by side.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from sigmax import LocalRegressor
from sigmax.data import load_uci
from sigmax.estimators import fit_together

LEVELS = (0.5, 0.8, 0.9)
PARTS = ("copies", "new", "all")
PRESETS = {"default": None, "fast": "fast"}
KEY = ("label", "dataset", "preset", "split")
COLUMNS = {
    "coverage_50": ("50 %", 100, 1),
    "coverage_80": ("80 %", 100, 1),
    "coverage_90": ("90 %", 100, 1),
    "log_likelihood": ("log-likelihood", 1, 3),
    "crps": ("CRPS", 1, 4),
}
"""Score -> its title, the factor to the table's units and the digits after the point."""


def is_known(X: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Whether the X of each test row is that of a training row."""
    X = X + 0.0  # or -0.0 would differ from 0.0 in its bytes
    known = {row.tobytes() for row in X[train]}
    return np.array([row.tobytes() in known for row in X[test]], dtype=bool)


def judge(y: np.ndarray, dist: Any, rows: np.ndarray) -> dict[str, float]:
    """Coverage and scores of some rows; without rows, only that there are none."""
    if not rows.any():
        return {"n": 0}
    y, dist = y[rows], dist[rows]
    centrality = np.abs(2 * dist.cdf(y) - 1)  # the level of the smallest interval that holds y
    scores = {
        f"coverage_{100 * level:.0f}": float(np.mean(centrality <= level)) for level in LEVELS
    }
    means = {"log_likelihood": dist.log_prob(y).mean(), "crps": dist.crps(y).mean()}
    return {"n": len(y)} | scores | {name: float(value) for name, value in means.items()}


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(label: str, datasets: list[str], presets: list[str], n_splits: int, out: Path, *, together):
    """Fit what has no line yet, and append a line for each fit."""
    there = {tuple(line[name] for name in KEY) for line in read_lines(out)}
    for dataset in datasets:
        data = load_uci(dataset)
        for preset in presets:
            splits = range(min(n_splits, len(data.splits)))
            left = [i for i in splits if (label, dataset, preset, i) not in there]
            for group in [left] if together and left else [[split] for split in left]:
                models = [LocalRegressor(preset=PRESETS[preset], random_state=i) for i in group]
                rows = [data.splits[i][0] for i in group]
                fit_together(models, [(data.X[train], data.y[train]) for train in rows])
                for split, model in zip(group, models, strict=True):
                    train, test = data.splits[split]
                    known = is_known(data.X, train, test)
                    y, dist = data.y[test], model.predict_dist(data.X[test])
                    parts = dict(zip(PARTS, (known, ~known, known | True), strict=True))
                    scores = {part: judge(y, dist, of_part) for part, of_part in parts.items()}
                    line = dict(zip(KEY, (label, dataset, preset, split), strict=True)) | scores
                    with out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    covered = {
                        part: f"{s.get('coverage_90', np.nan):.3f}" for part, s in scores.items()
                    }
                    print(
                        label, dataset, preset, split, "90 % intervals cover", covered, flush=True
                    )


def make_table(lines: list[dict[str, Any]]) -> str:
    """Means over the splits that all labels have, the labels side by side, "before" first."""
    labels = sorted({line["label"] for line in lines}, key=lambda label: (label != "before", label))
    found: dict[tuple[str, str], dict[str, dict[int, Any]]] = {}
    for line in lines:
        of_kind = found.setdefault((line["dataset"], line["preset"]), {})
        of_kind.setdefault(line["label"], {})[line["split"]] = line
    heads = [f"{title}: {' → '.join(labels)}" for title, _, _ in COLUMNS.values()]
    rows = [["data set, preset", "rows", "splits", "n", *heads], ["---", "---", *["---:"] * 7]]
    for (dataset, preset), by_label in found.items():
        common = set.intersection(*(set(by_label.get(label, {})) for label in labels))
        for part in PARTS:
            splits = [i for i in sorted(common) if by_label[labels[0]][i][part]["n"]]
            if not splits:
                continue
            of_part = [[by_label[label][i][part] for i in splits] for label in labels]
            cells = [
                " → ".join(
                    f"{factor * np.mean([scores[name] for scores in of_label]):.{digits}f}"
                    for of_label in of_part
                )
                for name, (_, factor, digits) in COLUMNS.items()
            ]
            n = sum(scores["n"] for scores in of_part[0])
            rows.append([f"{dataset}, {preset}", part, str(len(splits)), str(n), *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="fit, and append a line per fit")
    running.add_argument("--label", required=True, help="of the code, as before or after")
    running.add_argument("--datasets", default="wine_red,wine_white,superconduct")
    running.add_argument("--presets", default="default,fast")
    running.add_argument("--splits", type=int, default=5)
    running.add_argument("--together", action="store_true", help="fit a set's splits in one call")
    running.add_argument("--out", type=Path, required=True)
    commands.add_parser("table", help="print a Markdown table").add_argument("file", type=Path)
    given = parser.parse_args()
    if given.command == "table":
        print(make_table(read_lines(given.file)))
        return
    presets = given.presets.split(",")
    if unknown := sorted(set(presets) - set(PRESETS)):
        parser.error(f"no preset {', '.join(unknown)}: choose from {', '.join(PRESETS)}")
    datasets = given.datasets.split(",")
    run(given.label, datasets, presets, given.splits, given.out, together=given.together)


if __name__ == "__main__":
    main()
