"""`sigmax fit` of Parquet files with more rows than are read at once."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_cases import SMALL, fails_with, run

from sigmax import LocalRegressor, fit_parquet
from sigmax.cli.fit import FitOptions
from sigmax.cli.rows import (
    ColumnOptions,
    ManyRows,
    UsableRows,
    hold_out_rows,
    read_rows,
    training_filter,
)
from sigmax.cli.terminal import no_bar
from sigmax.errors import TableFileError
from sigmax.experts.rows import duplicate_groups
from sigmax.tables.reading import ParquetFiles

N, N_WITHOUT = 3000, 40


def make_frame(n=N, seed=0):
    """Numbers with copies, a category, a time, and a target with gaps."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n).round(3),
            "kind": rng.choice(["a", "b", "c"], n),
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.permutation(n), "h"),
            "number": np.arange(n),
        }
    )
    frame.loc[n // 2 :, ["size", "kind", "when"]] = frame.loc[
        : n - n // 2 - 1, ["size", "kind", "when"]
    ].to_numpy()
    frame["y"] = 2 * frame["size"] + (frame["kind"] == "a") + 0.1 * rng.normal(size=n)
    frame.loc[:: n // N_WITHOUT, "y"] = np.nan
    return frame


FRAME = make_frame()
N_LEARNED = int(np.sum(~np.isnan(FRAME["y"].to_numpy())))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files, whose row groups are smaller than a block."""
    folder = tmp_path_factory.mktemp("rows")
    FRAME.iloc[:2000].to_parquet(folder / "a.parquet", row_group_size=300, index=False)
    FRAME.iloc[2000:].to_parquet(folder / "b.parquet", row_group_size=700, index=False)
    return folder


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr("sigmax.estimators.LARGEST_AT_ONCE", 1000)
    monkeypatch.setattr("sigmax.experts.stream.ROWS_PER_SHARD", 512)
    monkeypatch.setattr("sigmax.cli.rows.SAMPLED", 800)
    monkeypatch.setattr("sigmax.experts.stream.ROWS_PER_BLOCK", 900)


def test_many_rows_are_learned_from_and_a_sample_is_held_out(
    folder, few_at_once, tmp_path, monkeypatch
):
    usual, small = FitOptions.in_shards, {"n_steps": 20, "n_members": 1, "hidden_sizes": [8]}
    monkeypatch.setattr(FitOptions, "in_shards", lambda it: replace(usual(it), settings=small))
    out = tmp_path / "out"
    result = run("fit", folder, "--target", "y", "--drop", "number", "--out", out, *SMALL)
    assert result.exit_code == 0, result.output
    output = " ".join(result.output.split())
    assert "fitting LocalRegressor, in shards" in output
    assert "from a random sample of" in output and f"of {N:,} rows" in output
    assert f"Refitting on all {N_LEARNED:,} rows." in output
    model = LocalRegressor.load(out / "model")
    assert 0.97 * N_LEARNED < model.n_learned_ <= N_LEARNED  # less copies of what members hold out
    assert model.n_rows_ <= 512
    counts = json.loads((out / "scores.json").read_text())["rows"]
    assert counts["with_target"] == N_LEARNED and counts["in_files"] == N
    # Of most rows that are held out there is a copy, which is not learned from either.
    assert 1.6 * counts["test"] < N_LEARNED - counts["train"] < 2.1 * counts["test"] + 100
    report = (out / "report.html").read_text()
    assert f"{N:,} rows, {N - N_LEARNED:,} without a target left out" in report
    again = run("predict", out, folder / "b.parquet", "--out", tmp_path / "p.csv")
    assert again.exit_code == 0 and len(pd.read_csv(tmp_path / "p.csv")) == N - 2000


@pytest.mark.parametrize("rule", ["time_column", "group_column", None])
def test_what_is_learned_from_is_on_the_other_side(folder, few_at_once, rule):
    options = ColumnOptions(
        target="y",
        drop=("number",),
        time_column="when" if rule == "time_column" else None,
        group_column="kind" if rule == "group_column" else None,
    )
    many = ManyRows.read(ParquetFiles.open([str(folder)]), options, 0, no_bar)
    assert many.n_with_target == N_LEARNED and 650 < len(many.sample) < 950
    data = UsableRows.read(many.sample, options)
    codes = data.X.apply(lambda column: pd.factorize(column)[0]).to_numpy(np.float64)
    split = hold_out_rows(data.frame, duplicate_groups(codes), 0.2, options)
    held_out, keeps = data.frame.iloc[split.test], training_filter(data, options, split)
    blocks = list(many.stream(data, options, split).blocks())
    learned = np.concatenate([block.weight > 0 for block in blocks])
    rows = FRAME.iloc[np.flatnonzero(learned)]
    assert not np.isnan(rows["y"].to_numpy()).any()
    assert not keeps(held_out).any() and keeps(data.frame.iloc[split.train]).all()
    if rule == "time_column":
        assert rows["when"].max() < held_out["when"].min()
    elif rule == "group_column":
        assert not set(rows["kind"]) & set(held_out["kind"])
    else:
        of_both = rows.merge(held_out, on=["size", "kind", "when"])
        assert not len(of_both)
    assert learned.sum() > 0.5 * N_LEARNED or rule == "group_column"
    np.testing.assert_array_equal(np.concatenate([b.y for b in blocks])[learned], rows["y"])


def test_few_rows_of_many_files_are_read_as_one_table(folder):
    frame, many = read_rows(str(folder / "*.parquet"), ColumnOptions(target="y"))
    assert many is None
    pd.testing.assert_frame_equal(frame, FRAME, check_dtype=False)


def test_a_folder_with_another_kind_of_file_raises_an_error(folder, tmp_path):
    FRAME.head().to_csv(tmp_path / "rows.csv", index=False)
    FRAME.to_parquet(tmp_path / "rows.parquet")
    result = run("fit", tmp_path, "--target", "y", "--out", tmp_path / "out", *SMALL)
    assert fails_with(result, "rows.csv", "not a Parquet file")


def test_python_fits_files_as_it_fits_their_rows(folder, few_at_once, monkeypatch):
    small: dict[str, Any] = {"n_steps": 20, "n_members": 1, "hidden_sizes": (8,)}
    settings: dict[str, Any] = small | {"random_state": 0}
    model = LocalRegressor("fast", **settings)
    fit_parquet(model, str(folder), "y", drop=["number"])
    assert 0.97 * N_LEARNED < model.n_learned_ <= N_LEARNED
    rows = FRAME.dropna().drop(columns=["number"])
    X, y = rows.drop(columns="y"), rows["y"].to_numpy()
    whole = LocalRegressor("fast", **settings)
    monkeypatch.setattr("sigmax.estimators.LARGEST_AT_ONCE", N)
    fit_parquet(whole, str(folder / "*.parquet"), "y", drop=["number"])
    assert whole.n_rows_ == N_LEARNED
    for found in (model, whole):
        assert np.corrcoef(found.predict(X), y)[0, 1] > 0.9
    with pytest.raises(TableFileError, match="does not exist"):
        fit_parquet(whole, str(folder / "c.parquet"), "y")
