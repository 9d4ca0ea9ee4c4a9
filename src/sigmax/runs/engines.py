"""Engines: run jobs in worker processes on this machine or on a Ray cluster.

A job is a tuple of tasks that one call runs together. If a worker dies, only its job is affected:
on this machine it is recorded as failed, on Ray it is repeated.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, final

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
from sigmax.runs.records import Job, Record, Task, failed
from sigmax.settings import check_choice

RunFunction = Callable[[Sequence[Task]], list[Record]]
Results = Iterator[tuple[Job, list[Record]]]
"""Finished jobs with their records, in order of completion."""


def run_job(run: RunFunction, job: Job) -> list[Record]:
    """Records of a job; an error gives a failed record for each of its tasks."""
    try:
        return run(job)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)})"
        return [failed(task, reason) for task in job]


@dataclass(frozen=True, kw_only=True)
class AbstractEngine:
    """Engine with ``n_workers`` workers, each on a device: ``auto``, ``cpu`` or ``gpu``."""

    n_workers: int = 1
    device: str = "auto"

    @abstractmethod
    def run(self, run: RunFunction, jobs: Sequence[Job]) -> Results:
        """Run every job with a function that workers can import."""


@final
@dataclass(frozen=True, kw_only=True)
class LocalEngine(AbstractEngine):
    """Worker processes, each with an equal share of the cores."""

    def run(self, run: RunFunction, jobs: Sequence[Job]) -> Results:
        waiting = list(reversed(jobs))
        workers = [Worker(i, self) for i in range(min(self.n_workers, len(jobs)))]
        try:
            for worker in workers:
                worker.start_job(run, waiting.pop())
            while busy := [worker for worker in workers if worker.job is not None]:
                ready = wait([handle for worker in busy for handle in worker.handles])
                for worker in busy:
                    if not any(handle in ready for handle in worker.handles):
                        continue
                    yield worker.finish_job()
                    if waiting:
                        worker.start_job(run, waiting.pop())
        finally:
            for worker in workers:
                worker.stop()


@final
class Worker:
    """Process that runs one job at a time and is replaced when it dies."""

    def __init__(self, number: int, engine: LocalEngine):
        self.number, self.engine = number, engine
        self.job: Job | None = None
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, self.number, self.engine.n_workers, DEVICES[self.engine.device])
        self.process = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    @property
    def handles(self) -> tuple[Any, Any]:
        """Handles that become ready when records arrive or the process has died."""
        return self.connection, self.process.sentinel

    def start_job(self, run: RunFunction, job: Job) -> None:
        if not self.process.is_alive():
            self.start()
        self.job = job
        with contextlib.suppress(OSError):  # the process has just died: see `finish_job`
            self.connection.send((run, job))

    def finish_job(self) -> tuple[Job, list[Record]]:
        """The job with its records, or with failed ones if the process has died."""
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
    """Main function of a worker process, which ends with its parent."""

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=end_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity") and n_workers > 1:
        cores = sorted(os.sched_getaffinity(0))
        share = cores[number % len(cores) :: n_workers] if n_workers < len(cores) else None
        os.sched_setaffinity(0, share or [cores[number % len(cores)]])
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if platform is not None:
        import jax

        jax.config.update("jax_platforms", platform)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            connection.send(run_job(*connection.recv()))


def run_job_in(folder: str, run: RunFunction, job: Job) -> list[Record]:
    """Records of a job with paths relative to ``folder``, if the machine has that folder."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
    return run_job(run, job)


@final
@dataclass(frozen=True, kw_only=True)
class RayEngine(AbstractEngine):
    """Ray cluster at ``address``, or by default a temporary one on this machine.

    A job whose worker or node has died is repeated up to three times.
    """

    address: str | None = None

    def run(self, run: RunFunction, jobs: Sequence[Job]) -> Results:
        with ray_session(self.address, self.n_workers) as ray:
            worker_nodes(ray, self.device)  # raises an error if the device is missing
            remote = ray.remote(**task_options(self.device))(run_job_in)
            pending = {remote.remote(os.getcwd(), run, job): job for job in jobs}
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


def create_engine(
    name: str, *, address: str | None = None, n_workers: int = 1, device: str = "auto"
) -> AbstractEngine:
    """Create the engine ``local`` or ``ray``; ``address`` is that of a Ray cluster."""
    check_choice("device", device, DEVICES)
    if check_choice("engine", name, ("local", "ray")) == "ray":
        return RayEngine(address=address, n_workers=n_workers, device=device)
    if address is not None:
        raise InvalidArgumentError(
            "`--address` is the address of a Ray cluster: add `--engine ray`."
        )
    return LocalEngine(n_workers=n_workers, device=device)
