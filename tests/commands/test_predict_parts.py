"""`sigmax predict` of many files: parts, resumption, and errors."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_cases import fails_with, run

from sigmax.cli import predict
from sigmax.cli.predict import MANIFEST
from sigmax.data.synthetic import make_deliveries
from sigmax.errors import TableFileError
from sigmax.tables.sources import find_files, join_path, new_output

SMALL_PARTS = ("--rows-per-part", 100)


def as_table(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Three Parquet files of 150 rows in row groups of 40, one of them without any weather.

    Parts of up to 100 rows have 80 and 70: one program is compiled for both, and it rounds as that
    of 150 rows does, which those of 64 rows or less do not.
    """
    folder = tmp_path_factory.mktemp("inputs")
    frame = make_deliveries(450).drop(columns="minutes").assign(row=np.arange(450))
    for i in range(3):
        part = frame.iloc[150 * i : 150 * (i + 1)].copy()
        if i == 1:
            part["weather"] = None
        pq.write_table(as_table(part), folder / f"day-{i}.parquet", row_group_size=40)
    return folder


@pytest.fixture(scope="module")
def parts(model, inputs, tmp_path_factory):
    """The folder of a run that nothing has disturbed."""
    out = tmp_path_factory.mktemp("parts") / "out"
    result = run("predict", model, f"{inputs}/day-*.parquet", "--out", out, *SMALL_PARTS)
    assert result.exit_code == 0, result.output
    assert f"Predicted 450 rows in 6 parts: {out}" in result.output
    return out


def parts_of(folder):
    return sorted(folder.glob("part-*"))


def rows_of(folder):
    return pd.concat([pd.read_parquet(path) for path in parts_of(folder)], ignore_index=True)


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in parts_of(folder)}


def test_parts_hold_the_rows_and_predictions_of_one_file_after_the_other(
    parts, model, inputs, tmp_path
):
    expected = []
    for i in range(3):
        out = tmp_path / f"{i}.parquet"
        assert run("predict", model, inputs / f"day-{i}.parquet", "--out", out).exit_code == 0
        expected.append(pd.read_parquet(out))
    expected, found = pd.concat(expected, ignore_index=True), rows_of(parts)
    assert list(found.columns) == list(expected.columns)
    assert found["row"].tolist() == list(range(450))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_dtype=False)


def test_a_part_is_some_row_groups_and_all_parts_have_the_same_types(parts):
    assert [pq.read_metadata(path).num_rows for path in parts_of(parts)] == [80, 70] * 3
    schemas = [pq.read_schema(path) for path in parts_of(parts)]
    assert all(schema.equals(schemas[0]) for schema in schemas)
    assert pd.read_parquet(parts)["row"].is_unique  # the manifest and the lock are passed over
    assert json.loads((parts / MANIFEST).read_text())["finished"] == {"rows": 450, "parts": 6}


def test_the_same_command_repeats_no_finished_part(parts, model, inputs, tmp_path):
    out = shutil.copytree(parts, tmp_path / "out")
    before = times(out)
    whole = parts_of(out)[2].read_bytes()
    parts_of(out)[2].write_bytes(whole[:-20])  # a part without its end
    parts_of(out)[4].unlink()
    (out / ".part-00004.parquet.elsewhere-1-x.partial").mkdir()
    result = run("predict", model, inputs / "day-*.parquet", "--out", out, *SMALL_PARTS)
    assert result.exit_code == 0 and "(4 already finished)" in result.output
    pd.testing.assert_frame_equal(rows_of(out), rows_of(parts))
    changed = {name for name, when in times(out).items() if before[name] != when}
    assert changed == {"part-00002.parquet", "part-00004.parquet"}
    assert not list(out.glob(".*.partial"))


