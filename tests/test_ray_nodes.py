"""Two nodes of Ray on this machine, one of which is killed in the middle of the work."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_backend
from ray_cases import after_chunks, once_busy
from sklearn.model_selection import cross_val_score
from typer.testing import CliRunner

import sigmax
from sigmax.cli import app
from sigmax.data.synthetic import make_deliveries
from sigmax.runs.records import read_records

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # Ray's, to start its programs
]

SMALL = ("--set", "n_steps=60", "--set", "n_members=2", "--set", "hidden_sizes=[8]")


@pytest.fixture(autouse=True)
def compiled_alike(monkeypatch):
    """Workers compile as this process does."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")


@pytest.fixture
def cluster():
    """Two nodes with a core each; this program is on the first."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "deliveries.csv"
    make_deliveries(250).to_csv(path, index=False)
    return path


def kill_second(cluster):
    (node,) = cluster.worker_nodes
    cluster.remove_node(node, allow_graceful=False)


def raylet(cluster):
    """The process of the second node, whose children are its workers."""
    (node,) = cluster.worker_nodes
    return node.all_processes["raylet"][0].process.pid


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})
    result = runner.invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    return X, X[:, 0] + np.abs(X[:, 1]) * rng.normal(size=120)


def make_local(**settings):
    common = {"preset": "fast", "n_steps": 60, "hidden_sizes": (8,), "random_state": 0}
    return sigmax.LocalRegressor(**common, **settings)


def test_a_node_dies_in_the_middle_of_a_fit(cluster, table, tmp_path, monkeypatch):
    ray.init(address=cluster.address, log_to_driver=False)
    struck = []

    def kill(workers):
        kill_second(cluster)
        struck.extend(workers)

    strike = (raylet(cluster), "advance_part", kill)
    after_chunks(monkeypatch, 5, lambda: once_busy(*strike))
    command = (
        "fit",
        table,
        "--target",
        "minutes",
        "--method",
        "local",
        "--effort",
        "quick",
        *SMALL,
    )
    run(*command, "--out", tmp_path / "there", "--engine", "ray", "--address", cluster.address)
    assert struck and len([node for node in ray.nodes() if node["Alive"]]) == 1
    run(*command, "--out", tmp_path / "here")
    here, there = (
        json.loads((tmp_path / at / "scores.json").read_text()) for at in ("here", "there")
    )
    for name in ("crps", "log_likelihood", "rmse"):
        found, expected = (scores["model"][name]["value"] for scores in (there, here))
        assert found == pytest.approx(expected, rel=1e-3)
    for at in ("here", "there"):
        run("predict", tmp_path / at, table, "--out", tmp_path / f"{at}.csv")
    found, expected = (pd.read_csv(tmp_path / f"{at}.csv") for at in ("there", "here"))
    columns = expected.select_dtypes("number").columns
    assert len(columns) > 5 and list(found.columns) == list(expected.columns)
    for column in columns:
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-3, atol=1e-3)


def test_a_node_dies_in_the_middle_of_a_comparison(cluster, table, tmp_path):
    command = [
        "compare",
        table,
        "--target",
        "minutes",
        "--folds",
        4,
        "--methods",
        "linear,nn",
        *SMALL,
    ]
    place = ["--engine", "ray", "--address", cluster.address, "--out", tmp_path / "there"]
    words = [sys.executable, "-m", "sigmax", *map(str, command + place)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    path, end = tmp_path / "there" / "records.jsonl", time.monotonic() + 600
    while count_lines(path) < 2 and time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    once_busy(raylet(cluster), "run_job_in", lambda workers: kill_second(cluster)).join()
    n_before = count_lines(path)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert "Traceback" not in output and 2 <= n_before < 8
    assert not cluster.worker_nodes
    there = read_records(path)
    assert Counter(record.status for record in there) == {"done": 8}
    assert set(Counter(record.task.key for record in there).values()) == {1}
    run(*command, "--out", tmp_path / "here")
    here = {
        record.task.key: record.scores for record in read_records(tmp_path / "here" / path.name)
    }
    assert here.keys() == {record.task.key for record in there}
    for record in there:
        assert record.scores == pytest.approx(here[record.task.key], rel=1e-4, abs=1e-6)


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_three_members_of_a_local_regressor_end_as_they_do_here():
    X, y = rows()
    here = make_local(n_members=3).fit(X, y)
    with sigmax.on_ray(n_workers=2):
        there = make_local(n_members=3).fit(X, y)
    assert not ray.is_initialized()
    for name, history in here.history_.items():
        np.testing.assert_allclose(there.history_[name], history, rtol=1e-3, atol=1e-4)
    found, expected = (model.predict_dist(X) for model in (there, here))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.sqrt(found.variance), np.sqrt(expected.variance), rtol=1e-2)


def test_scikit_learn_validates_a_local_regressor_on_the_ray_backend_of_joblib():
    from ray.util.joblib import register_ray

    X, y = rows()
    expected = cross_val_score(make_local(n_members=1), X, y, cv=2)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with parallel_backend("ray"):
            found = cross_val_score(make_local(n_members=1), X, y, cv=2, n_jobs=2)
    finally:
        ray.shutdown()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
