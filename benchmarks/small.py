"""Random subsets of the twelve UCI sets with 30, 100, 300 and 1,000 rows.

    python benchmarks/small.py run local,quick,default [--folds 0,1,2] [--jobs 2] --out small.jsonl
    python benchmarks/small.py report small.jsonl [--tables]

A table is a set at one number of rows, named "boston/100"; a fold is another random subset. At most
300 test rows are drawn from the rest of the set, which must have at least 100. Records, and the
options of both commands, are those of `panel.py`.
"""

from functools import lru_cache

import numpy as np
from panel import Tables, main

from sigmax.data import UCI_SETS, load_uci

N_ROWS, MOST_TEST, LEAST_TEST = (1000, 300, 100, 30), 300, 100
SETS = [name for name in UCI_SETS if name != "year"]
SIZES = {f"{n:,} rows": (n, n + 1) for n in reversed(N_ROWS)} | {"all": (0, 10**9)}
load = lru_cache(maxsize=2)(load_uci)


def names() -> list[str]:
    """Names of the tables: those sets that are large enough for a number of rows."""
    return [
        f"{name}/{n}" for n in N_ROWS for name in SETS if UCI_SETS[name].n_rows >= n + LEAST_TEST
    ]


def read(table: str, subset: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows of a subset."""
    name, n = table.split("/")
    data = load(name)
    rows = np.random.default_rng([subset, int(n)]).permutation(len(data.y))
    train, test = rows[: int(n)], rows[int(n) :][:MOST_TEST]
    return data.X[train], data.y[train], data.X[test], data.y[test]


if __name__ == "__main__":
    main(Tables(names, read, 3, SIZES), __doc__ or "")