def test_another_model_option_or_input_raises_an_error_unless_it_is_restarted(
    parts, model, inputs, tmp_path
):
    out, data = shutil.copytree(parts, tmp_path / "out"), f"{inputs}/day-*.parquet"
    started = ("--out", out, *SMALL_PARTS)
    result = run("predict", model, data, *started, "--coverage", 0.8)
    assert fails_with(result, "other `coverage` (0.9, now 0.8)", "--force")
    result = run("predict", model, f"{inputs}/day-[01].parquet", *started)
    assert fails_with(result, "other inputs", "--force")
    manifest = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps(manifest | {"model": "another"}))
    assert fails_with(run("predict", model, data, *started), "other model")
    manifest["inputs"][1]["modified"] += 1
    (out / MANIFEST).write_text(json.dumps(manifest))
    assert fails_with(run("predict", model, data, *started), "other inputs")
    result = run("predict", model, f"{inputs}/day-0.parquet", *started, "--force")
    assert result.exit_code == 0 and "150 rows in 2 parts" in result.output
    assert len(parts_of(out)) == 2


def test_a_part_with_other_rows_than_its_input_fails_the_run(model, inputs, tmp_path, monkeypatch):
    usual = predict.predict_table
    monkeypatch.setattr(
        predict, "predict_table", lambda *given: usual(*given)[: max(0, len(given[3]) - 1)]
    )
    out = tmp_path / "out"
    result = run("predict", model, inputs / "day-0.parquet", "--out", f"{out}/", *SMALL_PARTS)
    assert fails_with(result, "part-00000.parquet has 79 rows", "80 were read", "not complete")
    assert json.loads((out / MANIFEST).read_text())["finished"] is None


def test_a_cell_that_cannot_be_used_is_named_by_its_row_in_the_file(model, inputs, tmp_path):
    frame = pd.read_parquet(inputs / "day-0.parquet")
    frame["distance_km"] = frame["distance_km"].astype(str)
    frame.loc[120, "distance_km"] = "far"
    pq.write_table(as_table(frame), tmp_path / "bad.parquet", row_group_size=40)
    result = run(
        "predict", model, tmp_path / "bad.parquet", "--out", f"{tmp_path}/out/", *SMALL_PARTS
    )
    assert fails_with(result, "'distance_km'", "row 121 is 'far'")


def test_other_files_empty_ones_and_large_row_groups(model, inputs, tmp_path):
    frame = pd.read_parquet(inputs)
    source = tmp_path / "in"
    (source / "more").mkdir(parents=True)
    frame[:60].to_csv(source / "a.csv", index=False)
    frame[:0].to_csv(source / "b.csv", index=False)
    pq.write_table(as_table(frame[:0]), source / "c.parquet")
    pq.write_table(as_table(frame[60:]), source / "more" / "d.parquet")
    (source / "_notes.csv").write_text("hidden\n")
    out = source / "out"
    for _ in range(2):  # parts in the folder itself are no inputs of the second run
        result = run("predict", model, source, "--out", out, *SMALL_PARTS)
        assert result.exit_code == 0 and "450 rows in 7 parts" in result.output, result.output
    assert [len(pd.read_parquet(path)) for path in parts_of(out)] == [60, 0, 0, 100, 100, 100, 90]
    assert rows_of(out)["row"].tolist() == list(range(450))
    kinds = {str(pq.read_schema(path).field("std").type) for path in parts_of(out)}
    assert kinds == {"double"}


