"""What docs/comparisons.md says of `LocalRegressor`, counted from the records each time."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sigmax.paper.benchmark import (
    CRPS,
    LOG_LIKELIHOOD,
    Benchmark,
    Cell,
    Score,
    arrange,
)
from sigmax.paper.score_rows import split_counts, titles
from sigmax.paper.score_warnings import data_mean
from sigmax.paper.uci_copies import sets_with_copies
from sigmax.runs.methods import METHODS
from sigmax.runs.records import Record

__all__ = ["BOOSTERS", "OURS", "RIVALS", "claims"]

OURS = "local"
RIVALS = ("gp", "sgp", "ens-nn", "combined")
BOOSTERS = {
    "ngboost": "NGBoost",
    "xgboost-distribution": "XGBoost-distribution",
    "catboost": "CatBoost",
}
MANY = 0.1
"""The share of copies from which on the text says how far ahead we are without them."""


def claims(records: Sequence[Record], peers: Sequence[Record]) -> str:
    """The paragraph, from the records of the UCI benchmark and those of the peers' benchmark."""
    compared = [r for r in records if r.task.method in (OURS, *RIVALS) and not r.task.settings]
    (benchmark,) = arrange(compared)
    (beside,) = arrange([record for record in peers if not record.task.settings])
    sentences = [
        counts_sentence(benchmark),
        others_sentence(benchmark),
        splits_sentence(benchmark),
        copies_sentence(benchmark),
        margins_sentence(benchmark),
        boosters_sentence(benchmark, beside),
    ]
    return " ".join(filter(None, sentences))


