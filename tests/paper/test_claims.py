"""The numbers of comparisons.md, counted a second time from the lines of the committed records."""

import gzip
import json
import re
from collections import defaultdict

import numpy as np
import pytest
from paper_cases import ROOT, make_record

from sigmax.paper.claims import claims
from sigmax.runs.records import Task, infeasible

RIVALS = ("gp", "sgp", "ens-nn", "combined")


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    found = []
    for page, methods in (("local", ("local",)), ("reproduction", RIVALS)):
        with gzip.open(ROOT / "docs" / page / "records.jsonl.gz", "rt", encoding="utf-8") as file:
            all_lines = [json.loads(line) for line in file]
        kept = [line for line in all_lines if line["task"]["method"] in methods]
        found += [line for line in kept if line["task"]["experiment"] == "uci"]
    return found


@pytest.fixture(scope="module")
def page() -> str:
    text = (ROOT / "docs" / "comparisons.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- claims -->(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None
    return " ".join(found[1].split())


def values(lines: list[dict], score: str) -> dict[str, defaultdict[str, list[float]]]:
    found = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["status"] == "done":
            task = line["task"]
            found[task["dataset"]][task["method"]].append(line["scores"][score])
    return found


def sets_won(lines: list[dict], score: str, sign: int) -> int:
    means = [
        {method: sign * np.mean(found) for method, found in row.items()}
        for row in values(lines, score).values()
    ]
    return sum(max(row, key=lambda method: row[method]) == "local" for row in means)


def test_counts_of_sets_are_those_of_the_records(lines, page):
    scores = values(lines, "log_likelihood")
    n = sets_won(lines, "log_likelihood", 1), sets_won(lines, "crps", -1)
    assert f"standard splits of {len(scores)} UCI sets" in page
    assert f"best mean log-likelihood on {n[0]} sets and the best mean CRPS on {n[1]}," in page


def test_rivals_with_fewer_splits_and_refusals_are_named(lines, page):
    scores = values(lines, "log_likelihood")
    for method, title in (("gp", "GP"), ("sgp", "SGP"), ("ens-nn", "Ens-NN")):
        fewer = [row for row in scores.values() if 0 < len(row[method]) < len(row["local"])]
        assert (f"{title} (on {len(fewer)} sets)" in page) == bool(fewer)
    refused = {line["task"]["dataset"] for line in lines if line["status"] == "infeasible"}
    assert f"5,000 training rows and was refused on {len(refused)} sets" in page


def test_shares_of_copies_are_those_of_the_records(lines, page):
    for dataset in ("wine_red", "wine_white", "superconduct"):
        shares = {
            line["task"]["split"]: line["data"]["copies_of_X"]
            for line in lines
            if line["task"]["dataset"] == dataset and "copies_of_X" in line["data"]
        }
        assert f"{dataset} {100 * np.mean(list(shares.values())):.1f} %" in page


def make(method, split, score, *, dataset="wine_red", experiment="uci", **more):
    facts = {"copies": 0.25, "copies_of_X": 0.5} if dataset == "wine_red" else {"copies": 0.0}
    scores = {"log_likelihood": score, "crps": -score, **more}
    return make_record(dataset, method, split, scores, experiment=experiment, data=facts)


def test_the_gain_on_new_rows_is_told_apart_from_that_on_all_rows():
    def both(method, split, score, new):
        more = {"new_log_likelihood": new, "copies_log_likelihood": 2 * score - new}
        return make(method, split, score, **more)

    records = [both("local", split, 1.0, -1.0) for split in range(2)]
    records += [both("ens-nn", split, 0.25, -0.5) for split in range(2)]
    records += [both("gp", 0, 0.5, -2.0), make("local", 0, 1.0, dataset="yacht")]
    records.append(make("gp", 0, 3.0, dataset="yacht"))
    refused = Task(experiment="uci", dataset="wine_red", method="gp", split=1, seed=1)
    records.append(infeasible(refused, "too many rows"))
    peers = [make("local", 0, 1.0, experiment="peers")]
    for score, booster in enumerate(("ngboost", "xgboost-distribution", "catboost")):
        peers.append(make(booster, 0, score / 4, experiment="peers"))
    text = claims(records, peers)
    assert "best mean log-likelihood on 1 sets and the best mean CRPS on 1," in text
    assert "Another method has the best mean on yacht (GP) in log-likelihood" in text
    assert "Only 1 of the 2 splits were run of GP (on 1 sets)" in text
    assert "the X of a training row (wine_red 50.0 %)" in text
    assert "alone its mean log-likelihood is above those of GP and Ens-NN on 0 of 1" in text
    assert "on all rows and on new rows: wine_red +0.50 and -0.50." in text
    assert "on 1 of 1 sets" in text
    records.append(make("sgp", 0, 0.0))  # a record that does not tell them apart
    assert "(SGP and Combined have no records that tell them apart)" in claims(records, peers)
    records.append(make("ens-nn", 2, 0.0))
    assert "is above that of GP on 1 of 1" in claims(records, peers)
