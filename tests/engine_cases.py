"""An engine without processes."""

from collections.abc import Sequence
from dataclasses import dataclass

from sigmax.runs import engines
from sigmax.runs.engines import AbstractEngine, Results, RunFunction
from sigmax.runs.records import Job


@dataclass(frozen=True, kw_only=True)
class InProcessEngine(AbstractEngine):
    """One job after another in this process."""

    def run(self, run: RunFunction, jobs: Sequence[Job]) -> Results:
        for job in jobs:
            yield job, engines.run_job(run, job)
