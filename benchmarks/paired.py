"""What a change of the code did to scores, on the same splits of the same data.

    python benchmarks/paired.py before.jsonl after.jsonl [--method local]

Both are records of `sigmax reproduce uci`, packed or not. Differences are those of single splits,
with the standard error of their mean.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from sigmax.runs.records import read_records

SCORES = ("log_likelihood", "crps", "rmse", "coverage", "coverage_50")
"""Shown, with "new_" before those of rows whose X is no training row's, where a set has copies."""


def scores_of(path: Path, method: str) -> dict[tuple[str, int], dict[str, float]]:
    """The scores of every split, by data set and number."""
    done = [record for record in read_records(path) if record.task.method == method]
    return {(r.task.dataset, r.task.seed): dict(r.scores) for r in done if r.scores}


def main() -> None:
    parser = argparse.ArgumentParser(description="Paired differences of scores.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--method", default="local")
    options = parser.parse_args()
    before, after = (scores_of(path, options.method) for path in (options.before, options.after))
    pairs = defaultdict(list)
    for key in sorted(before.keys() & after.keys()):
        pairs[key[0]].append((before[key], after[key]))
    print("| data set | splits | score | before | after | difference |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for dataset, splits in pairs.items():
        for score in SCORES:
            name = f"new_{score}" if f"new_{score}" in splits[0][1] else score
            old, new = (np.array([one[side][name] for one in splits]) for side in (0, 1))
            change = new - old
            error = np.std(change, ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.nan
            means = f"{old.mean():.4g} | {new.mean():.4g}"
            difference = f"{change.mean():+.2g} ± {error:.1g}"
            print(f"| {dataset} | {len(splits)} | {name} | {means} | {difference} |")


if __name__ == "__main__":
    main()
