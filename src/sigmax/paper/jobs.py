"""Jobs: which tasks are done in one call."""

from collections.abc import Mapping, Sequence

from sigmax.paper.engines import Job
from sigmax.paper.methods import METHODS, Method
from sigmax.paper.records import Task

__all__ = ["ROWS_TOGETHER", "group_alike", "singly"]

ROWS_TOGETHER = {"cpu": 20_000, "gpu": 400_000}
"""Training rows of all tasks of a job, at most: few enough to be held, and to be lost."""


def group_alike(
    tasks: Sequence[Task],
    n_rows: dict[str, int],
    device: str,
    methods: Mapping[str, Method] = METHODS,
) -> list[Job]:
    """Tasks that differ in split and seed only, as many in a job as their rows allow.

    ``n_rows`` are those of a data set's training; what is no network goes alone.
    """
    alike: dict[str, list[Task]] = {}
    for task in tasks:
        kind = f"{task.dataset} {task.method} {sorted(task.settings.items())}"
        alike.setdefault(kind, []).append(task)
    jobs = []
    for group in alike.values():
        n_together = max(1, ROWS_TOGETHER[device] // n_rows[group[0].dataset])
        if not methods[group[0].method].is_network:
            n_together = 1
        jobs += [tuple(group[i : i + n_together]) for i in range(0, len(group), n_together)]
    return jobs


def singly(tasks: Sequence[Task]) -> list[Job]:
    """Every task a job of its own, as timings need it."""
    return [(task,) for task in tasks]