def test_a_column_of_numbers_has_one_type_though_files_have_two(model, inputs, tmp_path):
    frame = pd.read_parquet(inputs / "day-0.parquet")
    pq.write_table(as_table(frame), tmp_path / "a.parquet")
    pq.write_table(as_table(frame.assign(row=0.5)[frame.columns[::-1]]), tmp_path / "b.parquet")
    paths = tmp_path / "a.parquet", tmp_path / "b.parquet"
    result = run("predict", model, *paths, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    schemas = [pq.read_schema(path) for path in parts_of(tmp_path / "out")]
    assert schemas[0].equals(schemas[1]) and schemas[0].field("row").type == pa.float64()


def test_addresses_of_files_are_read_and_written(model, inputs, parts, tmp_path):
    data, out = f"file://{inputs}/day-*.parquet", f"file://{tmp_path}/out"
    for _ in range(2):
        result = run("predict", model, data, "--out", out, *SMALL_PARTS)
        assert result.exit_code == 0 and "450 rows in 6 parts" in result.output, result.output
    pd.testing.assert_frame_equal(rows_of(tmp_path / "out"), rows_of(parts))


def test_mistakes_are_reported_before_any_work(model, inputs, tmp_path):
    day, out = inputs / "day-0.parquet", tmp_path / "out"
    (tmp_path / "broken.parquet").write_bytes(day.read_bytes()[:-50])
    frame = pd.read_parquet(day)
    pq.write_table(as_table(frame.assign(more=1)), tmp_path / "more.parquet")
    pq.write_table(as_table(frame.drop(columns="weather")), tmp_path / "less.parquet")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "letter.txt").write_text("Dear")
    (tmp_path / "empty").mkdir()
    for arguments, words in {
        (f"{inputs}/night-*.parquet", "--out", out): ["matches no file"],
        (tmp_path / "nowhere", day, "--out", out): ["nowhere does not exist"],
        (tmp_path / "empty", "--out", out): ["without tables"],
        (inputs,): ["--out"],
        (day, "-", "--out", out): ["standard"],
        (day, day, "--out", out): ["twice"],
        (day, tmp_path / "broken.parquet", "--out", out): ["broken.parquet", "damaged"],
        (day, tmp_path / "more.parquet", "--out", out): ["more.parquet", "also 'more'"],
        (day, tmp_path / "less.parquet", "--out", out): ["less.parquet", "no column 'weather'"],
        (tmp_path / "less.parquet", "--out", f"{out}/"): ["no column 'weather'"],
        (inputs, "--out", tmp_path / "used"): ["letter.txt", "another folder"],
        (inputs, "--out", out, "--engine", "abacus"): ["--engine", "ray"],
        (inputs, "--out", out, "--workers", 2): ["--engine ray"],
        ("nofile://x/*.parquet", "--out", out): ["cannot be reached"],
        (inputs, "--out", out, "--coverage", 2): ["--coverage"],
    }.items():
        assert fails_with(run("predict", model, *arguments), *words), arguments
        assert not out.exists() or not any(out.iterdir())


def test_patterns_give_the_same_files_in_the_same_order(tmp_path):
    for name in ("b/2.csv", "a/1.csv", "a/.hidden.csv", "a/b/3.csv", "a/note.md", "[x].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")

    def names(pattern):
        return [file.address[len(str(tmp_path)) + 1 :] for file in find_files(pattern)]

    assert names(f"{tmp_path}/*/*.csv") == ["a/1.csv", "b/2.csv"]
    assert names(f"{tmp_path}/**/[123].csv") == ["a/1.csv", "a/b/3.csv", "b/2.csv"]
    assert names(f"{tmp_path}/a") == ["a/1.csv", "a/b/3.csv"]
    assert names(f"{tmp_path}/[x].csv") == ["[x].csv"]  # a file of just that name
    assert join_path("s3://bucket/out/?region=x", "part") == "s3://bucket/out/part?region=x"


def test_a_file_in_a_store_appears_when_all_is_written(tmp_path):
    place = f"file://{tmp_path}/new"
    with pytest.raises(ZeroDivisionError), new_output(place) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()
    with pytest.raises(TableFileError, match="cannot be written"):
        with new_output(f"file://{tmp_path}/nowhere/new") as stream:
            stream.write(b"all")


STOP_ITSELF = """
import os, signal, sys
from sigmax.cli import app
from sigmax.cli import predict

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background
usual, done = predict.predict_unit, []

def predict_unit(*arguments):
    usual(*arguments)
    done.append(True)
    if len(done) == 2:
        os.kill(os.getpid(), signal.SIGSTOP)

predict.predict_unit = predict_unit
app()
"""
# After two parts, so that a test finds a run in the middle, however fast it is.


