"""Runs in worker processes and on Ray: killed, interrupted and resumed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import psutil
import pytest
from ray_cases import once_busy

from sigmax.paper.curves import TOY, run_toy
from sigmax.runs.engines import LocalEngine, run_job
from sigmax.runs.experiments import Choice, run_tasks
from sigmax.runs.methods import stopwatch
from sigmax.runs.records import Task, read_records
from sigmax.runs.report import run_experiment

HEED_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
# A pytest that runs in the background hands down an ignored Ctrl-C.

STOP_ITSELF = """
import os, signal, sys

if __name__ == "__main__":  # and not in workers, which import this
    from sigmax.cli import app
    from sigmax.runs.records import RecordFile

    usual, n_stop, done = RecordFile.append, int(sys.argv.pop(1)), []

    def append(self, record):
        usual(self, record)
        done.append(record)
        if len(done) == n_stop:
            os.kill(os.getpid(), signal.SIGSTOP)

    RecordFile.append = append
    app()
"""
# So that a test finds a run in the middle, however fast it is.

QUICK = {"n_restarts": 1, "max_iter": 1}


def quick_choice(n):
    return Choice(methods=["gp"], n_splits=n, settings=QUICK)


def start_command(out, n_tasks, *more, n_stop=None, **options):
    """A run that stops as a process after ``n_stop`` records, if that is given."""
    program = ["-m", "sigmax"]
    if n_stop is not None:
        (out.parent / "stop_itself.py").write_text(STOP_ITSELF)
        program = [str(out.parent / "stop_itself.py"), str(n_stop)]
    command = [sys.executable, "-c", HEED_CTRL_C, *program, "reproduce", "toy"]
    command += ["--methods", "gp", *more]
    command += ["--splits", str(n_tasks), "--workers", "2", "--out", str(out), "--device", "cpu"]
    command += [f"--set={name}={value}" for name, value in QUICK.items()]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def count_lines(out):
    path = out / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_until_stopped(process):
    end, found = time.monotonic() + 600, psutil.Process(process.pid)
    while found.status() != psutil.STATUS_STOPPED and time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_killed_run_resumes_without_loss_or_repetition(tmp_path):
    n_tasks, tmp_path = 8, tmp_path / "out"
    process = start_command(tmp_path, n_tasks, n_stop=3)
    children = []
    try:
        wait_until_stopped(process)
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    gone, alive = psutil.wait_procs(children, timeout=600)
    assert len(gone) >= 2 and not alive  # the workers do not outlive their parent
    before = (tmp_path / "records.jsonl").read_bytes()
    n_before = before.count(b"\n")
    assert n_before == 3
    with open(tmp_path / "records.jsonl", "ab") as file:
        file.write(b'{"task": {"torn')  # as if it had been killed in the middle of a line
    process = start_command(tmp_path, n_tasks)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    after = (tmp_path / "records.jsonl").read_bytes()
    assert after.startswith(before[: before.rfind(b"\n") + 1])
    records = read_records(tmp_path / "records.jsonl")
    assert Counter(record.task.split for record in records) == dict.fromkeys(range(n_tasks), 1)
    assert after.count(b"\n") == n_tasks
    assert all(record.status == "done" for record in records)
    assert (tmp_path / "report.html").exists()


def test_interrupted_run_stops_cleanly(tmp_path):
    process = start_command(tmp_path / "out", 8, n_stop=2, start_new_session=True)
    wait_until_stopped(process)
    os.killpg(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGCONT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    assert "run the same command again" in output and "Traceback" not in output


def test_a_worker_that_dies_loses_only_its_job(tmp_path):
    parent, killed = psutil.Process(), []

    def kill_a_worker(progress):
        if progress.n_done == 1 and not killed:
            worker = next(c for c in parent.children() if "spawn_main" in " ".join(c.cmdline()))
            killed.append(worker.pid)
            worker.suspend()  # or it might be done before it is killed
            threading.Timer(0.05, worker.kill).start()

    choice, engine = quick_choice(5), LocalEngine(n_workers=1, device="cpu")
    result = run_experiment(TOY, choice, tmp_path, engine, observe=kill_a_worker)
    assert Counter(record.status for record in result.records) == {"done": 4, "failed": 1}
    (lost,) = result.failures
    assert "worker process died" in lost.reason
    result = run_experiment(TOY, choice, tmp_path, engine, retry_failed=True)
    assert all(record.status == "done" for record in result.records) and not result.failures


def test_an_error_is_a_failed_record_with_its_message():
    task = Task(experiment="toy", dataset="toy", method="gp", settings={"n_restarts": 0})
    (record,) = run_job(run_toy, (task,))
    assert record.status == "failed" and "`n_restarts`" in record.reason
    (record,) = run_job(run_toy, (replace(task, settings={"x": 1}),))
    assert "no setting x" in record.reason


def test_workers_and_this_process_compute_the_same_scores(tmp_path):
    (task,) = TOY.choose(quick_choice(1))
    (here,) = run_job(run_toy, (task,))
    (there,) = run_tasks(TOY, [task], tmp_path, LocalEngine(device="cpu")).values()
    assert there.scores == pytest.approx(here.scores, rel=1e-6)


def test_a_ray_cluster_gives_the_same_records_when_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray")
    killed = []

    def kill(workers):
        workers[0].kill()
        killed.append(workers[0].pid)

    with start_command(tmp_path, 3, "--engine", "ray") as process:
        once_busy(process.pid, "run_job_in", kill)
        output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert killed
    records = read_records(tmp_path / "records.jsonl")
    assert [record.status for record in records] == ["done"] * 3
    assert len({record.task.key for record in records}) == 3
    (here,) = run_job(run_toy, tuple(TOY.choose(quick_choice(1))))
    (there,) = (record for record in records if record.task.split == 0)
    assert there.scores == pytest.approx(here.scores, rel=1e-6)


@pytest.mark.long
def test_a_job_that_kills_every_worker_is_recorded_as_failed(tmp_path):
    pytest.importorskip("ray")
    killed = set()

    def kill(workers):
        for worker in workers:
            worker.kill()
            killed.add(worker.pid)
        once_busy(process.pid, "run_job_in", kill)  # and the next one

    with start_command(tmp_path, 1, "--engine", "ray") as process:
        once_busy(process.pid, "run_job_in", kill)
        output, _ = process.communicate(timeout=600)
    (record,) = read_records(tmp_path / "records.jsonl")
    assert record.status == "failed" and "died, 4 times" in record.reason, output
    assert len(killed) == 4 and "Traceback" not in output


def test_the_stopwatch_separates_compilation():
    import jax
    import jax.numpy as jnp

    begin = time.perf_counter()
    with stopwatch() as watch:
        jax.jit(lambda x: jnp.sin(x) * 17.25 + jnp.cos(x))(jnp.ones(7)).block_until_ready()
        time.sleep(0.2)
    whole = time.perf_counter() - begin
    assert watch.compile > 0
    assert 0.15 < watch.run <= whole - watch.compile
    before = watch.compile
    jax.jit(lambda x: jnp.sin(x) * 18.25)(jnp.ones(7)).block_until_ready()
    assert watch.compile == before  # the listener is gone
