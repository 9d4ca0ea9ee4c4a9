"""Fits to rows in shards: all rows are learned from, one shard is kept, and memory is bounded."""

import tempfile
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sigmax import LocalRegressor
from sigmax.errors import InvalidDataError
from sigmax.experts.stream import (
    AbstractRowStream,
    ArrayStream,
    Block,
    ShardRows,
    Shards,
    count_shards,
    row_numbers,
)
from sigmax.inputs import Inputs
from sigmax.neighbors import neighborhoods

N, SIZE = 3000, 512


def make_rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=n)


X, Y = make_rows(N, 0)


def small(**settings):
    defaults: dict[str, Any] = {"n_steps": 60, "random_state": 0}
    return LocalRegressor("fast", **defaults | settings)


@pytest.fixture(scope="module")
def model():
    found = small(n_steps=320)
    found.fit_stream(ArrayStream(X, Y), rows_per_shard=SIZE)
    return found


def test_all_rows_are_learned_from_and_some_are_kept(model):
    assert model.n_learned_ == N and N // 16 < len(model.fitted.rows.y) <= SIZE
    kept = model.fitted.rows.indices
    np.testing.assert_allclose(
        model.model_.target.restore(model.fitted.rows.y)[:, 0], Y[kept], rtol=1e-4
    )
    rows, _ = model.explain_neighbors(X[kept[:5]], k=1)
    np.testing.assert_array_equal(rows[:, 0], kept[:5])


def test_more_rows_than_are_kept_make_it_better(model):
    X_new, y_new = make_rows(1000, 1)
    kept = model.fitted.rows.indices
    alone = small(n_steps=320).fit(X[kept], Y[kept])
    score, of_kept = (m.predict_dist(X_new).log_prob(y_new).mean() for m in (model, alone))
    assert score > of_kept + 0.05
    lower, upper = model.predict_interval(X_new).T
    assert 0.85 < np.mean((lower <= y_new) & (y_new <= upper)) < 0.96