def listed(words: Sequence[str]) -> str:
    """Words as a sentence has them.

    Examples
    --------
    >>> listed(["GP"]), listed(["GP", "SGP", "NN"])
    ('GP', 'GP, SGP and NN')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counts_sentence(benchmark: Benchmark) -> str:
    """On how many data sets our mean is the best."""
    wins = [
        sum(best == OURS for best in bests(benchmark, s).values()) for s in (LOG_LIKELIHOOD, CRPS)
    ]
    rivals = listed(titles([method for method in benchmark.methods if method != OURS]))
    return (
        f"On the standard splits of {len(benchmark.cells)} UCI sets, with one setting for all,"
        f" `LocalRegressor` has the best mean log-likelihood on {wins[0]} sets and the best mean"
        f" CRPS on {wins[1]}, beside {rivals} ([local.md](local.md))."
    )


def bests(benchmark: Benchmark, score: Score) -> dict[str, str | None]:
    return {dataset: benchmark.best(dataset, score) for dataset in benchmark.cells}


def others_sentence(benchmark: Benchmark) -> str:
    """Which method is best where ours is not."""
    parts = []
    for words, score in (("log-likelihood", LOG_LIKELIHOOD), ("CRPS", CRPS)):
        others = [
            f"{dataset} ({METHODS[best].title if best else 'a tie'})"
            for dataset, best in bests(benchmark, score).items()
            if best != OURS
        ]
        if others:
            parts.append(f"on {listed(others)} in {words}")
    return f"Another method has the best mean {', and '.join(parts)}." if parts else ""


def splits_sentence(benchmark: Benchmark) -> str:
    """Which rivals had fewer splits than ours, and which were refused."""
    fewer: dict[tuple[int, int], Counter[str]] = {}
    for row in split_counts(benchmark, LOG_LIKELIHOOD).values():
        for method in RIVALS:
            if 0 < row.get(method, 0) < row.get(OURS, 0):
                fewer.setdefault((row[method], row[OURS]), Counter())[method] += 1
    parts = [
        f"{n} of the {most} splits were run of "
        + listed([f"{METHODS[method].title} (on {sets} sets)" for method, sets in counts.items()])
        for (n, most), counts in fewer.items()
    ]
    for method in RIVALS:
        n_refused = sum(bool(benchmark.cell(name, method).infeasible) for name in benchmark.cells)
        if n_refused:
            parts.append(
                f"{METHODS[method].title} takes no more than {METHODS[method].largest:,} training"
                f" rows and was refused on {n_refused} sets"
            )
    return f"Only {'; '.join(parts)}." if fewer else "".join(f"{part}." for part in parts)


def copies_sentence(benchmark: Benchmark) -> str:
    """How many test rows are copies: by their X or, in older records, by X and y."""
    of_X = {name: data_mean(benchmark, name, "copies_of_X") for name in benchmark.cells}
    whole = {name: data_mean(benchmark, name, "copies") for name in benchmark.cells}
    older = any(whole[name] > 0 and np.isnan(of_X[name]) for name in benchmark.cells)
    words, shares = ("X and y", whole) if older else ("X", of_X)
    named = [f"{name} {100 * share:.1f} %" for name, share in shares.items() if share > 0]
    if not named:
        return ""
    return (
        f"Some test rows have the {words} of a training row ({', '.join(named)}), and methods that"
        " remember score higher on them ([new rows and copies"
        " apart](local.md#new-rows-and-copies))."
    )


def margins_sentence(benchmark: Benchmark) -> str:
    """How far ahead ours is on all rows, and on new rows alone, where copies are many.

    Compared with the rivals all of whose records of these sets tell new rows and copies apart.
    """
    new = LOG_LIKELIHOOD.on("new")
    on_all, on_new = (split_counts(benchmark, score) for score in (LOG_LIKELIHOOD, new))
    known = sets_with_copies(benchmark, LOG_LIKELIHOOD)

    def tells_apart(method: str) -> bool:
        found = [(on_all[name].get(method, 0), on_new[name].get(method, 0)) for name in known]
        return bool(found) and all(n_all == n_new > 0 for n_all, n_new in found)

    rivals = [rival for rival in RIVALS if tells_apart(rival)]
    if not (rivals and tells_apart(OURS)):
        return ""
    wins = sum(margin(benchmark, name, new, rivals) > 0 for name in known)
    margins = [
        f"{name} {margin(benchmark, name, LOG_LIKELIHOOD, rivals):+.2f} and"
        f" {margin(benchmark, name, new, rivals):+.2f}"
        for name in known
        if data_mean(benchmark, name, "copies_of_X") >= MANY
    ]
    others = [rival for rival in RIVALS if rival not in rivals]
    text = (
        "On the new rows of these sets alone its mean log-likelihood is above"
        f" {'that' if len(rivals) == 1 else 'those'} of {listed(titles(rivals))} on {wins} of"
        f" {len(known)}"
    )
    if others:
        text += f" ({listed(titles(others))} have no records that tell them apart)"
    if margins:
        text += f"; nats above the better, on all rows and on new rows: {'; '.join(margins)}"
    return text + "."


def margin(benchmark: Benchmark, dataset: str, score: Score, rivals: Sequence[str]) -> float:
    """The least mean gain over a rival, on the splits that both have."""
    gains = [benchmark.gains(dataset, OURS, rival, score) for rival in rivals]
    return min((float(values.mean()) for values in gains if len(values)), default=np.nan)


def boosters_sentence(benchmark: Benchmark, peers: Benchmark) -> str:
    """On how many data sets our mean is above that of every booster, on common splits."""
    wins, n_sets, sizes = 0, 0, set()
    for name, row in peers.cells.items():
        ours = by_split(benchmark.cell(name, OURS)) if name in benchmark.cells else {}
        found = []
        for booster in BOOSTERS:
            theirs = by_split(row.get(booster, Cell()))
            common = sorted(set(ours) & set(theirs))
            found.append([ours[split] - theirs[split] for split in common])
        if all(found):
            n_sets, wins = n_sets + 1, wins + all(np.mean(gains) > 0 for gains in found)
            sizes |= {len(gains) for gains in found}
    counts = sorted(sizes)
    n_splits = f"{counts[0]} to {counts[-1]} splits" if len(counts) > 1 else f"{counts[0]} splits"
    return (
        f"Its mean log-likelihood is above those of {listed(list(BOOSTERS.values()))}, on common"
        f" splits, on {wins} of {n_sets} sets, of which {n_splits} each were run"
        " ([benchmarks.md](benchmarks.md))."
    )


def by_split(cell: Cell) -> dict[int, float]:
    """The log-likelihood by split, whatever the seed."""
    return {split: value for (split, _), value in cell.by_split(LOG_LIKELIHOOD).items()}