def start(*arguments, program=("-m", "sigmax")):
    command = [sys.executable, *program, "predict", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_in_the_middle_continues(parts, model, inputs, tmp_path, number):
    out = tmp_path / "out"
    command = (model, f"{inputs}/day-*.parquet", "--out", out, *SMALL_PARTS)
    with start(*command, program=("-c", STOP_ITSELF)) as process:
        deadline, found = time.monotonic() + 600, psutil.Process(process.pid)
        while found.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate(timeout=600)
    if number == signal.SIGINT:
        assert process.returncode == 130 and "run the same command again" in told
    before = times(out)
    assert len(before) == 2
    result = run("predict", *command)
    assert result.exit_code == 0 and f"({len(before)} already finished)" in result.output
    assert before.items() <= times(out).items()
    assert not list(out.glob(".*.partial"))
    pd.testing.assert_frame_equal(rows_of(out), rows_of(parts), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_ray_gives_the_same_parts_and_continues_with_those_of_this_process(
    parts, model, inputs, tmp_path
):
    pytest.importorskip("ray")
    out = shutil.copytree(parts, tmp_path / "out")
    parts_of(out)[1].unlink()
    parts_of(out)[4].unlink()
    before = times(out)
    data = f"{inputs}/day-*.parquet"
    ray = ("--engine", "ray", "--workers", 2)
    with start(model, data, "--out", out, *SMALL_PARTS, *ray) as process:
        told, noise = process.communicate(timeout=600)
    assert process.returncode == 0 and "(4 already finished)" in told, noise
    assert before.items() <= times(out).items()
    pd.testing.assert_frame_equal(rows_of(out), rows_of(parts), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_what_is_wrong_with_a_row_is_reported_through_ray(model, inputs, tmp_path):
    pytest.importorskip("ray")
    frame = pd.read_parquet(inputs / "day-0.parquet")
    frame.loc[7, "distance_km"] = np.inf
    pq.write_table(as_table(frame), tmp_path / "bad.parquet")
    with start(
        model, tmp_path / "bad.parquet", "--out", tmp_path / "out", "--engine", "ray"
    ) as process:
        _, told = process.communicate(timeout=600)
    assert process.returncode == 2, told
    assert "bad.parquet, row 8, column 'distance_km': an infinite number" in " ".join(told.split())


TWO_NODES = """
import sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from sigmax.table_model import PredictOptions
from sigmax.cli.app import EngineOptions
from sigmax.cli.predict import predict_parts

model, data, out = sys.argv[1:]
head = {"num_cpus": 1, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
second = cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
cluster.wait_for_nodes()
killed = []

def progress(what, share):
    print(what, flush=True)
    if share > 0.2 and not killed:
        cluster.remove_node(second, allow_graceful=False)
        killed.append(True)
        print("killed", flush=True)

result = predict_parts(
    Path(model), [data], out, PredictOptions(), {}, rows_per_part=40,
    engine=EngineOptions(engine="ray", workers=2),
    progress=progress,
)
print(result)
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.long
def test_a_node_that_dies_in_the_middle_costs_no_row_and_doubles_none(
    parts, model, inputs, tmp_path
):
    pytest.importorskip("ray")
    data, out = f"{inputs}/day-*.parquet", tmp_path / "out"
    command = [sys.executable, "-c", TWO_NODES, str(model), data, str(out)]
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # for no other program to find
        environment = os.environ | {"RAY_TMPDIR": folder}
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed" in done.stdout and "450 rows in 12 parts" in done.stdout
    assert not list(out.glob(".*.partial"))
    pd.testing.assert_frame_equal(rows_of(out), rows_of(parts), rtol=1e-4, atol=1e-5)
