"""The benchmark against other people's models: what it fits, records and counts."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from engine_cases import InProcessEngine
from scipy import stats
from threadpoolctl import threadpool_limits

from sigmax.cli.peers import AbstractBooster
from sigmax.data import UCI_SETS, RegressionData
from sigmax.data.uci import Split
from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, MissingExtraError
from sigmax.metrics import coverage, crps, log_likelihood
from sigmax.paper import uci
from sigmax.runs import engines
from sigmax.runs.engines import run_job
from sigmax.runs.experiments import Choice
from sigmax.runs.methods import METHODS
from sigmax.runs.records import Task, done, failed, read_records

ROOT = Path(__file__).parent.parent
PATH = ROOT / "benchmarks" / "peers.py"
LEVEL_OF_SPREAD = 0.3


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("peers", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with patch.dict(METHODS):
        module.register_peers()
        yield module


def draw(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(X[:, 0]) + LEVEL_OF_SPREAD * rng.normal(size=n)


@pytest.fixture
def jobs(script, monkeypatch) -> list:
    """What the script has run, in this process; every data set is a toy of three splits."""
    rows = np.arange(80)
    splits: list[Split] = [(np.delete(rows, held), held) for held in np.split(rows, 4)[:3]]

    def load(name):
        return RegressionData(name, *draw(80, 0), splits, UCI_SETS[name])

    jobs = []
    monkeypatch.setattr(engines, "run_job", lambda run, job: jobs.append(job) or run_job(run, job))
    monkeypatch.setattr(script, "LocalEngine", InProcessEngine)
    monkeypatch.setattr(uci, "load_uci", load)
    return jobs


def test_the_marginal_is_the_normal_of_the_training_targets(script):
    (X, y), (X_new, y_new) = draw(50, 0), draw(20, 1)
    dist = script.Marginal().fit(X, y).predict_dist(X_new)
    expected = stats.norm.logpdf(y_new, y.mean(), y.std()).mean()
    assert log_likelihood(y_new, dist) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", ["ngboost", "xgboost-distribution", "catboost"])
def test_a_booster_finds_the_noise_in_the_units_of_y(script, method):
    pytest.importorskip(method.replace("-", "_"))
    (X, y), (X_new, y_new) = draw(600, 0), draw(500, 1)
    model = script.PEERS[method].create(3)
    with threadpool_limits(1):  # threads of a busy machine may spin for minutes
        dist = model.fit(X, y).predict_dist(X_new)
        larger = model.fit(X, 1024 * y).predict_dist(X_new)  # a power of two rounds nothing
    assert isinstance(dist, Predictive) and dist.shape == (500,)
    assert 0.7 < np.median(dist.std) / LEVEL_OF_SPREAD < 1.3
    assert 0.8 < coverage(y_new, dist) < 0.97
    assert larger.mean == pytest.approx(1024 * dist.mean, rel=1e-6)
    assert larger.std == pytest.approx(1024 * dist.std, rel=1e-6)


def test_a_tenth_of_the_rows_is_held_out_by_the_seed(script):
    X, y = draw(200, 0)
    seen = []

    class Watched(AbstractBooster):
        def boost(self, X, y, X_held, y_held):
            seen.append((X, X_held))

        def mean_and_std(self, X):
            raise AssertionError

    for seed in (0, 0, 1):
        Watched(random_state=seed).fit(X, y)
    for kept, held in seen:
        assert len(held) == 20
        assert sorted(np.vstack([kept, held]).tolist()) == sorted(X.tolist())
    first, again, other = (held.tolist() for _, held in seen)
    assert first == again != other


@pytest.mark.parametrize("truth", [stats.norm(2, 0.5), stats.gamma(2.0), stats.t(4)])
def test_a_density_comes_back_from_its_quantiles(script, truth):
    y = truth.rvs(4000, random_state=0)
    dist = script.from_quantiles(np.tile(truth.ppf(script.LEVELS)[:, None], (1, len(y))))
    assert log_likelihood(y, dist) == pytest.approx(truth.logpdf(y).mean(), abs=0.03)
    other = truth.rvs(4000, random_state=1)
    spread = np.abs(truth.rvs(4000, random_state=2) - truth.rvs(4000, random_state=3)).mean()
    assert crps(y[:500], dist[:500]) == pytest.approx(
        np.abs(y[:500, None] - other[None, :]).mean() - spread / 2, rel=0.05
    )


def test_tied_quantiles_give_a_density_nonetheless(script):
    dist = script.from_quantiles(np.full((199, 1), 5.0))
    assert dist.log_prob(5.0) > 10 and dist.cdf(5.0) == pytest.approx(0.5)


def test_a_missing_package_is_noticed_before_anything_is_run(script, jobs, tmp_path, monkeypatch):
    monkeypatch.setattr("sigmax.cli.peers.is_installed", lambda name: False)
    for method, message in (("catboost", r"sigmax\[peers\]"), ("tabpfn", "not available")):
        with pytest.raises(MissingExtraError, match=message):
            choice = Choice(datasets=["yacht"], methods=["marginal", method])
            script.run_missing(choice, tmp_path, 1, retry_failed=False)
    with pytest.raises(InvalidArgumentError, match="No method 'catbost'"):
        script.run_missing(Choice(methods=["catbost"]), tmp_path, 1, retry_failed=False)
    assert not jobs and not list(tmp_path.iterdir())


def test_tabpfn_needs_its_weights_on_disk(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "is_installed", lambda name: True)
    monkeypatch.setenv("TABPFN_MODEL_CACHE_DIR", str(tmp_path))
    assert "weights" in script.why_no_tabpfn()
    for name in ("v2-classifier", "v2-regressor", "v2.5-regressor-v2.5_default"):
        (tmp_path / f"tabpfn-{name}.ckpt").touch()
    assert script.why_no_tabpfn() == ""
    assert script.find_tabpfn_weights().name == "tabpfn-v2.5-regressor-v2.5_default.ckpt"


def test_a_second_run_does_only_what_is_missing(script, jobs, tmp_path):
    def run(n_splits, **more):
        choice = Choice(datasets=["yacht"], methods=["marginal"], n_splits=n_splits)
        script.run_missing(choice, tmp_path, 1, retry_failed=False, **more)
        return [task.split for job in jobs for task in job]

    assert run(2) == [0, 1]
    before = (tmp_path / "records.jsonl").read_bytes()
    assert run(2) == [0, 1]
    assert (tmp_path / "records.jsonl").read_bytes() == before
    assert run(3) == [0, 1, 2]
    records = read_records(tmp_path / "records.jsonl")
    assert [record.status for record in records] == ["done"] * 3
    _, y = draw(80, 0)
    expected = stats.norm.logpdf(y[:20], y[20:].mean(), y[20:].std()).mean()
    assert records[0].scores["log_likelihood"] == pytest.approx(expected)


def test_house_methods_take_the_same_way(script, jobs, tmp_path):
    choice = Choice(datasets=["yacht"], methods=["gp", "marginal"], n_splits=1)
    script.run_missing(choice, tmp_path, 1, retry_failed=False)
    house, marginal = read_records(tmp_path / "records.jsonl")
    assert house.scores["log_likelihood"] > marginal.scores["log_likelihood"]
    assert house.scores.keys() == marginal.scores.keys()
    assert house.seconds.keys() == marginal.seconds.keys() >= {"fit", "predict", "compile"}


def test_the_command_runs_in_worker_processes_and_reports(data_folder, tmp_path):
    command = [sys.executable, str(PATH), "--out", str(tmp_path)]
    chosen = ["--datasets", "yacht", "--methods", "marginal", "--splits", "2"]
    made = subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    assert "| yacht | **-4." in made.stdout
    nowhere = [*command[:-1], str(tmp_path / "nowhere"), "--report"]
    refused = subprocess.run(nowhere, capture_output=True, text=True, timeout=600)
    assert refused.returncode == 1 and refused.stderr.startswith("error: There are no records")


def make(dataset, method, split, log_likelihood, **scores):
    usual = {"crps": 1.0, "rmse": 2.0, "coverage": 0.9, "interval_width": 5.0}
    return done(
        Task(experiment="peers", dataset=dataset, method=method, split=split, seed=split),
        scores=usual | {"log_likelihood": log_likelihood} | scores,
        seconds={"fit": 1.0, "compile": 0.5, "together": 1.0, "predict": 0.25},
    )


@pytest.fixture(scope="module")
def tables(script):
    """Local leads on boston, loses on yacht, and has no other's third split."""
    found = [
        make("boston", "local", 0, -2.0, crps=0.5, coverage=0.8),
        make("boston", "local", 1, -2.2, crps=0.7, coverage=0.96),
        make("boston", "local", 2, -4.0, crps=0.9),
        make("boston", "catboost", 0, -2.4, crps=0.3),
        make("boston", "catboost", 1, -2.5, crps=0.8),
        make("boston", "marginal", 0, -3.0),
        make("boston", "marginal", 1, -3.0),
        make("boston", "marginal", 2, -3.5),
        make("yacht", "local", 0, 1.0, crps=0.1),
        make("yacht", "local", 1, 1.1, crps=0.1),
        make("yacht", "catboost", 0, 1.3, crps=0.1),
        make("yacht", "catboost", 1, 1.2, crps=0.1),
    ]
    lost = Task(experiment="peers", dataset="yacht", method="gp")
    found.append(failed(lost, "the worker process died"))
    return {table.title: table for table in script.peer_tables(found)}


