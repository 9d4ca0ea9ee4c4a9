"""A progress bar around a training run, for those who ask for one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sigmax.training import Progress, Stage

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    stages: Sequence[Stage], *, visible: bool
) -> Iterator[Callable[[Progress], None] | None]:
    """What `train_stage` should report to: a bar on the terminal, or nothing.

    Stages that stop early count as done when the next one starts.
    """
    if not visible:
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    ends = np.cumsum([stage.n_chunks for stage in stages])
    before = {
        stage.name: int(end) - stage.n_chunks for stage, end in zip(stages, ends, strict=True)
    }
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.fields[score]}")) as bar:
        total = sum(stage.n_chunks for stage in stages)
        task = bar.add_task("training", total=total, score="")

        def report(progress: Progress) -> None:
            score = (
                ""
                if np.isnan(progress.scores).all()
                else (f"held-out score {np.nanmean(progress.scores):.3f}")
            )
            done = before[progress.stage] + progress.chunk
            bar.update(task, completed=done, description=progress.stage, score=score)

        yield report
        bar.update(task, completed=total)
