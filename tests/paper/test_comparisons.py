"""Figures of docs/comparisons.md, computed from the lines of the committed records."""

import gzip
import json
import re
from collections import defaultdict

import numpy as np
import pytest
from paper_cases import ROOT

OTHERS = ("gp", "sgp", "ens-nn", "combined")
BOOSTERS = ("ngboost", "xgboost-distribution", "catboost")

Scores = defaultdict[str, defaultdict[str, dict[int, float]]]
"""Data set -> method -> split -> score."""


def read_lines(*methods_of_pages: tuple[str, tuple[str, ...]]) -> list[dict]:
    found = []
    for page, methods in methods_of_pages:
        with gzip.open(ROOT / "docs" / page / "records.jsonl.gz", "rt", encoding="utf-8") as file:
            tasks = [json.loads(line) for line in file]
        kept = [line for line in tasks if line["task"]["method"] in methods]
        found += [line for line in kept if line["task"]["experiment"] == "uci"]
    return found


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    return read_lines(("local", ("local",)), ("reproduction", OTHERS))


@pytest.fixture(scope="module")
def page() -> str:
    text = (ROOT / "docs" / "comparisons.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- claims -->(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None
    return " ".join(found[1].split())


def values(lines: list[dict], score: str) -> Scores:
    found: Scores = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        if line["status"] == "done" and score in line["scores"]:
            task = line["task"]
            found[task["dataset"]][task["method"]][task["split"]] = line["scores"][score]
    return found


def sets_won(lines: list[dict], score: str, sign: int) -> int:
    means = [
        {method: sign * np.mean(list(found.values())) for method, found in row.items()}
        for row in values(lines, score).values()
    ]
    return sum(max(row, key=lambda method: row[method]) == "local" for row in means)


def mean_gain(ours: dict[int, float], theirs: dict[int, float]) -> float:
    return float(np.mean([ours[split] - theirs[split] for split in ours.keys() & theirs.keys()]))


def test_counts_of_sets_are_those_of_the_records(lines, page):
    scores = values(lines, "log_likelihood")
    n = sets_won(lines, "log_likelihood", 1), sets_won(lines, "crps", -1)
    assert f"standard splits of {len(scores)} UCI sets" in page
    assert f"best mean log-likelihood on {n[0]} sets and the best mean CRPS on {n[1]}," in page
    for dataset, title in (("boston", "SGP"), ("carbon", "Combined"), ("yacht", "Ens-NN")):
        row = values(lines, "crps")[dataset]
        best = min(row, key=lambda method: np.mean(list(row[method].values())))
        assert f"{dataset} ({title})" in page and best == title.lower()


def test_methods_with_fewer_splits_and_infeasible_sets_are_named(lines, page):
    scores = values(lines, "log_likelihood")
    for method, title in (("gp", "GP"), ("sgp", "SGP"), ("ens-nn", "Ens-NN")):
        fewer = [row for row in scores.values() if 0 < len(row[method]) < len(row["local"])]
        assert (f"{title} (on {len(fewer)} sets)" in page) == bool(fewer)
    refused = {line["task"]["dataset"] for line in lines if line["status"] == "infeasible"}
    assert f"5,000 training rows and was not run on {len(refused)} sets" in page


def test_shares_of_duplicates_are_those_of_the_records(lines, page):
    for dataset in ("wine_red", "wine_white", "superconduct"):
        shares = {
            line["task"]["split"]: line["data"]["copies_of_X"]
            for line in lines
            if line["task"]["dataset"] == dataset and "copies_of_X" in line["data"]
        }
        assert f"{dataset} {100 * np.mean(list(shares.values())):.1f} %" in page


def test_gains_on_all_rows_and_on_new_rows_are_those_of_the_records(lines, page):
    on_all, on_new = values(lines, "log_likelihood"), values(lines, "new_log_likelihood")
    gains = {}
    for dataset, row in on_new.items():
        gains[dataset] = [
            min(mean_gain(scores["local"], scores[other]) for other in ("ens-nn", "combined"))
            for scores in (on_all[dataset], row)
        ]
    wins = sum(new > 0 for _, new in gains.values())
    assert f"above those of Ens-NN and Combined on {wins} of {len(gains)}" in page
    for dataset in ("superconduct", "wine_red", "wine_white"):
        everything, new = gains[dataset]
        assert f"{dataset} {everything:+.2f} and {new:+.2f}" in page


def test_gains_over_boosters_are_those_of_the_records(lines, page):
    with open(ROOT / "docs" / "peers" / "records.jsonl", encoding="utf-8") as file:
        peers = values([json.loads(line) for line in file], "log_likelihood")
    ours = values(lines, "log_likelihood")
    compared = [name for name in peers if name in ours and all(peers[name][b] for b in BOOSTERS)]
    wins = sum(
        all(mean_gain(ours[name]["local"], peers[name][booster]) > 0 for booster in BOOSTERS)
        for name in compared
    )
    assert f"on common splits, on {wins} of {len(compared)} sets" in page
    sizes = {len(peers[name][booster]) for name in compared for booster in BOOSTERS}
    assert f"of which {min(sizes)} to {max(sizes)} splits each were run" in page
