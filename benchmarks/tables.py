"""Records of real tables of mixed type: our estimators, behind skrub's encoding, and CatBoost.

    python benchmarks/tables.py docs/tables/records.jsonl

They are of an earlier version of this script and of `LocalRegressor("fast")`; `suite.py run tables`
has the same tables and splits for all methods of today, its CatBoost without a search of settings.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("sigmax", "skrub", "catboost")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def show(paths: list[str]) -> None:
    """A Markdown table: CRPS of ours, ratios on common splits, coverage of 90 % intervals."""
    scores: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for line in (line for path in paths for line in read(Path(path))):
        scores.setdefault((line["table"], line["method"]), {})[line["split"]] = line["scores"]
    own, *others = (name for name in METHODS if any(method == name for _, method in scores))
    titles = [f"CRPS of {own}", *(f"over {other} (splits)" for other in others)]
    titles += [f"coverage of {name}" for name in (own, *others)]
    titles += ["of conformal intervals"] if own == "sigmax" else []
    print(f"| table | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    ratios: dict[str, list[float]] = {other: [] for other in others}
    for table in dict.fromkeys(table for table, _ in scores):
        of_table = {name: scores.get((table, name), {}) for name in (own, *others)}
        if not all(of_table.values()):
            continue
        cells = [f"{mean_score(of_table[own], 'crps'):,.4g}"]
        for other in others:
            common = sorted(of_table[own].keys() & of_table[other].keys())
            one, two = (
                np.array([of_table[name][split]["crps"] for split in common])
                for name in (own, other)
            )
            ratios[other].append(float(np.exp(np.mean(np.log(one / two)))))
            cells.append(f"{ratios[other][-1]:.3f} ({len(common)})")
        for name in (own, *others):
            cells.append(f"{100 * mean_score(of_table[name], 'coverage'):.1f} %")
        if own == "sigmax":
            cells.append(f"{100 * mean_score(of_table[own], 'conformal_coverage'):.1f} %")
        print(f"| {table} | {' | '.join(cells)} |")
    for other, found in ratios.items():
        print(f"\nCRPS over that of {other}, geometric mean: {np.exp(np.mean(np.log(found))):.3f}")


def mean_score(of_splits: dict[int, dict[str, float]], score: str) -> float:
    return float(np.mean([found[score] for found in of_splits.values()]))


if __name__ == "__main__":
    show(sys.argv[1:])
