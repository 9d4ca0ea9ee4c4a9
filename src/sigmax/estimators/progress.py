"""A progress bar around a training run, for those who ask for one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sigmax.training import AbstractStage, Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    stages: Sequence[AbstractStage], *, visible: bool
) -> Iterator[Callable[[Progress], None] | None]:
    """What `train_stage` should report to: a bar on the terminal, or nothing.

    Stages that stop early count as done when the next one starts.
    """
    if not visible:
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    ends = np.cumsum([stage.n_chunks for stage in stages]).tolist()
    before = {stage.name: end - stage.n_chunks for stage, end in zip(stages, ends, strict=True)}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.fields[score]}")) as bar:
        task = bar.add_task("training", total=ends[-1], score="")

        def report(progress: Progress) -> None:
            name, score = progress.stage.name, progress.stage.describe(progress.figures)
            done = before[name] + progress.chunk
            bar.update(task, completed=done, description=name, score=score)

        yield report
        bar.update(task, completed=ends[-1])
