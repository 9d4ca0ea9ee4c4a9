"""Members trained on Ray end as they do here, whatever becomes of the workers."""

import os
import signal
import socket
import sys
from typing import Any

import device_cases
import jax
import numpy as np
import pytest
from ray_cases import after_chunks, once_busy

import sigmax
from sigmax.compilation_cache import FOLDER
from sigmax.errors import ClusterError, InvalidArgumentError, MissingExtraError
from sigmax.ray_session import wait_for_tasks, worker_nodes
from sigmax.ray_training import RayTrainer

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # Ray's, to start itself


@pytest.fixture(scope="module")
def session():
    """A program that has called ``ray.init``."""
    with pytest.MonkeyPatch.context() as patch:  # workers need not compile what others have
        patch.setenv(FOLDER.upper(), getattr(jax.config, FOLDER))
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def expected():
    return device_cases.train_regressors()


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def undisturbed(session):
    with sigmax.on_ray():
        found = device_cases.train_regressors()
    assert ray.is_initialized()  # the program's own session goes on
    return found


def test_groups_stop_and_keep_checkpoints_as_they_do_here(undisturbed, expected):
    assert_same(undisturbed, expected)
    assert len(expected["group 0, patience 3"]) < len(expected["group 0, patience 0"])


def test_a_worker_that_is_killed_is_replaced_and_its_work_repeated(undisturbed, monkeypatch):
    killed = []

    def kill(workers):
        os.kill(workers[0].pid, signal.SIGKILL)
        killed.append(workers[0].pid)

    after_chunks(monkeypatch, 3, lambda: once_busy(os.getpid(), "advance_part", kill))
    with sigmax.on_ray():
        found = device_cases.train_regressors()
    assert killed
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_a_program_that_has_a_session_fits_here_unless_it_asks(session, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=100)
    settings = {"hidden_sizes": (8,), "n_steps": 20, "n_members": 2, "random_state": 0}
    teams = []
    monkeypatch.setattr(
        RayTrainer, "end", lambda self, end=RayTrainer.end: teams.append(self) or end(self)
    )
    here = sigmax.CombinedRegressor(**settings).fit(X, y)
    assert not teams
    with sigmax.on_ray():
        there = sigmax.CombinedRegressor(**settings).fit(X, y)
    assert [len(team.parts) for team in teams] == [2] * len(teams) and teams
    for name, history in here.history_.items():
        np.testing.assert_allclose(there.history_[name], history, rtol=1e-4, atol=1e-5)
    found, wanted = (model.predict_dist(X) for model in (there, here))
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-3)


def test_an_error_of_the_training_is_raised_as_it_is_here(session, monkeypatch):
    def refuse(network, batch, data):
        raise ZeroDivisionError("so it goes")

    phase = device_cases.replace(device_cases.PHASE, objective=refuse)
    monkeypatch.setattr(
        device_cases, "STAGE", device_cases.replace(device_cases.STAGE, phases=(phase,))
    )
    with sigmax.on_ray(), pytest.raises(ZeroDivisionError, match="so it goes"):
        device_cases.train_regressors()


def test_what_cannot_be_is_refused_in_one_sentence(session):
    wrong: list[dict[str, Any]] = [{"device": "steam"}, {"n_workers": 0}]
    for settings in wrong:
        with pytest.raises(InvalidArgumentError, match="`"), sigmax.on_ray(**settings):
            pass
    with pytest.raises(InvalidArgumentError, match="no GPU"), sigmax.on_ray(device="gpu"):
        pass


class Cluster:
    """As much of Ray as is asked for its nodes and tasks."""

    def __init__(self, *rooms, port=0):
        self.rooms, self.gcs_address = rooms, f"127.0.0.1:{port}"

    def nodes(self):
        return [
            {"NodeID": f"node {i}", "Alive": room is not None, "Resources": {"GPU": room or 0}}
            for i, room in enumerate(self.rooms)
        ]

    def wait(self, references, num_returns, timeout):
        return [], references

    def get_runtime_context(self):
        return self

    def cluster_resources(self):
        return {}


def test_parts_take_turns_on_the_nodes():
    assert worker_nodes(Cluster(2, None, 1), "gpu") == ["node 0", "node 2", "node 0"]


def test_a_cluster_that_is_gone_or_has_no_nodes_is_waited_for_a_while(monkeypatch):
    monkeypatch.setattr("sigmax.ray_session.LONGEST_WITHOUT_NODES", 0.0)
    monkeypatch.setattr("sigmax.ray_session.LONGEST_SILENCE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = Cluster(port=server.getsockname()[1])
        with pytest.raises(ClusterError, match="no node left"):
            wait_for_tasks(head, ["a task"], 1)
    with pytest.raises(ClusterError, match="does not answer"):
        wait_for_tasks(head, ["a task"], 1)


def test_without_the_extra_one_sentence_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"sigmax\[ray\]"), sigmax.on_ray():
        pass