def test_a_saved_model_is_the_same(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = LocalRegressor.load(tmp_path / "model")
    assert loaded.n_learned_ == N
    np.testing.assert_allclose(loaded.predict(X[:20]), model.predict(X[:20]), rtol=1e-5)


def test_many_rows_come_in_shards_by_themselves(monkeypatch, tmp_path):
    """Model of a memory-mapped array, which is not copied."""
    monkeypatch.setattr("sigmax.estimators.LARGEST_AT_ONCE", 1000)
    monkeypatch.setattr("sigmax.experts.stream.ROWS_PER_SHARD", SIZE)
    monkeypatch.setattr("sigmax.experts.stream.ROWS_PER_BLOCK", 700)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    models = [small().fit(mapped, Y), small().fit(X, Y), small().fit(X[:500], Y[:500])]
    assert [one.n_learned_ for one in models] == [N, N, 500]
    first, second = (one.predict(X[:20]) for one in models[:2])
    np.testing.assert_array_equal(first, second)


def test_categories_and_gaps_come_in_shards():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": X[:, 0], "b": rng.choice(list("xyz"), N), "c": X[:, 1]})
    frame.loc[::7, "c"] = np.nan
    y = Y + (frame["b"] == "x")
    model = small()
    model.fit_stream(ArrayStream(frame, y), rows_per_shard=SIZE)
    assert model.n_learned_ == N
    mean = model.predict(frame[:500])
    assert mean[frame["b"][:500] == "x"].mean() > mean[frame["b"][:500] != "x"].mean() + 0.3


def test_gaps_where_the_kept_rows_have_none_are_left_out():
    gappy = X.copy()
    gappy[np.random.default_rng(0).choice(N, 2), 1] = np.nan
    model = small(random_state=1)
    model.fit_stream(ArrayStream(gappy, Y), rows_per_shard=SIZE)
    n_missing = np.isnan(gappy[model.fitted.rows.indices]).any(axis=1).sum()
    assert model.n_learned_ == (N if n_missing else N - 2)


def test_copies_of_held_out_rows_are_not_learned_from(monkeypatch):
    added = []
    append = Shards.append

    def spy(shards, rows, shard):
        added.append(np.asarray(rows.X.numbers))
        append(shards, rows, shard)

    monkeypatch.setattr(Shards, "append", spy)
    model, twice = small(), np.repeat(X[:1500], 2, axis=0)
    model.fit_stream(ArrayStream(twice, np.repeat(Y[:1500], 2)), rows_per_shard=SIZE)
    learned = {row.tobytes() for rows in added for row in rows}
    kept = np.asarray(model.fitted.rows.X.numbers)
    n_missing = sum(row.tobytes() not in learned for row in kept)
    n_held_out = 2 * round(0.1 * len(model.fitted.rows.y))
    assert 0.6 * n_held_out <= n_missing  # the others have their copy in the same shard, or dropped
    assert model.n_learned_ < len(twice)


def test_weights_of_zero_leave_rows_out():
    weight = np.ones(N)
    weight[::2] = 0
    model = small()
    model.fit_stream(ArrayStream(X, Y, weight), rows_per_shard=SIZE)
    assert model.n_learned_ <= N // 2 and np.all(model.fitted.rows.indices % 2 == 1)


@pytest.mark.parametrize("n_weighty", [400, N])
def test_shards_without_rows_do_no_harm(n_weighty):
    """All rows of weight are in one shard or nearly so, or there is but one shard."""
    weight = np.zeros(N)
    weight[:n_weighty] = 1
    model = small()
    model.fit_stream(ArrayStream(X, Y, weight), rows_per_shard=512 if n_weighty < N else 4096)
    assert model.n_learned_ == n_weighty and np.isfinite(model.predict(X[:5])).all()


def test_a_fit_that_fails_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Broken(AbstractRowStream):
        passes = 0

        @property
        def n_rows(self):
            return N

        def blocks(self):
            self.passes += 1
            yield Block(X[:2000], Y[:2000], np.ones(2000))
            if self.passes == 2:
                raise OSError("gone")

    model = small().fit(X[:300], Y[:300])
    before = model.predict(X[:5])
    with pytest.raises(OSError, match="gone"):
        model.fit_stream(Broken(), rows_per_shard=SIZE)
    np.testing.assert_array_equal(model.predict(X[:5]), before)
    assert not list(tmp_path.iterdir())


def test_shards_hold_every_row_once(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    n, n_shards, room = 5000, 6, 1000
    rows = ShardRows(
        Inputs(np.arange(2 * n, dtype=np.float32).reshape(n, 2)),
        np.arange(n, dtype=np.float32)[:, None],
        np.ones(n, dtype=np.float32),
    )
    with Shards.create(rows, n_shards, room) as shards:
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]  # nor if it is killed
        for block, start in enumerate(range(0, n, 700)):
            here = np.arange(start, min(start + 700, n))
            shard = np.random.default_rng(block).integers(n_shards, size=len(here))
            shard[shard == 2] = 1  # more than fit in
            shards.append(rows[here], shard)
        assert shards.counts.sum() == n and shards.counts.max() <= room
        found = [shards[number] for number in range(n_shards)]
    y = np.concatenate([one.y[:, 0] for one in found])
    np.testing.assert_array_equal(np.sort(y), np.arange(n))
    for one in found:
        np.testing.assert_array_equal(one.X.numbers[:, 0], 2 * one.y[:, 0])


def test_too_little_room_is_told():
    rows = ShardRows(
        Inputs(np.zeros((1, 20), np.float32)), np.zeros((1, 1), np.float32), np.ones(1)
    )
    with pytest.raises(InvalidDataError, match="GiB"), Shards.create(rows, 10**9, 2**16):
        pass


def test_equal_rows_have_equal_numbers():
    codes = np.random.default_rng(0).integers(0, 9, (1000, 1))
    numbers = np.random.default_rng(1).normal(size=(1000, 4)).astype(np.float32)
    found = row_numbers(Inputs(numbers, codes=codes, n_codes=(9,)))
    assert len(np.unique(found)) == 1000
    order = np.random.default_rng(2).permutation(1000)
    again = row_numbers(Inputs(numbers[order], codes=codes[order], n_codes=(9,)))
    np.testing.assert_array_equal(again, found[order])
    other = row_numbers(Inputs(numbers, codes=codes + 1, n_codes=(10,)))
    assert not np.any(other == found)


@pytest.mark.parametrize(("n_rows", "expected"), [(1, 1), (64_000, 1), (65_537, 2), (10**8, 1557)])
def test_shards_have_room_to_spare(n_rows, expected):
    assert count_shards(n_rows) == expected


def test_a_shard_that_comes_again_has_its_neighborhoods_still(monkeypatch):
    made = []

    def count(X, sizes, make=neighborhoods):
        made.append(len(X))
        return make(X, sizes)

    monkeypatch.setattr("sigmax.experts.stream.neighborhoods", count)
    again = small(n_members=1, hidden_sizes=(8,))
    again.fit_stream(ArrayStream(X[:1200], Y[:1200]), rows_per_shard=SIZE)
    n_chunks = len(again.history_["distribution"])
    assert n_chunks > 4 and len(made) <= 3 and sum(made) + len(again.fitted.rows.y) == 1200
