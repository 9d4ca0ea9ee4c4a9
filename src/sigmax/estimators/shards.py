"""Rows in random parts of one size, in files: a training sees one part at a time."""

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, UInt64

from sigmax.errors import InvalidDataError
from sigmax.inputs import Inputs
from sigmax.networks import NO_CENTER
from sigmax.training import Fold, TrainingData

__all__ = ["ROWS_PER_SHARD", "ShardRows", "ShardSupply", "Shards", "count_shards", "draw_shards"]

ROWS_PER_SHARD = 2**16
"""At most; on average a little less, since rows are dealt at random. It is also the number of rows
that a model keeps."""

SPARE = 5.0
"""Room that is left in a shard on average, in standard deviations of the number of its rows."""


def count_shards(n_rows: int, rows_per_shard: int = ROWS_PER_SHARD) -> int:
    """How many shards so many rows make.

    Examples
    --------
    >>> count_shards(10_000_000), count_shards(1000)
    (156, 1)
    """
    filled = round(rows_per_shard - SPARE * rows_per_shard**0.5)
    return max(1, -(-n_rows // filled))


def draw_shards(seed: int, block: int, n_rows: int, n_shards: int) -> Int[np.ndarray, " rows"]:
    """The shard of every row of a block: the same whenever it is asked for."""
    return np.random.default_rng((seed, block)).integers(n_shards, size=n_rows)


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
    """Rows that each shard has."""

    @classmethod
    @contextmanager
    def create(
        cls, like: ShardRows, n_shards: int, rows_per_shard: int, folder: Path | None = None
    ) -> Iterator["Shards"]:
        """Room for rows ``like`` these, in files that go when the block or the process ends."""
        leaves, shape = jax.tree.leaves(like), (n_shards, rows_per_shard)
        n_bytes = sum(leaf[:1].nbytes for leaf in leaves) * n_shards * rows_per_shard
        with TemporaryDirectory(prefix="sigmax-", dir=folder) as name:
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
        """The rows of one shard, in memory."""
        return jax.tree.map(lambda leaf: np.array(leaf[shard, : self.counts[shard]]), self.rows)

    def append(self, rows: ShardRows, shard: Int[np.ndarray, " rows"]) -> None:
        """Add rows to shards; what a full one cannot take goes to the emptiest."""
        room = jax.tree.leaves(self.rows)[0].shape[1]
        order = np.argsort(shard, kind="stable")
        for number, own in zip(*split_by(shard[order], order), strict=True):
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


def split_by(
    ranked: Int[np.ndarray, " rows"], order: Int[np.ndarray, " rows"]
) -> tuple[list[int], list[np.ndarray]]:
    """The numbers that occur in ``ranked``, which is sorted, and the parts of ``order``."""
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    return ranked[starts].tolist(), np.split(order, starts[1:])


@final
class ShardSupply:
    """What members learn from in each chunk: one shard after the other, the model's own first.

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
        """Folds and data of a chunk."""
        found = self._take(chunk)
        if (chunk + 1) % (len(self.shards) + 1):
            self.next = chunk + 1, self.pool.submit(self.create, chunk + 1)
        return found

    def _take(self, chunk: int) -> tuple[Fold, TrainingData]:
        if self.next is not None and self.next[0] == chunk:
            return self.next[1].result()
        return self.create(chunk)

    def create(self, chunk: int) -> tuple[Fold, TrainingData]:
        """The shard of a chunk, as the members take it."""
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
        """End the thread."""
        self.pool.shutdown(cancel_futures=True)


def row_numbers(X: Inputs) -> UInt64[np.ndarray, " rows"]:
    """A number for every row, the same for rows of equal inputs and hardly ever for others."""
    total = np.zeros(len(X), dtype=np.uint64)
    rng = np.random.default_rng(0)
    for leaf in jax.tree.leaves(X):
        bits = np.ascontiguousarray(leaf, dtype=np.float32).view(np.uint32).astype(np.uint64)
        factors = rng.integers(2**63, size=bits.shape[1], dtype=np.uint64) | np.uint64(1)
        total = (total ^ (total >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        total += (bits * factors).sum(axis=1, dtype=np.uint64)
    return total
