"""Records: written, read back, and repaired after a crash."""

import gzip

import pytest

from sigmax.errors import RecordFileError
from sigmax.runs.records import (
    Record,
    RecordFile,
    Task,
    done,
    failed,
    infeasible,
    read_records,
)


def make_task(split=0, **parts):
    return Task(experiment="uci", dataset="yacht", method="nn", split=split, **parts)


def test_a_record_is_read_back_from_its_line():
    task = make_task(settings={"n_steps": 5, "hidden_sizes": [3]})
    record = done(task, scores={"rmse": 0.1}, curves={"std": [1.23456789]}, data={"hash": "a"})
    line = record.to_line()
    assert line.count("\n") == 1
    again = Record.from_line(line)
    assert again == record and again.task.key == task.key
    assert again.curves["std"] == [1.23457]


def test_the_same_task_has_the_same_key_whatever_the_order_of_its_settings():
    assert make_task(settings={"a": 1, "b": 2}).key == make_task(settings={"b": 2, "a": 1}).key
    assert make_task(settings={"a": 1}).key != make_task(settings={"a": 2}).key


def test_a_score_that_is_not_finite_is_a_failure():
    record = done(make_task(), scores={"rmse": 0.1, "crps": float("nan")})
    assert record.status == "failed" and "crps" in record.reason


def test_only_an_incomplete_last_line_is_removed(tmp_path):
    with RecordFile.open(tmp_path) as file:
        for split in range(3):
            file.append(done(make_task(split), scores={"rmse": float(split)}))
    path = tmp_path / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"task": {"experi')
    assert len(read_records(path)) == 3
    with RecordFile.open(tmp_path) as file:
        assert len(file.records) == 3
        file.append(done(make_task(3), scores={"rmse": 3.0}))
    assert path.read_bytes().startswith(whole)
    assert [record.task.split for record in read_records(path)] == [0, 1, 2, 3]


def test_error_of_an_invalid_line_has_its_number(tmp_path):
    (tmp_path / "records.jsonl").write_text("{}\n" + done(make_task(), scores={}).to_line())
    with pytest.raises(RecordFileError, match="line 1"):
        read_records(tmp_path / "records.jsonl")
    with pytest.raises(RecordFileError, match="no records"):
        read_records(tmp_path / "nowhere.jsonl")


def test_gzipped_records_are_read(tmp_path):
    with gzip.open(tmp_path / "records.jsonl.gz", "wt") as file:
        file.write(done(make_task(), scores={"rmse": 1.0}).to_line())
    assert read_records(tmp_path / "records.jsonl.gz")[0].scores == {"rmse": 1.0}


def test_only_failures_are_run_again_and_the_last_record_counts(tmp_path):
    good, bad, never = make_task(0), make_task(1), make_task(2)
    with RecordFile.open(tmp_path) as file:
        file.append(done(good, scores={}))
        file.append(failed(bad, "no luck"))
        file.append(infeasible(never, "too large"))
        assert all(file.is_settled(task) for task in (good, bad, never))
        assert not file.is_settled(make_task(3))
        assert not file.is_settled(bad, retry_failed=True)
        assert file.is_settled(never, retry_failed=True)
        file.append(done(bad, scores={"rmse": 1.0}))
    statuses = {r.task.split: r.status for r in read_records(tmp_path / "records.jsonl")}
    assert statuses == {0: "done", 1: "done", 2: "infeasible"}


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    with (
        RecordFile.open(tmp_path),
        pytest.raises(RecordFileError, match="Another run"),
        RecordFile.open(tmp_path),
    ):
        pass
