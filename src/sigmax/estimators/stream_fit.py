"""A fit to rows that need not fit into memory.

The rows are dealt at random into shards of one size. A model is prepared for one of them, which is
also what it keeps, holds out rows of and is recalibrated by: its units, its features and its gate
come from there. The networks learn from one shard after the other, so that they see all rows; each
shard is a random sample of all, and neighbourhoods in it are as dense as in the rows that are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import _check_sample_weight, _check_y

from sigmax.errors import InvalidDataError
from sigmax.estimators.atomic_fit import atomic_fit
from sigmax.estimators.joint_fit import (
    ReadRows,
    neighborhoods,
    prepare_read,
    train_prepared,
)
from sigmax.estimators.shards import (
    ROWS_PER_SHARD,
    ShardRows,
    Shards,
    ShardSupply,
    count_shards,
    draw_shards,
    row_numbers,
)
from sigmax.random import draw_seed, make_key, named_generator
from sigmax.tables import Table
from sigmax.training import Fold, TrainingData

__all__ = ["AbstractRowStream", "ArrayStream", "Block", "fit_stream"]

ROWS_PER_BLOCK = 2**16


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of a stream: what `fit` takes."""

    X: Any
    y: np.ndarray
    weight: np.ndarray

    @property
    def parts(self) -> tuple[Any, np.ndarray, np.ndarray]:
        return self.X, self.y, self.weight

    def __getitem__(self, rows: Any) -> "Block":
        return Block(_safe_indexing(self.X, rows), self.y[rows], self.weight[rows])


class AbstractRowStream(ABC):
    """Rows in blocks, the same ones whenever they are asked for."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """How many rows of some weight there are, at most: blocks may leave some out."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, from the first to the last."""


@final
@dataclass(frozen=True, eq=False)
class ArrayStream(AbstractRowStream):
    """Rows of an array, which may be memory-mapped, or of a frame."""

    X: Any
    y: Any
    sample_weight: Any = None

    @property
    def n_rows(self) -> int:
        if self.sample_weight is None:
            return len(self.X)
        return int(np.count_nonzero(self.sample_weight))

    def blocks(self) -> Iterator[Block]:
        check_consistent_length(self.X, self.y, self.sample_weight)
        for start in range(0, len(self.X), ROWS_PER_BLOCK):
            here = slice(start, start + ROWS_PER_BLOCK)
            y = _check_y(_safe_indexing(self.y, here), multi_output=True, y_numeric=True)
            weight = self.sample_weight
            weight = None if weight is None else np.asarray(weight[here], dtype=np.float64)
            weight = _check_sample_weight(weight, y, dtype=np.float64, ensure_non_negative=True)
            yield Block(_safe_indexing(self.X, here), np.asarray(y, np.float64), weight)


def fit_stream(
    model: Any, stream: AbstractRowStream, *, rows_per_shard: int | None = None, folder=None
) -> None:
    """Fit a model to all rows of a stream.

    Memory is bounded by a block, a shard and its neighbourhoods, whatever the number of rows.
    Between, rows are in files of ``folder``, by default that for temporary files: four bytes for
    every number.
    """
    with atomic_fit([model]) as copies:
        train_stream(copies[0], stream, rows_per_shard or ROWS_PER_SHARD, folder)


def train_stream(
    model: Any, stream: AbstractRowStream, rows_per_shard: int, folder: Path | None
) -> None:
    """Fit an unfitted model, which changes on the way."""
    key, n_shards = make_key(model.random_state), count_shards(stream.n_rows, rows_per_shard)
    deal = Dealer(stream, draw_seed(named_generator(key, "shards")), n_shards)
    first, numbers = deal.first_shard()
    recipe = model._recipe(stream.n_rows).for_shards(n_shards)
    read = ReadRows.create(model, *first.parts, key)._replace(recipe=recipe)
    (inputs,) = prepare_read([model], [first.parts], [read])
    inputs = replace(inputs, indices=numbers[inputs.indices])
    like = ShardRows(inputs.X, inputs.y.astype(np.float32), inputs.weight.astype(np.float32))
    is_held_out = np.isin(np.arange(len(inputs.y)), np.concatenate(inputs.held_out))
    held_out = row_numbers(model.features_(read.rows.table[np.flatnonzero(is_held_out)]))
    n_others = max(1, n_shards - 1)
    with Shards.create(like, n_others, rows_per_shard, folder) as shards:
        for block, shard in deal.others():
            rows, is_known = encode(model, block)
            where = np.flatnonzero(is_known & ~np.isin(row_numbers(rows.X), held_out))
            shards.append(rows[where], shard[where] - 1)
        model.n_learned_ = len(inputs.y) + int(shards.counts.sum())
        graphs = partial(neighborhoods, recipe=recipe)
        supplies: list[ShardSupply] = []

        def create_supply(folds: Fold, data: TrainingData) -> ShardSupply:
            supplies.append(ShardSupply(shards, (folds, data), graphs, recipe.n_scorings))
            return supplies[-1]

        try:
            train_prepared([model], [inputs], create_supply)
        finally:
            for supply in supplies:
                supply.close()


@final
@dataclass(frozen=True)
class Dealer:
    """A stream whose rows are dealt at random into shards."""

    stream: AbstractRowStream
    seed: int
    n_shards: int

    def blocks(self) -> Iterator[tuple[Block, np.ndarray]]:
        """Blocks with the shard of every row, without rows of no weight."""
        for number, block in enumerate(self.stream.blocks()):
            shard = draw_shards(self.seed, number, len(block.y), self.n_shards)
            yield block, np.where(block.weight > 0, shard, -1)

    def first_shard(self) -> tuple[Block, np.ndarray]:
        """The rows of the first shard, and which rows of the stream they are."""
        parts, numbers, n_before = [], [], 0
        for block, shard in self.blocks():
            own = np.flatnonzero(shard == 0)
            parts.append(block[own])
            numbers.append(n_before + own)
            n_before += len(shard)
        if not parts:
            raise InvalidDataError("There are no rows.")
        X = [part.X for part in parts]
        joined = pd.concat(X, ignore_index=True) if isinstance(X[0], pd.DataFrame) else join(X)
        y, weight = (np.concatenate([getattr(p, name) for p in parts]) for name in ("y", "weight"))
        return Block(joined, y, weight), np.concatenate(numbers)

    def others(self) -> Iterator[tuple[Block, np.ndarray]]:
        """The rows of all other shards, with their shards."""
        for block, shard in self.blocks():
            own = np.flatnonzero(shard > 0)
            if len(own):
                yield block[own], shard[own]


def join(parts: list[Any]) -> Any:
    """Arrays, or frames of a library that narwhals knows, one after the other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import narwhals as nw

    return nw.concat([nw.from_native(part) for part in parts]).to_native()


def encode(model: Any, block: Block) -> tuple[ShardRows, np.ndarray]:
    """Rows in the units of a prepared model, and which of them it can learn from.

    Gaps in columns that had none are not learned from.
    """
    table = Table.read(model, block.X, model.features_.schema)
    is_known = ~model.features_.unknown_reals(table).any(axis=1)
    X = model.features_(table)
    y = model.units_(block.y.reshape(len(block.y), -1)).astype(np.float32)
    return ShardRows(X, y, block.weight.astype(np.float32)), is_known
