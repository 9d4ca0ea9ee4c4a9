"""Fits to rows that need not fit into memory.

The rows are dealt at random into shards of one size. A model is prepared for one of them, which is
also what it stores, holds rows out of and is calibrated on: its target transform, its features and
its gate come from there. The networks learn from one shard after the other, so that they see all
rows; each shard is a random sample of all, and neighbourhoods in it are as dense as in the stored
rows. Shards are in files, and a training sees one at a time.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import equinox as eqx
import jax
import narwhals as nw
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt64
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import _check_sample_weight, _check_y

from sigmax.errors import InvalidDataError
from sigmax.experts.ensemble import prepare, train
from sigmax.experts.local import Local
from sigmax.experts.rows import Rows, TrainingRows
from sigmax.extrapolation import NO_CENTER
from sigmax.inputs import Inputs
from sigmax.model import Model
from sigmax.neighbors import neighborhoods
from sigmax.random import RandomKey, draw_seed, named_generator
from sigmax.tables import Table
from sigmax.tables.reading import ParquetFiles
from sigmax.tables.table import read_target
from sigmax.training import Fold, TrainingData

ROWS_PER_BLOCK = 2**16


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Rows of a stream, as the arguments of `fit`."""

    X: Any
    y: np.ndarray
    weight: np.ndarray

    def __getitem__(self, rows: Any) -> "Block":
        return Block(_safe_indexing(self.X, rows), self.y[rows], self.weight[rows])


class AbstractRowStream(ABC):
    """Rows in blocks, the same ones whenever they are asked for."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows of some weight, at most: blocks may leave some out."""

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


@final
@dataclass(frozen=True, eq=False)
class ParquetStream(AbstractRowStream):
    """Rows of Parquet files. Those without a target are not learned from."""

    files: ParquetFiles
    target: str
    features: Sequence[str]
    keeps: Callable[[pd.DataFrame], Bool[np.ndarray, " rows"]] | None = None
    """True for the rows of a frame that are learned from; None for all."""
    watch: Callable[[], AbstractContextManager[Callable[[float], None]]] | None = None
    """Context with a function that is called with the share of the rows that has been read."""

    @property
    def n_rows(self) -> int:
        return self.files.n_rows

    def frames(self) -> Iterator[tuple[int, pd.DataFrame]]:
        """All columns of all rows, with the number of rows before."""
        n_before = 0
        with self.watch() if self.watch else nullcontext(lambda share: None) as show:
            for frame in self.files.frames(ROWS_PER_BLOCK):
                yield n_before, frame
                n_before += len(frame)
                show(n_before / self.n_rows)

    def blocks(self) -> Iterator[Block]:
        for first, frame in self.frames():
            y = read_target(frame, self.target, first_row=first)
            is_learned = ~np.isnan(y)
            if self.keeps is not None:
                is_learned &= self.keeps(frame)
            X = frame.filter(items=list(self.features)).reset_index(drop=True)
            yield Block(X, np.where(np.isnan(y), 0.0, y), is_learned.astype(np.float64))


ROWS_PER_SHARD = 2**16
"""Largest number of rows of a shard, and of rows that a model stores."""
SPARE = 5.0
"""Room that is left in a shard on average, in standard deviations of the number of its rows."""


