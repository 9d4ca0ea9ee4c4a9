"""The twelve UCI sets on the first five of their standard splits.

    python benchmarks/standard.py run local,quick,default [--folds 0,1] [--jobs 2] --out FILE
    python benchmarks/standard.py report FILE [--tables]

A table is a set, a fold is a standard split. Records and options of both commands are those of
`panel.py`. ``--tables`` prints the mean difference of CRPS over the splits with its standard error.
JAX_PLATFORMS=cuda trains networks on a GPU that all processes share.
"""

import numpy as np
from panel import SIZES, Tables, main
from small import SETS, load

from sigmax.data import UCI_SETS


def names() -> list[str]:
    return sorted(SETS, key=lambda name: -UCI_SETS[name].n_rows)


def read(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows of a standard split."""
    data = load(name)
    train, test = data.splits[split]
    return data.X[train], data.y[train], data.X[test], data.y[test]


if __name__ == "__main__":
    main(Tables(names, read, 5, SIZES), __doc__ or "")
