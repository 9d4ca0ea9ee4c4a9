"""Fingerprints of the rows that a model was trained on, by which it knows them again."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.util import hash_pandas_object

from sigmax.commands.encoding import own_categories
from sigmax.report.page import Caution
from sigmax.report.texts import share_text
from sigmax.tables import Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame

__all__ = ["TRAINING_ROWS", "fingerprint", "hash_rows", "learned_caution"]

TRAINING_ROWS = "training rows"
MOST_HASHES = 50_000
"""Rows whose hashes a model folder holds; of more rows a random sample."""
MANY_LEARNED = 0.02
"""Share of rows that were trained on, beyond that of duplicates, from which scores mislead."""


def hash_rows(X: pd.DataFrame, y: NDArray[np.float64], schema: Schema) -> NDArray[np.uint64]:
    """A number for every row and its target, the same whatever types a file gave its columns."""
    table = Table.from_columns(columns_of_frame(as_frame(X)), schema)
    cells = own_categories(table)
    numbers = cells.select_dtypes("number").columns
    cells[numbers] = cells[numbers].astype(np.float32) + np.float32(0)  # -0 is 0
    hashed: Any = hash_pandas_object
    target = pd.Series(y.astype(np.float32) + np.float32(0))
    return hashed(pd.concat([cells, target], axis=1), index=False).to_numpy()


def fingerprint(hashes: NDArray[np.uint64], n_rows: int) -> dict[str, Any]:
    """Hashes of a random sample of ``n_rows`` training rows, as JSON takes them."""
    values, counts = np.unique(hashes, return_counts=True)
    repeated = float(np.sum(counts[counts > 1]) / len(hashes))
    kept = np.random.default_rng(0).permutation(values)[:MOST_HASHES] >> np.uint64(32)
    share = len(hashes) / n_rows * len(kept) / len(values)
    text = base64.b64encode(np.sort(kept).astype("<u4").tobytes()).decode()
    return {"hashes": text, "share": share, "repeated": repeated}


def learned_caution(hashes: NDArray[np.uint64], known: Mapping[str, Any] | None) -> list[Caution]:
    """A warning if labelled rows are rows that a model was trained on.

    New rows may equal training rows by chance as often as these equal each other.
    """
    if known is None:
        return []
    stored = np.frombuffer(base64.b64decode(known["hashes"]), "<u4")
    found = np.isin((hashes >> np.uint64(32)).astype("<u4"), stored)
    share = min(1.0, float(found.mean()) / known["share"])
    by_chance = known["repeated"]
    noise = 2 * np.sqrt(by_chance * (1 - by_chance) / len(hashes))
    if share < 0.99 and share - by_chance < max(MANY_LEARNED, noise):
        return []
    text = (
        f"The model was trained on {share_text(share)} of these rows, so their scores are too"
        " good. Evaluate it on rows that it has not seen."
    )
    return [Caution(TRAINING_ROWS, text, is_grave=True)]