def count_shards(n_rows: int, rows_per_shard: int = ROWS_PER_SHARD) -> int:
    """Number of shards for so many rows."""
    filled = round(rows_per_shard - SPARE * rows_per_shard**0.5)
    return max(1, -(-n_rows // filled))


@final
class ShardRows(eqx.Module):
    """Rows in standardised units."""

    X: Inputs
    y: Float[np.ndarray, "*rows outputs"]
    weight: Float[np.ndarray, "*rows"]

    def __getitem__(self, rows: Any) -> "ShardRows":
        return jax.tree.map(lambda leaf: leaf[rows], self)


@final
@dataclass(frozen=True, eq=False)
class Shards:
    """Arrays in files, with an axis of shards and one of the rows of a shard."""

    rows: ShardRows
    """Memory-mapped leaves (shards, rows, ...)."""
    counts: Int[np.ndarray, " shards"]

    @classmethod
    @contextmanager
    def create(cls, like: ShardRows, n_shards: int, rows_per_shard: int) -> Iterator["Shards"]:
        """Room for rows ``like`` these, in files that go when the block or the process ends."""
        leaves, shape = jax.tree.leaves(like), (n_shards, rows_per_shard)
        n_bytes = sum(leaf[:1].nbytes for leaf in leaves) * n_shards * rows_per_shard
        with TemporaryDirectory(prefix="sigmax-") as name:
            free = shutil.disk_usage(name).free
            if n_bytes > free:
                raise InvalidDataError(
                    f"The rows need {n_bytes / 2**30:.1f} GiB in {Path(name).parent}, where"
                    f" {free / 2**30:.1f} GiB are free; TMPDIR names another folder."
                )
            mapped = [
                np.memmap(Path(name) / f"{i}.bin", leaf.dtype, "w+", shape=shape + leaf.shape[1:])
                for i, leaf in enumerate(leaves)
            ]
            for path in Path(name).iterdir():  # mapped files without a name go with the process
                with suppress(OSError):  # where the system keeps the names of open files
                    path.unlink()
            rows = jax.tree.unflatten(jax.tree.structure(like), mapped)
            yield cls(rows, np.zeros(n_shards, dtype=int))

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, shard: int) -> ShardRows:
        return jax.tree.map(lambda leaf: np.array(leaf[shard, : self.counts[shard]]), self.rows)

    def append(self, rows: ShardRows, shard: Int[np.ndarray, " rows"]) -> None:
        """Add rows to shards; rows that do not fit into theirs go to the emptiest."""
        room = jax.tree.leaves(self.rows)[0].shape[1]
        order = np.argsort(shard, kind="stable")
        starts = np.flatnonzero(np.diff(shard[order], prepend=-1))
        for own in np.split(order, starts[1:]):
            number = int(shard[own[0]]) if len(own) else 0
            while len(own):
                start = self.counts[number]
                fits, own = own[: room - start], own[room - start :]
                here = slice(start, start + len(fits))
                for target, values in zip(
                    jax.tree.leaves(self.rows), jax.tree.leaves(rows), strict=True
                ):
                    target[number, here] = values[fits]
                self.counts[number] += len(fits)
                number = int(np.argmin(self.counts))


@final
class ShardSupply:
    """Rows that members learn from in each chunk: one shard after the other, the first one first.

    A shard with fewer rows than a neighbourhood has is left out. The next one is made ready, its
    neighbourhoods above all, while members train on the last. Where there are more chunks than
    shards, and so few rows, neighbourhoods are kept until their shard comes again.
    """

    def __init__(self, shards: Shards, own: tuple[Fold, TrainingData], graphs: Any, n_chunks: int):
        self.shards, self.own, self.make_graphs = shards, own, graphs
        self.comes_again, self.kept = n_chunks > len(shards) + 1, {}
        self.pool = ThreadPoolExecutor(1)
        self.next: tuple[int, Future] | None = None

    def __call__(self, chunk: int) -> tuple[Fold, TrainingData]:
        if self.next is not None and self.next[0] == chunk:
            found = self.next[1].result()
        else:
            found = self.create(chunk)
        if (chunk + 1) % (len(self.shards) + 1):
            self.next = chunk + 1, self.pool.submit(self.create, chunk + 1)
        return found

    def create(self, chunk: int) -> tuple[Fold, TrainingData]:
        number = chunk % (len(self.shards) + 1)
        fewest = max(graph.n_neighbors for graph in self.own[1].graphs.values())
        if number == 0 or self.shards.counts[number - 1] < fewest:
            return self.own
        folds, rows = self.own[0], self.shards[number - 1]
        graphs = self.kept.get(number) or self.make_graphs(np.asarray(rows.X.coordinates))
        if self.comes_again:
            self.kept[number] = graphs
        of_shard = [rows.X], [rows.y], [np.full(len(rows.y), NO_CENTER)]
        lists = {name: [graph] for name, graph in graphs.items()}
        data = TrainingData.create(*of_shard, lists, [rows.weight], n_slots=self.own[1].n_slots)
        nothing = [np.empty(0, dtype=int)] * len(folds.group)
        groups, room = [0] * len(folds.group), folds.validation.shape[1]
        return Fold.create([rows.weight], nothing, groups, data.n_slots, n_held_out=room), data

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


def row_numbers(X: Inputs) -> UInt64[np.ndarray, " rows"]:
    """Hash of every row."""
    total = np.zeros(len(X), dtype=np.uint64)
    rng = np.random.default_rng(0)
    for leaf in jax.tree.leaves(X):
        bits = np.ascontiguousarray(leaf, dtype=np.float32).view(np.uint32).astype(np.uint64)
        factors = rng.integers(2**63, size=bits.shape[1], dtype=np.uint64) | np.uint64(1)
        total = (total ^ (total >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        total += (bits * factors).sum(axis=1, dtype=np.uint64)
    return total


def fit_stream(
    expert: Local,
    stream: AbstractRowStream,
    key: RandomKey,
    read_training: Callable[..., TrainingRows],
    read: Callable[[Any, Any], Table],
    *,
    rows_per_shard: int | None = None,
    verbose: int = 0,
) -> Model:
    """Fit an expert to all rows of a stream.

    Memory is bounded by a block, a shard and its neighbourhoods, whatever the number of rows.
    Meanwhile, rows are in files of the folder for temporary files: four bytes for every number.
    ``read_training`` checks the first shard, and ``read`` further rows by a schema.
    """
    rows_per_shard = rows_per_shard or ROWS_PER_SHARD
    n_shards = count_shards(stream.n_rows, rows_per_shard)
    seed = draw_seed(named_generator(key, "shards"))
    first, numbers = first_shard(deal(stream, seed, n_shards))
    given = read_training(first.X, first.y, first.weight)
    given = replace(given, indices=numbers[given.indices])
    rows = Rows.encode(given, expert.target(given))
    features, target = rows.features, rows.target
    expert = expert.fit_to(stream.n_rows).for_shards(n_shards)
    prepared = prepare(expert, rows, key)
    like = ShardRows(prepared.X, prepared.y, given.weight.astype(np.float32))
    is_held_out = np.isin(np.arange(len(rows)), np.concatenate(prepared.held_out))
    held_out = row_numbers(features(given.table[np.flatnonzero(is_held_out)]))
    with Shards.create(like, max(1, n_shards - 1), rows_per_shard) as shards:
        for block, shard in deal(stream, seed, n_shards):
            own = np.flatnonzero(shard > 0)
            if not len(own):
                continue
            block, shard = block[own], shard[own]
            table = read(block.X, features.schema)
            y = target(block.y.reshape(len(block.y), -1)).astype(np.float32)
            others = ShardRows(features(table), y, block.weight.astype(np.float32))
            # A missing value in a column that had none in the first shard cannot be encoded.
            is_learned = ~np.asarray(features.unknown_reals(table)).any(axis=1)
            where = np.flatnonzero(is_learned & ~np.isin(row_numbers(others.X), held_out))
            shards.append(others[where], shard[where] - 1)
        prepared = replace(prepared, n_learned=len(rows) + int(shards.counts.sum()))
        graphs = partial(neighborhoods, sizes=expert.graph_sizes())
        with ExitStack() as stack:

            def create_supply(folds: Fold, data: TrainingData) -> ShardSupply:
                supply = ShardSupply(shards, (folds, data), graphs, expert.n_scorings)
                stack.callback(supply.close)
                return supply

            (fitted,) = train([prepared], create_supply, verbose=verbose)
    unit = float(given.weight.mean())
    return Model(features, target, fitted, given.is_single_output, unit, prepared.n_learned)


def deal(
    stream: AbstractRowStream, seed: int, n_shards: int
) -> Iterator[tuple[Block, Int[np.ndarray, " rows"]]]:
    """Blocks with the shard of every row, -1 for rows of no weight: the same in every call."""
    for number, block in enumerate(stream.blocks()):
        shard = np.random.default_rng((seed, number)).integers(n_shards, size=len(block.y))
        yield block, np.where(block.weight > 0, shard, -1)


def first_shard(dealt: Iterable[tuple[Block, np.ndarray]]) -> tuple[Block, np.ndarray]:
    """Rows of the first shard, and their positions in the stream."""
    parts, numbers, n_before = [], [], 0
    for block, shard in dealt:
        own = np.flatnonzero(shard == 0)
        parts.append(block[own])
        numbers.append(n_before + own)
        n_before += len(shard)
    if not parts:
        raise InvalidDataError("There are no rows.")
    X = [part.X for part in parts]
    if isinstance(X[0], np.ndarray):
        joined = np.concatenate(X)
    else:  # frames of a library that narwhals knows
        joined = nw.concat([nw.from_native(part) for part in X]).to_native()
    y, weight = (np.concatenate([getattr(p, name) for p in parts]) for name in ("y", "weight"))
    return Block(joined, y, weight), np.concatenate(numbers)
