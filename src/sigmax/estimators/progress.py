"""A progress bar around a training run, for those who ask for one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sigmax.training import Progress, Stage

__all__ = ["progress_bar", "training_bar"]


@contextmanager
def training_bar(total: int, *, visible: bool) -> Iterator[Callable[[int, str, str], None] | None]:
    """What shows how many of ``total`` are done, of what, and a score; None if nobody looks."""
    if not visible:
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, TextColumn("{task.fields[score]}")) as bar:
        task = bar.add_task("training", total=total, score="")

        def show(done: int, description: str, score: str) -> None:
            bar.update(task, completed=done, description=description, score=score)

        yield show
        bar.update(task, completed=total)


@contextmanager
def progress_bar(
    stages: Sequence[Stage], *, visible: bool
) -> Iterator[Callable[[Progress], None] | None]:
    """What `train_stage` should report to: a bar on the terminal, or nothing.

    Stages that stop early count as done when the next one starts.
    """
    ends = np.cumsum([stage.n_chunks for stage in stages])
    before = {
        stage.name: int(end) - stage.n_chunks for stage, end in zip(stages, ends, strict=True)
    }
    with training_bar(int(ends[-1]), visible=visible) as show:

        def report(progress: Progress) -> None:
            assert show is not None
            is_scored = not np.isnan(progress.scores).all()
            score = f"held-out score {np.nanmean(progress.scores):.3f}" if is_scored else ""
            show(before[progress.stage] + progress.chunk, progress.stage, score)

        yield report if show else None
