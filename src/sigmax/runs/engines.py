"""Engines: jobs in, records out, on worker processes of this machine or on a Ray cluster.

A job is some tasks that one call does together. A worker that dies costs its job, and nothing else:
on this machine the job is recorded as failed, on Ray it is repeated.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, final

from sigmax.checks import check_choice
from sigmax.errors import InvalidArgumentError
from sigmax.ray_session import (
    DEVICES,
    N_RETRIES,
    first_line,
    ray_session,
    task_options,
    wait_for_tasks,
    worker_nodes,
)
from sigmax.runs.records import Job, Record, failed
from sigmax.runs.registry import find_experiment

__all__ = [
    "AbstractEngine",
    "InProcessEngine",
    "LocalEngine",
    "RayEngine",
    "check_engine",
    "create_engine",
    "run_job",
]


def run_job(job: Job) -> list[Record]:
    """The records of a job; an error makes failures of all its tasks."""
    try:
        return find_experiment(job[0].experiment).run(job)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)})"
        return [failed(task, reason) for task in job]


@dataclass(frozen=True, kw_only=True)
class AbstractEngine:
    """Something that runs jobs."""

    n_workers: int = 1
    device: str = "auto"
    """``auto``, ``cpu`` or ``gpu``."""

    @property
    def kind(self) -> str:
        """The kind of device that jobs are made for."""
        return "gpu" if self.device == "gpu" else "cpu"

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Record]]]:
        """Every job with its records, in the order in which they come back."""


@final
@dataclass(frozen=True, kw_only=True)
class InProcessEngine(AbstractEngine):
    """One job after another in this process, for debuggers and tests."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Record]]]:
        for job in jobs:
            yield job, run_job(job)


@final
@dataclass(frozen=True, kw_only=True)
class LocalEngine(AbstractEngine):
    """Worker processes, each with its share of the cores."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Record]]]:
        waiting = list(reversed(jobs))
        workers = [Worker(i, self) for i in range(min(self.n_workers, len(jobs)))]
        try:
            for worker in workers:
                worker.give(waiting.pop())
            while busy := [worker for worker in workers if worker.job is not None]:
                ready = wait([end for worker in busy for end in worker.ends])
                for worker in busy:
                    if not any(end in ready for end in worker.ends):
                        continue
                    yield worker.take()
                    if waiting:
                        worker.give(waiting.pop())
        finally:
            for worker in workers:
                worker.stop()


@final
class Worker:
    """One process that is given a job at a time, and is replaced when it dies."""

    def __init__(self, number: int, engine: LocalEngine):
        self.number, self.engine = number, engine
        self.job: Job | None = None
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        place = (self.number, self.engine.n_workers, DEVICES[self.engine.device])
        self.process = context.Process(target=work, args=(theirs, *place), daemon=True)
        self.process.start()
        theirs.close()

    @property
    def ends(self) -> tuple[Any, Any]:
        """What becomes ready when there are records, or when the process has died."""
        return self.connection, self.process.sentinel

    def give(self, job: Job) -> None:
        if not self.process.is_alive():
            self.start()
        self.job = job
        with contextlib.suppress(OSError):  # a process that died just now: `take` records it
            self.connection.send(job)

    def take(self) -> tuple[Job, list[Record]]:
        """The finished job with its records, or with failures if the process died over it."""
        job, self.job = self.job, None
        assert job is not None
        try:
            return job, self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            reason = f"the worker process died (exit code {self.process.exitcode})"
            return job, [failed(task, reason) for task in job]

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()


def work(connection: Connection, number: int, n_workers: int, platform: str | None) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=end_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity") and n_workers > 1:
        cores = sorted(os.sched_getaffinity(0))
        share = cores[number % len(cores) :: n_workers] if n_workers < len(cores) else None
        os.sched_setaffinity(0, share or [cores[number % len(cores)]])
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if platform is not None:
        import jax

        jax.config.update("jax_platforms", platform)
    while True:
        try:
            connection.send(run_job(connection.recv()))
        except (EOFError, BrokenPipeError):
            return


def end_with_parent() -> None:
    """End this process when its parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_job_in(folder: str, job: Job) -> list[Record]:
    """The records of a job whose paths are seen from ``folder``, if the machine has it."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
    return run_job(job)


@final
@dataclass(frozen=True, kw_only=True)
class RayEngine(AbstractEngine):
    """A Ray cluster: the one at ``address``, or one on this machine for the time of the run.

    A job whose worker or node has died is repeated, and recorded as failed if that goes on.
    """

    address: str | None = None

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Record]]]:
        with ray_session(self.address, self.n_workers) as ray:
            worker_nodes(ray, self.device)  # what is wrong with the device is told now
            remote = ray.remote(**task_options(self.device))(run_job_in)
            pending = {remote.remote(os.getcwd(), job): job for job in jobs}
            while pending:
                (reference,), _ = wait_for_tasks(ray, list(pending), 1)
                job = pending.pop(reference)
                try:
                    yield job, ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = f"{type(error).__name__}: {first_line(error)}"
                    died = ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError
                    if isinstance(error, died):
                        reason = f"the worker process died, {N_RETRIES + 1} times ({reason})"
                    yield job, [failed(task, reason) for task in job]


def check_engine(name: str, address: str | None) -> bool:
    """Whether the engine of this name is Ray; only that one has an address."""
    is_ray = check_choice("engine", name, ("local", "ray")) == "ray"
    if address is not None and not is_ray:
        raise InvalidArgumentError("`--address` is that of a Ray cluster: it needs `--engine ray`.")
    return is_ray


def create_engine(
    name: str, *, address: str | None = None, n_workers: int = 1, device: str = "auto"
) -> AbstractEngine:
    """An engine by its name, ``local`` or ``ray``; ``address`` is that of a Ray cluster."""
    check_choice("device", device, DEVICES)
    if check_engine(name, address):
        return RayEngine(address=address, n_workers=n_workers, device=device)
    return LocalEngine(n_workers=n_workers, device=device)