def test_wins_are_counted_on_common_splits(tables):
    table = tables["peers: paired wins of Local"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows.keys() == {"CatBoost", "Marginal"}  # the GP has no scores
    assert rows["CatBoost"] == ["1 of 2", "1, 1", "2 of 4", "0 of 2", "0, 0", "1 of 4"]
    assert rows["Marginal"][0] == "1 of 1" and rows["Marginal"][2] == "2 of 3"


def test_checks_name_the_worst_split_and_the_range_of_coverage(tables):
    table = tables["peers: checks of Local"]
    assert table.rows[0][1:] == ["-2.20", "-4.00", "-1.80", "-0.50", "80.0 to 96.0", "88.7"]
    assert table.rows[1][4] == ""  # no marginal on yacht
    notes = " ".join(table.notes)
    assert "boston, -1.80" in notes and "on 1 of 3 splits" in notes and "88.7 to 90.0" in notes


def test_tables_show_scores_seconds_and_what_is_not_there(tables, script):
    assert tables["peers: test log-likelihood"].header[-1] == "Marginal"
    assert tables["peers: test log-likelihood"].rows[0][2] == "-2.73 ± 0.64"
    seconds = tables["peers: seconds to predict the test rows, without compilation"]
    assert seconds.header == ["data set", "GP", "Local", "CatBoost"]
    assert seconds.rows[0] == ["boston", "", "**0.250**", "**0.250**"]
    assert "worker process died" in tables["tasks without scores"].rows[0][-1]
    assert any("TabPFN: not available" in n for n in tables["peers: what was compared"].notes)


def test_without_our_method_there_are_no_wins(script):
    records = [make("yacht", "marginal", 0, -4.0)]
    titles = [table.title for table in script.peer_tables(records)]
    assert "peers: test log-likelihood" in titles
    assert not any("Local" in title for title in titles)


def test_the_page_shows_the_tables_of_the_committed_records(script):
    tables = script.read_tables(ROOT / "docs" / "peers")
    text = (ROOT / "docs" / "decisions" / "measurements.md").read_text(encoding="utf-8")
    assert "| Marginal |" in script.MARKED.search(text)[0]
    assert script.refreshed(text, tables) == text


def test_duplicates_are_shown_if_records_have_separate_scores(script):
    parts = {"new_crps": 0.5, "copies_crps": 0.25}
    apart = replace(make("wine_red", "marginal", 0, -1.0, **parts), data={"copies_of_X": 0.5})
    tables = {table.title: table for table in script.peer_tables([apart])}
    table = tables["peers: test CRPS, new rows and duplicates"]
    assert table.rows == [
        ["wine_red, new rows", "**0.500**"],
        ["wine_red, duplicates", "**0.250**"],
    ]
    assert "peers: test log-likelihood, new rows and duplicates" not in tables
